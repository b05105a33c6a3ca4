package upstream

import (
	"errors"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// errEnded is a server that has ended a subscription.
var errEnded = errors.New("the upstream ended the subscription")

// told takes a notification of the modern era, and returns it as it is to go on: nil
// where it is the connection's own business. own is the call on whose stream it came,
// nil where streams are shared.
func (e *ears) told(m *wire.Message, own *call) *wire.Message {
	switch m.Method {
	case "notifications/subscriptions/acknowledged":
		e.acknowledged(m, e.find(e.subscription(m, own)))
		return nil
	case "notifications/cancelled":
		if r := e.find(e.conn.find(m.Bytes(m.P.RequestID))); r != nil {
			r.call.finish(outcome{err: &wire.CallError{Sent: true, Err: errEnded}})
		}
		return nil
	}
	if m.P.Modern == nil || !m.P.Modern.Subscription.Present() {
		return m
	}
	if e.find(e.subscription(m, own)) == nil { // it comes late
		e.conn.srv.stats.stray.Add(1)
		return nil
	}
	return unsubscribed(m)
}

// subscription is the call by which a notification comes.
func (e *ears) subscription(m *wire.Message, own *call) *call {
	if own != nil || m.P.Modern == nil {
		return own
	}
	return e.conn.find(m.Bytes(m.P.Modern.Subscription))
}

// unsubscribed is a notification without the id of the connection's own request.
func unsubscribed(m *wire.Message) *wire.Message {
	edits := wire.Without(m.Raw, m.P.Meta, func(name string) bool { return name == wire.MetaSubscription })
	out, err := wire.Read(wire.Splice(m.Raw, edits...), wire.FromUpstream)
	if err != nil {
		return nil
	}
	return out
}

// acknowledged notes what the server will tell of.
func (e *ears) acknowledged(m *wire.Message, r *ear) {
	if r == nil || isClosed(r.acked) {
		return
	}
	agreed := m.Bytes(m.P.Notifications)
	e.mu.Lock()
	defer e.mu.Unlock()
	_ = wire.Members(agreed, func(name string, at wire.Span) error {
		value := string(agreed[at.Start:at.End])
		for kind, filter := range listFilters {
			if name == filter && value == "true" {
				r.lists |= listBit(wire.ListKind(kind))
			}
		}
		r.updates = r.updates || name == "resourceSubscriptions" && value != "[]" && value != "null"
		return nil
	})
	e.heardLocked()
	close(r.acked)
}
