package bridge

import (
	"crypto/rand"
	"crypto/sha256"
	"strings"
	"sync"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// Party is a request of a stateless client that waits for the answer of a call.
type Party struct {
	Request *wire.Message
	From    wire.Principal
	Within  any // the session; comparable
	Out     wire.Stream
}

// Asker is the call of an [Input].
type Asker interface {
	// Answered takes the client's answer to a request that it was asked.
	Answered(m *wire.Message)
	// MayAsk reports whether the upstream may ask this still.
	MayAsk(method string) bool
	// Left is called when the client has been answered for the first time, and the call goes on.
	Left()
	// Abandon cancels the call, since its client does not come back.
	Abandon()
	// Tell tells the log of something about the call.
	Tell(text string, pairs ...any)
}

// Returning is a request by which a client comes back.
type Returning interface {
	// AnswerBy gives the request's answer.
	AnswerBy(give func())
	// WaitsFor has the request, if it is cancelled, cancel what it waits for, and
	// reports whether it was before.
	WaitsFor(call Asker) (cancelled bool)
}

// Input is the client's end of a call for which a stateless client is asked: what it is
// asked for by requests is what its request is answered with ("input required"); the
// client sends the request again with what it was asked for, and gets the call's
// answer by that (2026-07-28, basic/patterns/mrtr). It is a wire.Stream.
type Input struct {
	of    *Inputs
	call  Asker
	first Party

	mu      sync.Mutex          // guards what follows
	open    map[string]question // by the id of the request, which is the key that the client sees
	asked   bool                // anything was ever
	given   bool                // the client has been given what is open, and has not come back
	state   string              // by which it will
	timer   *time.Timer
	party   *Party        // the request that waits for the answer; nil: none does
	by      Returning     // that request; nil: the first
	answer  []byte        // the call's, where the client has not come back yet
	closed  bool          // nothing is asked any more
	over    bool          // the call has its answer
	late    bool          // its client has not come back in time
	release chan struct{} // closed when the first request is answered
}

// question is what a client is asked for.
type question struct {
	method string
	raw    []byte
}

// NewInput returns the client's end of a call. One that is closed asks nothing.
func (in *Inputs) NewInput(call Asker, first Party, closed bool) *Input {
	return &Input{of: in, call: call, first: first, party: &first, closed: closed, open: make(map[string]question), release: make(chan struct{})}
}

// digest is what a request asks for: the same for two that do the same.
func (p *Party) digest() [sha256.Size]byte {
	h, m := sha256.New(), p.Request
	for _, part := range [][]byte{[]byte(m.Method), []byte(m.P.Name), []byte(m.P.URI), m.Bytes(m.P.Arguments)} {
		h.Write(wire.AppendString(nil, string(part)))
		h.Write([]byte{','})
	}
	return [sha256.Size]byte(h.Sum(nil))
}

func (p *Party) id() []byte { return p.Request.Bytes(p.Request.ID) }

// under is an answer under the party's id; nil stays nil.
func (p *Party) under(answer []byte) []byte {
	m := wire.Made(answer)
	if m == nil {
		return nil
	}
	return wire.Splice(m.Raw, wire.Edit{At: m.ID, With: p.id()})
}

// Send implements wire.Stream: the client is asked at once, or when it has answered
// what it was asked before. That it need not answer a question ends here.
func (h *Input) Send(raw []byte) bool {
	m := wire.Made(raw)
	if m == nil {
		return false
	}
	h.mu.Lock()
	party, closed := h.party, h.closed
	switch {
	case m.Method == "notifications/cancelled":
		delete(h.open, string(m.Bytes(m.P.RequestID)))
		h.mu.Unlock()
		return true
	case m.Kind != wire.Request:
		h.mu.Unlock()
		return party != nil && party.Out.Send(raw)
	case closed:
		h.mu.Unlock()
		return false
	}
	names, values := []string{"method"}, [][]byte{wire.AppendString(nil, m.Method)}
	if m.Params.Present() {
		names, values = append(names, "params"), append(values, m.Bytes(m.Params))
	}
	h.asked = true
	h.open[string(m.Bytes(m.ID))] = question{m.Method, wire.Object(names, values)}
	var then effects
	if !h.given {
		then = h.giveLocked()
	}
	h.mu.Unlock()
	then.perform()
	return true
}

// Answer implements wire.Stream: the answer goes to the request that waits for it, or is
// kept for the one that will come.
func (h *Input) Answer(raw []byte) {
	h.mu.Lock()
	h.closed, h.over, h.answer = true, true, raw
	then := h.dropLocked(wire.CodeInternal, "the call has ended", nil)
	switch {
	case !h.given:
		then = append(then, h.replyLocked(func(p *Party) { p.Out.Answer(p.under(raw)) })...)
	case h.late:
		then = append(then, h.lostLocked("its client did not come back in time")...)
	case !h.of.keep(h.state, h, len(raw)):
		then = append(then, h.lostLocked("there is no room to keep it until its client comes back")...)
		h.answer = wire.ErrorAnswer(h.first.id(), wire.CodeInternal, unkept, nil)
	}
	h.mu.Unlock()
	then.perform()
}

// unkept is what a client hears that comes back for an answer which was not kept.
const unkept = "The server has answered this request, and there was no room to keep the answer until you came back. It may have happened: " +
	"look at what has become of it before you send it again."

// Listening implements wire.Stream.
func (h *Input) Listening() bool {
	p := h.waiting()
	return p != nil && p.Out.Listening()
}

// Pause implements wire.Pauser.
func (h *Input) Pause(retry time.Duration) {
	if p := h.waiting(); p != nil {
		if out, ok := p.Out.(wire.Pauser); ok {
			out.Pause(retry)
		}
	}
}

// waiting is the request that waits for the call's answer; nil: the client is away.
func (h *Input) waiting() *Party {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.party
}

// Conclude gives the call's answer: as give does, on the client's own stream, where
// nothing was ever asked.
func (h *Input) Conclude(answer []byte, give func()) {
	h.mu.Lock()
	h.closed = true
	asked := h.asked
	h.mu.Unlock()
	if asked {
		h.Answer(answer)
		return
	}
	give()
	close(h.release)
}

// Released is closed when the first request was answered.
func (h *Input) Released() <-chan struct{} { return h.release }

// Left reports whether the first request was answered.
func (h *Input) Left() bool {
	select {
	case <-h.release:
		return true
	default:
		return false
	}
}

// effects are to be performed in order when the lock is gone.
type effects []func()

func (then effects) perform() {
	for _, f := range then {
		f()
	}
}

// dropLocked answers in the client's place what is open, or those of it that are given.
func (h *Input) dropLocked(code int, why string, only map[string]bool) (then effects) {
	for id := range h.open {
		if only != nil && !only[id] {
			continue
		}
		delete(h.open, id)
		m := wire.Made(wire.ErrorAnswer([]byte(id), code, why, nil))
		then = append(then, func() { h.call.Answered(m) })
	}
	return then
}

// giveLocked answers the request that waits with all that is open. Where there is no
// room for one more client that is away, the upstream is told so in its place, and the
// request waits on for the call's answer: nothing of that is lost.
func (h *Input) giveLocked() effects {
	state := stateMark + h.of.life() + "." + rand.Text()
	if !h.of.add(state, h) {
		return append(h.dropLocked(wire.CodeInternal, "the client cannot be asked now: too many of its questions are open", nil), func() {
			h.call.Tell("a client is not asked: too many are to come back already; --max-in-flight bounds them in one run")
		})
	}
	h.given, h.state = true, state
	var names []string
	var values [][]byte
	for id, q := range h.open {
		names, values = append(names, id), append(values, q.raw)
	}
	result := wire.Object([]string{"resultType", "inputRequests", "requestState"},
		[][]byte{[]byte(`"` + wire.ResultInputRequired + `"`), wire.Object(names, values), wire.AppendString(nil, state)})
	h.timer = time.AfterFunc(h.of.Timeout, func() { h.expire(state) })
	return h.replyLocked(func(p *Party) { p.Out.Answer(wire.ResultAnswer(p.id(), result)) })
}

// replyLocked answers the request that waits.
func (h *Input) replyLocked(give func(p *Party)) effects {
	p, by := h.party, h.by
	h.party, h.by = nil, nil
	return effects{func() {
		if by != nil {
			by.AnswerBy(func() { give(p) })
			return
		}
		give(p)
		close(h.release)
		h.call.Left()
	}}
}

// lostLocked tells the log of an answer that its client will not get.
func (h *Input) lostLocked(why string) effects {
	n := len(h.answer)
	if h.answer == nil {
		return nil
	}
	h.answer = nil
	return effects{func() { h.call.Tell("an answer was dropped: "+why, "bytes", n) }}
}

// expire gives up a call whose client does not come back: what became of it is unknown.
func (h *Input) expire(state string) {
	if !h.of.take(state, h) {
		return
	}
	h.mu.Lock()
	h.late = true
	then := h.dropLocked(wire.CodeInternal, "the client did not answer in time", nil)
	if h.over {
		then = append(then, h.lostLocked("its client did not come back in time")...)
	} else {
		then = append(then, func() { h.call.Tell("a call is given up: its client did not come back in time") })
	}
	h.mu.Unlock()
	then.perform()
	h.call.Abandon()
}

// Return takes a request by which a client comes back: what it brings is what it was
// asked for, and the request waits for the call's answer. It reports false where its
// state is another's, or of another call.
func (in *Inputs) Return(p Party, by Returning) bool {
	state := p.Request.P.RequestState
	h := in.find(state)
	if h == nil || p.From != h.first.From || p.Within != h.first.Within || p.digest() != h.first.digest() || !in.take(state, h) {
		return false
	}
	h.mu.Lock()
	h.timer.Stop()
	h.party, h.by, h.given = &p, by, false
	then := h.takeLocked(p.Request.Bytes(p.Request.P.InputResponses))
	methods := make(map[string]string, len(h.open))
	for id, q := range h.open {
		methods[id] = q.method
	}
	h.mu.Unlock()
	if by.WaitsFor(h.call) {
		go h.call.Abandon()
	}
	then.perform()
	forbidden := make(map[string]bool) // since it was asked
	for id, method := range methods {
		forbidden[id] = !h.call.MayAsk(method)
	}
	h.mu.Lock()
	then = h.dropLocked(wire.CodeMethodNotFound, "Method not found", forbidden)
	switch {
	case h.party == nil: // it has been answered meanwhile
	case h.over:
		answer := h.answer
		then = append(then, h.replyLocked(func(p *Party) { p.Out.Answer(p.under(answer)) })...)
	case len(h.open) > 0:
		then = append(then, h.giveLocked()...)
	}
	h.mu.Unlock()
	then.perform()
	return true
}

// takeLocked takes what the client brings of what it was asked for.
func (h *Input) takeLocked(responses []byte) (then effects) {
	_ = wire.Members(responses, func(id string, at wire.Span) error {
		if _, asked := h.open[id]; !asked || responses[at.Start] != '{' {
			return nil
		}
		delete(h.open, id)
		m := wire.Made(wire.ResultAnswer([]byte(id), responses[at.Start:at.End]))
		if m == nil {
			m = wire.Made(wire.ErrorAnswer([]byte(id), wire.CodeInternal, "the client's answer cannot be read", nil))
		}
		then = append(then, func() { h.call.Answered(m) })
		return nil
	})
	return then
}

// stateMark is what a requestState of a bridge's begins with; then come what tells its process from others, a dot, and
// what is secret.
const stateMark = "fsm1."

// lifeLen is how long what tells processes apart is: 65 random bits.
const lifeLen = 13

// life tells the states that are given out here from those of another process, and of this one before a restart.
func (in *Inputs) life() string {
	in.begun.Do(func() { in.tag = rand.Text()[:lifeLen] })
	return in.tag
}

// Elsewhere reports whether a requestState was given out by another process, such as this one before a restart, or is
// made to look like it.
func (in *Inputs) Elsewhere(state string) bool {
	rest, ours := strings.CutPrefix(state, stateMark)
	life, secret, whole := strings.Cut(rest, ".")
	return ours && whole && len(life) == lifeLen && len(secret) == len(rand.Text()) && life != in.life()
}

// Ours reports whether a requestState is one that was given out here, or is made to look
// like it. A stateless upstream may give out states of its own that do, since it may be a
// proxy of this kind: alike tells that there is none such.
func (in *Inputs) Ours(state string, alike bool) bool {
	return len(state) > len(stateMark) && strings.HasPrefix(state, stateMark) && (alike || in.find(state) != nil)
}

// Inputs are the calls whose clients are to come back, by what they bring along:
// 130 random bits behind what tells the process from others, which are good once.
type Inputs struct {
	Timeout time.Duration // for a client to come back
	Most    int           // of one client's in one session

	begun sync.Once
	tag   string // set by begun: see life

	mu   sync.Mutex // guards what follows
	all  map[string]*awaited
	used map[share]room
}

// awaited is one of them.
type awaited struct {
	of    *Input
	bytes int // of the answer that is kept; 0: there is none yet
}

// share is a part of the calls: all of them, those of a principal, or those that it
// has in one session.
type share struct {
	owner  wire.Principal
	within any
}

// room is how much there may be in a share, and how much there is.
type room struct{ calls, bytes int }

// The room in all, and for one principal. In one session it may have as many calls as
// requests under way.
var (
	roomInAll = room{calls: 10_000, bytes: 64 << 20}
	roomOfOne = room{calls: 1000, bytes: 16 << 20}
)

// keptInSession is how much may be kept for a principal in one session: as much as waits
// for a client on a stream.
const keptInSession = 4 << 20

// shares are those that a call is part of, with the room in each. Who is not told
// apart from others has none of their own but in the session.
func (in *Inputs) shares(h *Input) map[share]room {
	all := map[share]room{
		{}: roomInAll,
		{owner: h.first.From, within: h.first.Within}: {calls: in.Most, bytes: keptInSession},
	}
	if h.first.From.Known() {
		all[share{owner: h.first.From}] = roomOfOne
	}
	return all
}

// add enters a call whose client is to come back by a state, and reports whether
// there was room.
func (in *Inputs) add(state string, h *Input) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.occupyLocked(h, room{calls: 1}) {
		return false
	}
	if in.all == nil {
		in.all = make(map[string]*awaited)
	}
	in.all[state] = &awaited{of: h}
	return true
}

