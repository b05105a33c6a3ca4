package run

import (
	"bytes"
	"errors"
	"slices"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/guard"
	"github.com/fsm-proxy/fsm-proxy/policy/limit"
	"github.com/fsm-proxy/fsm-proxy/policy/register"
)

// Request is what a decision is asked for, with all that it is made by.
type Request struct {
	Kind      policy.Kind
	From      policy.Sender // of a signal
	Name      string
	Arguments Arguments  // nil: there are none
	Who       *guard.Who // on whose behalf it comes; nil: nobody is known

	Listed     bool   // the upstream lists the name, or may: see Known
	Known      bool   // Listed is known
	Unlistable bool   // no list can be had; in shadow that stops nothing
	NeedsList  bool   // what becomes of an allowed call hangs on the list; not in shadow
	Misfit     bool   // as listed it cannot be called here; not in shadow
	Locked     Locked // counts where the policy in force holds tools to a lock
}

// Arguments are those of a call, as they were sent. They never change.
type Arguments interface {
	// At returns the argument at a path. It is unclear where another reader could find
	// another value there.
	At(path []string) (value policy.Argument, unclear bool)
	// JSON returns the object that they are, as it was sent.
	JSON() []byte
}

// Locked is whether a tool is what was locked.
type Locked uint8

// Whether it is. The zero value has it compared first.
const (
	NotCompared Locked = iota
	AsLocked
	Differs
)

// Call is a call's part in a run: what is asked for, and what was decided where.
type Call struct {
	Request
	Snapshot   Snapshot // in which it was decided last
	Verdict    policy.Verdict
	Unclear    bool          // the argument that decides reads differently to others: it takes no turn
	Outlived   bool          // refused: the run began anew by itself while it waited
	Overlooked policy.Code   // with which it is refused but for the shadow: it moves no run; CodeNone: it is not
	Noted      *Noted        // of its arguments, for entries; nil: nothing
	Tag        any           // the caller's, not read here
	Turn       chan struct{} // the caller's: closed when the call is Ready

	Tries uint8 // the caller's: how often it has begun and was not sent, since another process was sooner to take of its limits

	has      *holdings  // nil: nothing
	moves    uint32     // of the run, when it was decided
	life     uint32     // of the run, when it began to wait; 0: it does not wait
	begun    uint64     // the number of the entry by which it began; 0: there is none, or it has ended
	told     uint64     // the number of the last entry that tells of it; 0: none does
	line     uint64     // that of which the next line of the audit tells: see [Call.Line]
	decided  bool       // the audit has the decision
	sender   *guard.Who // nil: it is Who's
	orphaned bool       // the run was begun anew while it had the turn
	again    bool       // it had begun before the run was read
}

// tell has an entry tell of the call, and the next line of the audit of that.
func (c *Call) tell(seq uint64) { c.told, c.line = seq, seq }

// holdings are what a call has of its run, beside the turn: where a policy asks for nothing of that, it has none.
type holdings struct {
	memory   *memory               // of the run, when it was decided
	reserved *register.Reservation // in it
	counted  *counted              // against limits
	read     *reading              // its result; nil: not yet
	approved approved              // by somebody, who was asked
	facts    *guard.Call           // that the decision was made by; nil: what follows needs them no more
	early    bool                  // the run is to remember something of it, and has nothing yet to remember that in
}

// yes is the number of the entry that keeps the yes which the call has used; 0: none does.
func (h *holdings) yes() uint64 {
	if h.approved.question == nil {
		return 0
	}
	return h.approved.question.Entry()
}

// held are the call's holdings, to be read.
func (c *Call) held() (h holdings) {
	if c.has != nil {
		h = *c.has
	}
	return h
}

// holdings are those of the call, to be written.
func (c *Call) holdings() *holdings {
	if c.has == nil {
		c.has = &holdings{}
	}
	return c.has
}

// Free is when the limit is free again that has refused the call; zero: none has, or not by itself.
func (c *Call) Free() (at time.Time) {
	if full, _ := errors.AsType[*limit.Full](c.Verdict.Fault()); full != nil {
		at = full.Free
	}
	return at
}

