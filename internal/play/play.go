package play

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/asker"
	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/guard"
	"github.com/fsm-proxy/fsm-proxy/proxy/approval"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// Begin is when the run of every test begins.
var Begin = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

// Failure is what a test has found wrong.
type Failure struct {
	Place strictyaml.Place
	Text  string // what came, and what was expected
}

// Play plays a test on a run of its own, and returns what is wrong: a test ends with the first step
// of which something is. What was covered is entered.
func (f *File) Play(p *policy.Policy, t *Test, covered *Coverage) []Failure {
	x := player{file: f, test: t, policy: p, covered: covered, now: Begin, began: Begin, entered: Begin}
	x.run = run.New(run.Config{Policy: p}, x.now)
	covered.enter(p.Initial().State)
	for i := range t.Steps {
		if x.step(&t.Steps[i]); len(x.failures) > 0 {
			break
		}
	}
	return x.failures
}

// player is a test under way.
type player struct {
	file     *File
	test     *Test
	policy   *policy.Policy
	covered  *Coverage
	run      run.Run
	now      time.Time
	began    time.Time
	entered  time.Time // the state
	failures []Failure
}

func (x *player) fail(at strictyaml.Place, format string, args ...any) {
	x.failures = append(x.failures, Failure{at, strictyaml.Printable(fmt.Sprintf(format, args...))})
}

func (x *player) step(s *Step) {
	if s.said["wait"] {
		x.wait(s)
		x.expect(s)
		return
	}
	given, err := Arguments(s.Args)
	if err != nil {
		x.fail(s.Place, "%s %s: no request can have these arguments: %v", s.Kind, s.Name, err)
		return
	}
	c := &run.Call{Request: run.Request{
		Kind: s.Kind, Name: s.Name, From: s.From, Listed: x.listed(s.Kind, s.Name), Known: true, Locked: run.AsLocked,
		Arguments: given, Who: cmp.Or(s.Who, x.test.Who),
	}}
	facts := x.facts(c)
	a, _ := x.run.Enter(c, 0, x.now)
	x.covered.decided(c, facts)
	if a == run.ApprovalWanted {
		a = x.approve(s, c)
	} else if s.said["approve"] {
		x.fail(s.Place, "%s %s is asked of nobody: no approve of the policy holds for it, or it is refused before", s.Kind, s.Name)
	}
	switch {
	case a == run.Admitted && c.Unclear:
		x.run.Leave(c, x.now)
		x.fail(s.Place, "%s %s: an argument reads differently to others", s.Kind, s.Name)
	case a == run.Admitted && s.Refused != nil:
		x.run.Leave(c, x.now)
		x.fail(s.Refused.Place, "%s %s is allowed by %s, want %s", s.Kind, s.Name, c.Verdict.Rule, s.Refused.Value)
	case a == run.Admitted:
		x.settle(s, c)
	case a == run.ApprovalWanted:
		x.refused(s, c, policy.ApprovalPending)
	case a == run.Crowded:
		x.refused(s, c, policy.Busy)
	default:
		x.refused(s, c, c.Verdict.Code)
	}
	x.expect(s)
}

// approve asks whoever is to approve a call, who says what the step has them say.
func (x *player) approve(s *Step, c *run.Call) run.Admission {
	a, asked, _ := x.run.Ask(c, &approval.Question{}, nil, 0, x.now)
	if asked == nil || s.Approve == approval.Open {
		return a
	}
	x.run.Answer(asked, run.Reply{Answer: s.Approve}, x.now)
	x.covered.see(approvalItem(c.Verdict.Alternative.Approve, s.Approve))
	a, _, _ = x.run.Ask(c, &approval.Question{}, asked, 0, x.now)
	return a
}

// maxExpired is how often clocks may move the run in one step.
const maxExpired = 10_000

// wait has time pass: clocks that become due on the way move the run when they do.
func (x *player) wait(s *Step) {
	until := x.now.Add(s.Wait)
	for range maxExpired {
		due, ok := x.run.Due()
		if !ok || due.After(until) {
			x.now = until
			return
		}
		x.now = due
		at := x.run.Snapshot(x.now).At.State
		e := x.run.Expire(x.now)
		x.covered.see(clockItem(x.policy, at))
		x.entries(e.Entries)
	}
	x.fail(s.Place, "clocks move the run more than %d times in this time; wait for less", maxExpired)
}

// entries notes where entries have taken the run.
func (x *player) entries(all []run.Entry) {
	for _, e := range all {
		if e.Step.Changed {
			x.entered = x.now
			x.covered.enter(e.Step.Entered)
			x.covered.enter(x.run.Snapshot(x.now).At.State)
		}
		if e.Step.Restarted {
			x.began = x.now
		}
	}
}

// refused compares a refusal with what is expected.
func (x *player) refused(s *Step, c *run.Call, why policy.Code) {
	code := why.String()
	switch {
	case s.Refused == nil && why == policy.ApprovalPending:
		x.fail(s.Place, "%s %s waits for an approval (%s); say of the step approve: allow, approve: deny, or refused: %s", s.Kind, s.Name, c.Verdict.Rule, code)
	case s.Refused == nil:
		x.fail(s.Place, "%s %s is refused in %s: %s%s", s.Kind, s.Name, x.state(), code, reason(&c.Verdict))
	case s.Refused.Value != code:
		x.fail(s.Refused.Place, "%s %s is refused with %s%s, want %s", s.Kind, s.Name, code, reason(&c.Verdict), s.Refused.Value)
	}
	if s.Because != nil && !slices.Contains(c.Verdict.Because(), s.Because.Value) {
		told := "nothing is told"
		if len(c.Verdict.Because()) > 0 {
			told = "told is " + strictyaml.And(c.Verdict.Because())
		}
		x.fail(s.Because.Place, "%s, want %s", told, strictyaml.Quote(s.Because.Value))
	}
}

