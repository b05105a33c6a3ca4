package upstream

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

const (
	// minRelisten and maxRelisten bound the wait before a stream that was lost is
	// opened again; it doubles while that fails, or the stream does not last.
	minRelisten = time.Second
	maxRelisten = 30 * time.Second
	// ackTime is how long a stream may go without its acknowledgement until it
	// counts as open all the same.
	ackTime = 10 * time.Second
	// partTime is how long the end of a subscription to a child is waited for: there
	// are servers in which it takes the next one with it.
	partTime = 250 * time.Millisecond
)

// ears keep a subscriptions/listen stream open, by which a server of the modern era
// tells what belongs to no request (2026-07-28, basic/patterns/subscriptions): that
// lists have changed, where it promises to, and updates of resources. Its goroutine
// ends with the connection.
type ears struct {
	conn  *Conn
	wake  chan struct{} // holds one item when what is wanted has changed
	heard atomic.Uint32 // the lists whose changes are told of now, a bit for each

	mu      sync.Mutex // guards what follows
	uris    []string   // of the resources whose updates are wanted
	running bool
	open    []*ear // one, and another that takes its place
}

// ear is one stream. end is set when over closes.
type ear struct {
	call  *call
	acked chan struct{} // closes when the server has acknowledged it
	over  chan struct{}
	lists uint32 // guarded by ears.mu: what the server agreed to tell of
	// updates is guarded by ears.mu: what it tells of resources, too.
	updates bool
	end     outcome
}

func newEars(c *Conn) *ears { return &ears{conn: c, wake: make(chan struct{}, 1)} }

// Listen says of which resources' updates the upstream is to tell, in place of those
// before: all there are. It waits for nothing. In the legacy era, which has
// resources/subscribe for that, it does nothing.
func (c *Conn) Listen(uris []string) error {
	if c.Era() == wire.Legacy {
		return nil
	}
	if err := c.Err(); err != nil {
		return err
	}
	c.ears.want(uris)
	return nil
}

// hears reports whether the upstream can tell now that a list has changed.
func (c *Conn) hears(kind wire.ListKind) bool {
	if c.Era() == wire.Modern {
		return c.ears.heard.Load()&listBit(kind) != 0
	}
	return c.link.hears()
}

// listBit is the bit of a list. Templates change with the resources.
func listBit(kind wire.ListKind) uint32 {
	if kind == wire.Templates {
		kind = wire.Resources
	}
	return 1 << kind
}

// want sets the resources, and has the goroutine see to it.
func (e *ears) want(uris []string) {
	e.mu.Lock()
	running, same := e.running, slices.Equal(e.uris, uris)
	e.uris = slices.Clone(uris)
	start := !e.running && (len(uris) > 0 || e.conn.caps.change())
	e.running = e.running || start
	e.mu.Unlock()
	switch {
	case start:
		e.conn.own(e.run)
	case running && !same:
		select {
		case e.wake <- struct{}{}:
		default:
		}
	}
}

// run keeps a stream open, until the connection ends.
func (e *ears) run() {
	var now *ear
	var wait time.Duration
	missed := false // there was a time in which nothing could be heard
	for {
		now = e.replace(now, missed)
		began := time.Now()
		select {
		case <-e.conn.ctx.Done():
			return
		case <-e.wake:
			missed = false
		case <-now.ended():
			if time.Since(began) > maxRelisten {
				wait = 0
			}
			if !e.again(now, &wait) {
				return
			}
			now, missed = nil, true
		}
	}
}

// again waits until a stream that is over is to be opened anew. It reports false
// where the connection ends before.
func (e *ears) again(r *ear, wait *time.Duration) bool {
	e.part(r)
	if e.final(r) {
		e.conn.log().Debug("the upstream tells of no changes by itself", "reason", r.end.reason())
		return e.rest()
	}
	e.conn.log().Debug("the upstream's subscription ended, and is made again", "reason", r.end.reason())
	return e.pause(wait)
}

// final reports whether a stream's end says that another would end likewise.
func (e *ears) final(r *ear) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return r.end.final() || r.end.m != nil && r.lists == 0 && !r.updates
}

