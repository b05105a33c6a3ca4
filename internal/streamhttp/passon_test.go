package streamhttp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/asker"
	"github.com/fsm-proxy/fsm-proxy/internal/httpserver"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// away is the error of what another process has.
type away string

func (a away) Error() string { return string(a) }

func (away) AskAll() bool { return false }
func (away) Gone() bool   { return true }

// anywhere is an error of what any of the others may have.
type anywhere struct{ away }

func (anywhere) AskAll() bool { return true }
func (anywhere) Gone() bool   { return false }

// other is the process that requests are passed on to.
type other struct {
	again atomic.Int32  // how many are to be tried here once more
	came  chan struct{} // one for each that comes; nil: nobody looks
	hold  chan struct{} // they wait for it, or for their client's going; nil: they do not

	mu  sync.Mutex
	got []passedOn // guarded by mu
}

type passedOn struct {
	Passed
	method, id string
}

const fromOther = `{"jsonrpc":"2.0","id":1,"result":{"from":"other"}}`

func (o *other) passOn(w http.ResponseWriter, r *http.Request, p Passed) bool {
	p.Body = bytes.Clone(p.Body)
	o.mu.Lock()
	o.got = append(o.got, passedOn{p, r.Method, r.Header.Get(headerSession)})
	o.mu.Unlock()
	if o.came != nil {
		o.came <- struct{}{}
	}
	if o.hold != nil {
		select {
		case <-o.hold:
		case <-r.Context().Done():
		}
	}
	if o.again.Add(-1) >= 0 {
		return true
	}
	w.Header()["Content-Type"] = valueJSON
	_, _ = io.WriteString(w, fromOther)
	return false
}

// took returns what was passed on since it was last asked.
func (o *other) took(t *testing.T, want int) []passedOn {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	got := o.got
	if o.got = nil; len(got) != want {
		t.Fatalf("%d requests were passed on, want %d: %+v", len(got), want, got)
	}
	return got
}

// moving is a session whose run may go on elsewhere.
type moving struct {
	*script
	gone *atomic.Bool
	late *atomic.Int32 // how often it does not say so
}

func (m moving) Moved() bool { return m.late.Add(-1) < 0 && m.gone.Load() }

func (m moving) Forget() error {
	if m.gone.Load() {
		return errors.New("it goes on elsewhere")
	}
	return nil
}

// resumable is a server that goes on with every session of a revision, unless elsewhere says that it is not here.
type resumable struct {
	*rig
	*other
	elsewhere atomic.Bool
	resumed   chan moving
}

func newResumable(t *testing.T, cfg ServerConfig, version string, on behaviour, start func(*testing.T, ServerConfig, behaviour) *rig) *resumable {
	r := &resumable{other: &other{}, resumed: make(chan moving, 100)}
	cfg.PassOn = r.passOn
	cfg.Resume = func(own wire.Stream, from PeerInfo) (wire.Session, error) {
		if r.elsewhere.Load() {
			return nil, fmt.Errorf("loading a run: %w", away("gateway-1 has it"))
		}
		s := moving{&script{own: own, info: from, on: on, listen: make(chan struct{}, 100), closed: make(chan struct{})}, new(atomic.Bool), new(atomic.Int32)}
		s.version.Store(&version)
		r.resumed <- s
		return s, nil
	}
	r.rig = start(t, cfg, on)
	return r
}

// idle wants nothing left under way.
func (r *rig) idle() {
	r.t.Helper()
	eventually(r.t, "nothing under way", func() bool { return r.srv.requests.n.Load() == 0 })
	for _, ses := range r.srv.table.all(nil) {
		ses.mu.Lock()
		if ses.busy != 0 || ses.waiting.newest != nil {
			r.t.Errorf("%d requests are left under way", ses.busy)
		}
		ses.mu.Unlock()
	}
	if posts := &r.srv.posts; posts.requests.count != 0 || posts.listens.count != 0 || posts.all.newest != nil {
		r.t.Errorf("left of the modern era: %d requests, %d streams", posts.requests.count, posts.listens.count)
	}
	if n := r.srv.table.quota.count; n != r.srv.Sessions() {
		r.t.Errorf("there is room taken for %d sessions, of %d", n, r.srv.Sessions())
	}
}

