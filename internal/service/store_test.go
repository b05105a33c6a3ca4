package service

import (
	"io"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/exit"
)

// A size bounds a file alone: what a database server takes is another's.
func TestSizeOfAStore(t *testing.T) {
	for url, refused := range map[string]bool{"": false, "memory": false, "sqlite:runs.db": false, "sqlite:runs/": false, "postgres://db/runs": true, "postgresql://db/runs": true} {
		f := Store{URL: url, MaxSize: 1 << 30}
		if err := f.check(); (err != nil) != refused || refused && !strings.Contains(err.Error(), "--max-stored-runs") {
			t.Errorf("%s: %v", url, err)
		}
		f.MaxSize = 0
		if err := f.check(); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// An address at which nobody can find this process is refused at the start.
func TestAdvertise(t *testing.T) {
	for address, refused := range map[string]bool{
		"": false, "10.0.0.7:9902": false, "gateway-0:9902": false, "[fd00::7]:9902": false,
		":9902": true, "0.0.0.0:9902": true, "[::]:9902": true, "[::ffff:0.0.0.0]:9902": true, "gateway-0:0": true, "gateway-0:": true, "gateway-0:70000": true, "gateway-0": true,
	} {
		f := Store{URL: "postgres://db/runs", PeerListen: "127.0.0.1:9902", Advertise: address}
		err := f.check()
		if (err != nil) != refused || refused && (!strings.Contains(err.Error(), "--advertise") || exit.Report(io.Discard, err) != exit.Usage) {
			t.Errorf("%q: %v", address, err)
		}
	}
}
