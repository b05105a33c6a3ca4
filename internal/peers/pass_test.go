package peers_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/asker"
	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
	"github.com/fsm-proxy/fsm-proxy/internal/peers"
)

// A request comes as the client has sent it, but for what is for one connection and what says who asks, and its answer
// as the owner has written it.
func TestWhole(t *testing.T) {
	t.Parallel()
	type took struct {
		r    *http.Request
		who  peers.Passenger
		body string
	}
	var d database
	requests := make(chan took, 1)
	owner := d.begin(t, 2, func(w http.ResponseWriter, r *http.Request, who peers.Passenger) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		requests <- took{r, who, string(body)}
		h := w.Header()
		h["X-Many"] = []string{"a", "b"}
		h.Set("Connection", "X-Hop")
		h.Set("X-Hop", "1")
		h.Set("Fsm-Proxy-Lease", "1")
		h.Set("Content-Length", fmt.Sprint(len(body)))
		w.WriteHeader(http.StatusMultiStatus)
		_, _ = w.Write(body)
	}, nil)
	who := peers.Passenger{
		Who: &asker.Who{
			Subject: "ann\xff", Issuer: "https://issuer.example", Scopes: []string{"a", "b\xfe"},
			Claims: []byte(`{"long":"` + strings.Repeat("c", 64<<10) + `"}`),
		},
		Remote: "192.0.2.1:17", Run: "run\xff", Door: "admin", Waits: 1500 * time.Millisecond,
	}
	f := d.sender(t).front(t, owner.peer, who)
	var known *asker.Who
	for _, size := range []int{0, 10, 16 << 20} {
		body := strings.Repeat("x", size)
		ask, err := http.NewRequest("PATCH", f.url+"/mcp//a%2Fb/?q=1&q=%20", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{
			"Mcp-Session-Id": "s1", "Cookie": "c=1", "Authorization": "Bearer secret", "Proxy-Authorization": "Basic secret", "Te": "trailers",
			"Connection": "keep-alive, x-private", "X-Private": "1", "Keep-Alive": "timeout=5", "Expect": "100-continue",
			"Fsm-Proxy-Lease": "7", "Fsm-Proxy-Greeting": "1", "Fsm-Proxy-Who": `{"subject":"root"}`,
		} {
			ask.Header.Set(name, value)
		}
		ask.Header["fSM-proxy-Other"] = []string{"1"}
		ask.Host = "mcp.example:8080"
		resp, err := f.client.Do(ask)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || string(answer) != body || resp.StatusCode != http.StatusMultiStatus {
			t.Errorf("the answer is %s, %d bytes, %v", resp.Status, len(answer), err)
		}
		if h := resp.Header; fmt.Sprint(h["X-Many"]) != "[a b]" || h["X-Hop"] != nil || h["Fsm-Proxy-Lease"] != nil || resp.ContentLength != int64(size) {
			t.Errorf("the answer has the header %v", h)
		}
		if got := f.outcome(t); got != peers.Answered {
			t.Errorf("the request was %v", got)
		}
		got := receive(t, requests, "the request at its owner")
		r := got.r
		if r.Method != "PATCH" || r.RequestURI != "/mcp//a%2Fb/?q=1&q=%20" || r.Host != "mcp.example:8080" || r.RemoteAddr != who.Remote || r.TLS != nil || got.body != body {
			t.Errorf("the owner has got %s %s %s from %s, %d bytes", r.Method, r.Host, r.RequestURI, r.RemoteAddr, len(got.body))
		}
		if r.ContentLength != int64(size) || size > 0 && r.Header.Get("Content-Length") != fmt.Sprint(size) {
			t.Errorf("the owner has got a length of %d, %v", r.ContentLength, r.Header)
		}
		r.Header.Del("Content-Length")
		if h := fmt.Sprint(r.Header); h != "map[Cookie:[c=1] Mcp-Session-Id:[s1] User-Agent:[Go-http-client/1.1]]" {
			t.Errorf("the owner has got the header %v", h)
		}
		if !got.who.Who.Equal(who.Who) || got.who.Run != who.Run || got.who.Door != who.Door || got.who.Waits != who.Waits {
			t.Errorf("the owner has got %v", got.who)
		}
		if known != nil && known != got.who.Who {
			t.Error("who asks is not remembered")
		}
		known = got.who.Who
	}
}

