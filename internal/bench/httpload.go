package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// mcpPath is the endpoint of every HTTP subject.
const mcpPath = "/mcp"

// load asks one subject questions over connections that it keeps open. It is
// used by one goroutine.
type load interface {
	// run keeps every caller asking q for w and reports what the counted part
	// showed, with the CPU time that cpu saw pass in it.
	run(w window, q question, cpu meter) (sample, error)
	// close ends the load's connections.
	close() error
}

// httpLoad is a number of callers over HTTP, a keep-alive connection each.
type httpLoad struct {
	callers []*httpCaller
}

// newHTTPLoad opens the callers' connections to addr and their sessions: one
// each, or one for all.
func newHTTPLoad(addr string, callers int, shared, modern bool) (*httpLoad, error) {
	l := &httpLoad{}
	for i := range callers {
		c := &httpCaller{addr: addr, firstID: firstID + i*idsEach, modern: modern}
		l.callers = append(l.callers, c)
		if modern { // there are no sessions
			continue
		}
		if shared && i > 0 {
			c.session = l.callers[0].session
			continue
		}
		if err := c.handshake(); err != nil {
			return nil, errors.Join(fmt.Errorf("opening session %d of %d: %w", i+1, callers, err), l.close())
		}
	}
	return l, nil
}

// move has the callers ask at addr, by the sessions that they have.
func (l *httpLoad) move(addr string) error {
	var errs []error
	for _, c := range l.callers {
		if c.addr != addr {
			c.addr = addr
			errs = append(errs, c.hangUp())
		}
	}
	return errors.Join(errs...)
}

func (l *httpLoad) close() error {
	var errs []error
	for _, c := range l.callers {
		errs = append(errs, c.hangUp())
	}
	return errors.Join(errs...)
}

func (l *httpLoad) run(w window, q question, cpu meter) (sample, error) {
	var phase phase
	var wait sync.WaitGroup
	errs := make([]error, len(l.callers))
	for i, c := range l.callers {
		wait.Go(func() { errs[i] = c.run(&phase, q, w.limit()) })
	}
	time.Sleep(w.settle)
	before, known := cpu()
	start := time.Now()
	phase.counting.Store(true)
	time.Sleep(w.measure)
	phase.counting.Store(false)
	took := time.Since(start)
	after, _ := cpu()
	phase.over.Store(true)
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		return sample{}, err
	}
	return newSample(l.latencies(), took, spent(before, after, known)), nil
}

func spent(before, after time.Duration, known bool) time.Duration {
	if !known {
		return -1
	}
	return after - before
}

func (l *httpLoad) latencies() []time.Duration {
	var all []time.Duration
	for _, c := range l.callers {
		all = append(all, c.took...)
	}
	return all
}

// phase tells the callers of one window what to do.
type phase struct {
	counting, over atomic.Bool
}

// httpCaller asks one question after the other over one connection.
type httpCaller struct {
	addr    string
	session string
	modern  bool
	firstID int
	asked   int

	conn net.Conn
	in   *httpReader
	took []time.Duration
}

// run asks until the phase is over; latencies of the counted part are in took.
func (c *httpCaller) run(p *phase, q question, limit time.Time) error {
	c.took = c.took[:0]
	request, idAt := c.request(q)
	started := time.Now()
	fresh := true
	for !p.over.Load() {
		err := c.ask(request, idAt, q.want, limit)
		if err != nil && fresh { // the subject may have closed what was idle
			c.conn = nil
			err = c.ask(request, idAt, q.want, limit)
		}
		if err != nil {
			return err
		}
		fresh = false
		now := time.Now()
		if p.counting.Load() {
			c.took = append(c.took, now.Sub(started))
		}
		started = now
	}
	return nil
}

// request is the whole POST of q and where the id stands in it.
func (c *httpCaller) request(q question) (request []byte, idAt int) {
	head := c.head("POST", len(q.body))
	if c.modern {
		head = append(head[:len(head)-len("\r\n")], c.modernHeaders(q)...)
	}
	return append(head, q.body...), len(head) + q.idAt
}

// runHeader says in the modern era which caller's run a request belongs to.
const runHeader = "X-Run"

// modernHeaders are those that repeat what a question says, and the caller's run.
func (c *httpCaller) modernHeaders(q question) string {
	text := runHeader + ": " + strconv.Itoa(c.firstID) + "\r\nMCP-Protocol-Version: " + modernRevision + "\r\nMcp-Method: " + q.kind.String() + "\r\n"
	if q.kind == askCall {
		text += "Mcp-Name: echo\r\n"
	}
	return text + "\r\n"
}

