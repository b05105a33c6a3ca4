package run_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

const review = `
version: 1
initial: planning
states:
  planning: {tools: {write: review, read: }}
  review: {tools: {ask: planning, read: , accept: {on_success: {terminal: true}}}}
`

// walk is a run of one policy, at one moment.
type walk struct {
	*testing.T
	run.Run
	now time.Time
}

func begin(t *testing.T, source string) *walk {
	t.Helper()
	return &walk{t, run.New(run.Config{Policy: parse(t, source), Shared: &run.Shared{Patience: time.Hour}}, time.Unix(1000, 0)), time.Unix(1000, 0)}
}

func (w *walk) enter(name string) (*run.Call, run.Admission, run.Effects) {
	c := &run.Call{Request: run.Request{Kind: policy.Tool, Name: name, Listed: true, Known: true}}
	a, e := w.Enter(c, 3, w.now)
	return c, a, e
}

// call has a call let go.
func (w *walk) call(name string) *run.Call {
	w.Helper()
	c, a, _ := w.enter(name)
	if a != run.Admitted {
		w.Fatalf("%s in %s: %v", name, w.Standing().State(), c.Verdict.Code)
	}
	return c
}

func (w *walk) refused(name string, code policy.Code) {
	w.Helper()
	if c, a, _ := w.enter(name); a != run.Refused || c.Verdict.Code != code {
		w.Fatalf("%s: %v, %v", name, a, c.Verdict.Code)
	}
}

// ends settles a call, and passes the turn on.
func (w *walk) ends(c *run.Call, o policy.Outcome) (run.Entry, run.Effects) {
	w.Helper()
	e, _, err := w.Settle(c, run.End{Outcome: o}, w.now)
	if err != nil {
		w.Fatal(err)
	}
	return e, w.Pass(c, w.now)
}

func (w *walk) does(name string) {
	w.Helper()
	w.ends(w.call(name), policy.Success)
}

func (w *walk) reload(source string) run.Fate {
	w.Helper()
	f, e := w.Reload(parse(w, source), w.now)
	if e.Entries != nil {
		w.Error("a reload is no entry")
	}
	return f
}

func (w *walk) in(state string) {
	w.Helper()
	if is := w.Standing().State(); is != state {
		w.Fatalf("the run is in %s, want %s", is, state)
	}
}

// told is the one entry that tells of a reload when the run is next used.
func (w *walk) told(want run.Type) {
	w.Helper()
	_, _, e := w.enter("nothing")
	if len(e.Entries) != 1 || e.Entries[0].Type != want || e.Entries[0].To != w.Standing() {
		w.Fatalf("entries: %+v, want one of type %d", e.Entries, want)
	}
	if _, _, e := w.enter("nothing"); e.Entries != nil {
		w.Error("and it is told once")
	}
}

// other is review without its state review, under settings.
func other(settings string) string {
	return settings + "\nversion: 1\ninitial: planning\nstates:\n  planning: {tools: {write: other, ask: }}\n  other: {tools: [read]}\n"
}

func TestReload(t *testing.T) {
	for name, c := range map[string]struct {
		source string
		fate   run.Fate
		entry  run.Type
		state  string
	}{
		"moves by the name":     {"name: x\n" + review, run.WasMoved, run.Moved, "review"},
		"moves by the new name": {"renamed: {review: approval}\n" + strings.ReplaceAll(review, "review", "approval"), run.WasMoved, run.Moved, "approval"},
		"strands":               {other(""), run.WasStranded, run.Stranded, "review"},
		"strands and refuses":   {other("stranded: refuse"), run.WasRefused, run.Stranded, "review"},
		"strands and restarts":  {other("stranded: restart"), run.WasRestarted, run.Reset, "planning"},
	} {
		t.Run(name, func(t *testing.T) {
			w := begin(t, review)
			w.does("write")
			if fate := w.reload(c.source); fate != c.fate {
				t.Errorf("fate %v, want %v", fate, c.fate)
			}
			w.in(c.state)
			w.told(c.entry)
		})
	}
	w := begin(t, review)
	w.does("write")
	if fate := w.reload(other("on_reload: pin")); fate != run.WasPinned {
		t.Errorf("fate %v", fate)
	}
	if _, _, e := w.enter("nothing"); e.Entries != nil {
		t.Errorf("a pinned run has not moved: %+v", e.Entries)
	}
}