const someID = "Mcp-Session-Id: ABCDEFGHIJKLMNOPQRSTUVWXYZ"

// An initialize whose run is elsewhere begins its session there, or here once it may.
func TestSessionsThatBeginElsewhere(t *testing.T) {
	var elsewhere atomic.Bool
	elsewhere.Store(true)
	cfg := ServerConfig{Authenticate: bearers("ann"), Open: func(own wire.Stream, info PeerInfo) (wire.Session, error) {
		if elsewhere.Load() {
			return nil, fmt.Errorf("finding a run: %w", away("gateway-1 has it"))
		}
		return &script{own: own, info: info, closed: make(chan struct{})}, nil
	}}
	startRigWith(t, NewServer(cfg)).do(post1(initialize(), as("ann"))).want(t, 400, "gateway-1 has it")
	o := &other{}
	cfg.PassOn = o.passOn
	r := startRigWith(t, NewServer(cfg))
	r.do(post1(initialize(), as("ann"))).want(t, 200, fromOther).wantHeader(t, headerSession, "")
	switch p := o.took(t, 1)[0]; {
	case string(p.Body) != initialize() || p.Message == nil || p.Message.Method != "initialize":
		t.Errorf("passed on: %s, %+v", p.Body, p.Message)
	case p.Who == nil || p.Who.Subject != "ann" || p.From.Principal.Subject != "ann" || !strings.HasPrefix(p.From.RemoteAddr, "127.0.0.1:"):
		t.Errorf("passed on for %+v, from %+v", p.Who, p.From)
	case !strings.Contains(p.Why.Error(), "gateway-1") || p.From.ID != "" || p.id != "":
		t.Errorf("passed on to %v, as %q, %q", p.Why, p.From.ID, p.id)
	}
	r.idle()
	o.again.Store(2)
	r.do(post1(initialize(), as("ann"))).want(t, 200, fromOther)
	o.took(t, 3)
	o.came, o.hold = make(chan struct{}), make(chan struct{})
	o.again.Store(1)
	c := r.connect().send(post1(initialize(), as("ann")))
	<-o.came
	elsewhere.Store(false)
	close(o.hold)
	if id := c.reply().want(t, 200, `"protocolVersion"`).Header.Get(headerSession); r.srv.table.find(id) == nil {
		t.Errorf("no session has the id %q", id)
	}
	o.took(t, 1)
	r.idle()
}

// Whatever is asked of a session that another process has is asked there, or here once it has come.
func TestSessionsElsewhere(t *testing.T) {
	batch := "[" + ping + "," + ping + "]"
	note := `{"jsonrpc":"2.0","method":"notifications/x"}`
	for name, tc := range map[string]struct {
		raw, body, method string
		status            int    // once the session is here
		here              string // likewise, what is answered
	}{
		"request":      {post1(ping, someID), ping, "ping", 200, `"result":{}`},
		"notification": {post1(note, someID), note, "notifications/x", 202, ""},
		"batch":        {post1(batch, someID), batch, "", 200, `[{"jsonrpc"`},
		"delete":       {request("DELETE", "/mcp", "", someID), "", "", 204, ""},
		"get":          {request("GET", "/mcp", "", someID, "Last-Event-ID: 1-1.0.1"), "", "", 400, "Last-Event-ID"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newResumable(t, ServerConfig{}, revisionBatches, nil, newRig)
			r.elsewhere.Store(true)
			r.do(tc.raw).want(t, 200, fromOther)
			p := r.took(t, 1)[0]
			method := ""
			if p.Message != nil {
				method = p.Message.Method
			}
			if string(p.Body) != tc.body || (tc.body == "") != (p.Body == nil) || method != tc.method || p.method != tc.raw[:len(p.method)] ||
				!strings.HasSuffix(someID, p.id) || p.Why == nil {
				t.Errorf("passed on: %+v, %s", p, p.Body)
			}
			r.idle()
			r.came, r.hold = make(chan struct{}), make(chan struct{})
			r.again.Store(1)
			c := r.connect().send(tc.raw)
			<-r.came
			r.elsewhere.Store(false)
			close(r.hold)
			c.reply().want(t, tc.status, tc.here)
			r.took(t, 1)
			r.idle()
		})
	}
}

