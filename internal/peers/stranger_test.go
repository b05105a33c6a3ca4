package peers_test

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
	"github.com/fsm-proxy/fsm-proxy/internal/peers"
)

// Who has no certificate, or one that no lease names, is not heard.
func TestStrangers(t *testing.T) {
	t.Parallel()
	var d database
	owner := d.begin(t, 2, func(http.ResponseWriter, *http.Request, peers.Passenger) { t.Error("a stranger was answered") }, nil)
	for name, cfg := range map[string]*tls.Config{
		"no certificate":      {InsecureSkipVerify: true},
		"another certificate": newKey(t).To(owner.peer.Key),
		"the owner's own":     owner.key.To(owner.peer.Key),
	} {
		c, in := dial(t, owner.peer.Address, cfg)
		_, _ = fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: x\r\nFsm-Proxy-Lease: 2\r\nContent-Length: 0\r\n\r\n")
		if resp, err := http.ReadResponse(in, nil); err == nil {
			t.Errorf("%s: %s", name, resp.Status)
		}
	}
	if _, err := tls.Dial("tcp", owner.peer.Address, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}); err == nil {
		t.Error("TLS 1.2 is spoken")
	}
}

// A request that was passed on is for one lease, whoever sends it again.
func TestReplayed(t *testing.T) {
	t.Parallel()
	var d database
	taken := make(chan string, 10)
	owner := d.begin(t, 2, func(_ http.ResponseWriter, r *http.Request, _ peers.Passenger) { taken <- r.URL.Path }, nil)
	sender := d.sender(t)
	c, in := dial(t, owner.peer.Address, sender.key.To(owner.peer.Key))
	for _, one := range []struct {
		header string
		status int
	}{
		{"Fsm-Proxy-Lease: 2\r\n", 200},
		{"Fsm-Proxy-Lease: 1\r\n", 421},
		{"Fsm-Proxy-Lease: 3\r\n", 421},
		{"Fsm-Proxy-Lease: 0\r\n", 421},
		{"Fsm-Proxy-Lease: two\r\n", 421},
		{"Fsm-Proxy-Lease: 2\r\nFsm-Proxy-Lease: 2\r\n", 421},
		{"", 421},
	} {
		body := "\x00\x00\x00\x02{}and what is asked"
		fmt.Fprintf(c, "POST /mcp HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n%s", one.header, len(body), body)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Write(discard{})
		if resp.StatusCode != one.status {
			t.Errorf("%q: %s", one.header, resp.Status)
		}
	}
	if len(taken) != 1 {
		t.Errorf("%d requests were taken, want 1", len(taken))
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// What cannot be read as what a process sends is no request.
func TestAltered(t *testing.T) {
	t.Parallel()
	var d database
	owner := d.begin(t, 2, func(http.ResponseWriter, *http.Request, peers.Passenger) { t.Error("it was taken") }, nil)
	sender := d.sender(t)
	for _, body := range []string{
		"", "\x00\x00", "\xff\xff\xff\xff{}", "\x00\x00\x00\x09{}", "\x00\x00\x00\x02[]", "\x00\x00\x00\x02{{",
		"\x00\x00\x00\x0a{\"who\":[]}", "\x00\x00\x00\x0b{\"who\":\"a\"}", "\x00\x00\x00\x17{\"who\":{\"subject\":\"?\"}}",
	} {
		c, in := dial(t, owner.peer.Address, sender.key.To(owner.peer.Key))
		fmt.Fprintf(c, "POST /mcp HTTP/1.1\r\nHost: x\r\nFsm-Proxy-Lease: 2\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%q: %s", body, resp.Status)
		}
		resp.Body.Close()
		c.Close()
	}
}

// Who was known is not heard for long once its lease has ended, over connections of before neither.
func TestForgotten(t *testing.T) {
	t.Parallel()
	var d database
	owner := d.begin(t, 2, func(http.ResponseWriter, *http.Request, peers.Passenger) {}, nil)
	sender := d.sender(t)
	f := sender.front(t, owner.peer, peers.Passenger{})
	f.post(t, "{}", peers.Answered)
	d.end(1)
	mcptest.Await(t, "the end of a sender", func() bool {
		resp, err := f.client.Get(f.url)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return f.outcome(t) == peers.NotSent
	})
}

// However many strangers come, the database is asked a few times a second, and who comes new among them is known.
func TestFlood(t *testing.T) {
	t.Parallel()
	var d database
	asked := make(chan struct{}, 1)
	owner := d.begin(t, 2, func(http.ResponseWriter, *http.Request, peers.Passenger) { asked <- struct{}{} }, func(cfg *peers.Config) { cfg.Every = time.Hour })
	began := time.Now()
	var flood sync.WaitGroup
	stranger := newKey(t).To(owner.peer.Key)
	for range 32 {
		flood.Go(func() {
			for range 5 {
				if c, err := tls.Dial("tcp", owner.peer.Address, stranger); err == nil {
					_, err = c.Read(make([]byte, 1))
					if err == nil {
						t.Error("a stranger has got an answer")
					}
					c.Close()
				}
			}
		})
	}
	var late database // who comes new sees itself, and the owner
	sender := late.begin(t, 1, nil, nil)
	late.change(func() { late.leases = append(late.leases, owner.peer) })
	d.change(func() { d.leases = append(d.leases, sender.peer) })
	sender.front(t, owner.peer, peers.Passenger{}).post(t, "{}", peers.Answered)
	receive(t, asked, "the request at its owner")
	flood.Wait()
	if n, most := d.lookedUp(), 2+int(time.Since(began)/peers.LookEach); n > most {
		t.Errorf("the database was asked %d times in %v, want at most %d", n, time.Since(began), most)
	}
}