// ended closes when a stream is over; of none it never does.
func (r *ear) ended() <-chan struct{} {
	if r == nil {
		return nil
	}
	return r.over
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// final reports whether a request that came to this end would come to it again.
func (o outcome) final() bool {
	switch {
	case o.err != nil:
		return o.err.Status >= http.StatusBadRequest && o.err.Status < http.StatusInternalServerError &&
			o.err.Status != http.StatusUnauthorized && o.err.Status != http.StatusRequestTimeout && o.err.Status != http.StatusTooManyRequests
	case o.m.Kind == wire.Failure:
		return o.m.ErrorCode == wire.CodeMethodNotFound || o.m.ErrorCode == wire.CodeInvalidParams
	}
	return false
}

// reason is how a stream ended, in words.
func (o outcome) reason() string {
	switch {
	case o.err != nil:
		return o.err.Error()
	case o.m.Kind == wire.Failure:
		return fmt.Sprintf("it refused with error %d", o.m.ErrorCode)
	}
	return "it ended the subscription"
}

// pause waits before the next attempt, or until something else is wanted. It reports false where there is to be none.
func (e *ears) pause(wait *time.Duration) bool {
	*wait = min(max(2*(*wait), minRelisten), maxRelisten)
	timer := time.NewTimer(*wait - rand.N(*wait/4+1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-e.wake:
		return true
	case <-e.conn.ctx.Done():
		return false
	}
}

// rest waits until something else is wanted.
func (e *ears) rest() bool {
	select {
	case <-e.wake:
		return true
	case <-e.conn.ctx.Done():
		return false
	}
}

// replace opens a stream for what is wanted now, nil where that is nothing, and
// closes the one before. Over HTTP it does so in this order, so that nothing is
// missed; to a child the other way round.
func (e *ears) replace(before *ear, missed bool) *ear {
	first := before != nil && !e.conn.link.streams()
	if first {
		e.close(before)
	}
	next := e.listen()
	if next != nil {
		e.await(next)
	}
	if before != nil && !first {
		if next != nil && isClosed(next.over) && !isClosed(before.over) {
			e.part(next)
			e.conn.log().Warn("the upstream takes no other subscriptions", "reason", next.end.reason())
			return before
		}
		e.close(before)
	}
	if next != nil && isClosed(next.acked) && (before == nil || first) {
		e.conn.dropAll()
		if missed || first {
			e.suppose(next)
		}
	}
	return next
}

// await waits until a stream is acknowledged, or will not be.
func (e *ears) await(r *ear) {
	timer := time.NewTimer(ackTime)
	defer timer.Stop()
	select {
	case <-r.acked:
	case <-r.over:
	case <-timer.C:
	case <-e.conn.ctx.Done():
	}
}

// suppose tells that the lists have changed, since that may have gone unheard.
func (e *ears) suppose(r *ear) {
	e.mu.Lock()
	lists := r.lists
	e.mu.Unlock()
	for kind := range wire.Templates {
		if lists&listBit(kind) == 0 {
			continue
		}
		if m, err := wire.Read(wire.NotificationMessage(kind.Changed(), nil), wire.FromUpstream); err == nil {
			e.conn.recv.Receive(m, nil)
		}
	}
}

// listen opens a stream, nil where nothing is wanted or the connection has ended.
func (e *ears) listen() *ear {
	select {
	case <-e.wake: // what is wanted now is read here
	default:
	}
	filter := e.filter()
	if filter == nil {
		return nil
	}
	params := append(append([]byte(`{"_meta":`), e.conn.meta...), `,"notifications":`...)
	params = append(append(params, filter...), '}')
	m, err := wire.Read(wire.RequestMessage(0, "subscriptions/listen", params), wire.FromUpstream)
	if err != nil {
		return nil
	}
	r := &ear{call: newCall(e.conn, e.conn.last.Add(1), m, nil), acked: make(chan struct{}), over: make(chan struct{})}
	e.mu.Lock()
	e.open = append(e.open, r)
	e.mu.Unlock()
	if e.conn.enter(r.call) != nil || !e.conn.own(func() { e.hear(r) }) {
		return nil
	}
	return r
}

// hear takes what comes on a stream, until it is over.
func (e *ears) hear(r *ear) {
	defer close(r.over)
	e.conn.link.start(r.call)
	m, err := r.call.Wait(e.conn.ctx)
	if err == nil {
		r.end.m = m
		return
	}
	r.end.err, _ = errors.AsType[*wire.CallError](err)
}

// filter is what the server is to tell of, nil: nothing.
func (e *ears) filter() []byte {
	out := []byte{'{'}
	add := func(name string, value []byte) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, '"'), name...), `":`...)
		out = append(out, value...)
	}
	for kind, name := range listFilters {
		if e.conn.caps[kind].changes {
			add(name, []byte("true"))
		}
	}
	e.mu.Lock()
	uris := e.uris
	e.mu.Unlock()
	if len(uris) > 0 {
		list := []byte{'['}
		for i, uri := range uris {
			if i > 0 {
				list = append(list, ',')
			}
			list = wire.AppendString(list, uri)
		}
		add("resourceSubscriptions", append(list, ']'))
	}
	if len(out) == 1 {
		return nil
	}
	return append(out, '}')
}

// listFilters are the members of a filter that stand for lists.
var listFilters = [...]string{
	wire.Tools:     "toolsListChanged",
	wire.Resources: "resourcesListChanged",
	wire.Prompts:   "promptsListChanged",
}

// close ends a stream. A child's end of it is waited for a little.
func (e *ears) close(r *ear) {
	e.part(r)
	if isClosed(r.over) {
		return
	}
	r.call.Cancel(nil)
	timer := time.AfterFunc(partTime, func() {
		r.call.finish(outcome{err: &wire.CallError{Sent: true, Err: errCancelled}})
	})
	defer timer.Stop()
	<-r.over
}

// part has nothing more come of a stream.
func (e *ears) part(r *ear) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.open = slices.DeleteFunc(e.open, func(other *ear) bool { return other == r })
	e.heardLocked()
}

func (e *ears) heardLocked() {
	var all uint32
	for _, r := range e.open {
		all |= r.lists
	}
	e.heard.Store(all)
}

// find returns the stream of a call, nil where that is none, or over.
func (e *ears) find(k *call) *ear {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.open {
		if r.call == k {
			return r
		}
	}
	return nil
}
