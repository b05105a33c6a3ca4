package run

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/guard"
	"github.com/fsm-proxy/fsm-proxy/policy/limit"
	"github.com/fsm-proxy/fsm-proxy/policy/register"
)

// memory is what a run remembers beside its state, from where it begins to where it begins
// anew: then it has another one. A run whose policy asks for nothing of it has none, and the
// methods of a nil memory know nothing.
type memory struct {
	policy         *policy.Policy // whose registers there are
	began, entered time.Time      // the run, and its state
	registers      *register.Registers
	counts         *limit.Counts

	followed  string // what lists follow: see [policy.Policy.Holds]
	followsOf standpoint
}

// standpoint is what followed hangs on.
type standpoint struct {
	policy  *policy.Policy
	state   policy.State
	view    *register.View
	entered time.Time
}

// newMemory returns the memory of a run that begins now, nil where its policy asks for none.
func newMemory(c *Config, now time.Time) *memory {
	if !c.Policy.Guarded() {
		return nil
	}
	return &memory{policy: c.Policy, began: now, entered: now, registers: register.New(c.Policy.Schema(), c.MaxRegisters), counts: &limit.Counts{}}
}

// anew returns the memory of a run that begins anew, nil where its policy asks for none: windows go on.
func (m *memory) anew(c *Config, now time.Time) *memory {
	next := newMemory(c, now)
	if m != nil && next != nil {
		next.counts = m.counts
		next.counts.Begin()
		next.counts.Adopt(c.Policy.LimitKey)
	}
	return next
}

// under returns the memory of a run that goes on by a policy, nil where that, too, asks for none.
func (m *memory) under(c *Config, now time.Time) *memory {
	switch {
	case m == nil:
		return newMemory(c, now)
	case m.policy != c.Policy:
		m.policy, m.registers = c.Policy, m.registers.Adopt(c.Policy.Schema(), c.MaxRegisters)
		m.counts.Adopt(c.Policy.LimitKey)
	}
	return m
}

// remember has the run remember what a policy asks for.
func (r *Run) remember(p *policy.Policy, now time.Time) {
	r.memory = r.memory.under(&Config{Policy: p, Shared: r.Shared}, now)
}

// facts are what guards see of the run.
func (m *memory) facts(call guard.Call, state string) *guard.Call {
	call.Registers, call.Run.State = m.view(), state
	if m != nil {
		call.Run.Began, call.Run.Entered = m.began, m.entered
	}
	return &call
}

func (m *memory) view() *register.View {
	if m == nil {
		return nil
	}
	return m.registers.View()
}

// view is what the run remembers as a policy sees it: as it will be under one to which the run moves when its turn is free.
func (r *Run) view(p *policy.Policy) *memory {
	m := r.memory
	if m == nil || p == r.stands.Policy {
		return m
	}
	next := *m
	next.registers = m.registers.Clone(r.MaxRegisters).Adopt(p.Schema(), r.MaxRegisters)
	return &next
}

// holds says which guards hold that lists follow.
func (r *Run) holds(p *policy.Policy, at policy.Configuration) string {
	m := r.view(p)
	if !p.Follows(at.State) {
		return ""
	}
	if now := (standpoint{p, at.State, m.view(), m.entered}); m.followsOf != now {
		m.followed, m.followsOf = p.Holds(at.State, m.facts(guard.Call{}, p.StateName(at.State))), now
	}
	return m.followed
}

