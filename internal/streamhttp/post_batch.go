package streamhttp

import (
	"bytes"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// serveBatch hands on the members of a JSON-RPC batch one after the other,
// each with its answer before the next. The answers are one array, or events
// where the POST has become an event stream.
func (p *post) serveBatch(raw []byte) {
	if p.s.version != revisionBatches {
		p.reject(&wire.Error{Code: wire.CodeInvalidRequest,
			Message: "JSON-RPC batches belong to protocol revision " + revisionBatches + " alone: send the messages one by one"})
		return
	}
	members, err := p.s.srv.cfg.Limits.Split(raw)
	if err != nil {
		p.reject(err)
		return
	}
	for _, raw := range members {
		p.serveMember(raw)
	}
	p.closeBatch()
	p.end(false, nil)
}

func (p *post) serveMember(raw []byte) {
	to := &member{post: p}
	m, err := p.s.srv.cfg.Limits.Read(raw, wire.FromClient)
	if err == nil {
		err = m.MemberFault()
	}
	if err != nil {
		wire.Unread(p.s.upper, err)
		to.Answer(faultAnswer(err))
		return
	}
	p.wait(p.s.upper.Handle(m, to))
}

// closeBatch makes the answers gathered the POST's answer.
func (p *post) closeBatch() {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if len(p.gathered) > 0 {
		all := append([]byte{'['}, bytes.Join(p.gathered, []byte{','})...)
		p.answer = append(all, ']')
		p.gathered = nil
	}
}

// member is a POST as the stream of one member of its batch.
type member struct {
	*post
	done bool // guarded by the session's mutex
}

// AnswerResult implements wire.ResultStream.
func (m *member) AnswerResult(id, result []byte) { m.Answer(wire.ResultAnswer(id, result)) }

// Answer implements wire.Stream.
func (m *member) Answer(msg []byte) {
	p := m.post
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if m.done || p.answered {
		return
	}
	m.done = true
	switch {
	case msg == nil:
	case p.box == nil:
		p.gathered = append(p.gathered, msg)
	default:
		p.box.add(msg)
	}
}
