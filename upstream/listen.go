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
	// endTime is how long the end of a subscription to a child is waited for: there
	// are servers in which it takes the next one with it.
	endTime = 250 * time.Millisecond
)

// listener keeps a subscriptions/listen stream open, by which a server of the modern era
// tells what belongs to no request (2026-07-28, basic/patterns/subscriptions): that
// lists have changed, where it promises to, and updates of resources. Its goroutine
// ends with the connection.
type listener struct {
	conn   *Conn
	wake   chan struct{} // holds one item when what is wanted has changed
	agreed atomic.Uint32 // the lists whose changes are told of now, a bit for each

	mu      sync.Mutex // guards what follows
	uris    []string   // of the resources whose updates are wanted
	running bool
	open    []*subscription // one, and another that takes its place
}

// subscription is one subscriptions/listen stream. end is set when over closes.
type subscription struct {
	call    *call
	acked   chan struct{} // closes when the server has acknowledged it
	over    chan struct{}
	lists   uint32 // guarded by listener.mu: what the server agreed to tell of
	updates bool   // guarded by listener.mu: of resources, too
	end     outcome
}

func newListener(c *Conn) *listener { return &listener{conn: c, wake: make(chan struct{}, 1)} }

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
	c.listener.subscribe(uris)
	return nil
}