// reason says where a refusal comes from, as far as there is such a place.
func reason(v *policy.Verdict) (text string) {
	if v.Rule.String() != "" {
		text = " by " + v.Rule.String()
	}
	if v.Fault() != nil {
		text += ", " + v.Fault().Error()
	}
	return text
}

// settle ends a call as the step's answer has it.
func (x *player) settle(s *Step, c *run.Call) {
	end := run.End{Outcome: s.Answer.Outcome, Result: s.Answer.Result}
	if end.Outcome == 0 {
		end.Outcome = policy.Success
	}
	if end.Outcome == policy.Success && end.Result == nil && s.Kind != policy.Signal {
		end.Result = []byte(`{"content":[]}`)
	}
	e, _, err := x.run.Settle(c, end, x.now)
	if e.Outcome != 0 {
		x.covered.ended(c, e.Outcome)
	}
	if err != nil && e.Outcome == 0 {
		x.fail(s.Place, "%s %s: %v", s.Kind, s.Name, err)
	}
	x.entries([]run.Entry{e})
	if x.run.Holds(c) {
		x.entries(x.run.Pass(c, x.now).Entries)
	}
}

// facts are what guards see of a call: as the run has them.
func (x *player) facts(c *run.Call) *guard.Call {
	facts := &guard.Call{Name: c.Name, Now: x.now, Registers: x.run.Registers()}
	facts.Run = guard.Run{State: x.state(), Began: x.began, Entered: x.entered}
	if c.Arguments != nil {
		facts.Args = c.Arguments.JSON()
	}
	if c.Who != nil {
		facts.Who = *c.Who
	}
	return facts
}

func (x *player) state() string {
	s := x.run.Snapshot(x.now)
	return s.State()
}

// listed reports whether the server lists a name.
func (x *player) listed(k policy.Kind, name string) bool {
	return int(k) >= policy.Kinds || x.file.Listed[k] == nil || slices.Contains(x.file.Listed[k], name)
}

// expect compares where the run is with what a step says of that.
func (x *player) expect(s *Step) {
	if s.State != nil && s.State.Value != x.state() {
		x.fail(s.State.Place, "the state is %s, want %s%s", x.state(), s.State.Value, x.noState(s.State.Value))
	}
	for _, want := range s.Registers {
		x.expectRegister(&want)
	}
	for _, k := range policy.SymbolKinds {
		if s.Lists[k] == nil {
			continue
		}
		got, want := x.shown(k, cmp.Or(s.Who, x.test.Who)), slices.Clone(s.Lists[k])
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			x.fail(s.ListsAt, "the %s shown are [%s], want [%s]", k.Plural(), strings.Join(got, ", "), strings.Join(want, ", "))
		}
	}
}

func (x *player) noState(name string) string {
	if _, ok := x.policy.StateByName(name); !ok {
		return ", which is no state of the policy"
	}
	return ""
}

func (x *player) expectRegister(want *Expected) {
	if !slices.ContainsFunc(x.policy.Registers(), func(r policy.Register) bool { return r.Name == want.Register.Value }) {
		x.fail(want.Register.Place, "%s is no register of the policy", strictyaml.Quote(want.Register.Value))
		return
	}
	got := x.run.Registers().AppendRegister(nil, want.Register.Value)
	if !reflect.DeepEqual(canonical(got), canonical(want.Value)) {
		x.fail(want.Register.Place, "register %s is %s, want %s", want.Register.Value, got, want.Value)
	}
}

// canonical is a register's value for a comparison: that of a set has no order.
func canonical(value []byte) (out any) {
	if json.Unmarshal(value, &out) != nil {
		return nil
	}
	if items, ok := out.([]any); ok {
		slices.SortFunc(items, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	}
	return out
}

// shown are the names of a kind that the agent is shown: those that the server lists, or,
// where the file does not say what it does, those that the policy binds by their names.
func (x *player) shown(k policy.Kind, who *asker.Who) (names []string) {
	s := x.run.Snapshot(x.now).As(who)
	switch {
	case k == policy.Signal:
		return s.Signals()
	case x.file.Listed[k] == nil:
		return s.Exact(k)
	}
	for _, name := range x.file.Listed[k] {
		if s.Visible(k, name) {
			names = append(names, name)
		}
	}
	return names
}

// arguments are those of a call, as cases compare them.
type arguments wire.Arguments

// Arguments returns the arguments of a call that are a JSON object, nil where there is none. The error says why no
// request can have them.
func Arguments(object []byte) (run.Arguments, error) {
	if object == nil {
		return nil, nil
	}
	call := slices.Concat([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":`), object, []byte("}}"))
	m, err := wire.Read(call, wire.FromClient)
	if err != nil {
		return nil, err
	}
	return (*arguments)(m), nil
}

// JSON returns the object that they are; see [run.Arguments].
func (a *arguments) JSON() []byte { return (*wire.Message)(a).Bytes(a.P.Arguments) }

// At returns the argument at a path; see [run.Arguments].
func (a *arguments) At(path []string) (value policy.Argument, unclear bool) {
	scalar, ok, unclear := (*wire.Arguments)(a).Scalar(path)
	switch {
	case ok && scalar.Literal:
		value = policy.Literal(scalar.Text)
	case ok:
		value = policy.Text(scalar.Text)
	}
	return value, unclear
}
