package upstream

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// ErrClosed is a connection that its owner closed.
var ErrClosed = errors.New("the upstream connection is closed")

// link is what a connection goes over.
type link interface {
	// open makes the connection. ctx bounds that, not what comes after.
	open(ctx context.Context) error
	// start sends a call's request, where that needs nobody's goroutine, or
	// leaves it to wait. It does not block.
	start(k *call)
	// wait waits for a call's outcome.
	wait(ctx context.Context, k *call) outcome
	// notify sends or queues a message without waiting.
	notify(raw []byte) error
	// negotiated is told of the server's era, and the revision that is spoken.
	negotiated(era wire.Era, version string)
	// close ends everything and waits for that, for a bounded time. It is
	// called once, after open and after the connection's calls were ended.
	close()
	// listening reports whether the upstream can tell now what belongs to no call,
	// such as that a list has changed.
	listening() bool
	// streams reports whether messages arrive on the stream of their call.
	streams() bool
}

// Conn is one connection to the wrapped server. It is safe for concurrent use.
type Conn struct {
	srv  *Server
	link link
	recv wire.Receiver
	era  atomic.Uint32 // a wire.Era
	agreement
	lists [wire.Templates + 1]listCache
	// Of the modern era: what the server tells of by itself, and over HTTP the headers
	// of calls of tools, nil as long as the tools were not listed.
	listener    *listener
	toolHeaders atomic.Pointer[toolHeaders]

	ctx     context.Context // ends with the connection
	stop    context.CancelFunc
	wg      sync.WaitGroup // goroutines of the connection: see spawn
	dialled chan struct{}  // closes when Dial is done with it: then it may be disposed of
	opened  opened         // set before dialled closes
	gone    chan struct{}  // closes when it was disposed of

	// What every call writes is kept away from what it only reads: on one cache
	// line with it that would have to be fetched again each time.
	_     [64]byte
	mu    sync.Mutex // guards what follows
	calls map[int64]*call
	err   error

	last atomic.Int64 // the id given out last
}

// agreement is what a handshake has led to. It does not change afterwards.
type agreement struct {
	hello *wire.Message // the answer to initialize or server/discover
	caps  capabilities
	meta  []byte // of the modern era: _meta of the connection's own requests
}

// opened is what became of a connection's opening.
type opened uint8

const (
	unanswered      opened = iota
	answered               // the upstream answered it
	diedOfDiscovery        // the child ended when it was sent server/discover
)

func newConn(s *Server, r wire.Receiver) *Conn {
	c := &Conn{srv: s, recv: r, calls: make(map[int64]*call), dialled: make(chan struct{}), gone: make(chan struct{})}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

func (c *Conn) log() hclog.Logger { return c.srv.cfg.Log }

// Hello returns the upstream's answer to initialize or server/discover, as the
// connection's era has it: a Result.
func (c *Conn) Hello() *wire.Message { return c.hello }

// Era returns the connection's, in which all messages given to [Conn.Start] must be.
func (c *Conn) Era() wire.Era { return wire.Era(c.era.Load()) }

// Streams reports whether the upstream's messages arrive on the stream of the
// call that they belong to (Streamable HTTP), so that [wire.Receiver] gets that
// call's tag with each.
func (c *Conn) Streams() bool { return c.link.streams() }

// Done is closed when the connection has ended, by [Conn.Close] or by itself.
func (c *Conn) Done() <-chan struct{} { return c.ctx.Done() }

// Err tells why the connection ended, nil as long as it has not.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Start sends a client's request. Its id, and the progress token in its _meta
// where there is one, are replaced by an integer of the connection's own; the
// answer carries that integer as its id, and progress notifications reach the
// Receiver with the client's token again, and with tag.
//
// To a child process, and over HTTP+SSE, the request is queued before Start
// returns, in the order of the calls. Over Streamable HTTP it is posted by
// [wire.Call.Wait], on the caller's goroutine.
func (c *Conn) Start(m *wire.Message, tag any) wire.Call {
	k := newCall(c, m, tag)
	if err := c.enter(k); err != nil {
		return endedCall{err}
	}
	c.link.start(k)
	return k
}

// enter puts a call into the table. The error is that of a connection that has ended.
func (c *Conn) enter(k *call) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.calls[k.id] = k
	}
	return c.err
}

