package subscriptions

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/deadline"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/proxy/link"
)

// Member is a session that uses a connection to the upstream.
type Member interface {
	// Wants are what it wants to be told.
	Wants() *Wants
	// Told takes a request or a notification of the upstream. tag is that of the request of
	// the session's to which it belongs, nil where none is known.
	Told(conn *bridge.Upstream, m *wire.Message, tag any)
	// Reconnected takes a connection in place of a lost one. It has been told what is wanted.
	Reconnected(conn *bridge.Upstream)
	// Disconnected tells that a connection was lost.
	Disconnected(conn *bridge.Upstream)
	// AwaitsClient reports whether the upstream waits for the session's client to answer it.
	AwaitsClient() bool
}

// Tag is the tag of a member's request.
type Tag interface{ Member() Member }

// Meter measures connections.
type Meter interface {
	Reconnected()
	ConnectionEnded(after time.Duration)
}

// Uplinks are the connections to the upstream of a proxy's sessions: one for each, or one for all.
type Uplinks struct {
	link.Config
	Meter Meter // nil: nobody measures

	shared  *Uplink               // nil: each has its own
	opening func() bridge.Opening // of the proxy, for the shared one

	mu      sync.Mutex          // guards what follows
	sharing map[Member]struct{} // who uses the shared one
}

// Share has all sessions that come use one connection, which the proxy opens as its client.
func (us *Uplinks) Share(opening func() bridge.Opening) {
	us.opening, us.sharing = opening, make(map[Member]struct{})
	us.shared = &Uplink{config: us}
	us.shared.Init(&us.Config, us.shared)
	us.shared.GreetBySelf()
}

// Of returns the uplink that a new session is to use. silent tells that its
// clients send no notifications/initialized.
func (us *Uplinks) Of(m Member, silent bool) *Uplink {
	if us.shared != nil {
		return us.shared
	}
	u := &Uplink{config: us, own: m}
	u.Init(&us.Config, u)
	if silent {
		u.GreetBySelf()
	}
	return u
}

// Apart returns how a connection is had for what the proxy asks by itself, and how its use ends: one of its own, on which
// the upstream reaches nobody, or the shared one.
func (us *Uplinks) Apart(with bridge.Opening) (get func() (*bridge.Upstream, error), leave func()) {
	if us.shared != nil {
		return func() (*bridge.Upstream, error) { return us.shared.Open(us.opening()) }, func() {}
	}
	u := &Uplink{config: us}
	u.Init(&us.Config, u)
	u.GreetBySelf()
	return func() (*bridge.Upstream, error) { return u.Open(with) }, u.Close
}

// Close ends the shared connection, for good; its own each session ends.
func (us *Uplinks) Close() {
	if us.shared != nil {
		us.shared.Close()
	}
}

// Uplink is the connection to the upstream that one session has, or that all share: then what arrives
// on the stream of a request reaches that request's session, and nothing else that belongs to somebody
// does. It is safe for concurrent use.
type Uplink struct {
	link.Link
	config *Uplinks
	own    Member // whose it is alone; nil: it is shared

	// telling is locked from looking at what is wanted until the upstream has been told, which
	// waits for nothing. It is taken before any other lock.
	telling sync.Mutex
}

// Shared reports whether all sessions use it.
func (u *Uplink) Shared() bool { return u.own == nil }

// OpenFor makes the first connection for a session; with is how its client is introduced where it is
// the only one.
func (u *Uplink) OpenFor(m Member, with bridge.Opening) (*bridge.Upstream, error) {
	if u.Shared() {
		with = u.config.opening()
		u.config.mu.Lock()
		u.config.sharing[m] = struct{}{}
		u.config.mu.Unlock()
	}
	return u.Open(with)
}

// Initialized passes the notifications/initialized of the only client on, as [link.Link] does.
func (u *Uplink) Initialized(raw []byte) {
	if !u.Shared() {
		u.Link.Initialized(raw)
	}
}

// Leave ends the use of a session that has ended: its own connection ends, and over a shared one it
// is told of nothing any more.
func (u *Uplink) Leave(m Member) {
	if !u.Shared() {
		u.Close()
		return
	}
	gone := m.Wants().Follow(func() []string { return nil })
	u.config.mu.Lock()
	delete(u.config.sharing, m)
	u.config.mu.Unlock()
	u.Tell(m, gone)
}

// members returns who uses the connection.
func (u *Uplink) members() []Member {
	if !u.Shared() {
		return []Member{u.own}
	}
	u.config.mu.Lock()
	defer u.config.mu.Unlock()
	return slices.Collect(maps.Keys(u.config.sharing))
}

// AwaitsClients reports whether the upstream waits for a client to answer it.
func (u *Uplink) AwaitsClients() bool { return slices.ContainsFunc(u.members(), Member.AwaitsClient) }

// Covered reports whether another session has the upstream log at a level already.
func (u *Uplink) Covered(than Member, level string) bool {
	return slices.ContainsFunc(u.members(), func(m Member) bool {
		set := m.Wants().Level()
		return m != than && set != nil && Covers(set.P.Level, level)
	})
}

// levelTimeout bounds how long a call waits for the upstream to take its log level.
const levelTimeout = 5 * time.Second