// What a client says that is of no use, or too much of it, costs nobody anything: a Host besides the request's own, none at all,
// and a Connection of thousands of names.
func TestOddHeaders(t *testing.T) {
	t.Parallel()
	var d database
	requests := make(chan *http.Request, 1)
	owner := d.begin(t, 2, func(_ http.ResponseWriter, r *http.Request, _ peers.Passenger) { requests <- r }, nil)
	sender := d.sender(t)
	for name, change := range map[string]func(*http.Request){
		"a second host": func(r *http.Request) { r.Header["Host"] = []string{"other.example"} },
		"no host":       func(r *http.Request) { r.Host = "" },
		"many names":    func(r *http.Request) { r.Header["Connection"] = []string{strings.Repeat("a,", 14_000) + "x-private"} },
	} {
		r := httptest.NewRequest(http.MethodPost, "http://mcp.example/mcp", http.NoBody)
		r.Header.Set("X-Private", "1")
		change(r)
		began := time.Now()
		w := httptest.NewRecorder()
		if got := sender.Pass(w, r, owner.peer, nil, peers.Passenger{}); got != peers.Answered || w.Code != http.StatusOK {
			t.Errorf("%s: %v %d", name, got, w.Code)
		}
		got := receive(t, requests, "the request at its owner")
		if strings.Contains(got.Host, "other") || got.Header["Host"] != nil || (got.Header["X-Private"] == nil) != (name == "many names") {
			t.Errorf("%s: the owner has got %s %v", name, got.Host, got.Header)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("%s: it took %v", name, took)
		}
	}
}

// Each answer has its length, one like the answer before, too.
func TestLengthOfAnswers(t *testing.T) {
	t.Parallel()
	var d database
	owner := d.begin(t, 2, func(w http.ResponseWriter, r *http.Request, _ peers.Passenger) {
		w.Header().Set("Content-Length", "5000")
		_, _ = io.WriteString(w, strings.Repeat("x", 5000))
	}, nil)
	f := d.sender(t).front(t, owner.peer, peers.Passenger{})
	for i := range 3 {
		resp, err := f.client.Get(f.url)
		if err != nil {
			t.Fatal(err)
		}
		if n, _ := io.Copy(io.Discard, resp.Body); n != 5000 || resp.ContentLength != n {
			t.Errorf("answer %d: %d bytes, and a length of %d", i, n, resp.ContentLength)
		}
		resp.Body.Close()
	}
}

// Nobody who is known stays nobody, whatever a client says.
func TestNobody(t *testing.T) {
	t.Parallel()
	var d database
	asks := make(chan *asker.Who, 1)
	owner := d.begin(t, 2, func(_ http.ResponseWriter, _ *http.Request, who peers.Passenger) { asks <- who.Who }, nil)
	f := d.sender(t).front(t, owner.peer, peers.Passenger{})
	resp, err := f.client.Get(f.url)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if who := receive(t, asks, "the request"); who != nil {
		t.Errorf("%v asks", who)
	}
}

// An event goes to the client before the next one is there.
func TestStream(t *testing.T) {
	t.Parallel()
	var d database
	events := make(chan string)
	owner := d.begin(t, 2, func(w http.ResponseWriter, r *http.Request, _ peers.Passenger) {
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		for event := range events {
			fmt.Fprintf(w, "data: %s\n", event)
			_ = http.NewResponseController(w).Flush()
		}
	}, nil)
	f := d.sender(t).front(t, owner.peer, peers.Passenger{})
	resp, err := f.client.Get(f.url) // its header comes before any event
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for _, event := range []string{"one", "two", "three"} {
		events <- event
		if !lines.Scan() || lines.Text() != "data: "+event {
			t.Fatalf("got %q, %v", lines.Text(), lines.Err())
		}
	}
	close(events)
	if lines.Scan() || lines.Err() != nil {
		t.Errorf("behind the end came %q, %v", lines.Text(), lines.Err())
	}
}