// keep notes how large the answer is that waits for a client, and reports whether
// there was room. One whose client is back already needs none.
func (in *Inputs) keep(state string, h *Input, bytes int) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	one := in.all[state]
	switch {
	case one == nil || one.of != h:
		return true
	case !in.occupyLocked(h, room{bytes: bytes}):
		return false
	}
	one.bytes = bytes
	return true
}

// occupyLocked takes room in all of a call's shares, if each has it.
func (in *Inputs) occupyLocked(h *Input, more room) bool {
	shares := in.shares(h)
	for s, most := range shares {
		if used := in.used[s]; used.calls+more.calls > most.calls || used.bytes+more.bytes > most.bytes {
			return false
		}
	}
	if in.used == nil {
		in.used = make(map[share]room)
	}
	for s := range shares {
		in.used[s] = room{in.used[s].calls + more.calls, in.used[s].bytes + more.bytes}
	}
	return true
}

// find is the call by a state, nil if there is none.
func (in *Inputs) find(state string) *Input {
	in.mu.Lock()
	defer in.mu.Unlock()
	if one := in.all[state]; one != nil {
		return one.of
	}
	return nil
}

// take takes a state out, and reports whether it was there, for this call.
func (in *Inputs) take(state string, h *Input) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	one := in.all[state]
	if one == nil || one.of != h {
		return false
	}
	delete(in.all, state)
	for s := range in.shares(h) {
		if left := (room{in.used[s].calls - 1, in.used[s].bytes - one.bytes}); left.calls > 0 {
			in.used[s] = left
		} else {
			delete(in.used, s)
		}
	}
	return true
}