// What no session would be handed is refused here, as in a session that is here.
func TestRefusedForSessionsElsewhere(t *testing.T) {
	r := newResumable(t, ServerConfig{MaxMessage: 1000, Limits: wire.Limits{Depth: 5}}, revisionBatches, nil, newRig)
	deep := `{"jsonrpc":"2.0","id":7,"method":"x","params":{"a":[[[[[[]]]]]]}}`
	all := map[string]func(id string) string{
		"too deep":       func(id string) string { return post1(deep, id) },
		"deep batch":     func(id string) string { return post1("["+deep+"]", id) },
		"too large":      func(id string) string { return post1(call(7, strings.Repeat("x", 1000)), id) },
		"no JSON":        func(id string) string { return post1("x", id) },
		"a wrong type":   func(id string) string { return post1(ping, id, "Content-Type: text/plain") },
		"takes no thing": func(id string) string { return post1(ping, id, "Accept: image/png") },
	}
	here := r.begin(revisionBatches)
	r.elsewhere.Store(true)
	for name, raw := range all {
		want, got := r.do(raw(here.id)), r.do(raw(someID))
		if got.StatusCode != want.StatusCode || got.body != want.body || got.Header.Get("Content-Type") != want.Header.Get("Content-Type") {
			t.Errorf("%s: got %s %q, and here %s %q", name, got.Status, got.body, want.Status, want.body)
		}
	}
	r.took(t, 0)
	r.idle()
}

// What bodies take is given back, however often they are passed on.
func TestBodiesThatArePassedOn(t *testing.T) {
	r := newResumable(t, ServerConfig{Bodies: httpserver.NewBodyBudget(1 << 20)}, revisionBatches, nil, newRig)
	r.elsewhere.Store(true)
	large := call(1, strings.Repeat("x", 400<<10))
	for i := range 6 {
		r.again.Store(int32(i % 3))
		r.do(post1(large, someID)).want(t, 200, fromOther)
		if p := r.took(t, 1+i%3); string(p[i%3].Body) != large {
			t.Fatalf("%d bytes were passed on", len(p[i%3].Body))
		}
	}
	r.elsewhere.Store(false)
	r.do(post1(large, someID)).want(t, 200, "result")
	r.idle()
}

// What is refused once it is tried again is refused under its id, though its body was read before.
func TestRefusedWhenTriedAgain(t *testing.T) {
	r := newResumable(t, ServerConfig{}, revisionBatches, nil, newRig)
	r.elsewhere.Store(true)
	r.came, r.hold = make(chan struct{}), make(chan struct{})
	r.again.Store(1)
	c := r.connect().send(post1(ping, someID, "MCP-Protocol-Version: 2024-11-05"))
	<-r.came
	r.elsewhere.Store(false)
	close(r.hold)
	got, want := c.reply(), r.do(post1(ping, someID, "MCP-Protocol-Version: 2024-11-05"))
	if got.want(t, 400, "2025-03-26"); got.body != want.body || !strings.Contains(got.body, `"id":`) || strings.Contains(got.body, `"id":null`) {
		t.Errorf("got %s, and at once %s", got.body, want.body)
	}
	r.idle()
}

// The bodies of one session that is elsewhere take half of what there is, as of one that is here.
func TestBodiesOfASessionElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newResumable(t, ServerConfig{Bodies: httpserver.NewBodyBudget(1 << 20)}, revisionBatches, nil, newBubbleRig)
		r.elsewhere.Store(true)
		r.other.came, r.other.hold = make(chan struct{}, 10), make(chan struct{})
		large := call(1, strings.Repeat("x", 300<<10))
		var all []*conn
		for i, id := range []string{someID, someID, strings.Replace(someID, "A", "B", 1)} {
			c := r.connect()
			go func() { _, _ = io.WriteString(c, post1(large, id)) }()
			all = append(all, c)
			synctest.Wait()
			if came, want := len(r.other.came), []int{1, 1, 2}[i]; came != want {
				t.Errorf("with %d bodies, %d are passed on", i+1, came)
			}
		}
		close(r.other.hold)
		for _, c := range all {
			c.reply().want(t, 200, fromOther)
			c.Close()
		}
	})
}

