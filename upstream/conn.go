package upstream

import (
	"context"
	"errors"
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
	// greeted is told of the server's era, and the revision that is spoken.
	greeted(era wire.Era, version string)
	// close ends everything and waits for that, for a bounded time. It is
	// called once, after open and after the connection's calls were ended.
	close()
	// hears tells whether the upstream can tell now what belongs to no call,
	// such as that a list has changed.
	hears() bool
	// streams tells whether messages arrive on the stream of their call.
	streams() bool
}

// Conn is one connection to the wrapped server. It is safe for concurrent use.
type Conn struct {
	srv   *Server
	link  link
	recv  wire.Receiver
	hello *wire.Message
	era   atomic.Uint32 // a wire.Era
	// Of the modern era: _meta of the connection's own requests, and what it hears.
	meta []byte
	ears *ears
	caps capabilities
	// mirrors are of the modern era over HTTP; nil: the tools were never listed.
	mirrors atomic.Pointer[mirrors]
	lists   [wire.Templates + 1]lister
	ctx     context.Context // ends with the connection
	stop    context.CancelFunc
	wg      sync.WaitGroup // list fetches
	// dialled closes when Dial is done with the connection: then it may be
	// disposed of.
	dialled chan struct{}
	gone    chan struct{} // closes when it was disposed of
	// What became of its opening; set before dialled closes.
	live      bool // it was answered
	diedAsked bool // the child ended with server/discover

	// What every call writes is kept away from what it only reads: on one cache
	// line with it that would have to be fetched again each time.
	_     [64]byte
	mu    sync.Mutex // guards what follows
	calls map[int64]*call
	err   error

	last atomic.Int64 // the id given out last
}

func newConn(s *Server, r wire.Receiver) *Conn {
	c := &Conn{srv: s, recv: r, calls: make(map[int64]*call), dialled: make(chan struct{}), gone: make(chan struct{})}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

func (c *Conn) log() hclog.Logger { return c.srv.cfg.Log }

// Hello returns the upstream's answer to initialize or server/discover, as the
// connection's era has it: a Result.
func (c *Conn) Hello() *wire.Message { return c.hello }

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
	k := newCall(c, c.last.Add(1), m, tag)
	if err := c.enter(k); err != nil {
		return ended{err}
	}
	c.link.start(k)
	return k
}

func (c *Conn) enter(k *call) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.calls[k.id] = k
	}
	return c.err
}

// forget takes a call out of the table and returns it, nil where it was not in
// there: then it has an outcome.
func (c *Conn) forget(id int64) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.calls[id]
	delete(c.calls, id)
	return k
}

// arrange has a call's outcome given to then. It reports false where the call
// has one already.
func (c *Conn) arrange(k *call, then func(*wire.Message, error)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[k.id] == nil {
		return false
	}
	k.then = then
	return true
}

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
	if c.Era() == wire.Modern && !isModernNotification(raw) {
		return nil
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
	c.srv.ended(c)
}

// own runs f on a goroutine that the connection's end waits for. It reports
// false where the connection has ended.
func (c *Conn) own(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.wg.Go(f)
	}
	return c.err == nil
}

// dispose frees what the connection holds, and waits for that.
func (c *Conn) dispose() {
	<-c.dialled
	c.link.close()
	c.wg.Wait()
}