// While a call has the turn the run stays, and others are decided where it will be.
// Entries are numbered, and what only stays is nothing that an operator has to see. Where a reload has taken the run is
// seen by who looks.
func TestSeq(t *testing.T) {
	w := begin(t, strings.Replace(review, "read: }}", "read: {exclusive: true}}}", 1))
	is := func(seq uint64, moved ...bool) {
		t.Helper()
		if w.Seq() != seq {
			t.Errorf("seq %d, want %d", w.Seq(), seq)
		}
		for since, want := range moved {
			if w.MovedSince(uint64(since)) != want {
				t.Errorf("moved since %d: %v", since, !want)
			}
		}
	}
	is(0, false, true)
	w.does("read")
	is(1, false, false, true)
	w.does("write")
	is(2, true, true, false, true)
	w.reload("name: x\n" + review)
	is(2)
	if _, e := w.Inspect(w.now); len(e.Entries) != 1 {
		t.Errorf("a look: %+v", e)
	}
	is(3, true, true, true, false, true)
	w.Restart(w.now)
	is(4, true, true, true, true, false, true)
}

// An operator sends what is bound for the agent, and what is not; both policies of a run that a reload has left must
// bind it.
func TestOperatorsSignals(t *testing.T) {
	const source = "version: 1\ninitial: a\nstates: {a: {signals: {go: b, let: {to: b, from: operator}}}, b: {signals: {go: a}}}\n"
	w := begin(t, source)
	enter := func(name string, from policy.Sender) (*run.Call, run.Admission) {
		c := &run.Call{Request: run.Request{Kind: policy.Signal, Name: name, From: from, Listed: true, Known: true}}
		a, _ := w.Enter(c, 3, w.now)
		return c, a
	}
	if c, a := enter("let", policy.Agent); a != run.Refused || c.Verdict.Code != policy.UnknownAction {
		t.Errorf("the agent's: %v %v", a, c.Verdict.Code)
	}
	c, a := enter("let", policy.Operator)
	if a != run.Admitted || !w.Holds(c) {
		t.Fatalf("%v %v", a, c.Verdict.Code)
	}
	w.ends(c, policy.Success)
	w.in("b")
	if c, a := enter("let", policy.Operator); a != run.Refused || c.Verdict.Code != policy.InvalidTransition {
		t.Errorf("in b: %v %v", a, c.Verdict.Code)
	}
	w.reload("on_reload: pin\n" + strings.ReplaceAll(source, "go", "come"))
	if c, a := enter("go", policy.Operator); a != run.Refused || c.Verdict.Code != policy.UnknownAction || w.Holds(c) {
		t.Errorf("what the policy in force has not: %v %v", a, c.Verdict.Code)
	}
	if all, _ := w.Inspect(w.now); len(all) != 0 {
		t.Errorf("it takes %v", all)
	}
}

func TestReloadUnderACall(t *testing.T) {
	w := begin(t, review)
	c := w.call("write")
	_, _, _ = w.enter("write")
	if fate := w.reload("renamed: {review: approval}\n" + strings.ReplaceAll(review, "review", "approval")); fate != run.WaitsForTurn {
		t.Fatalf("fate %v", fate)
	}
	w.reload("renamed: {approval: consent}\n" + strings.ReplaceAll(review, "review", "consent"))
	ended, e := w.ends(c, policy.Success)
	if got := ended.To.State(); got != "review" {
		t.Errorf("the call led to %s, by its own policy", got)
	}
	w.in("consent")
	if len(e.Ready) != 1 || !w.Holds(e.Ready[0]) {
		t.Fatalf("ready: %v", e.Ready)
	}
	a, e := w.Granted(e.Ready[0], w.now)
	if a != run.Refused || e.Ready != nil || w.Holds(c) {
		t.Errorf("what was asked of planning: %v", a)
	}
	if len(e.Entries) != 1 || e.Entries[0].Type != run.Moved || e.Entries[0].From != ended.To {
		t.Errorf("entries: %+v", e.Entries)
	}
}

func TestStranded(t *testing.T) {
	w := begin(t, review)
	w.does("write")
	w.reload(other(""))
	w.refused("accept", policy.UnknownAction) // which the policy in force binds nowhere
	if w.Snapshot(w.now).Visible(policy.Tool, "accept") {
		t.Error("and it is shown")
	}
	w.ends(w.call("read"), policy.Success)
	w.now = w.now.Add(2 * time.Hour)
	w.refused("read", policy.NotAvailable)
	w.reload(review)
	if at := w.Standing(); !at.Stranded.IsZero() {
		t.Errorf("stranded since %v, though its state is back", at.Stranded)
	}
	w.does("read")
	w.reload(other("stranded: refuse"))
	w.refused("read", policy.NotAvailable)
	w.reload(review)
	w.does("read")
	w.reload(strings.Replace(review, "accept", "rogue", 1)) // and a run that ends begins by what is in force
	w.does("rogue")
	w.in("planning")
}

