package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// server is a scripted upstream of bytes. It counts what reached it.
type server struct {
	t *testing.T
	// auto answers a request at once if it returns a result; else the request
	// stands in arrived until the test answers it.
	auto    func(k *upcall) (result string, ok bool)
	detach  bool   // answers come on a read loop, as from a pipe
	unsent  bool   // what is given up has not been sent yet, as over HTTP while the connection is made
	hello   string // the result of initialize, or of server/discover
	era     wire.Era
	refuse  error // what Dial returns
	arrived chan *upcall
	// begun and ended are told of each request before the proxy can learn of it.
	begun, ended func(k *upcall, o outcome)
	listens      func() // called before what is to be listened to takes effect

	mu    sync.Mutex // guards what follows
	lists map[wire.ListKind]*wire.List
	conns []*conn
	sent  []string // what reached it, in order, short: method and name
	asked []string // the initialize requests
}

const fullHello = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},` +
	`"prompts":{},"logging":{},"completions":{}},"serverInfo":{"name":"up","version":"1"},"instructions":"Be kind."}`

func newServer(t *testing.T) *server {
	return &server{t: t, detach: true, hello: fullHello, arrived: make(chan *upcall, 4096), lists: make(map[wire.ListKind]*wire.List)}
}

// offer sets what is listed of a kind, one page for each argument.
func (u *server) offer(kind wire.ListKind, pages ...string) {
	messages := make([]*wire.Message, len(pages))
	for i, page := range pages {
		messages[i] = read(u.t, string(wire.ResultAnswer([]byte("0"), []byte(page))), wire.FromUpstream)
	}
	l, err := wire.NewList(kind, messages)
	if err != nil {
		u.t.Fatal(err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.lists[kind] = l
}

// names offers items that have no more than a name.
func (u *server) names(kind wire.ListKind, names ...string) {
	key := map[wire.ListKind]string{wire.Tools: "name", wire.Prompts: "name", wire.Resources: "uri", wire.Templates: "uriTemplate"}[kind]
	items := make([]string, len(names))
	for i, name := range names {
		items[i] = fmt.Sprintf(`{"%s":%q,"n":%d}`, key, name, i)
	}
	u.offer(kind, `{"`+kind.String()+`":[`+strings.Join(items, ",")+`]}`)
}

func (u *server) dial(_ context.Context, with bridge.Opening, r wire.Receiver) (bridge.Conn, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.asked = append(u.asked, string(with.Initialize.Raw))
	if u.refuse != nil {
		return nil, u.refuse
	}
	c := &conn{server: u, recv: r, done: make(chan struct{}), calls: make(map[*upcall]bool), cached: make(map[wire.ListKind]*wire.List)}
	c.hello = read(u.t, string(wire.ResultAnswer([]byte("0"), []byte(u.hello))), wire.FromUpstream)
	u.conns = append(u.conns, c)
	return c, nil
}

// conn returns the n-th connection that was made.
func (u *server) conn(n int) *conn {
	u.t.Helper()
	u.mu.Lock()
	defer u.mu.Unlock()
	if n >= len(u.conns) {
		u.t.Fatalf("connection %d of %d", n, len(u.conns))
	}
	return u.conns[n]
}

// dialled returns how many connections were made.
func (u *server) dialled() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.conns)
}

func (u *server) record(text string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sent = append(u.sent, text)
}

// reached returns what reached the upstream, in order.
func (u *server) reached() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]string(nil), u.sent...)
}

// answers sets auto while requests may be under way.
func (u *server) answers(auto func(k *upcall) (result string, ok bool)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.auto = auto
}

// count returns how often a request reached the upstream.
func (u *server) count(what string) (n int) {
	for _, s := range u.reached() {
		if s == what {
			n++
		}
	}
	return n
}

// next returns the request that has waited longest for its answer.
func (u *server) next() *upcall {
	u.t.Helper()
	return <-u.arrived
}

// conn is one connection to a server.
type conn struct {
	*server
	recv  wire.Receiver
	hello *wire.Message
	done  chan struct{}

	mu      sync.Mutex // guards what follows
	calls   map[*upcall]bool
	cached  map[wire.ListKind]*wire.List
	fetches int
	fail    error         // what List returns
	slow    time.Duration // how long List takes; not guarded
	last    int64
	ended   bool
	told    []string // what Notify was given
}

func (c *conn) Era() wire.Era        { return c.server.era }
func (c *conn) Hello() *wire.Message { return c.hello }
func (c *conn) Listen(uris []string) error {
	if c.listens != nil {
		c.listens()
	}
	c.server.record("listen " + strings.Join(uris, " "))
	return nil
}
func (c *conn) Done() <-chan struct{} { return c.done }
func (c *conn) Close()                { c.end() }

// end ends the connection: what is under way is lost.
func (c *conn) end() {
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		return
	}
	c.ended = true
	close(c.done)
	var all []*upcall
	for k := range c.calls {
		all = append(all, k)
	}
	c.mu.Unlock()
	for _, k := range all {
		k.lose(&wire.CallError{Sent: true, Err: errors.New("the connection ended")})
	}
}

// fade ends the connection and leaves what is under way open: its answers are
// late ones.
func (c *conn) fade() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	close(c.done)
}

func (c *conn) Start(m *wire.Message, tag any) wire.Call {
	k := &upcall{conn: c, m: m, tag: tag, answer: make(chan outcome, 1), over: make(chan struct{})}
	c.mu.Lock()
	c.last++
	k.id = c.last
	ended := c.ended
	if !ended {
		if c.begun != nil {
			c.begun(k, outcome{})
		}
		c.calls[k] = true
	}
	c.mu.Unlock()
	if ended {
		k.lose(&wire.CallError{Err: errors.New("no connection")})
		return k
	}
	c.record(k.what())
	c.server.mu.Lock()
	auto := c.auto
	c.server.mu.Unlock()
	if auto != nil {
		if result, ok := auto(k); ok {
			k.result(result)
			return k
		}
	}
	c.arrived <- k
	return k
}

func (c *conn) Notify(raw []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return errors.New("no connection")
	}
	c.told = append(c.told, string(raw))
	return nil
}

// notified returns what was sent upstream besides requests.
func (c *conn) notified() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.told...)
}

func (c *conn) offered(kind wire.ListKind) bool {
	key := kind.String()
	if kind == wire.Templates {
		key = "resources"
	}
	return strings.Contains(string(c.hello.Raw), `"`+key+`":{`)
}

func (c *conn) now(kind wire.ListKind) *wire.List {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if l := c.lists[kind]; l != nil && c.offered(kind) {
		return l
	}
	page, _ := wire.Read(wire.ResultAnswer([]byte("0"), []byte(`{"`+kind.String()+`":[]}`)), wire.FromUpstream)
	l, _ := wire.NewList(kind, []*wire.Message{page})
	return l
}

func (c *conn) Cached(kind wire.ListKind) *wire.List {
	if !c.offered(kind) {
		return c.now(kind)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cached[kind]
}

func (c *conn) List(ctx context.Context, kind wire.ListKind) (*wire.List, error) {
	if c.slow > 0 {
		select {
		case <-time.After(c.slow): // in a bubble: a step of its clock
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	l := c.now(kind)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fail != nil {
		return nil, c.fail
	}
	c.fetches++
	c.cached[kind] = l
	return l, nil
}

// drop forgets a list, as a list_changed of the upstream's does.
func (c *conn) drop(kind wire.ListKind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.cached, kind)
}

// says gives the proxy a message of the upstream. tag is the request to which
// it belongs, nil for none.
func (c *conn) says(raw string, k *upcall) {
	c.t.Helper()
	m := read(c.t, raw, wire.FromUpstream)
	for kind := range wire.Templates + 1 {
		if kind.Changed() == m.Method {
			c.drop(kind)
		}
	}
	var tag any
	if k != nil {
		tag = k.tag
	}
	c.recv.Receive(m, tag)
}

type outcome struct {
	m   *wire.Message
	err error
}

// upcall is one request that reached the server.
type upcall struct {
	conn   *conn
	m      *wire.Message
	tag    any
	id     int64
	answer chan outcome
	over   chan struct{} // closed when it has its outcome

	mu      sync.Mutex // guards what follows
	settled bool
	then    func(*wire.Message, error)
	cancels []string
	overdue int
}

// what is short for the request.
func (k *upcall) what() string {
	name := k.m.P.Name + k.m.P.URI
	if ref := k.m.P.Ref; ref != nil {
		name += ref.Name + ref.URI
	}
	return strings.TrimSpace(k.m.Method + " " + name)
}

// result answers with a result, fail with an error, lose with none. They report
// false where the request had its outcome already.
func (k *upcall) result(result string) bool {
	raw := wire.ResultAnswer(strconv.AppendInt(nil, k.id, 10), []byte(result))
	return k.settle(outcome{m: read(k.conn.t, string(raw), wire.FromUpstream)})
}

func (k *upcall) fail(code int) bool {
	raw := wire.ErrorAnswer(strconv.AppendInt(nil, k.id, 10), code, "no", nil)
	return k.settle(outcome{m: read(k.conn.t, string(raw), wire.FromUpstream)})
}

func (k *upcall) failure(object string) bool {
	raw := `{"jsonrpc":"2.0","id":` + strconv.FormatInt(k.id, 10) + `,"error":` + object + "}"
	return k.settle(outcome{m: read(k.conn.server.t, raw, wire.FromUpstream)})
}

func (k *upcall) lose(err error) bool { return k.settle(outcome{err: err}) }

func (k *upcall) settle(o outcome) bool {
	k.mu.Lock()
	if k.settled {
		k.mu.Unlock()
		return false
	}
	k.settled = true
	if k.conn.server.ended != nil {
		k.conn.server.ended(k, o)
	}
	then := k.then
	if then == nil {
		k.answer <- o
	}
	close(k.over)
	k.mu.Unlock()
	k.conn.mu.Lock()
	delete(k.conn.calls, k)
	k.conn.mu.Unlock()
	if then != nil {
		then(o.m, o.err)
	}
	return true
}

func (k *upcall) Wait(ctx context.Context) (*wire.Message, error) {
	select {
	case o := <-k.answer:
		return o.m, o.err
	case <-ctx.Done():
		k.lose(&wire.CallError{Sent: !k.conn.unsent, Err: ctx.Err()})
		o := <-k.answer
		return o.m, o.err
	}
}

func (k *upcall) Then(done func(*wire.Message, error)) (giveUp func(), ok bool) {
	if !k.conn.detach {
		return nil, false
	}
	k.mu.Lock()
	if !k.settled {
		k.then = done
		k.mu.Unlock()
		return func() { k.lose(&wire.CallError{Sent: true, Err: context.Canceled}) }, true
	}
	k.mu.Unlock()
	o := <-k.answer
	done(o.m, o.err)
	return func() {}, true
}

func (k *upcall) Cancel(params []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cancels = append(k.cancels, string(params))
}

func (k *upcall) Overdue() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.overdue++
}

// late is how often the upstream was told that the answer is overdue, which the client's
// answer does not wait for.
func (k *upcall) late() int {
	synctest.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.overdue
}

// cancelled returns the params with which the request was cancelled.
func (k *upcall) cancelled() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]string(nil), k.cancels...)
}

func read(t *testing.T, raw string, from wire.Side) *wire.Message {
	t.Helper()
	m, err := wire.Read([]byte(raw), from)
	if err != nil {
		t.Fatalf("reading %s: %v", raw, err)
	}
	return m
}

// hasty is a dial whose connection speaks before it is handed over.
func hasty(dial func(context.Context, bridge.Opening, wire.Receiver) (bridge.Conn, error), says ...string,
) func(context.Context, bridge.Opening, wire.Receiver) (bridge.Conn, error) {
	return func(ctx context.Context, with bridge.Opening, r wire.Receiver) (bridge.Conn, error) {
		up, err := dial(ctx, with, r)
		if c, ok := up.(*conn); ok {
			for _, raw := range says {
				c.says(raw, nil)
			}
		}
		return up, err
	}
}

// slowly is a dial that takes its time.
func slowly(dial func(context.Context, bridge.Opening, wire.Receiver) (bridge.Conn, error), d time.Duration,
) func(context.Context, bridge.Opening, wire.Receiver) (bridge.Conn, error) {
	return func(ctx context.Context, with bridge.Opening, r wire.Receiver) (bridge.Conn, error) {
		wait := time.NewTimer(d)
		defer wait.Stop()
		select {
		case <-wait.C:
			return dial(ctx, with, r)
		case <-ctx.Done():
			return nil, &wire.CallError{Err: ctx.Err()}
		}
	}
}