// The body of a request that is tried once more takes what it has taken.
func TestBodiesThatAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newResumable(t, ServerConfig{Bodies: httpserver.NewBodyBudget(1 << 20)}, revisionBatches, nil, newBubbleRig)
		r.elsewhere.Store(true)
		r.other.came, r.other.hold = make(chan struct{}, 10), make(chan struct{})
		r.again.Store(1)
		large := post1(call(1, strings.Repeat("x", 700<<10)), someID)
		first, second := r.connect(), r.connect()
		first.send(large)
		<-r.came
		r.other.hold <- struct{}{}
		<-r.came
		go func() { _, _ = io.WriteString(second, large) }()
		synctest.Wait()
		select {
		case <-r.came:
			t.Error("there was room for another body of its size")
		default:
		}
		close(r.other.hold)
		for _, c := range []*conn{first, second} {
			c.reply().want(t, 200, fromOther)
			c.Close()
		}
		r.took(t, 3)
	})
}

// moves moves each request, at once or later, unless it is named "stay".
func moves(t *testing.T, later bool) behaviour {
	return func(_ *script, m *wire.Message, to wire.Stream) wire.Pending {
		if m.P.Name == "stay" {
			to.Answer(result(m, `{"from":"here"}`))
			return nil
		}
		move := func() {
			if !wire.MoveOn(to, away("gateway-1 has it")) {
				t.Error("the request cannot be moved")
			}
			to.Answer(result(m, `{"from":"here"}`)) // too late
			if to.Send(note(1)) || to.Listening() || wire.MoveOn(to, away("gateway-2 has it")) {
				t.Error("more came on a stream that was moved")
			}
		}
		if later {
			return pending(move)
		}
		move()
		return nil
	}
}

// A request whose stream is moved is served elsewhere, in both eras, and here again if it is to be.
func TestMovedRequests(t *testing.T) {
	for _, later := range []bool{false, true} {
		for _, version := range []string{"2025-06-18", "2025-11-25", wire.ModernRevision} {
			t.Run(fmt.Sprintf("%s, later: %v", version, later), func(t *testing.T) {
				o, on := &other{}, moves(t, later)
				cfg := ServerConfig{Polls: always, PassOn: o.passOn, Modern: func(m *wire.Message, out wire.Stream, _ PeerInfo) wire.Pending {
					return on(nil, m, out)
				}}
				r := newRig(t, cfg, on)
				raw, params := tool("x"), `"name":"x"`
				if version != wire.ModernRevision {
					raw, params = post1(call(1, "x"), r.begin(version).id), `"name":"x"`
				}
				r.do(raw).want(t, 200, fromOther).wantHeader(t, "Content-Type", typeJSON)
				p := o.took(t, 1)[0]
				if p.Message == nil || p.Message.P.Name != "x" || !bytes.Contains(p.Body, []byte(params)) || p.Why.Error() != "gateway-1 has it" {
					t.Errorf("passed on: %+v, %s", p, p.Body)
				}
				r.idle()
				o.again.Store(2)
				r.do(raw).want(t, 200, fromOther)
				o.took(t, 3)
				r.idle()
			})
		}
	}
}

// Once something was sent, answered or paused, and in a batch, a request stays, as does one that begins a session, and each
// where nobody passes on.
func TestRequestsThatStay(t *testing.T) {
	for name, before := range map[string]func(m *wire.Message, to wire.Stream){
		"sent":     func(_ *wire.Message, to wire.Stream) { to.Send(note(1)) },
		"answered": func(m *wire.Message, to wire.Stream) { to.Answer(result(m, `{"from":"here"}`)) },
		"paused":   func(_ *wire.Message, to wire.Stream) { to.(wire.Pauser).Pause(time.Second) },
		"batch":    nil, "nobody passes on": nil,
	} {
		t.Run(name, func(t *testing.T) {
			o := &other{}
			cfg := ServerConfig{Polls: always, PassOn: o.passOn}
			if name == "nobody passes on" {
				cfg.PassOn = nil
			}
			on := func(_ *script, m *wire.Message, to wire.Stream) wire.Pending {
				return pending(func() {
					if before != nil {
						before(m, to)
					}
					if wire.MoveOn(to, away("gateway-1 has it")) {
						t.Error("it was moved")
					}
					to.Answer(result(m, `{"from":"here"}`))
				})
			}
			cfg.Modern = func(m *wire.Message, out wire.Stream, _ PeerInfo) wire.Pending { return on(nil, m, out) }
			r := newRig(t, cfg, on)
			c := r.begin("2025-11-25")
			switch name {
			case "batch":
				c = r.begin(revisionBatches)
				c.post("["+call(1, "a")+"]").want(t, 200, `"here"`)
			case "paused":
				c.post(call(1, "a")).want(t, 200, "retry: 1000")
			default:
				c.post(call(1, "a")).want(t, 200, `"here"`)
				r.do(tool("a")).want(t, 200, `"here"`)
			}
			o.took(t, 0)
			r.idle()
		})
	}
}

