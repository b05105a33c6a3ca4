package peers_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/peers"
)

// BenchmarkPass is a request to a process that passes it on, and to its owner.
func BenchmarkPass(b *testing.B) {
	var d database
	owner := d.begin(b, 2, func(w http.ResponseWriter, r *http.Request, _ peers.Passenger) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	}, nil)
	f := d.sender(b).front(b, owner.peer, peers.Passenger{Remote: "192.0.2.1:17"})
	for b.Loop() {
		resp, err := f.client.Post(f.url+"/mcp", "application/json", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		<-f.outcomes
	}
}