// take takes a call out of the table and returns it, nil where it was not in
// there: then it has an outcome.
func (c *Conn) take(id int64) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.calls[id]
	delete(c.calls, id)
	return k
}

// find returns the call under way that has an id or a progress token, nil for none.
func (c *Conn) find(raw []byte) *call {
	id, ok := number(raw)
	if !ok {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[id]
}

// Notify sends a notification, or an answer to one of the upstream's requests,
// as it is. It does not wait for the upstream: over HTTP such messages are
// posted in order by a goroutine of the connection. What the modern era has not is
// dropped: answers, notifications/initialized, and that the roots have changed.
func (c *Conn) Notify(raw []byte) error {
	if err := c.Err(); err != nil {
		return err
	}
	if c.Era() == wire.Modern {
		m, err := wire.Read(raw, wire.FromUpstream)
		if err != nil || m.Kind != wire.Notification || m.Method == "notifications/initialized" || m.Method == "notifications/roots/list_changed" {
			return nil
		}
	}
	return c.link.notify(raw)
}

// Close ends the connection: calls under way end with a [wire.CallError] at
// once. The rest goes on in the background, and [Server.Close] waits for it: a
// child's input is closed, then its process group gets SIGTERM, then SIGKILL;
// an HTTP session is ended by DELETE.
func (c *Conn) Close() { c.end(ErrClosed) }

// end ends the connection once.
func (c *Conn) end(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	calls := c.calls
	c.calls = nil
	c.mu.Unlock()
	c.stop()
	for _, k := range calls {
		k.settle(outcome{err: &wire.CallError{Sent: true, Err: err}})
	}
	c.srv.dispose(c)
}

// spawn runs f on a goroutine that the connection's end waits for. It reports
// false where the connection has ended.
func (c *Conn) spawn(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.wg.Go(f)
	}
	return c.err == nil
}

// receive takes a message, or a batch of them, from the upstream. own is the
// call on whose stream it came, nil where streams are shared. It reports whether
// own is over.
func (c *Conn) receive(raw []byte, own *call) (over bool) {
	if !wire.IsBatch(raw) {
		return c.receiveOne(raw, own)
	}
	members, err := wire.Split(raw)
	if err != nil {
		c.noise(err)
		return false
	}
	for _, member := range members {
		over = c.receiveOne(member, own) || over
	}
	return over
}

func (c *Conn) receiveOne(raw []byte, own *call) (over bool) {
	m, err := wire.Read(raw, wire.FromUpstream)
	if err != nil {
		return c.receiveUnreadable(raw, err, own)
	}
	switch m.Kind {
	case wire.Result, wire.Failure:
		return c.receiveAnswer(m, own)
	case wire.Request:
		c.receiveRequest(m, own)
	case wire.Notification:
		c.receiveNotification(m, own)
	}
	return false
}

// receiveAnswer gives a call its answer. One without an id answers the call whose
// stream it came on.
func (c *Conn) receiveAnswer(m *wire.Message, own *call) bool {
	id, ok := number(m.Bytes(m.ID))
	var k *call
	switch {
	case own == nil && ok:
		k = c.take(id)
	case own != nil && (!m.ID.Present() || ok && id == own.id):
		k = c.take(own.id)
	}
	if k == nil {
		c.srv.stats.stray.Add(1)
		c.log().Debug("dropped an answer from the upstream that no call waits for", "id", string(m.Bytes(m.ID)))
		return false
	}
	k.settle(outcome{m: k.withID(m)})
	return true
}

// receiveRequest passes a request of the upstream on, but for ping, which is answered
// here. In the modern era servers make none.
func (c *Conn) receiveRequest(m *wire.Message, own *call) {
	if c.Era() == wire.Modern {
		c.noise(errors.New("a request, which a server may not make in this revision"))
		return
	}
	if m.Method != "ping" {
		c.recv.Receive(m, own.tagged())
		return
	}
	if err := c.link.notify(wire.ResultAnswer(m.Bytes(m.ID), []byte("{}"))); err != nil {
		c.log().Debug("answering the upstream's ping", "error", err)
	}
}