// A stranded run that comes to its end begins anew by the policy in force.
func TestEndOfAStrandedRun(t *testing.T) {
	w := begin(t, review)
	w.does("write")
	w.reload(strings.Replace(other(""), "ask:", "accept:", 1))
	c := w.call("accept")
	e, _ := w.ends(c, policy.Success)
	if !e.Step.Restarted || e.To.Policy != w.Policy || !e.To.Stranded.IsZero() {
		t.Errorf("the run began anew at %+v", e.To)
	}
}

// A call of the run before moves nothing, whatever has become of it.
func TestRestartUnderACall(t *testing.T) {
	w := begin(t, review)
	c := w.call("write")
	left := c.Remains()
	e := w.Restart(w.now)
	if len(e.Entries) != 1 || e.Entries[0].Type != run.Reset {
		t.Errorf("entries: %+v", e.Entries)
	}
	if ok, _ := w.HandOver(c, &left); !ok {
		t.Fatal("it has no turn")
	}
	if e, _ := w.ends(&left, policy.Success); e.Step.Changed {
		t.Errorf("the old run's task stepped the new one: %+v", e)
	}
	w.in("planning")
}

func TestRestartUnderATask(t *testing.T) {
	w := begin(t, review)
	c := w.call("write")
	left := c.Remains()
	_, _ = w.HandOver(c, &left)
	if _, a, _ := w.enter("write"); a != run.TaskRunning {
		t.Errorf("beside a task: %v", a)
	}
	w.Restart(w.now)
	w.does("write") // the turn is free
	if e, _ := w.ends(&left, policy.Success); e.Type != 0 {
		t.Errorf("the old run's task has an end: %+v", e)
	}
	w.in("review")
}

// What waits is refused where the run began anew by itself, and not where somebody had it.
func TestRestartOfTheQueue(t *testing.T) {
	w := begin(t, review)
	c := w.call("write")
	waits, a, _ := w.enter("write")
	if e := w.Restart(w.now); a != run.Queued || e.Ready != nil {
		t.Fatalf("%v, ready %v", a, e.Ready)
	}
	e := w.RestartUnasked(w.now)
	if !slices.Equal(e.Ready, []*run.Call{waits}) {
		t.Fatalf("ready %v", e.Ready)
	}
	if a, _ := w.Enter(waits, 3, w.now); a != run.Refused || !waits.Outlived {
		t.Errorf("%v, outlived: %v", a, waits.Outlived)
	}
	w.ends(c, policy.Success)
	w.in("planning")
}

// In shadow the first to end moves the run, and the others were decided where it no longer is.
func TestShadow(t *testing.T) {
	w := begin(t, review)
	w.SetShadow(true, w.now)
	first, second := w.call("write"), w.call("write")
	e, _ := w.ends(second, policy.Success)
	if !e.Shadow || e.To != w.Standing() {
		t.Errorf("%+v", e)
	}
	w.does("ask") // back in planning: still not where the first was decided
	if e, _ := w.ends(first, policy.Success); e.Type != 0 {
		t.Errorf("%+v", e)
	}
	third := w.call("write")
	w.reload("renamed: {review: approval}\n" + strings.ReplaceAll(review, "review", "approval"))
	w.ends(third, policy.Success)
	w.in("approval")
	overlooked := w.call("ask")
	overlooked.Overlooked = policy.NotAvailable
	w.ends(overlooked, policy.Success)
	w.in("approval")
}

// A decision that hangs on a list waits for it, and counts as of when it was asked for.
func TestListWanted(t *testing.T) {
	w := begin(t, "pin: refuse\n"+strings.Replace(review, "read: }", `"r*": }`, 1))
	c := &run.Call{Request: run.Request{Kind: policy.Tool, Name: "read", Listed: true}}
	for _, step := range []struct {
		change func()
		want   run.Admission
		code   policy.Code
	}{
		{func() {}, run.ListWanted, policy.CodeNone},
		{func() { c.Known = true }, run.ListWanted, policy.CodeNone},
		{func() { c.Locked = run.Differs }, run.Refused, policy.DefinitionChanged},
		{func() { c.Locked = run.AsLocked }, run.Admitted, policy.CodeNone},
		{func() { c.Misfit = true }, run.Refused, policy.NotAvailable},
		{func() { c.Listed = false }, run.Refused, policy.InvalidTransition},
	} {
		step.change()
		if a, _ := w.Enter(c, 3, w.now); a != step.want || c.Verdict.Code != step.code {
			t.Fatalf("%+v: %v, %v", c.Request, a, c.Verdict.Code)
		}
	}
	late := &run.Call{Request: run.Request{Kind: policy.Tool, Name: "read", Listed: true}}
	w.Expect(late)
	w.RestartUnasked(w.now)
	if a, _ := w.Enter(late, 3, w.now); a != run.Refused || !late.Outlived {
		t.Errorf("%v, outlived: %v", a, late.Outlived)
	}
}