// TellLevel sets the level of log messages upstream that a session wants, where another session over the same connection
// has not set it already. That it fails keeps no call from being made; the error says why the upstream did not take it.
func (u *Uplink) TellLevel(m Member) error {
	level := m.Wants().Level()
	if u.Covered(m, level.P.Level) {
		return nil
	}
	conn, err := u.Get()
	if err != nil { // of which the call tells
		return nil
	}
	ctx, stop := context.WithTimeout(context.Background(), levelTimeout)
	defer stop()
	_, err = conn.Start(level, nil).Wait(ctx)
	return err
}

// Kept reports whether a subscription is not to be ended, as another session has it over the same
// connection.
func (u *Uplink) Kept(uri string) bool { return u.Shared() && u.wanted(uri) }

// wanted reports whether any session wants a resource's updates.
func (u *Uplink) wanted(uri string) bool {
	return slices.ContainsFunc(u.members(), func(m Member) bool { return m.Wants().Has(uri) })
}

// Enter has a session want a resource's updates, for which it is about to ask, up to a bound. entered
// is false where it does already, ok where there is no room for it.
func (u *Uplink) Enter(m Member, uri string, most int) (entered, ok bool) {
	u.telling.Lock()
	defer u.telling.Unlock()
	return m.Wants().enter(uri, most)
}

// End ends a subscription by send, which waits for nothing, unless it is to be kept. Who comes to want
// it from now on asks after that.
func (u *Uplink) End(uri string, send func() bool) (kept, sent bool) {
	u.telling.Lock()
	defer u.telling.Unlock()
	if u.Kept(uri) {
		return true, false
	}
	return false, send()
}

// Tell tells the upstream whether resources are wanted by a session, as it is now: whichever of two
// changes is told last tells of both. A connection that is coming up may have been brought to where
// the last one was before; it is told when it is there.
func (u *Uplink) Tell(m Member, uris []string) {
	if len(uris) == 0 {
		return
	}
	u.With(func(conn *bridge.Upstream) {
		u.telling.Lock()
		defer u.telling.Unlock()
		for _, uri := range uris {
			switch {
			case m.Wants().Has(uri):
				send(conn, ofResource("resources/subscribe", uri), nil)
			case !u.wanted(uri):
				send(conn, ofResource("resources/unsubscribe", uri), func() { u.Ended(uri) })
			}
		}
	})
}

// Ended has the upstream tell of a resource again whose subscription was ended, if it is wanted by
// now: over HTTP one request overtakes another. One that has yet to be asked for comes later by itself.
func (u *Uplink) Ended(uri string) {
	u.With(func(conn *bridge.Upstream) {
		u.telling.Lock()
		defer u.telling.Unlock()
		if slices.ContainsFunc(u.members(), func(m Member) bool { return m.Wants().hasAsked(uri) }) {
			send(conn, ofResource("resources/subscribe", uri), nil)
		}
	})
}

// send sends a request whose answer nobody waits for but then, where that is given; the goroutine ends
// with the connection at the latest.
func send(conn *bridge.Upstream, m *wire.Message, then func()) {
	if m == nil { // it cannot be said
		return
	}
	call := conn.Start(m, nil)
	go func() {
		_, _ = call.Wait(context.Background())
		if then != nil {
			then()
		}
	}()
}

// Replay implements link.User.
func (u *Uplink) Replay(conn *bridge.Upstream, again bool) {
	go u.watch(conn)
	if !again {
		return
	}
	if u.config.Meter != nil {
		u.config.Meter.Reconnected()
	}
	for _, m := range u.members() {
		for _, request := range m.Wants().again() {
			send(conn, request, nil)
		}
		m.Reconnected(conn)
	}
}

// watch tells of a connection's end. The goroutine ends with the connection.
func (u *Uplink) watch(conn *bridge.Upstream) {
	begun := deadline.Now()
	<-conn.Done()
	if u.config.Meter != nil {
		u.config.Meter.ConnectionEnded(deadline.Now() - begun)
	}
	for _, m := range u.members() {
		m.Disconnected(conn)
	}
}

// Receive takes what the upstream sends besides answers.
func (u *Uplink) Receive(m *wire.Message, tag any) {
	u.With(func(conn *bridge.Upstream) {
		if u.Shared() {
			u.give(conn, m, tag)
			return
		}
		u.own.Told(conn, m, tag)
	})
}

// give gives what the upstream says to whom it concerns.
func (u *Uplink) give(conn *bridge.Upstream, m *wire.Message, tag any) {
	of, known := tag.(Tag)
	switch {
	case m.Kind == wire.Notification && concernsAll(m.Method):
		for _, member := range u.members() {
			if known && of.Member() == member {
				member.Told(conn, m, tag)
			} else {
				member.Told(conn, m, nil)
			}
		}
	case known:
		of.Member().Told(conn, m, tag)
	case m.Kind == wire.Request:
		_ = conn.Notify(wire.ErrorAnswer(m.Bytes(m.ID), wire.CodeMethodNotFound, "Method not found: "+wire.Clip(m.Method), nil))
	default:
		u.config.Log.Debug("dropped a message of the shared upstream that belongs to no call", "method", wire.Clip(m.Method))
	}
}

// concernsAll reports whether a notification is for every session, on whose call's stream it may
// arrive: each goes by what it was shown, has subscribed to or has open.
func concernsAll(method string) bool {
	switch method {
	case wire.Tools.Changed(), wire.Resources.Changed(), wire.Prompts.Changed(), "notifications/resources/updated", "notifications/cancelled":
		return true
	}
	return false
}