// Remains is what is left of a call when its message is gone, and its outcome is still to
// come: see [Run.HandOver].
func (c *Call) Remains() Call {
	left := Call{Request: c.Request, Snapshot: c.Snapshot, Verdict: c.Verdict, moves: c.moves, decided: true}
	left.Arguments = nil
	if has := c.held(); c.has != nil {
		left.has = &holdings{memory: has.memory, reserved: has.reserved, counted: has.counted}
		if has.facts != nil {
			facts := *has.facts
			facts.Args = bytes.Clone(facts.Args)
			left.has.facts = &facts
		}
		c.has.reserved, c.has.counted, c.has.approved = nil, nil, approved{}
	}
	return left
}

// decide decides the request in a snapshot, by what guards see.
func (c *Call) decide(s Snapshot, facts *guard.Call) {
	c.Snapshot, c.Unclear = s, false
	if c.has != nil {
		c.has.facts = nil
	}
	c.Verdict = s.Decide(&policy.Request{Kind: c.Kind, Name: c.Name, From: c.From, Who: c.Who, Listed: c.Listed, Args: c, Facts: facts})
	c.Unclear = c.Unclear || c.Verdict.Unclear
	if a := c.Verdict.Alternative; a != nil && a.Late() {
		c.holdings().facts = facts
	}
}

// Argument implements [policy.Arguments]. It notes what is unclear.
func (c *Call) Argument(path []string) policy.Argument {
	if c.Arguments == nil {
		return policy.Argument{}
	}
	value, unclear := c.Arguments.At(path)
	c.Unclear = c.Unclear || unclear
	return value
}

// release gives back what a call has reserved that does not go upstream, or has no outcome.
func (c *Call) release() {
	if c.has == nil {
		return
	}
	c.has.early = false
	if c.has.reserved != nil {
		c.has.reserved.GiveBack()
		c.has.reserved = nil
	}
	if c.has.counted != nil {
		c.has.counted.giveBack()
		c.has.counted = nil
	}
	if c.has.approved.question != nil {
		c.has.approved.giveBack()
	}
}

// Settles reports whether what becomes of the call is to be told to its run.
func (c *Call) Settles() bool {
	has := c.held()
	return c.Verdict.Settles() || has.counted != nil || has.early || c.begun != 0 || has.yes() != 0
}

// Begins reports whether the call is told of by an entry before it is sent, in a run that lasts.
func (c *Call) Begins() bool { return c.irreversible() || !c.Snapshot.Shadow && c.Settles() }

// irreversible reports whether what the call does stays done: no fork goes back behind it. Of a call that is sent in shadow
// though its binding refuses it, that says so all the same.
func (c *Call) irreversible() bool {
	a := c.Verdict.Alternative
	if a == nil && c.Overlooked != policy.CodeNone && c.Verdict.Bound {
		a = c.Snapshot.Policy.AlternativeOf(c.Snapshot.At, c.Verdict.Symbol)
	}
	return a != nil && a.Irreversible
}

// Read reads the result of a call that is about to be settled, as far as that can be done
// beside the run: where no register is looked at. A result may be large. Nobody else may have
// the call.
func (c *Call) Read(end End) {
	if a := c.Verdict.Alternative; a != nil && a.Late() && !a.LateByRegisters() {
		c.holdings().read = c.reading(end)
	}
}

// refuse turns down what the policy allows.
func (c *Call) refuse(code policy.Code) {
	c.Verdict.Allowed, c.Verdict.Turn, c.Verdict.Code = false, false, code
}

// Timeout is how long the policy lets the call's answer take, 0 where it says nothing.
func (c *Call) Timeout() time.Duration {
	if c.Snapshot.none() || c.Snapshot.Shadow || c.Verdict.Alternative == nil {
		return 0
	}
	return time.Duration(c.Verdict.Alternative.Timeout) * time.Second
}

// takesTurn reports whether the call, as it was decided, goes upstream with the turn.
func (c *Call) takesTurn() bool { return c.Verdict.Turn && !c.Snapshot.Shadow }

// wantsApproval reports whether somebody has to say yes to the call.
func (c *Call) wantsApproval() bool {
	a := c.Verdict.Alternative
	return a != nil && a.Approve != nil && !c.Snapshot.Shadow
}

// pinned reports whether the call's tool has to be what was locked.
func (c *Call) pinned() bool {
	return c.Kind == policy.Tool && c.Snapshot.InForce().Pin() == policy.PinRefuse
}

