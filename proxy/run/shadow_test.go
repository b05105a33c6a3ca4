package run_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// forGood is a policy with calls that cannot be undone.
const forGood = `
version: 1
initial: a
states:
  a:
    at_most: 5
    tools:
      push: {irreversible: true}
      lead: {irreversible: true, on_success: b, on_unknown: b}
      count: {at_most: 3}
      none: {irreversible: true, when: "false"}
  b: {tools: {back: a}}
`

// shadowed is a run that lasts, whose calls are decided in shadow, and what it has made.
type shadowed struct {
	*testing.T
	run.Run
	now       time.Time
	all, made []run.Entry // all, and those that are looked at
}

func shadows(t *testing.T, shadow bool) *shadowed {
	w := &shadowed{T: t, now: time.Unix(1000, 0)}
	w.Run = run.New(run.Config{Policy: parse(t, forGood), Lasts: true, Shadow: shadow}, w.now)
	w.took()
	w.made = nil
	return w
}

// took takes what the run has made, all of which is durable then.
func (w *shadowed) took() {
	for _, e := range w.Made() {
		w.all = append(w.all, e)
		if w.made = append(w.made, e); e.Pending() != nil {
			w.Durable(e.Pending(), w.now)
		}
	}
}

// sends has a call be sent.
func (w *shadowed) sends(c *run.Call) {
	w.Helper()
	w.Enter(c, 1, w.now)
	if c.Snapshot.Shadow {
		c.Overlooked = c.Verdict.Code
	}
	if !c.Verdict.Allowed && c.Overlooked == policy.CodeNone {
		w.Fatalf("%s is refused: %v", c.Name, c.Verdict.Code)
	}
	if _, ok := w.Begin(c, w.now); !ok {
		w.Fatalf("%s is to be entered again", c.Name)
	}
	w.took()
}

func (w *shadowed) ends(c *run.Call, o policy.Outcome) {
	w.Helper()
	e, _, err := w.Settle(c, run.End{Outcome: o, Took: time.Second}, w.now)
	if err != nil {
		w.Fatal(err)
	}
	if e.Seq == 0 {
		w.Stay(c, run.End{Outcome: o, Took: time.Second}, w.now)
	}
	w.took()
	w.Pass(c, w.now)
}

func tool(name string) *run.Call {
	return &run.Call{Request: run.Request{Kind: policy.Tool, Name: name, Listed: true, Known: true}}
}