// A client that goes away is gone for the owner, before an answer and in one.
func TestCancel(t *testing.T) {
	t.Parallel()
	for want, begun := range map[peers.Outcome]bool{peers.Cancelled: false, peers.Answered: true} {
		t.Run(want.String(), func(t *testing.T) {
			t.Parallel()
			var d database
			asked, gone := make(chan struct{}), make(chan struct{})
			owner := d.begin(t, 2, func(w http.ResponseWriter, r *http.Request, _ peers.Passenger) {
				if begun {
					_ = http.NewResponseController(w).Flush()
				}
				hang(r, asked)
				close(gone)
			}, nil)
			f := d.sender(t).front(t, owner.peer, peers.Passenger{})
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			ask, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			answered, came := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(answered)
				resp, err := f.client.Do(ask)
				if err == nil {
					close(came)
					_, err = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				if !errors.Is(err, context.Canceled) {
					t.Errorf("the client has got %v", err)
				}
			}()
			receive(t, asked, "the request at its owner")
			if begun {
				receive(t, came, "the begin of the answer")
			}
			cancel()
			receive(t, gone, "the owner to hear that the client has gone")
			if got := f.outcome(t); got != want {
				t.Errorf("the request was %v, want %v", got, want)
			}
			<-answered
		})
	}
}

// What was surely not acted on is told from what may have been.
func TestNotSent(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 4<<20)
	for name, c := range map[string]struct {
		change func(*peers.Config)
		peer   func(t *testing.T, d *database, p *journal.Peer)
		taken  bool // by the handler
		slow   bool // it takes a timeout to find out
	}{
		"no address":  {peer: func(_ *testing.T, _ *database, p *journal.Peer) { p.Address = "" }},
		"another key": {peer: func(t *testing.T, _ *database, p *journal.Peer) { p.Key = newKey(t).Hash() }},
		"another lease": {peer: func(_ *testing.T, d *database, p *journal.Peer) {
			p.Lease++
			d.change(func() { d.leases = append(d.leases, *p) })
		}},
		"a lease that is not trusted": {
			change: func(cfg *peers.Config) { cfg.Trusts = func(int64) bool { return false } },
		},
		"a closed port": {peer: func(t *testing.T, _ *database, p *journal.Peer) {
			l := listen(t)
			l.Close()
			p.Address = l.Addr().String()
		}},
		"a listener that accepts nothing": {peer: func(t *testing.T, _ *database, p *journal.Peer) { p.Address = listen(t).Addr().String() }, slow: true},
		"a lease that ends meanwhile": {peer: func(t *testing.T, d *database, p *journal.Peer) {
			l := listen(t)
			p.Address = l.Addr().String()
			go func() {
				if c, err := l.Accept(); err == nil {
					_, _ = io.ReadFull(c, make([]byte, 1))
					d.end(p.Lease)
					_, _ = io.Copy(io.Discard, c)
					c.Close()
				}
			}()
		}},
		"a sender whose lease has ended": {peer: func(_ *testing.T, d *database, _ *journal.Peer) { d.end(1) }},
		"a run that is not here":         {taken: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var d database
			owner := d.begin(t, 2, func(w http.ResponseWriter, r *http.Request, _ peers.Passenger) {
				if !c.taken {
					t.Error("the request was taken")
				}
				peers.NotHere(w, r)
			}, c.change)
			sender := d.sender(t)
			to := owner.peer
			if c.peer != nil {
				c.peer(t, &d, &to)
			}
			f := sender.front(t, to, peers.Passenger{})
			f.post(t, "{}", peers.NotSent)
			if !c.slow {
				f.post(t, large, peers.NotSent)
			}
		})
	}
}