// reserve keeps room in the registers for what a call will set, counts it against its limits,
// and says why it cannot be sent.
func (r *Run) reserve(c *Call, facts *guard.Call) policy.Code {
	a := c.Verdict.Alternative
	if r.memory == nil && r.ahead == nil { // a policy came into force that asks for it, and the run moves to it when its turn is free
		r.remember(c.Snapshot.Policy, facts.Now)
	}
	if r.memory == nil { // likewise, and entries tell of none before that; or it is not the run's own that asks for facts
		if c.Snapshot.remembers(&c.Verdict) {
			c.holdings().early = true
		}
		return policy.CodeNone
	}
	has := c.holdings()
	has.memory = r.memory
	var edges [][]register.Change
	var fault error
	if a.Remembers() {
		for _, o := range a.AllOutcomes() {
			changes, err := changesOf(a.Sets(o), false, facts)
			edges, fault = append(edges, changes), errors.Join(fault, err)
		}
	}
	if c.Snapshot.Policy != r.memory.policy && slices.ContainsFunc(edges, r.unfit) { // the run has such registers once it has moved
		edges, has.early = nil, !c.Snapshot.Shadow
	}
	if fault == nil {
		has.reserved, fault = r.memory.registers.Reserve(edges)
	}
	if fault == nil {
		fault = r.count(c, facts.Now)
	}
	if fault == nil {
		return policy.CodeNone
	}
	c.Verdict.Unmet = &policy.Unmet{Fault: fault}
	if full, _ := errors.AsType[*limit.Full](fault); full != nil {
		c.Verdict.Unmet.Because = a.Because
		return policy.LimitReached
	}
	if full, _ := errors.AsType[*register.Error](fault); full != nil && full.Reason == register.NoRoom {
		return policy.LimitReached
	}
	if c.Verdict.Unmet.Because = a.Because; len(a.Because) == 0 {
		c.Verdict.Unmet.Because = []string{"what the policy is to remember of it cannot be told from its arguments."}
	}
	return policy.GuardFailed
}

// unfit reports whether some changes are of registers that the run has not as it stands.
func (r *Run) unfit(changes []register.Change) bool {
	return len(fitting(changes, r.memory.policy)) < len(changes)
}

// count counts a call against its limits. The error is a *limit.Full.
func (r *Run) count(c *Call, now time.Time) error {
	of := c.Snapshot.Policy.LimitsOf(c.Snapshot.At.State, &c.Verdict)
	taken, full := r.memory.counts.Take(now, of.Own...)
	if full != nil {
		return full
	}
	if taken == nil && len(of.Principal) == 0 {
		return nil
	}
	counted := &counted{of: r.memory.counts, taken: taken, limits: of.Own}
	c.holdings().counted = counted
	if len(of.Principal) > 0 {
		counted.principals, counted.principal = r.Principals, c.Principal()
		if counted.personal, full = r.Principals.Take(counted.principal, now, of.Principal...); full != nil {
			return full
		}
	}
	return nil
}

// counted is what a call has taken of limits.
type counted struct {
	of     *limit.Counts
	taken  *limit.Taken
	limits []limit.Limit

	principals *limit.Principals
	principal  string // as they know it
	personal   *limit.Taken
}

// limits is whose limits over all runs the call has taken of, as a [limit.Principals] knows who that is; "": nobody's.
func (c *Call) limits() string {
	if of := c.held().counted; of != nil && of.personal != nil {
		return of.principal
	}
	return ""
}

// Personal is what a call has taken of limits over all runs of its principal, and who that is; nil: nothing.
func (c *Call) Personal() (principal string, taken *limit.Taken) {
	if of := c.held().counted; of != nil {
		return of.principal, of.personal
	}
	return "", nil
}

// Principal is how tables of limits know on whose behalf a call comes: by a hash, as they are kept.
func (c *Call) Principal() string {
	hash := sha256.Sum256([]byte("principal_limits\x00" + c.principal()))
	return hex.EncodeToString(hash[:])
}

// giveBack undoes it.
func (c *counted) giveBack() {
	if c.taken != nil {
		c.of.GiveBack(c.taken)
	}
	if c.personal != nil {
		c.principals.GiveBack(c.principal, c.personal)
	}
}

// principal is on whose behalf a call comes, "" if nobody is known.
func (c *Call) principal() string {
	if c.Who == nil {
		return ""
	}
	return c.Who.Issuer + "\x00" + c.Who.Subject
}

// changesOf works out what assignments do: those that hang on the result, or the others.
func changesOf(set []policy.Assignment, late bool, facts *guard.Call) (out []register.Change, err error) {
	for _, a := range set {
		if a.Late != late {
			continue
		}
		change := register.Change{Register: a.Register.Name, Operation: a.Operation}
		for _, program := range a.Values {
			value, err := program.Value(facts)
			if err != nil {
				return nil, err
			}
			if texts, is := value.([]string); is {
				for _, text := range texts {
					change.Values = append(change.Values, text)
				}
				continue
			}
			change.Values = append(change.Values, value)
		}
		out = append(out, change)
	}
	return out, nil
}