// wants are the entries, each in a word.
func (w *shadowed) wants(want ...string) {
	w.Helper()
	var got []string
	for _, e := range reread(w.T, w.made) {
		x := e.Type.String()
		if e.Call != nil {
			x += " " + e.Call.Name
		}
		if e.Begun != 0 {
			x += fmt.Sprint(" of ", e.Begun)
		}
		if e.Irreversible {
			x += " for good"
		}
		if e.Shadow {
			x += " in shadow"
		}
		if len(e.Counted) > 0 {
			x += " counted"
		}
		if e.Step.Changed {
			x += " to " + e.To.State()
		}
		got = append(got, x)
	}
	if !slices.Equal(got, want) {
		w.Errorf("the entries are\n%s\nand not\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// again is the run by its entries.
func (w *shadowed) again() run.Run {
	return run.Replay(run.Config{Policy: w.Policy, Lasts: true, Shadow: w.Shadow}, slices.Values(reread(w.T, w.all)), w.now)
}

// same checks that the run is what its entries say.
func (w *shadowed) same() {
	w.Helper()
	again := w.again()
	counts := func(r *run.Run) string { // in whatever order
		each := strings.SplitAfter(strings.Trim(string(r.Counts(w.now)), "[]")+",", "},")
		slices.Sort(each)
		return strings.Join(each, "")
	}
	if was, is := counts(&w.Run), counts(&again); was != is || w.Standing() != again.Standing() || again.Made() != nil {
		w.Errorf("the run is %v with %s, and by its entries %v with %s", w.Standing(), was, again.Standing(), is)
	}
}

// In shadow, too, a call that cannot be undone is told of before it is sent, and has an end, whatever comes of it there.
func TestIrreversibleCallsBeginInShadow(t *testing.T) {
	w := shadows(t, true)
	push := tool("push")
	w.sends(push)
	w.wants("begun push for good in shadow")
	w.ends(push, policy.Error)
	w.wants("begun push for good in shadow", "ended push of 2 in shadow counted")

	w.made = nil
	first, second := tool("lead"), tool("lead")
	w.sends(first)
	w.sends(second)
	w.ends(first, policy.Success)
	w.ends(second, policy.Success) // which another one has overtaken
	w.wants("begun lead for good in shadow", "begun lead for good in shadow", "ended lead of 4 in shadow counted to b", "ended lead of 5 in shadow")

	w.made = nil
	back := tool("back")
	w.sends(back)
	w.ends(back, policy.Success)
	none := tool("none")
	w.sends(none)
	if none.Overlooked == policy.CodeNone {
		t.Fatal("its condition holds")
	}
	w.ends(none, policy.Success)
	w.wants("ended back in shadow to a", "begun none for good in shadow", "ended none of 9 in shadow")
	if e := w.made[1]; e.Said == nil || e.Said.Code != policy.GuardFailed {
		t.Errorf("why it would have been refused is not told: %+v", e.Said)
	}
	w.same()
}

// What is under way at a crash has an end, and moves nothing: whether it would have moved the run nobody knows.
func TestIrreversibleCallsInShadowEndAtACrash(t *testing.T) {
	w := shadows(t, true)
	w.sends(tool("lead"))
	again := w.again()
	made := again.Made()
	if len(made) != 1 || made[0].Type != run.Ended || made[0].Begun != 2 || !made[0].Shadow || made[0].Outcome != policy.Unknown || again.Standing().State() != "a" {
		t.Errorf("%+v", made)
	}
}

// A call that was to be sent once more, and is in shadow by then, is told of as sent.
func TestSentOnceMoreInShadow(t *testing.T) {
	for name, want := range map[string][]string{
		"push":  {"begun push for good counted", "unsent push of 2", "begun push for good in shadow", "ended push of 4 in shadow counted"},
		"count": {"begun count counted", "unsent count of 2", "ended count in shadow counted"},
	} {
		w := shadows(t, false)
		c := tool(name)
		w.sends(c)
		w.SetShadow(true, w.now)
		if _, held, _ := w.Keeps(c, w.now); held {
			t.Fatal("it has the turn")
		}
		w.sends(c)
		w.ends(c, policy.Success)
		w.wants(want...)
		w.same()
	}
}

// What a call in shadow has taken of limits is told by its end: of a run that was begun anew since, or of a visit that is
// over, it counts for nothing, and windows go on.
func TestCountsInShadowAreNotTheNextRuns(t *testing.T) {
	const limited = `
version: 1
initial: a
at_most: {hour: 9}
states:
  a: {at_most: 5, tools: {count: {at_most: 3}, lead: b}}
  b: {tools: {back: a}}
`
	for title, between := range map[string]func(*shadowed){
		"a reset":                  func(w *shadowed) { w.Restart(w.now); w.took() },
		"a reset that is not kept": func(w *shadowed) { w.Restart(w.now) },
		"a step":                   func(w *shadowed) { c := tool("lead"); w.sends(c); w.ends(c, policy.Success) },
		"a reload":                 func(w *shadowed) { w.Reload(parse(t, limited+"on_reload: pin\n"), w.now) },
		"a reload that asks nothing": func(w *shadowed) {
			w.Reload(parse(t, "version: 1\ninitial: a\nstates: {a: {tools: [count]}}\n"), w.now)
		},
	} {
		t.Run(title, func(t *testing.T) {
			w := &shadowed{T: t, now: time.Unix(1000, 0)}
			w.Run = run.New(run.Config{Policy: parse(t, limited), Lasts: true, Shadow: true}, w.now)
			w.took()
			c := tool("count")
			w.sends(c)
			between(w)
			w.ends(c, policy.Success)
			w.Inspect(w.now)
			w.took()
			w.same()
		})
	}
}

// A run in shadow is begun anew by a policy that has not the limit of a call, and once more by the one that has: what the call
// has taken of it went with the first, as it does where the run is read.
func TestLimitInShadowThatIsGoneForAWhile(t *testing.T) {
	had := parse(t, strings.Replace(forGood, "at_most: 5", "at_most: {hour: 5}", 1))
	without := parse(t, "version: 1\ninitial: a\nstates: {a: {tools: {push: }}}\n")
	r := run.New(run.Config{Policy: had, Lasts: true, Shadow: true, Shared: &run.Shared{Patience: time.Hour}}, at)
	c := calls(t, &r, "count")
	r.RestartUnasked(at)
	r.Reload(without, at)
	r.RestartUnasked(at)
	r.Reload(had, at)
	r.RestartUnasked(at)
	if _, _, err := r.Settle(c, run.End{Outcome: policy.Unknown}, at); err != nil {
		t.Fatal(err)
	}
	entries := whole(t, &r, nil)
	again := run.Replay(run.Config{Policy: had, Lasts: true, Shadow: true}, slices.Values(reread(t, entries)), at)
	if was, is := string(r.Counts(at)), string(again.Counts(at)); was != is || was != "[]" {
		t.Errorf("it has taken %s, and %s when it is read again", was, is)
	}
}