// head is a request's head; a length below 0 leaves Content-Length out.
func (c *httpCaller) head(method string, length int) []byte {
	head := fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: fsm-proxy-bench\r\n"+
		"Accept: application/json, text/event-stream\r\n", method, mcpPath, c.addr)
	if length >= 0 {
		head = fmt.Appendf(head, "Content-Type: application/json\r\nContent-Length: %d\r\n", length)
	}
	if c.session != "" {
		head = fmt.Appendf(head, "Mcp-Session-Id: %s\r\nMCP-Protocol-Version: %s\r\n", c.session, latestLegacy)
	}
	return append(head, "\r\n"...)
}

// ask sends request under the next id and checks the answer.
func (c *httpCaller) ask(request []byte, idAt int, want []byte, limit time.Time) error {
	if err := c.dial(limit); err != nil {
		return err
	}
	id := request[idAt : idAt+idDigits]
	putID(id, c.firstID+c.asked%idsEach)
	c.asked++
	if _, err := c.conn.Write(request); err != nil {
		return fmt.Errorf("writing a request: %w", err)
	}
	m, err := c.in.next()
	if err != nil {
		return fmt.Errorf("reading an answer: %w", err)
	}
	if m.close {
		c.hangUp()
	}
	return checkAnswer(m, id, want)
}

func checkAnswer(m *httpMessage, id, want []byte) error {
	if m.status() == 200 && bytes.Contains(m.body, id) && bytes.LastIndex(m.body, want) >= 0 {
		return nil
	}
	return fmt.Errorf("wrong answer to %s: %s: %.300s", id, m.start, m.body)
}

func (c *httpCaller) dial(limit time.Time) error {
	if c.conn == nil {
		conn, err := net.Dial("tcp", c.addr)
		if err != nil {
			return fmt.Errorf("connecting: %w", err)
		}
		c.conn, c.in = conn, newHTTPReader(conn)
	} else if c.in.r < c.in.w {
		return errors.New("the last answer was longer than it said")
	}
	return c.conn.SetDeadline(limit)
}

func (c *httpCaller) hangUp() error {
	if c.conn == nil {
		return nil
	}
	conn := c.conn
	c.conn = nil
	return conn.Close()
}

// handshake opens a session the legacy way and keeps its id.
func (c *httpCaller) handshake() error {
	m, err := c.post(initializeRequest)
	if err != nil {
		return err
	}
	if m.status() != 200 || !bytes.Contains(m.body, []byte(`"result"`)) {
		return fmt.Errorf("initialize: %s: %.300s", m.start, m.body)
	}
	c.session = m.session
	if m, err = c.post(initializedNote); err != nil {
		return err
	}
	if m.status() != 202 {
		return fmt.Errorf("notifications/initialized: %s: %.300s", m.start, m.body)
	}
	return nil
}

func (c *httpCaller) post(body string) (*httpMessage, error) {
	if err := c.dial(time.Now().Add(10 * time.Second)); err != nil {
		return nil, err
	}
	if _, err := c.conn.Write(append(c.head("POST", len(body)), body...)); err != nil {
		return nil, fmt.Errorf("writing a request: %w", err)
	}
	m, err := c.in.next()
	if err != nil {
		return nil, fmt.Errorf("reading an answer: %w", err)
	}
	if m.close {
		c.hangUp()
	}
	return m, nil
}

// sendHead sends a request for what is not there, with a header field, and reads
// the answer.
func (c *httpCaller) sendHead(field string) error {
	if err := c.dial(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(c.conn, "GET /nothing HTTP/1.1\r\nHost: %s\r\nX: %s\r\n\r\n", c.addr, field); err != nil {
		return fmt.Errorf("writing a request: %w", err)
	}
	if _, err := c.in.next(); err != nil {
		return fmt.Errorf("reading an answer: %w", err)
	}
	return nil
}

// openStream opens the session's GET stream on the caller's connection, which
// serves nothing else from then on.
func (c *httpCaller) openStream() error {
	limit := time.Now().Add(10 * time.Second)
	if err := c.dial(limit); err != nil {
		return err
	}
	if _, err := c.conn.Write(c.head("GET", -1)); err != nil {
		return fmt.Errorf("writing a request: %w", err)
	}
	m, err := c.in.head()
	if err != nil {
		return fmt.Errorf("reading the stream's head: %w", err)
	}
	if m.status() != 200 {
		return errors.New("opening a GET stream: status " + strconv.Itoa(m.status()))
	}
	return nil
}