// A session that is refused as it is to begin can begin elsewhere.
func TestInitializeThatIsMoved(t *testing.T) {
	o := &other{}
	r := newRig(t, ServerConfig{PassOn: o.passOn}, func(_ *script, m *wire.Message, to wire.Stream) wire.Pending {
		if !wire.MoveOn(to, away("gateway-1 has it")) {
			t.Error("it was not moved")
		}
		return nil
	})
	r.do(post1(fmt.Sprintf(initBody, "refuse"))).want(t, 200, `"other"`)
	o.took(t, 1)
	r.idle()
}

// However long it is away, a request that was moved is no event stream here; one that has become an event stream stays.
func TestMovedRequestsAreNoStreams(t *testing.T) {
	for _, modern := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			go1, moved := make(chan struct{}), make(chan bool, 1)
			on := func(_ *script, m *wire.Message, to wire.Stream) wire.Pending {
				return pending(func() {
					<-go1
					moved <- wire.MoveOn(to, away("gateway-1 has it"))
					to.Answer(result(m, `{"from":"here"}`))
				})
			}
			o := &other{hold: make(chan struct{})}
			r := newBubbleRig(t, ServerConfig{PassOn: o.passOn, Modern: func(m *wire.Message, out wire.Stream, _ PeerInfo) wire.Pending {
				return on(nil, m, out)
			}}, on)
			raw := tool("x")
			if !modern {
				raw = post1(call(1, "x"), r.begin("2025-11-25").id)
			}
			c := r.connect().send(raw)
			time.Sleep(time.Second) // within the patience
			go1 <- struct{}{}
			if !<-moved {
				t.Error("it was not moved")
			}
			time.Sleep(time.Minute)
			if all := r.srv.table.all(nil); !modern && (all[0].busy != 1 || len(all[0].streams) != 0) {
				t.Errorf("%d under way, %d streams", all[0].busy, len(all[0].streams))
			}
			close(o.hold)
			c.reply().want(t, 200, fromOther).wantHeader(t, "Content-Type", typeJSON)
			r.idle()
			c.send(raw)
			time.Sleep(10 * time.Second)
			go1 <- struct{}{}
			if <-moved {
				t.Error("an event stream was moved")
			}
			c.reply().want(t, 200, `"here"`).wantHeader(t, "Content-Type", typeSSE)
			r.idle()
			c.Close()
		})
	}
}

// While it is passed on a request of the modern era takes the room that it has taken, and its context ends with its client.
func TestMovedRequestsTakeRoom(t *testing.T) {
	o := &other{hold: make(chan struct{}), came: make(chan struct{})}
	on := moves(t, false)
	r := newRig(t, ServerConfig{Requests: 1, PassOn: o.passOn, Modern: func(m *wire.Message, out wire.Stream, _ PeerInfo) wire.Pending {
		return on(nil, m, out)
	}}, nil)
	c := r.connect().send(tool("x"))
	<-o.came
	r.do(tool("stay")).want(t, 503, "too many requests")
	c.Close()
	r.idle()
	r.do(tool("stay")).want(t, 200, `"here"`)
	o.took(t, 1)
}

