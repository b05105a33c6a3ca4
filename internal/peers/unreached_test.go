package peers_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
	"github.com/fsm-proxy/fsm-proxy/internal/peers"
)

// logged is the lines of a log.
type logged chan string

func (l logged) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// Where a process stays unreached a warning names it, and where it was looked for: once, however much is asked for, and not
// at once, since one that was killed has its lease for a while. Of one that was reached in between nothing is said.
func TestUnreached(t *testing.T) {
	t.Parallel()
	var d database
	answer := func(http.ResponseWriter, *http.Request, peers.Passenger) {}
	owner, other := d.begin(t, 2, answer, nil), d.begin(t, 3, answer, nil)
	lines := make(logged, 100)
	sender := d.begin(t, 1, answer, func(cfg *peers.Config) { cfg.Log = hclog.New(&hclog.LoggerOptions{Output: lines}) })
	front := func(address string) *front {
		return sender.front(t, journal.Peer{Lease: owner.peer.Lease, Holder: "process 7 on gateway-0", Address: address, Key: owner.peer.Key}, peers.Passenger{})
	}
	known := front(owner.peer.Address)
	await := func(want peers.Outcome) {
		t.Helper()
		mcptest.Await(t, want.String(), func() bool {
			resp, err := known.client.Get(known.url)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			return known.outcome(t) == want
		})
	}
	d.end(1) // so that the owner does not let the sender in
	await(peers.NotSent)
	d.change(func() { d.leases = append(d.leases, sender.peer) })
	await(peers.Answered)

	for name, address := range map[string]string{"nobody listens there": mcptest.FreeAddress(t), "another process listens there": other.peer.Address} {
		f, began := front(address), time.Now()
		f.post(t, "{}", peers.NotSent)
		mcptest.Await(t, "a warning: "+name, func() bool {
			f.post(t, "{}", peers.NotSent)
			return len(lines) != 0
		})
		if took := time.Since(began); took < peers.UnreachedFor {
			t.Errorf("%s: it is said after %v", name, took)
		}
		line := <-lines
		for _, part := range []string{"[WARN]", "process 7 on gateway-0", "address=" + address + " ", "error=", "--advertise"} {
			if !strings.Contains(line, part) {
				t.Errorf("%s: the warning has no %s: %s", name, part, line)
			}
		}
		for range 3 {
			f.post(t, "{}", peers.NotSent)
		}
	}

	owner.Close(t.Context())
	for range 3 {
		known.post(t, "{}", peers.NotSent)
	}
	if len(lines) != 0 {
		t.Errorf("it is said, too: %s", <-lines)
	}
}
