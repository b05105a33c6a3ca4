package proxy_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/fsm-proxy/fsm-proxy/internal/asker"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/notify"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/refusal"
	"github.com/fsm-proxy/fsm-proxy/proxy/surface"
)

// review is the policy of most tests: plan, review, apply.
const review = `
version: 1
initial: planning
everywhere: {tools: [status]}
states:
  planning:
    description: Look around and write a plan.
    tools: {read_file: , write_plan: review, "list_*": , secret: none}
    resources: {"file:///plan": }
    prompts: {plan: }
  review:
    tools: {ask: {on_success: applying, on_error: planning}}
    resources: {"file:///plan": , "file:///diff": }
    prompts: {plan: }
  applying:
    tools:
      apply: {on_success: {to: done}, on_error: planning, on_unknown: review}
      secret:
  done: {terminal: true}
`

var reviewTools = []string{"status", "read_file", "list_a", "secret", "write_plan", "ask", "apply", "rogue"}

// rig is a proxy between scripted clients and a scripted upstream.
type rig struct {
	t    *testing.T
	up   *server
	p    *proxy.Proxy
	rest func() // waits until all stands still; nil in real time
}

// bubble runs a test in a bubble of its own time, over a rig that is closed at
// the end.
func bubble(t *testing.T, source string, f func(r *rig), options ...func(*proxy.Config, *server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, source, options...)
		r.rest = synctest.Wait
		f(r)
		r.p.Close()
		synctest.Wait()
	})
}

func newRig(t *testing.T, source string, options ...func(*proxy.Config, *server)) *rig {
	t.Helper()
	p, findings := policy.Parse("test.yaml", []byte(source))
	if p == nil {
		t.Fatal(findings)
	}
	r := &rig{t: t, up: newServer(t)}
	r.up.names(wire.Tools, reviewTools...)
	r.up.names(wire.Resources, "file:///plan", "file:///diff", "file:///other")
	r.up.names(wire.Prompts, "plan", "hidden")
	cfg := proxy.Config{Policy: p, Dial: r.up.dial,
		Notifier: func(send func(uint8) bool) surface.Notifier { return notify.New(send) }}
	for _, option := range options {
		option(&cfg, r.up)
	}
	var err error
	if r.p, err = proxy.New(cfg); err != nil {
		t.Fatal(err)
	}
	return r
}

// with is an option that sets the configuration.
func with(f func(c *proxy.Config)) func(*proxy.Config, *server) {
	return func(c *proxy.Config, _ *server) { f(c) }
}

// journal is all that clients were sent, in order.
type journal struct {
	mu    sync.Mutex // guards lines
	lines []string
}

func (j *journal) add(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.lines)
}

// stream is a wire.Stream that writes down what it is given.
type stream struct {
	who     *asker.Who // on whose behalf its request comes
	t       *testing.T
	journal *journal
	name    string
	hook    func(raw string) // called with what is sent, before it returns

	mu       sync.Mutex // guards what follows
	deaf     bool       // carries no messages but the answer
	absent   bool       // has no listener
	sent     []string
	answers  []string // "" for an end without an answer
	answered chan struct{}
}

func (s *stream) Send(msg []byte) bool {
	s.mu.Lock()
	deaf := s.deaf || s.absent
	if !deaf {
		s.sent = append(s.sent, string(msg))
		s.journal.add(s.name + " " + short(msg))
	}
	s.mu.Unlock()
	if !deaf && s.hook != nil {
		s.hook(string(msg))
	}
	return !deaf
}

// Asks implements wire.AskedStream.
func (s *stream) Asks() *asker.Who { return s.who }

func (s *stream) Listening() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.absent
}

func (s *stream) Answer(msg []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if msg != nil && !json.Valid(msg) {
		s.t.Errorf("an answer that is no JSON: %s", msg)
	}
	s.answers = append(s.answers, string(msg))
	s.journal.add(s.name + " answer")
	if len(s.answers) == 1 {
		close(s.answered)
	}
}

func (s *stream) set(f func(s *stream)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

// messages returns what was sent besides the answer.
func (s *stream) messages() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sent)
}

// short is what a journal says of a message.
func short(msg []byte) string {
	m, err := wire.Read(msg, wire.FromUpstream)
	if err != nil {
		return "unreadable " + string(msg)
	}
	return strings.TrimPrefix(m.Method, "notifications/")
}

// client is one session.
type client struct {
	*rig
	s      wire.Session
	name   string // in the world of the model check, else ""
	own    *stream
	log    *journal
	last   int
	number int        // in the model check
	who    *asker.Who // on whose behalf requests come from now on
}

const (
	plainHello = `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`
	ableHello  = `{"protocolVersion":"2025-11-25","capabilities":{"sampling":{},"elicitation":{"form":{}},"roots":{"listChanged":true}},` +
		`"clientInfo":{"name":"test","version":"1"}}`
)

// open makes a session without initializing it.
func (r *rig) open() *client { return r.openAs("") }

func (r *rig) openAs(name string) *client {
	c := &client{rig: r, name: name, log: &journal{}}
	c.own = c.stream("own")
	var err error
	if c.s, err = r.p.OpenFor(observe.Peer{Session: name}, c.own); err != nil {
		r.t.Fatal(err)
	}
	return c
}