// The server's end waits for what is passed on, ends what has no end of its own, and lets nothing be tried again.
func TestCloseWhilePassingOn(t *testing.T) {
	for _, again := range []int32{0, 10} {
		o := &other{hold: make(chan struct{}), came: make(chan struct{}, 10)}
		on := moves(t, false)
		r := newResumable(t, ServerConfig{Modern: func(m *wire.Message, out wire.Stream, _ PeerInfo) wire.Pending {
			return on(nil, m, out)
		}}, "2025-11-25", nil, newRig)
		r.other.hold, r.other.came = o.hold, o.came
		r.elsewhere.Store(true)
		r.again.Store(again)
		var streams, calls []*conn
		for _, raw := range []string{request("GET", "/mcp", "", someID), listenPost()} {
			streams = append(streams, r.connect().send(raw))
			<-o.came
		}
		for _, raw := range []string{post1(call(1, "x"), someID), tool("x")} {
			calls = append(calls, r.connect().send(raw))
			<-o.came
		}
		if n := r.srv.moving.Load().Load(); n != int64(len(calls)) {
			t.Errorf("%d calls are to be served elsewhere", n)
		}
		closed := make(chan error, 1)
		go func() { closed <- r.srv.Close(context.Background()) }()
		status, text := 200, fromOther
		if again > 0 {
			status, text = 503, "shutting down"
		}
		for _, c := range streams {
			c.reply().want(t, status, text)
		}
		select {
		case err := <-closed:
			t.Fatal("two calls are passed on still, and the server has ended:", err)
		default:
		}
		close(o.hold)
		for _, c := range calls {
			c.reply().want(t, status, text)
		}
		if n := r.srv.moving.Load().Load(); n != 0 {
			t.Errorf("%d calls are to be served elsewhere", n)
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
		r.took(t, 4)
	}
}

// A session whose run has moved ends here within a second, with its streams, and the next request finds where it is.
func TestSessionsThatHaveMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newResumable(t, ServerConfig{}, "2025-11-25", nil, newBubbleRig)
		do := func(raw string) served { c := r.connect().send(raw); defer c.Close(); return c.reply() }
		do(post1(ping, someID)).want(t, 200, "result")
		first := <-r.resumed
		c := &client{rig: r.rig, script: first.script, id: someID}
		get := c.stream()
		old := get.next().id
		first.gone.Store(true)
		r.elsewhere.Store(true)
		time.Sleep(time.Second)
		synctest.Wait()
		get.end()
		<-first.closed
		if r.srv.Sessions() != 0 {
			t.Error("it is here still")
		}
		do(post1(ping, someID)).want(t, 200, fromOther)
		r.took(t, 1)

		r.elsewhere.Store(false) // and comes back
		do(post1(ping, someID)).want(t, 200, `"result":{}`)
		second := <-r.resumed
		c = &client{rig: r.rig, script: second.script, id: someID}
		get = c.stream("Last-Event-ID: " + old)
		second.own.Send(note(7))
		get.message(`"data":7`)
		get.Close()
		second.gone.Store(true) // before the sweep comes round
		do(post1(ping, someID)).want(t, 200, `"result":{}`)
		<-second.closed
		third := <-r.resumed
		third.gone.Store(true)
		r.srv.table.all(nil)[0].end() // the sweep has just begun to end it
		do(post1(ping, someID)).want(t, 200, `"result":{}`)
		fourth := <-r.resumed
		fourth.gone.Store(true)
		fourth.late.Store(1) // it moves, and is ended, while its request is on its way
		r.srv.table.all(nil)[0].end()
		do(request("DELETE", "/mcp", "", someID)).want(t, 204, "")
		if last := <-r.resumed; last.methods() != "" || r.srv.Sessions() != 0 || r.srv.table.quota.count != 0 {
			t.Errorf("left: %d sessions", r.srv.Sessions())
		}

		do(post1(ping, someID)).want(t, 200, `"result":{}`)
		fifth := <-r.resumed
		fifth.gone.Store(true)
		fifth.late.Store(1) // it moves while its client ends it: it is ended where it goes on
		r.elsewhere.Store(true)
		do(request("DELETE", "/mcp", "", someID)).want(t, 200, fromOther)
		r.took(t, 1)
		get.Close()
	})
}

// passed serves a request as one that another process has passed on.
func passed(srv *Server, raw, from string, who *asker.Who) served {
	r := httptest.NewRequest("POST", "/mcp", strings.NewReader(raw))
	r.Host = "evil.example"
	r.Header["Content-Type"], r.Header["Accept"] = valueJSON, []string{"application/json, text/event-stream"}
	if strings.Contains(raw, wire.ModernRevision) {
		r.Header[headerVersion], r.Header[wire.HeaderMethod], r.Header[wire.HeaderName] = []string{wire.ModernRevision}, []string{"tools/call"}, []string{"x"}
	}
	r.Header["Origin"] = []string{"https://evil.example"}
	w := httptest.NewRecorder()
	srv.ServePassed(w, r, who, from, 0)
	return served{w.Result(), w.Body.String()}
}