// receiveNotification passes a notification of the upstream on, progress with the client's token again. Lists are
// dropped before.
func (c *Conn) receiveNotification(m *wire.Message, own *call) {
	if m.Method == "notifications/progress" {
		k := c.find(m.Bytes(m.P.ProgressToken))
		if k == nil || k.token == nil {
			c.srv.stats.stray.Add(1)
			return
		}
		raw := wire.Splice(m.Raw, wire.Edit{At: m.P.ProgressToken, With: k.token})
		if back, err := wire.Read(raw, wire.FromUpstream); err == nil {
			c.recv.Receive(back, k.tag)
		}
		return
	}
	if c.Era() == wire.Modern {
		if m = c.listener.receive(m, own); m == nil {
			return
		}
	}
	for kind := range wire.Templates + 1 {
		if kind.Changed() == m.Method {
			c.lists[kind].drop()
		}
	}
	c.recv.Receive(m, own.tagged())
}

// receiveUnreadable takes what is no message. Where it is an answer all the same, its
// call ends now: nothing better will come.
func (c *Conn) receiveUnreadable(raw []byte, err error, own *call) bool {
	c.noise(err)
	fault, ok := errors.AsType[*wire.Error](err)
	if !ok || fault.ID == nil {
		return false
	}
	if wire.Member(raw, "method") != nil { // a request, as far as it can be read
		_ = c.link.notify(fault.Answer())
		return false
	}
	k := c.find(fault.ID)
	if k == nil || own != nil && k != own {
		return false
	}
	return k.finish(outcome{err: &wire.CallError{Sent: true, Err: errors.New("the upstream's answer cannot be read: " + fault.Message)}})
}

// noise counts what the upstream sent that is no message, and says so now and
// then.
func (c *Conn) noise(err error) {
	n := c.srv.stats.noise.Add(1)
	if n&(n-1) == 0 { // 1, 2, 4, 8, …
		c.log().Warn("the upstream sent something that is no MCP message", "error", err, "so far", n)
	}
}

// call is one request under way. It is a wire.Call.
type call struct {
	conn   *Conn
	id     int64
	raw    []byte // the request as it goes upstream
	tag    any
	token  []byte      // the client's progress token, raw; nil for none
	modern *modernPost // of the modern era over HTTP; else nil
	// Who takes the call out of the connection's table gives it its outcome, or
	// gives that to then, which conn.mu guards.
	then func(*wire.Message, error)

	mu     sync.Mutex    // guards what follows; calls of a connection share no lock but for the table
	over   bool          // there is an outcome
	result outcome       // not written any more once it is over
	ready  chan struct{} // closed when it is over; made on demand
	posted bool          // it is being sent by Wait
	unsent bool          // it was cancelled before that
}

// outcome is a call's end: one of the two is set.
type outcome struct {
	m   *wire.Message
	err *wire.CallError
}

// newCall makes the request as it goes upstream: id and progress token are the
// connection's own integer. It is the only edit.
func newCall(c *Conn, m *wire.Message, tag any) *call {
	id := c.last.Add(1)
	var digits [20]byte
	number := strconv.AppendInt(digits[:0], id, 10)
	edits := [2]wire.Edit{{At: m.ID, With: number}, {At: m.P.MetaToken, With: number}}
	used := edits[:]
	switch {
	case !m.P.MetaToken.Present():
		used = edits[:1]
	case m.P.MetaToken.Start < m.ID.Start:
		edits[0], edits[1] = edits[1], edits[0]
	}
	k := &call{conn: c, id: id, tag: tag, raw: wire.Splice(m.Raw, used...), token: m.Bytes(m.P.MetaToken)}
	if m.Era() == wire.Modern && c.link.streams() {
		k.modern = &modernPost{message: m}
	}
	return k
}

// Wait implements wire.Call. The answer carries the connection's id.
func (k *call) Wait(ctx context.Context) (*wire.Message, error) { return k.wait(ctx).answer() }

func (k *call) wait(ctx context.Context) outcome {
	if k.isOver() { // before it was waited for
		return k.result
	}
	return k.conn.link.wait(ctx, k)
}

// answer returns the outcome as wire.Call has it.
func (o outcome) answer() (*wire.Message, error) {
	if o.err != nil {
		return nil, o.err
	}
	return o.m, nil
}

// Then implements wire.Call, where answers arrive on the connection's read loop.
func (k *call) Then(done func(*wire.Message, error)) (giveUp func(), ok bool) {
	if k.conn.link.streams() {
		return nil, false
	}
	c := k.conn
	c.mu.Lock()
	underWay := c.calls[k.id] != nil
	if underWay {
		k.then = done
	}
	c.mu.Unlock()
	if !underWay {
		done(k.outcome().answer())
	}
	return func() { k.finish(outcome{err: &wire.CallError{Sent: true, Err: context.Canceled}}) }, true
}

