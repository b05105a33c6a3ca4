package mcptest

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Server is a raw upstream: a function that answers messages with bytes of its own making.
type Server struct {
	// Handle is called with every message, in the order of arrival on stdio. What must wait for something
	// goes into Exchange.Async, so that the next message is read meanwhile.
	Handle func(*Exchange)

	// Modern makes it a server of the modern era alone, which refuses all others and counts a closed response stream as
	// a notifications/cancelled. An open subscription over HTTP counts as live.
	Modern bool

	// Stubborn makes a stdio server outlive the end of its standard input and the polite signals.
	Stubborn bool
}

// Servers are the raw upstreams of a test package by name: Main runs them in the test binary's children.
type Servers map[string]Server

// Upstream is the test's end of a raw upstream: what reached it, and the gates that its script waits at. It
// is safe for concurrent use.
type Upstream struct {
	name    string
	server  Server
	control *control // the line to processes; nil when the upstream is served over HTTP

	mu       sync.Mutex // guards all below
	changed  chan struct{}
	messages []Message
	gates    map[string]bool
	started  int // connections or processes so far
	live     int // of these, still there
}

// Stdio returns a raw upstream that runs as a process: Command is what the proxy is to execute. The server
// must have been given to Main under the name.
func Stdio(t testing.TB, name string) *Upstream {
	t.Helper()
	return Served(t, name, "127.0.0.1:0")
}

// HTTP returns a raw upstream served in the test's own process, and its URL.
func HTTP(t testing.TB, server Server) (*Upstream, string) {
	t.Helper()
	u := newUpstream("http", server)
	web := httptest.NewServer(u.Handler())
	t.Cleanup(func() {
		u.Open(endGate)
		web.CloseClientConnections()
		web.Close()
	})
	return u, web.URL + "/mcp"
}

// Handler returns the upstream as an HTTP handler of legacy Streamable HTTP.
func (u *Upstream) Handler() http.Handler { return newWeb(u.server, u) }

func newUpstream(name string, server Server) *Upstream {
	return &Upstream{name: name, server: server, changed: make(chan struct{}), gates: map[string]bool{}}
}

// Command is the argument list that runs the upstream as a stdio server.
func (u *Upstream) Command() []string {
	return []string{self(), serveWord, u.name, u.control.address()}
}

// self is the path of the test binary.
func self() string {
	path, err := os.Executable()
	if err != nil {
		path = os.Args[0]
	}
	return filepath.ToSlash(path)
}

// Received returns every message that has reached the upstream, in order.
func (u *Upstream) Received() []Message {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]Message(nil), u.messages...)
}

// Count returns how many messages of the method reached the upstream. With a name, only those whose
// params.name or params.uri is that name.
func (u *Upstream) Count(method string, name ...string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.countLocked(method, name)
}

func (u *Upstream) countLocked(method string, name []string) int {
	n := 0
	for _, m := range u.messages {
		if m.Method == method && (len(name) == 0 || m.Name == name[0]) {
			n++
		}
	}
	return n
}

// Await waits until at least n messages of the method, and of the name if one is given, reached the upstream.
func (u *Upstream) Await(t testing.TB, n int, method string, name ...string) {
	t.Helper()
	if !u.until(func() bool { return u.countLocked(method, name) >= n }) {
		t.Fatalf("waited for %d × %s %v to reach the upstream, saw %d", n, method, name, u.Count(method, name...))
	}
}

// AwaitLive waits until exactly n processes, grandchildren included, or HTTP sessions are alive.
func (u *Upstream) AwaitLive(t testing.TB, n int) {
	t.Helper()
	if !u.until(func() bool { return u.live == n }) {
		t.Fatalf("waited for %d live processes of the upstream, there are %d", n, u.Live())
	}
}

// Live returns how many processes, or HTTP sessions, of the upstream are alive.
func (u *Upstream) Live() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.live
}

// Started returns how many processes, or HTTP sessions, of the upstream there have been.
func (u *Upstream) Started() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.started
}

// Open opens a gate for good: an Exchange.Gate of that name returns, now or later.
func (u *Upstream) Open(gate string) {
	u.mu.Lock()
	u.gates[gate] = true
	u.wakeLocked()
	u.mu.Unlock()
	if u.control != nil {
		u.control.open(gate)
	}
}

func (u *Upstream) record(m Message) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.messages = append(u.messages, m)
	u.wakeLocked()
}

func (u *Upstream) arrived() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.started++
	u.live++
	u.wakeLocked()
}

func (u *Upstream) left() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.live--
	u.wakeLocked()
}

func (u *Upstream) wakeLocked() {
	close(u.changed)
	u.changed = make(chan struct{})
}

// until waits for a condition, which is evaluated under the lock, and reports whether it came true in time.
func (u *Upstream) until(condition func() bool) bool {
	return u.watch(condition, time.After(Patience))
}

// watch waits for a condition until the channel says stop.
func (u *Upstream) watch(condition func() bool, stop <-chan time.Time) bool {
	for {
		u.mu.Lock()
		done, changed := condition(), u.changed
		u.mu.Unlock()
		if done {
			return true
		}
		select {
		case <-changed:
		case <-stop:
			return false
		}
	}
}

// gate waits until the gate is open, or the upstream is being taken down.
func (u *Upstream) gate(name string) {
	u.watch(func() bool { return u.gates[name] || u.gates[endGate] }, nil)
}

// endGate opens every gate when the test ends.
const endGate = "end of the test"