// A request that hangs is lost with the lease of its owner, and not before that has surely ended.
func TestLost(t *testing.T) {
	t.Parallel()
	var d database
	asked := make(chan struct{})
	owner := d.begin(t, 2, func(w http.ResponseWriter, r *http.Request, _ peers.Passenger) {
		hang(r, asked)
	}, nil)
	f := d.sender(t).front(t, owner.peer, peers.Passenger{})
	done := make(chan struct{})
	go func() { defer close(done); f.post(t, "{}", peers.Lost) }()
	receive(t, asked, "the request at its owner")
	d.change(func() { d.fails = true })
	d.end(2)
	from := d.lookedUp()
	mcptest.Await(t, "lookups that fail", func() bool { return d.lookedUp() >= from+3 })
	select {
	case <-done:
		t.Error("a request has ended while nobody knew of its owner's lease")
	default:
	}
	d.change(func() { d.fails = false })
	receive(t, done, "the end of the request")
}

// With the lease answers break off: an event stream as if it had come to its end, any other so that the client hears of it.
func TestBrokenOff(t *testing.T) {
	t.Parallel()
	for kind, c := range map[string]struct {
		rest string
		err  error
		want peers.Outcome
	}{
		"text/event-stream": {after, nil, peers.Broken},
		"application/json":  {"", io.ErrUnexpectedEOF, peers.Answered},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			var d database
			owner := d.begin(t, 2, func(w http.ResponseWriter, r *http.Request, _ peers.Passenger) {
				w.Header().Set("Content-Type", kind)
				fmt.Fprint(w, "half\n")
				_ = http.NewResponseController(w).Flush()
				hang(r, nil)
			}, nil)
			f := d.sender(t).front(t, owner.peer, peers.Passenger{})
			resp, err := f.client.Get(f.url)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			d.end(2)
			body, err := io.ReadAll(resp.Body)
			if string(body) != "half\n"+c.rest || !errors.Is(err, c.err) {
				t.Errorf("got %q, %v, want %v", body, err, c.err)
			}
			if got := f.outcome(t); got != c.want {
				t.Errorf("the request was %v, want %v", got, c.want)
			}
		})
	}
}

// Whatever becomes of a connection, no request is sent twice.
func TestOnce(t *testing.T) {
	t.Parallel()
	var d database
	sender, key := d.begin(t, 1, nil, func(c *peers.Config) { c.Every = time.Hour }), newKey(t) // no greeting besides
	l := tls.NewListener(listen(t), key.From())
	requests := make(chan string, 100)
	go func() { // greets, answers a request, and closes the connection when the next one comes
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.SetDeadline(time.Now().Add(mcptest.Patience))
			in := bufio.NewReader(c)
			for i := range 3 {
				r, err := http.ReadRequest(in)
				if err != nil {
					break
				}
				if i > 0 {
					requests <- r.Method
				}
				_, _ = io.Copy(io.Discard, r.Body)
				if i < 2 {
					fmt.Fprint(c, "HTTP/1.1 204 No Content\r\n\r\n")
				}
			}
			c.Close()
		}
	}()
	to := journal.Peer{Lease: 2, Address: l.Addr().String(), Key: key.Hash()}
	d.change(func() { d.leases = append(d.leases, to) })
	f := sender.front(t, to, peers.Passenger{})
	for i, method := range []string{"POST", "POST", "GET", "GET", "DELETE", "DELETE"} {
		ask, err := http.NewRequest(method, f.url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		ask.Header.Set("Idempotency-Key", "k")
		resp, err := f.client.Do(ask)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got, want := f.outcome(t), []peers.Outcome{peers.Answered, peers.Lost}[i%2]; got != want {
			t.Errorf("%s %d was %v, want %v", method, i, got, want)
		}
	}
	if len(requests) != 6 {
		t.Errorf("%d requests were sent for 6", len(requests))
	}
}

