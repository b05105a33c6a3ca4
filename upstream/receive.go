package upstream

import (
	"errors"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

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

func (c *Conn) receiveOne(raw []byte, own *call) bool {
	m, err := wire.Read(raw, wire.FromUpstream)
	if err != nil {
		return c.unreadable(raw, err, own)
	}
	switch m.Kind {
	case wire.Result, wire.Failure:
		return c.answered(m, own)
	case wire.Request:
		c.asked(m, own)
	case wire.Notification:
		c.told(m, own)
	}
	return false
}

// answered gives a call its answer. One without an id answers the call whose
// stream it came on.
func (c *Conn) answered(m *wire.Message, own *call) bool {
	if k := c.concluded(m, own); k != nil {
		k.settle(outcome{m: k.addressed(m)})
		return true
	}
	c.srv.stats.stray.Add(1)
	c.log().Debug("dropped an answer from the upstream that no call waits for", "id", string(m.Bytes(m.ID)))
	return false
}

// concluded takes the call that an answer is for out of the table. It returns
// nil where there is none.
func (c *Conn) concluded(m *wire.Message, own *call) *call {
	id, ok := number(m.Bytes(m.ID))
	switch {
	case own == nil && ok:
		return c.forget(id)
	case own != nil && (!m.ID.Present() || ok && id == own.id):
		return c.forget(own.id)
	}
	return nil
}

// isModernNotification reports whether a client may send a message by itself in the
// modern era.
func isModernNotification(raw []byte) bool {
	m, err := wire.Read(raw, wire.FromUpstream)
	return err == nil && m.Kind == wire.Notification &&
		m.Method != "notifications/initialized" && m.Method != "notifications/roots/list_changed"
}

// errAsks is a request of a server that may make none.
var errAsks = errors.New("a request, which a server may not make in this revision")

// asked passes a request of the upstream on, but for ping, which is answered
// here. In the modern era servers ask nothing.
func (c *Conn) asked(m *wire.Message, own *call) {
	if c.Era() == wire.Modern {
		c.noise(errAsks)
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

// told passes a notification of the upstream on. Lists are dropped before.
func (c *Conn) told(m *wire.Message, own *call) {
	if m.Method == "notifications/progress" {
		c.progress(m)
		return
	}
	if c.Era() == wire.Modern {
		if m = c.ears.told(m, own); m == nil {
			return
		}
	}
	c.drop(m.Method)
	c.recv.Receive(m, own.tagged())
}

// progress gives a progress notification the client's token again.
func (c *Conn) progress(m *wire.Message) {
	k := c.find(m.Bytes(m.P.ProgressToken))
	if k == nil || k.token == nil {
		c.srv.stats.stray.Add(1)
		return
	}
	raw := wire.Splice(m.Raw, wire.Edit{At: m.P.ProgressToken, With: k.token})
	if back, err := wire.Read(raw, wire.FromUpstream); err == nil {
		c.recv.Receive(back, k.tag)
	}
}

// unreadable takes what is no message. Where it is an answer all the same, its
// call ends now: nothing better will come.
func (c *Conn) unreadable(raw []byte, err error, own *call) bool {
	c.noise(err)
	fault, ok := errors.AsType[*wire.Error](err)
	if !ok || fault.ID == nil {
		return false
	}
	if isRequest(raw) {
		_ = c.link.notify(fault.Answer())
		return false
	}
	k := c.find(fault.ID)
	if k == nil || own != nil && k != own {
		return false
	}
	return k.finish(outcome{err: &wire.CallError{Sent: true, Err: errors.New("the upstream's answer cannot be read: " + fault.Message)}})
}

// isRequest reports whether an unreadable message has a method, as far as it
// can be read.
func isRequest(raw []byte) bool {
	err := wire.Members(raw, func(name string, _ wire.Span) error {
		if name == "method" {
			return errFound
		}
		return nil
	})
	return err == errFound
}

// noise counts what the upstream sent that is no message, and says so now and
// then.
func (c *Conn) noise(err error) {
	n := c.srv.stats.noise.Add(1)
	if n&(n-1) == 0 { // 1, 2, 4, 8, …
		c.log().Warn("the upstream sent something that is no MCP message", "error", err, "so far", n)
	}
}
