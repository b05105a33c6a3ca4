package mcptest

import (
	"bufio"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
)

// The control line joins the test and a raw upstream that runs as a process. It is a loopback connection,
// because a child of the proxy gets neither the test's environment nor its file descriptors. Lines:
//
//	process → test   "message <bytes>"   each message before it is handled; the test confirms with "ok"
//	test → process   "open <gate>"
//
// That the connection stands is what tells the test that the process is alive.
type control struct {
	listener net.Listener
	upstream *Upstream

	mu     sync.Mutex // guards both below
	lines  map[net.Conn]struct{}
	opened []string
}

func listenControl(t testing.TB, u *Upstream, address string) *control {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatalf("listening for raw upstreams: %v", err)
	}
	c := &control{listener: listener, upstream: u, lines: map[net.Conn]struct{}{}}
	var served sync.WaitGroup
	served.Go(func() { c.accept(&served) })
	t.Cleanup(func() {
		u.Open(endGate)
		c.close()
		served.Wait()
	})
	return c
}

func (c *control) address() string { return c.listener.Addr().String() }

func (c *control) accept(served *sync.WaitGroup) {
	for {
		line, err := c.listener.Accept()
		if err != nil {
			return
		}
		served.Go(func() { c.serve(line) })
	}
}

func (c *control) serve(line net.Conn) {
	defer line.Close()
	c.join(line)
	defer c.part(line)
	in := bufio.NewReader(line)
	for {
		text, err := in.ReadString('\n')
		if err != nil {
			return
		}
		if raw, ok := strings.CutPrefix(strings.TrimSuffix(text, "\n"), "message "); ok {
			c.upstream.record(ParseMessage([]byte(raw)))
			c.write(line, "ok\n")
		}
	}
}

func (c *control) join(line net.Conn) {
	c.mu.Lock()
	c.lines[line] = struct{}{}
	for _, gate := range c.opened {
		_, _ = line.Write([]byte("open " + gate + "\n"))
	}
	c.mu.Unlock()
	c.upstream.arrived()
}

func (c *control) part(line net.Conn) {
	c.mu.Lock()
	delete(c.lines, line)
	c.mu.Unlock()
	c.upstream.left()
}

func (c *control) write(line net.Conn, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = line.Write([]byte(text)) // a process that died meanwhile is noticed by its reader
}

func (c *control) open(gate string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.opened = append(c.opened, gate)
	for line := range c.lines {
		_, _ = line.Write([]byte("open " + gate + "\n"))
	}
}

func (c *control) close() {
	c.listener.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	for line := range c.lines {
		line.Close()
	}
}

// remote is the process's end of the control line.
type remote struct {
	line net.Conn

	sending sync.Mutex // held over a write, so that messages are numbered as they are confirmed
	sent    int        // guarded by sending

	mu        sync.Mutex // guards all below
	changed   chan struct{}
	gates     map[string]bool
	confirmed int
	gone      bool
}

func dialControl(address string) (*remote, error) {
	line, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	r := &remote{line: line, changed: make(chan struct{}), gates: map[string]bool{}}
	go r.read()
	return r, nil
}

func (r *remote) read() {
	in := bufio.NewReader(r.line)
	for {
		text, err := in.ReadString('\n')
		r.mu.Lock()
		if gate, ok := strings.CutPrefix(strings.TrimSuffix(text, "\n"), "open "); ok {
			r.gates[gate] = true
		} else if err == nil {
			r.confirmed++
		}
		r.gone = err != nil
		close(r.changed)
		r.changed = make(chan struct{})
		r.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (r *remote) record(m Message) {
	if m.Raw == nil { // what was no message: DELETE, or the end of a stream
		params := string(m.Params)
		if params == "" {
			params = `{"name":` + string(encode(m.Name)) + `}`
		}
		m.Raw = []byte(Notification(m.Method, params))
	}
	r.report(m.Raw)
}

// A process counts as one, however many sessions it has.
func (r *remote) arrived() {}
func (r *remote) left()    {}

// report tells the test of a message and returns when it has been counted, so that no answer overtakes it.
func (r *remote) report(raw []byte) {
	number, err := r.send(raw)
	if err != nil {
		os.Exit(1)
	}
	r.wait(func() bool { return r.confirmed >= number })
}

func (r *remote) send(raw []byte) (number int, err error) {
	r.sending.Lock()
	defer r.sending.Unlock()
	r.sent++
	_, err = r.line.Write([]byte("message " + string(raw) + "\n"))
	return r.sent, err
}

func (r *remote) gate(name string) {
	r.wait(func() bool { return r.gates[name] || r.gates[endGate] })
}

// wait blocks until the condition, evaluated under the lock, is true. A process whose test is gone ends.
func (r *remote) wait(condition func() bool) {
	for {
		r.mu.Lock()
		done, gone, changed := condition(), r.gone, r.changed
		r.mu.Unlock()
		switch {
		case done:
			return
		case gone:
			os.Exit(1)
		}
		<-changed
	}
}