// lacksList reports whether the decision hangs on a list that was not looked at.
func (c *Call) lacksList() bool {
	s, v := &c.Snapshot, &c.Verdict
	switch {
	case c.Unlistable && s.Shadow:
		return false
	case c.Known:
		return v.Allowed && c.pinned() && c.Locked == NotCompared
	}
	needs := c.NeedsList && !s.Shadow || c.Kind == policy.Tool && s.InForce().Validate() || c.pinned()
	return v.ByGlob || v.Allowed && needs || c.hangsOnList()
}

// hangsOnList reports whether a refusal's code would be another one if the
// upstream did not list the name: a glob binds in some other state.
func (c *Call) hangsOnList() bool {
	return c.Verdict.Code == policy.InvalidTransition &&
		c.Snapshot.Decide(&policy.Request{Kind: c.Kind, Name: c.Name}).Code != policy.InvalidTransition
}

// Snapshot is where a run stands at a moment, and what decides there. It is comparable:
// runs whose snapshots are equal are shown and allowed the same. The zero value allows
// nothing.
type Snapshot struct {
	Policy *policy.Policy
	At     policy.Configuration
	Holds  string     // which guards hold that lists follow: see [policy.View]
	Who    *guard.Who // who is shown lists, where the policy asks: see [Snapshot.As]
	// Gate is the policy in force where that is another one than the run's own: then a
	// name must be bound somewhere in it, too, so that a tightening holds at once for
	// runs that it does not move.
	Gate *policy.Policy
	// Refused: the run's state is gone, and nothing is allowed any more.
	Refused bool
	// Shut: the store has something else of the run than it has confirmed. It is refused, too.
	Shut bool
	// Lapsed: whoever has the run may not act for it now, as another process may have it soon. It is refused, too.
	Lapsed bool
	// Runless: what is asked for belongs to no run, and so may be what is allowed in
	// every state, and moves none.
	Runless bool
	// Shadow: everything is shown, and what is decided is only noted.
	Shadow bool
}

// lapsed reports whether whoever has the run may not act for it now.
func (r *Run) lapsed() bool { return r.Acts != nil && !r.Acts() }

// none reports whether nothing is allowed, whatever is asked for.
func (s Snapshot) none() bool { return s.Policy == nil || s.Refused }

// Decide says whether a name may be asked for, and why.
func (s Snapshot) Decide(q *policy.Request) policy.Verdict {
	if s.none() {
		code := policy.NotAvailable
		if s.Shut || s.Lapsed {
			code = policy.StoreUnavailable
		}
		return policy.Verdict{Code: code, Symbol: policy.Symbol{Kind: q.Kind, Name: q.Name}}
	}
	if s.Runless {
		return s.Policy.Everywhere(q)
	}
	v := s.Policy.Decide(s.At, q)
	if v.Allowed && s.Gate != nil {
		g := s.Gate.DecideAnywhere(q)
		v.Allowed, v.Bound, v.Code, v.ByGlob = g.Allowed, g.Bound, g.Code, v.ByGlob || g.ByGlob
		v.Unclear, v.Unmet = g.Unclear, g.Unmet
	}
	return v
}

// remembers reports whether something is to be remembered of a call that is let go here.
func (s Snapshot) remembers(v *policy.Verdict) bool {
	of := s.Policy.LimitsOf(s.At.State, v)
	return !s.Shadow && (v.Alternative.Remembers() || len(of.Own)+len(of.Principal) > 0)
}

// guarded reports whether what is decided here hangs on more than the state and the name.
func (s Snapshot) guarded() bool {
	return s.Policy != nil && s.Policy.Guarded() || s.Gate != nil && s.Gate.Guarded()
}

// sendable returns the signals that an operator may send here, by what guards see.
func (s Snapshot) sendable(facts *guard.Call) []policy.Sendable {
	if s.none() || s.Shadow || s.Runless {
		return nil
	}
	return slices.DeleteFunc(s.Policy.Sendable(s.At, facts), func(x policy.Sendable) bool {
		return s.Gate != nil && !s.Gate.DecideAnywhere(&policy.Request{Kind: policy.Signal, Name: x.Name, From: policy.Operator, Facts: facts}).Allowed
	})
}

// view is where lists are shown of.
func (s Snapshot) view() policy.View {
	return policy.View{Configuration: s.At, Holds: s.Holds, Who: s.Who}
}

// As is the snapshot for who asks: nil for nobody who is known.
func (s Snapshot) As(who *guard.Who) Snapshot {
	if s.Policy != nil && s.Policy.AsksWho() || s.Gate != nil && s.Gate.AsksWho() {
		s.Who = who
	}
	return s
}