// subscribe sets the resources, and has the goroutine see to it.
func (l *listener) subscribe(uris []string) {
	l.mu.Lock()
	running, same := l.running, slices.Equal(l.uris, uris)
	l.uris = slices.Clone(uris)
	start := !l.running && (len(uris) > 0 || l.conn.caps.anyChanges())
	l.running = l.running || start
	l.mu.Unlock()
	switch {
	case start:
		l.conn.spawn(l.run)
	case running && !same:
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// run keeps a stream open, until the connection ends.
func (l *listener) run() {
	var now *subscription
	var wait time.Duration
	missed := false // there was a time in which nothing could be told
	for {
		now = l.replace(now, missed)
		began := time.Now()
		var over <-chan struct{} // where nothing is wanted it never closes
		if now != nil {
			over = now.over
		}
		select {
		case <-l.conn.ctx.Done():
			return
		case <-l.wake:
			missed = false
		case <-over:
			if time.Since(began) > maxRelisten {
				wait = 0
			}
			if !l.pause(now, &wait) {
				return
			}
			now, missed = nil, true
		}
	}
}

// pause waits until a stream that is over is to be opened anew: for a time that grows, or
// where another would end likewise until something else is wanted. It reports false
// where the connection ends before.
func (l *listener) pause(over *subscription, wait *time.Duration) bool {
	l.mu.Lock()
	final := over.end.final() || over.end.m != nil && over.lists == 0 && !over.updates
	l.mu.Unlock()
	l.remove(over)
	var passed <-chan time.Time
	if final {
		l.conn.log().Debug("the upstream tells of no changes by itself", "reason", over.end.reason())
	} else {
		l.conn.log().Debug("the upstream's subscription ended, and is made again", "reason", over.end.reason())
		*wait = min(max(2*(*wait), minRelisten), maxRelisten)
		timer := time.NewTimer(*wait - rand.N(*wait/4+1))
		defer timer.Stop()
		passed = timer.C
	}
	select {
	case <-passed:
		return true
	case <-l.wake:
		return true
	case <-l.conn.ctx.Done():
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

// reason says how a stream ended.
func (o outcome) reason() string {
	switch {
	case o.err != nil:
		return o.err.Error()
	case o.m.Kind == wire.Failure:
		return fmt.Sprintf("it refused with error %d", o.m.ErrorCode)
	}
	return "it ended the subscription"
}

// replace opens a stream for what is wanted now, nil where that is nothing, and
// closes the one before. Over HTTP it does so in this order, so that nothing is
// missed; to a child the other way round.
func (l *listener) replace(before *subscription, missed bool) *subscription {
	first := before != nil && !l.conn.link.streams()
	if first {
		l.close(before)
	}
	next := l.listen()
	if next != nil {
		timer := time.NewTimer(ackTime)
		select {
		case <-next.acked:
		case <-next.over:
		case <-timer.C:
		case <-l.conn.ctx.Done():
		}
		timer.Stop()
	}
	if before != nil && !first {
		if next != nil && isClosed(next.over) && !isClosed(before.over) {
			l.remove(next)
			l.conn.log().Warn("the upstream takes no other subscriptions", "reason", next.end.reason())
			return before
		}
		l.close(before)
	}
	if next != nil && isClosed(next.acked) && (before == nil || first) {
		l.conn.dropLists()
		if missed || first {
			l.reportChanges(next)
		}
	}
	return next
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// reportChanges tells that the lists of a subscription have changed, since that may not have been told of.
func (l *listener) reportChanges(r *subscription) {
	l.mu.Lock()
	lists := r.lists
	l.mu.Unlock()
	for kind := range wire.Templates {
		if lists&listBit(kind) == 0 {
			continue
		}
		if m, err := wire.Read(wire.NotificationMessage(kind.Changed(), nil), wire.FromUpstream); err == nil {
			l.conn.recv.Receive(m, nil)
		}
	}
}

// listen opens a stream, nil where nothing is wanted or the connection has ended.
func (l *listener) listen() *subscription {
	select {
	case <-l.wake: // what is wanted now is read here
	default:
	}
	filter := l.filter()
	if filter == nil {
		return nil
	}
	c := l.conn
	params := append(append([]byte(`{"_meta":`), c.meta...), `,"notifications":`...)
	m, err := wire.Read(wire.RequestMessage(0, "subscriptions/listen", append(append(params, filter...), '}')), wire.FromUpstream)
	if err != nil {
		return nil
	}
	r := &subscription{call: newCall(c, m, nil), acked: make(chan struct{}), over: make(chan struct{})}
	l.mu.Lock()
	l.open = append(l.open, r)
	l.mu.Unlock()
	if c.enter(r.call) != nil {
		return nil
	}
	wait := func() {
		defer close(r.over)
		c.link.start(r.call)
		r.end = r.call.wait(c.ctx)
	}
	if !c.spawn(wait) {
		return nil
	}
	return r
}

// listFilters are the members of a filter that stand for lists.
var listFilters = [...]string{
	wire.Tools:     "toolsListChanged",
	wire.Resources: "resourcesListChanged",
	wire.Prompts:   "promptsListChanged",
}

// filter is what the server is to tell of, nil: nothing.
func (l *listener) filter() []byte {
	var out []byte
	for kind, name := range listFilters {
		if l.conn.caps[kind].changes {
			out = append(append(append(out, `,"`...), name...), `":true`...)
		}
	}
	l.mu.Lock()
	uris := l.uris
	l.mu.Unlock()
	for i, uri := range uris {
		if i == 0 {
			out = append(out, `,"resourceSubscriptions":[`...)
		} else {
			out = append(out, ',')
		}
		out = wire.AppendString(out, uri)
	}
	if len(uris) > 0 {
		out = append(out, ']')
	}
	if out == nil {
		return nil
	}
	out[0] = '{'
	return append(out, '}')
}

// close ends a stream. A child's end of it is waited for a little.
func (l *listener) close(r *subscription) {
	l.remove(r)
	if isClosed(r.over) {
		return
	}
	r.call.Cancel(nil)
	timer := time.AfterFunc(endTime, func() {
		r.call.finish(outcome{err: &wire.CallError{Sent: true, Err: errCancelled}})
	})
	defer timer.Stop()
	<-r.over
}

// remove has no more notifications of a stream passed on.
func (l *listener) remove(r *subscription) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = slices.DeleteFunc(l.open, func(other *subscription) bool { return other == r })
	l.agreeLocked()
}

// agreeLocked notes which lists the open streams tell of together.
func (l *listener) agreeLocked() {
	var all uint32
	for _, r := range l.open {
		all |= r.lists
	}
	l.agreed.Store(all)
}

// receive takes a notification of the modern era, and returns it as it is to go on: nil
// where it is the connection's own business. own is the call on whose stream it came,
// nil where streams are shared.
func (l *listener) receive(m *wire.Message, own *call) *wire.Message {
	if m.Method == "notifications/cancelled" {
		if r := l.find(l.conn.find(m.Bytes(m.P.RequestID))); r != nil {
			r.call.finish(outcome{err: &wire.CallError{Sent: true, Err: errors.New("the upstream ended the subscription")}})
		}
		return nil
	}
	subscribed := m.P.Modern != nil && m.P.Modern.Subscription.Present()
	if own == nil && subscribed {
		own = l.conn.find(m.Bytes(m.P.Modern.Subscription))
	}
	switch r := l.find(own); {
	case m.Method == "notifications/subscriptions/acknowledged":
		if r != nil && !isClosed(r.acked) {
			l.acknowledge(r, m.Bytes(m.P.Notifications))
		}
		return nil
	case !subscribed:
		return m
	case r == nil: // it comes late
		l.conn.srv.stats.stray.Add(1)
		return nil
	}
	// The id is that of the connection's own request.
	edits := wire.Without(m.Raw, m.P.Meta, func(name string) bool { return name == wire.MetaSubscription })
	out, err := wire.Read(wire.Splice(m.Raw, edits...), wire.FromUpstream)
	if err != nil {
		return nil
	}
	return out
}

// find returns the stream of a call, nil where that is none, or over.
func (l *listener) find(k *call) *subscription {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.open {
		if r.call == k {
			return r
		}
	}
	return nil
}

// acknowledge notes what the server will tell of.
func (l *listener) acknowledge(r *subscription, agreed []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = wire.Members(agreed, func(name string, at wire.Span) error {
		value := string(agreed[at.Start:at.End])
		if kind := slices.Index(listFilters[:], name); kind >= 0 && value == "true" {
			r.lists |= listBit(wire.ListKind(kind))
		}
		r.updates = r.updates || name == "resourceSubscriptions" && value != "[]" && value != "null"
		return nil
	})
	l.agreeLocked()
	close(r.acked)
}