// What another process has passed on is served without its guards, for whom that one has let in, and goes no further.
func TestServePassed(t *testing.T) {
	var elsewhere, unknown atomic.Bool
	var refused atomic.Pointer[string]
	begun := make(chan *script, 10)
	o, on := &other{}, moves(t, false)
	asks := make(chan string, 1)
	cfg := ServerConfig{
		Loopback: true, PassOn: o.passOn, Sessions: 4, Share: 2, PrincipalShare: 4,
		Authenticate: func(http.ResponseWriter, *http.Request) (*asker.Who, bool) {
			t.Error("who asks is looked at once more")
			return nil, false
		},
		Refused: func(why Reason, status int, r *http.Request) {
			text := fmt.Sprint(why, status, r.RemoteAddr)
			refused.Store(&text)
		},
		Open: func(own wire.Stream, info PeerInfo) (wire.Session, error) {
			switch {
			case unknown.Load():
				return nil, anywhere{"some gateway has it"}
			case elsewhere.Load():
				return nil, away("gateway-1 has it")
			}
			s := &script{own: own, info: info, closed: make(chan struct{})}
			begun <- s
			return s, nil
		},
		Resume: func(wire.Stream, PeerInfo) (wire.Session, error) { return nil, away("gateway-1 has it") },
		Modern: func(m *wire.Message, out wire.Stream, from PeerInfo) wire.Pending {
			asks <- from.RemoteAddr + " " + wire.AsksOn(out).Subject
			return on(nil, m, out)
		},
	}
	r := startRigWith(t, NewServer(cfg))
	ann := &asker.Who{Issuer: "test", Subject: "ann"}
	passed(r.srv, initialize(), "192.0.2.1:1", nil).want(t, 401, "lets in everybody")
	if text := *refused.Load(); !strings.HasSuffix(text, "192.0.2.1:1") {
		t.Errorf("refused: %s", text)
	}
	for range 2 {
		p := passed(r.srv, initialize(), "192.0.2.1:1", ann).want(t, 200, "result").wantHeader(t, "Access-Control-Allow-Origin", "")
		if info := (<-begun).info; info.RemoteAddr != "192.0.2.1:1" || info.Principal.Subject != "ann" || r.srv.table.find(p.Header.Get(headerSession)) == nil {
			t.Errorf("begun by %+v", info)
		}
	}
	passed(r.srv, initialize(), "192.0.2.1:9", ann).want(t, 503, "too many sessions") // of its address
	elsewhere.Store(true)
	for _, raw := range []string{initialize(), alone("tools/call", `"name":"x"`)} {
		passed(r.srv, raw, "192.0.2.9:1", ann).want(t, 421, "gateway-1 has it").wantHeader(t, httpserver.HeaderNotHere, "gone")
	}
	unknown.Store(true)
	passed(r.srv, initialize(), "192.0.2.9:1", ann).want(t, 421, "some gateway has it").wantHeader(t, httpserver.HeaderNotHere, "elsewhere")
	if got := <-asks; got != "192.0.2.9:1 ann" {
		t.Errorf("the modern era's came from %s", got)
	}
	for _, method := range []string{"POST", "GET", "DELETE"} {
		q := httptest.NewRequest(method, "/mcp", strings.NewReader(ping))
		q.Header["Content-Type"], q.Header["Accept"] = valueJSON, valueEvents
		q.Header.Set(headerSession, strings.TrimPrefix(someID, "Mcp-Session-Id: "))
		w := httptest.NewRecorder()
		r.srv.ServePassed(w, q, ann, "192.0.2.9:1", 0)
		if w.Code != 421 || w.Header().Get(httpserver.HeaderNotHere) != "gone" {
			t.Errorf("%s: %d %s", method, w.Code, w.Body)
		}
	}
	o.took(t, 0)
	r.idle()
	if err := r.srv.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	passed(r.srv, initialize(), "192.0.2.9:1", ann).want(t, 421, "is ending").wantHeader(t, httpserver.HeaderNotHere, "ending")
}