// A short request is one record of TLS, its header and its body.
func TestOneRecord(t *testing.T) {
	t.Parallel()
	var d database
	sender, key := d.sender(t), newKey(t)
	l := tls.NewListener(listen(t), key.From())
	records := make(chan string, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(mcptest.Patience))
		if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
			return
		}
		fmt.Fprint(c, "HTTP/1.1 204 No Content\r\n\r\n") // to the greeting
		record := make([]byte, 64<<10)
		n, _ := c.Read(record) // reads one at most
		records <- string(record[:n])
		fmt.Fprint(c, "HTTP/1.1 204 No Content\r\n\r\n")
	}()
	to := journal.Peer{Lease: 2, Address: l.Addr().String(), Key: key.Hash()}
	d.change(func() { d.leases = append(d.leases, to) })
	sender.front(t, to, peers.Passenger{}).post(t, `{"method":"ping"}`, peers.Answered)
	if got := receive(t, records, "a record"); !strings.HasPrefix(got, "POST /mcp ") || !strings.HasSuffix(got, `{"method":"ping"}`) {
		t.Errorf("the first record is %q", got)
	}
}

// A connection that its owner has closed before is no loss.
func TestClosedIdle(t *testing.T) {
	t.Parallel()
	var d database
	answer := func(http.ResponseWriter, *http.Request, peers.Passenger) {}
	owner := d.begin(t, 2, answer, nil)
	sender := d.sender(t)
	sender.front(t, owner.peer, peers.Passenger{}).post(t, "{}", peers.Answered)
	owner.Close(context.Background())
	next := d.begin(t, 3, answer, nil)
	sender.front(t, next.peer, peers.Passenger{}).post(t, "{}", peers.Answered)
	sender.front(t, owner.peer, peers.Passenger{}).post(t, "{}", peers.NotSent)
}

// Close waits for what is under way on both sides, and nothing new is passed on.
func TestClose(t *testing.T) {
	t.Parallel()
	var d database
	asked, go_ := make(chan struct{}), make(chan struct{})
	owner := d.begin(t, 2, func(w http.ResponseWriter, r *http.Request, _ peers.Passenger) {
		close(asked)
		<-go_
		fmt.Fprint(w, "done")
	}, nil)
	sender := d.sender(t)
	f := sender.front(t, owner.peer, peers.Passenger{})
	posted := make(chan struct{})
	go func() { defer close(posted); f.post(t, "{}", peers.Answered) }()
	receive(t, asked, "the request at its owner")
	closed := make(chan struct{}, 2)
	for _, p := range []*process{owner, sender} {
		go func() { p.Close(context.Background()); closed <- struct{}{} }()
	}
	mcptest.Await(t, "nothing more to be passed on", func() bool {
		f.client.CloseIdleConnections()
		resp, err := f.client.Get(f.url)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return f.outcome(t) == peers.NotSent
	})
	if len(closed) > 0 {
		t.Error("Close has not waited")
	}
	close(go_)
	receive(t, posted, "the answer")
	receive(t, closed, "the end")
	receive(t, closed, "the end")
}

// Who ends waits for no answer any more from then on: what was sent is lost, though its client is there, and nothing more is sent.
func TestBreakOff(t *testing.T) {
	t.Parallel()
	var d database
	asked := make(chan struct{})
	owner := d.begin(t, 2, func(_ http.ResponseWriter, r *http.Request, _ peers.Passenger) { hang(r, asked) }, nil)
	sender := d.sender(t)
	f := sender.front(t, owner.peer, peers.Passenger{})
	posted := make(chan struct{})
	go func() { defer close(posted); f.post(t, "{}", peers.Lost) }()
	receive(t, asked, "the request at its owner")
	if sender.Closed() {
		t.Error("it is closed before")
	}
	sender.BreakOff()
	receive(t, posted, "the answer")
	if f.post(t, "{}", peers.NotSent); !sender.Closed() {
		t.Error("it is not closed")
	}
}