// await waits for the answer to arrive on the connection's read loop.
func (k *call) await(ctx context.Context) outcome {
	select {
	case <-k.done():
		return k.result
	case <-ctx.Done():
		return k.giveUp(&wire.CallError{Sent: true, Err: ctx.Err()})
	}
}

// giveUp ends the call with err unless it has an outcome already.
func (k *call) giveUp(err *wire.CallError) outcome {
	k.finish(outcome{err: err})
	return k.outcome()
}

// outcome waits for the outcome of a call that has one, or is being given it.
func (k *call) outcome() outcome {
	if !k.isOver() {
		<-k.done()
	}
	return k.result
}

func (k *call) isOver() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.over
}

// done returns a channel that closes when the call has its outcome.
func (k *call) done() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ready == nil {
		k.ready = make(chan struct{})
		if k.over {
			close(k.ready)
		}
	}
	return k.ready
}

// finish gives the call its outcome, once: it reports false where it had one.
func (k *call) finish(o outcome) bool {
	if k.conn.take(k.id) == nil {
		return false
	}
	k.settle(o)
	return true
}

// settle hands an outcome on. The call is out of the table: nobody else does.
func (k *call) settle(o outcome) {
	if k.then != nil {
		k.then(o.answer())
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.over, k.result = true, o
	if k.ready != nil {
		close(k.ready)
	}
}

// beginPost reports whether the call may be posted: it was not cancelled before.
func (k *call) beginPost() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.posted = !k.unsent
	return k.posted
}

// Cancel implements wire.Call. What was not posted yet never is.
func (k *call) Cancel(params []byte) {
	if k.conn.link.streams() {
		k.mu.Lock()
		k.unsent = k.unsent || !k.posted
		unsent := k.unsent
		k.mu.Unlock()
		if unsent {
			return
		}
	}
	if k.modern != nil {
		k.modern.life.End()
		return
	}
	raw := wire.NotificationMessage("notifications/cancelled", cancelParams(params, k.id))
	if err := k.conn.link.notify(raw); err != nil {
		k.conn.log().Debug("cancelling an upstream call", "error", err)
	}
}

// Overdue implements wire.Call: see [Conn.Suspect].
func (k *call) Overdue() { k.conn.Suspect() }

// cancelParams puts the upstream's id into the params of a cancellation.
func cancelParams(params []byte, id int64) []byte {
	number := strconv.AppendInt(nil, id, 10)
	var at wire.Span
	_ = wire.Members(params, func(name string, value wire.Span) error {
		if name == "requestId" {
			at = value
		}
		return nil
	})
	if !at.Present() {
		return append(append([]byte(`{"requestId":`), number...), '}')
	}
	return wire.Splice(params, wire.Edit{At: at, With: number})
}

// withID gives an error answer without an id the call's.
func (k *call) withID(m *wire.Message) *wire.Message {
	if m.ID.Present() {
		return m
	}
	raw := append([]byte(`{"jsonrpc":"2.0","id":`), strconv.FormatInt(k.id, 10)...)
	raw = append(append(raw, `,"error":`...), m.Bytes(m.Error)...)
	if full, err := wire.Read(append(raw, '}'), wire.FromUpstream); err == nil {
		return full
	}
	return m
}

// number reads an id or a token that the connection gave out.
func number(raw []byte) (int64, bool) {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return n, err == nil
}

// tagged returns the tag of a call, nil for none.
func (k *call) tagged() any {
	if k == nil {
		return nil
	}
	return k.tag
}

// endedCall is a call on a connection that had ended before.
type endedCall struct{ err error }

// Wait implements wire.Call.
func (e endedCall) Wait(context.Context) (*wire.Message, error) {
	return nil, &wire.CallError{Err: e.err}
}

// Then implements wire.Call.
func (e endedCall) Then(done func(*wire.Message, error)) (giveUp func(), ok bool) {
	done(e.Wait(context.Background()))
	return func() {}, true
}

// Cancel implements wire.Call.
func (endedCall) Cancel([]byte) {}

// Overdue implements wire.Call.
func (endedCall) Overdue() {}