// Cases returns the cases of a name that is split, as who asks may know them.
func (s Snapshot) Cases(k policy.Kind, name string) []policy.Case {
	return s.Policy.Cases(s.view(), k, name)
}

// Visible reports whether a listed item is shown.
func (s Snapshot) Visible(k policy.Kind, name string) bool {
	if s.Shadow {
		return true
	}
	if s.none() || !s.Policy.Visible(s.view(), k, name) || s.Runless && !s.Policy.Steady(k, name, true) {
		return false
	}
	return s.Gate == nil || s.Gate.BoundFor(k, name, true, s.Who)
}

// Reaches reports whether a name may be asked for here, whatever its arguments: it is bound, and no guard that lists
// follow hides it.
func (s Snapshot) Reaches(k policy.Kind, name string, listed bool) bool {
	return s.Decide(&policy.Request{Kind: k, Name: name, Listed: listed, Who: s.Who}).Bound && s.Visible(k, name)
}

// Exact returns the exact names of a kind that are bound here, whatever is listed.
// In shadow a binding adds nothing to what is; a tool that has to be what was locked
// is known only by the list.
func (s Snapshot) Exact(k policy.Kind) []string {
	if s.none() || s.Shadow || k == policy.Tool && s.InForce().Pin() == policy.PinRefuse {
		return nil
	}
	names := s.Policy.ExactIn(s.view(), k)
	if s.Runless {
		names = slices.DeleteFunc(names, func(name string) bool { return !s.Policy.Steady(k, name, false) })
	}
	if s.Gate != nil {
		names = slices.DeleteFunc(names, func(name string) bool { return !s.Gate.BoundFor(k, name, false, s.Who) })
	}
	return names
}

// Signals returns the signals that the agent may send here.
func (s Snapshot) Signals() []string {
	if s.Runless {
		return nil
	}
	return s.Exact(policy.Signal)
}

// MayRestart reports whether a client may begin the run anew by a tool of the proxy's,
// where the run's key has one: it never runs out of runs otherwise.
func (s Snapshot) MayRestart() bool {
	return !s.Shadow && (s.At.Complete || s.InForce().OnComplete() == policy.Stop)
}

// InForce is the policy whose settings hold, and whose names the static surface shows.
func (s Snapshot) InForce() *policy.Policy {
	if s.Gate != nil {
		return s.Gate
	}
	return s.Policy
}

// UpstreamMay is what the upstream may ask of clients while the run is here.
func (s Snapshot) UpstreamMay() policy.UpstreamMay {
	if s.Shadow {
		return policy.UpstreamMay{Sampling: true, Elicitation: true, Roots: true}
	}
	return s.Lets()
}

// Lets is what the policy lets the upstream ask while the run is here, also in shadow: by the
// state, and of what belongs to no run in every state.
func (s Snapshot) Lets() policy.UpstreamMay {
	if s.Runless {
		return s.Policy.UpstreamMayIn(policy.Everywhere, s.InForce())
	}
	return s.Policy.UpstreamMayIn(s.At.State, s.InForce())
}

// UpstreamMayLater is what the upstream may ask of clients in some state: what it is told of
// once, when a connection is opened.
func (s Snapshot) UpstreamMayLater() policy.UpstreamMay {
	if s.Shadow {
		return s.UpstreamMay()
	}
	return s.InForce().UpstreamMay()
}

// Differs reports whether two snapshots may show other items of a kind. False is certain.
func (s Snapshot) Differs(to Snapshot, k policy.Kind) bool {
	switch {
	case s.Shadow || to.Shadow:
		return s.Shadow != to.Shadow
	case s.Policy != to.Policy || s.Gate != to.Gate || s.Refused != to.Refused || s.Runless != to.Runless || s.Policy == nil:
		return s != to
	}
	return s.Policy.VisibleDiffers(s.view(), to.view(), k)
}

// State is the name of the run's state, empty where there is no run.
func (s Snapshot) State() string {
	if s.Runless {
		return ""
	}
	return s.Policy.StateName(s.At.State)
}

// String names the state for people, with what it says of itself.
func (s Snapshot) String() string {
	if s.Runless {
		return "every state"
	}
	info := s.Policy.State(s.At.State)
	if info.Description == "" {
		return "state '" + info.Name + "'"
	}
	return "state '" + info.Name + "' (" + info.Description + ")"
}