// ended enters which outcome a call has by its result, and what that sets. A success of which it
// cannot be said is unknown, and sets nothing; the error says why.
func (r *Run) ended(c *Call, end End, e *Entry) (err error) {
	has := c.held()
	read := has.read
	if read == nil {
		read = c.reading(end)
	}
	same := has.memory != nil && has.memory == r.memory && (r.ahead == nil || !r.ahead.anew())
	if same && read.fault == nil {
		e.Set, read.fault = r.memory.registers.Settle(has.reserved, read.outcome.Index(), read.late)
	}
	switch untold := e.Begun == 0 || e.Shadow; {
	case has.counted == nil || !untold:
	case r.ahead != nil:
		e.Counted, e.Limits = r.counted(has.counted), c.limits()
	case same:
		e.Counted = has.counted.limits
	}
	if c.has != nil {
		c.has.counted = nil // for good
		c.release()
	}
	if e.Outcome = read.outcome; read.fault != nil && end.Outcome == policy.Success {
		e.Outcome = policy.Unknown
	}
	return errors.Join(read.err, read.fault)
}

// counted are the limits against which a call that is told of by its end alone counts then: of a run that was begun anew since,
// or of a visit that is over, nothing does.
func (r *Run) counted(c *counted) []limit.Limit {
	switch {
	case c.taken == nil || r.memory == nil || c.of != r.memory.counts:
		return nil
	case r.ahead.leaves(r): // another policy has other limits, and no entry that is applied tells of it yet
		c.of.GiveBack(c.taken)
		return nil
	}
	return slices.DeleteFunc(c.of.Counted(c.taken), func(l limit.Limit) bool {
		return l.Span == limit.Visit && r.moving() || (l.Span == limit.Visit || l.Span == limit.Run) && r.ahead.anew()
	})
}

// fitting are the changes but those of registers that the policy has of another kind, or has not: a reload came since they
// were decided. Nothing would come of them, and of those of another kind nobody could read them again.
func fitting(changes []register.Change, p *policy.Policy) []register.Change {
	unfit := func(x register.Change) bool { return !p.Schema().Fits(x) }
	if slices.ContainsFunc(changes, unfit) {
		changes = slices.DeleteFunc(slices.Clone(changes), unfit)
	}
	if len(changes) == 0 {
		return nil
	}
	return changes
}

// reading is what a call's result says.
type reading struct {
	outcome policy.Outcome
	late    []register.Change // that the result is read for
	err     error             // why it does not say the outcome
	fault   error             // why it does not say what to set
}

// reading reads a result.
func (c *Call) reading(end End) *reading {
	read := &reading{outcome: end.Outcome}
	has := c.held()
	if has.facts == nil || end.Result == nil {
		return read
	}
	facts, a := *has.facts, c.Verdict.Alternative
	facts.Result = end.Result
	if read.outcome, read.err = a.Outcome(end.Outcome, &facts); read.err == nil {
		read.late, read.fault = changesOf(a.Sets(read.outcome), true, &facts)
	}
	return read
}

// Counts are the limits that the run has taken something of, as JSON has them; nil where its policy has none.
func (r *Run) Counts(now time.Time) []byte {
	if r.memory == nil {
		return []byte("[]")
	}
	return r.memory.counts.AppendJSON(nil, now)
}

// Registers are the run's registers as they are now: nil where its policy has none.
func (r *Run) Registers() *register.View { return r.memory.view() }

// Expire moves the run by the clock of its state, if that is due.
func (r *Run) Expire(now time.Time) (e Effects) {
	if !r.isDue(now) {
		return e
	}
	e.From = r.Snapshot(now)
	e.Entries = append(r.use(now), r.expire(now)...)
	e.To = r.Snapshot(now)
	return e
}

// expire moves the run by a clock that is due. What does not fit is not set.
func (r *Run) expire(now time.Time) []Entry {
	e := Entry{Type: Expired, Time: now, By: r.stands.Policy, Shadow: r.Shadow, To: r.stands}
	var err error
	if e.Step, err = e.By.Expire(r.stands.At); err != nil {
		return nil
	}
	facts := r.memory.facts(guard.Call{Now: now}, r.stands.State())
	if set, err := changesOf(e.By.After(r.stands.At.State).Sets(), false, facts); err == nil {
		if room, err := r.memory.registers.Reserve([][]register.Change{set}); err == nil {
			room.GiveBack()
			e.Set = set
		}
	}
	r.arrive(&e)
	return []Entry{r.record(e)}
}