func (c *client) stream(name string) *stream {
	return &stream{t: c.t, journal: c.log, name: name, who: c.who, answered: make(chan struct{})}
}

// connect makes an initialized session that has listed everything once.
func (r *rig) connect(hello string) *client { return r.open().greet(hello) }

// greet initializes a session, and lists everything once.
func (c *client) greet(hello string) *client {
	r := c.rig
	r.t.Helper()
	if answer := c.ask("initialize", hello); !strings.Contains(answer, `"result"`) {
		r.t.Fatalf("initialize: %s", answer)
	}
	c.notify("notifications/initialized", "")
	for _, method := range []string{"tools/list", "resources/list", "prompts/list"} {
		c.ask(method, "")
	}
	if r.rest != nil { // what follows is handled by Handle itself
		r.rest()
	}
	return c
}

// handle gives the session a message, and runs the rest as a framing does.
func (c *client) handle(raw string, s *stream) {
	c.t.Helper()
	rest := c.s.Handle(read(c.t, raw, wire.FromClient), s)
	if rest != nil && !rest.Detach(func() {}) {
		go rest.Wait()
	}
}

func (c *client) notify(method, params string) {
	c.t.Helper()
	c.handle(string(wire.NotificationMessage(method, bytesOf(params))), c.own)
}

func bytesOf(params string) []byte {
	if params == "" {
		return nil
	}
	return []byte(params)
}

// reply is the answer to come to a request.
type reply struct {
	*stream
	id int
}

// wait returns the answer, "" where there is none.
func (r *reply) wait() string {
	<-r.answered
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.answers[0]
}

// pending reports whether there is no answer yet, when all else stands still.
func (r *reply) pending() bool {
	synctest.Wait()
	select {
	case <-r.answered:
		return false
	default:
		return true
	}
}

// request sends a request and does not wait for the answer.
func (c *client) request(method, params string) *reply {
	c.t.Helper()
	c.last++
	return c.requestOn(c.stream(fmt.Sprint(c.last)), fmt.Sprint(c.last), method, params)
}

func (c *client) requestOn(s *stream, id, method, params string) *reply {
	c.t.Helper()
	raw := `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `"`
	if params != "" {
		raw += `,"params":` + params
	}
	c.handle(raw+"}", s)
	return &reply{stream: s, id: c.last}
}

// ask sends a request and returns the answer.
func (c *client) ask(method, params string) string {
	c.t.Helper()
	return c.request(method, params).wait()
}

// call calls a tool without waiting for the answer.
func (c *client) call(tool string) *reply {
	c.t.Helper()
	return c.request("tools/call", fmt.Sprintf(`{"name":%q}`, tool))
}

// do calls a tool that the upstream answers with this result.
func (c *client) do(tool, result string) string {
	c.t.Helper()
	r := c.call(tool)
	c.up.next().result(result)
	return r.wait()
}

// listed returns the names that the session is shown of a kind.
func (c *client) listed(kind wire.ListKind) string {
	c.t.Helper()
	m := read(c.t, c.ask(kind.Method(), ""), wire.FromUpstream)
	l, err := wire.NewList(kind, []*wire.Message{m})
	if err != nil {
		c.t.Fatal(err)
	}
	var names []string
	for _, item := range l.Items {
		names = append(names, item.Name)
	}
	return strings.Join(names, " ")
}

// cancel cancels a request.
func (c *client) cancel(r *reply) {
	c.notify("notifications/cancelled", fmt.Sprintf(`{"requestId":%d,"reason":"test"}`, r.id))
}

const (
	ok     = `{"content":[{"type":"text","text":"ok"}]}`
	failed = `{"content":[],"isError":true}`
)

// refusalOf finds the object of a refusal in whatever answer holds it.
func refusalOf(t *testing.T, answer string) (r refusal.Refusal) {
	t.Helper()
	var a struct {
		Result struct {
			Meta map[string]json.RawMessage `json:"_meta"`
		}
		Error struct{ Data json.RawMessage }
	}
	if err := json.Unmarshal([]byte(answer), &a); err != nil {
		t.Fatalf("%q: %v", answer, err)
	}
	object := a.Result.Meta["fsm-proxy/refusal"]
	if object == nil {
		object = a.Error.Data
	}
	if object == nil {
		t.Fatalf("no refusal: %s", answer)
	}
	if err := json.Unmarshal(object, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// refused checks that an answer is a refusal with this code.
func (c *client) refused(answer string, code policy.Code) refusal.Refusal {
	c.t.Helper()
	r := refusalOf(c.t, answer)
	if r.Error != code.String() {
		c.t.Errorf("refused as %s, want %s: %s", r.Error, code, answer)
	}
	return r
}

// state checks where the run is, by what is refused of a name that nobody has.
func (c *client) in(state string) {
	c.t.Helper()
	if r := refusalOf(c.t, c.call("nobody has this").wait()); r.State != state {
		c.t.Errorf("the run is in %q, want %q", r.State, state)
	}
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		t.Errorf("%s:\n got %s\nwant %s", what, g, w)
	}
}
