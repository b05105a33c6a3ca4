package run_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

const overtaken = `version: 1
initial: a
registers: {x: KIND}
everywhere: {tools: {note: {set: {x: VALUE}}, ok: }}
states:
  a: {tools: {go: b}}
  b: {tools: {back: a}}
`

// overtakenBy is that policy with another kind of register.
func overtakenBy(t *testing.T, kind, value string) *policy.Policy {
	return parse(t, strings.NewReplacer("KIND", kind, "VALUE", value).Replace(overtaken))
}

// whole is a run that lasts, all of whose entries are durable, and those entries.
func whole(t *testing.T, r *run.Run, entries []run.Entry) []run.Entry {
	t.Helper()
	entries = append(entries, r.Made()...)
	if p := r.Awaited(); p != nil {
		r.Durable(p, at)
	}
	return entries
}

// calls enters a call of a run, and has it begin.
func calls(t *testing.T, r *run.Run, name string) *run.Call {
	t.Helper()
	c := &run.Call{Request: run.Request{Kind: policy.Tool, Name: name, Arguments: args(`{"v":"text"}`), Listed: true, Known: true}}
	if a, _ := r.Enter(c, 1, at); a != run.Admitted {
		t.Fatalf("%s: %v, %v", name, a, c.Verdict.Code)
	}
	if _, ok := r.Begin(c, at); !ok {
		t.Fatal(name)
	}
	return c
}

// A call sets a register that a reload has given another kind meanwhile: nothing comes of that, and the run can be read.
func TestChangeOfARegisterOfAnotherKind(t *testing.T) {
	for name, next := range map[string][2]string{"a counter": {"counter", "{add: 1}"}, "a text": {"text", "args.v"}} {
		t.Run(name, func(t *testing.T) {
			r := run.New(run.Config{Policy: overtakenBy(t, "{set: text, max: 3}", "{add: args.v}"), Lasts: true}, at)
			c := calls(t, &r, "note")
			entries := whole(t, &r, nil)
			p := overtakenBy(t, next[0], next[1])
			r.Reload(p, at)
			calls(t, &r, "ok") // which has it told where the run stands
			if _, _, err := r.Settle(c, run.End{Outcome: policy.Success}, at); err != nil {
				t.Fatal(err)
			}
			entries = whole(t, &r, entries)
			again := run.Replay(run.Config{Policy: p, Lasts: true}, slices.Values(reread(t, entries)), at)
			if was, is := string(r.Registers().AppendJSON(nil)), string(again.Registers().AppendJSON(nil)); was != is || strings.Contains(is, "text") {
				t.Errorf("it has %s, and %s when it is read again", was, is)
			}
			// Nobody has learned how it ended, and it takes its on_unknown twice over.
			lost := run.Replay(run.Config{Policy: p, Lasts: true}, slices.Values(reread(t, entries[:len(entries)-1])), at)
			run.Replay(run.Config{Policy: p, Lasts: true}, slices.Values(reread(t, whole(t, &lost, entries[:len(entries)-1]))), at)
		})
	}
}

// A reload begins the run anew while it is not durable yet that a call has set something: that is of the run before.
func TestResetOvertakesWhatIsToBeSet(t *testing.T) {
	p := overtakenBy(t, "{set: text, max: 3}", "{add: args.v}")
	r := run.New(run.Config{Policy: p, Lasts: true, Shared: &run.Shared{Patience: time.Hour}}, at)
	going := calls(t, &r, "go")
	entries := whole(t, &r, nil)
	end := func(c *run.Call) {
		if _, _, err := r.Settle(c, run.End{Outcome: policy.Success}, at); err != nil {
			t.Fatal(err)
		}
	}
	end(going)
	entries = whole(t, &r, entries)
	r.Pass(going, at)
	note := calls(t, &r, "note")
	entries = whole(t, &r, entries)
	end(note) // which is not durable yet
	next := parse(t, strings.NewReplacer("KIND", "{set: text, max: 3}", "VALUE", "{add: args.v}", "a: {tools: {go: b}}\n  b: {tools: {back: a}}", "a: \nstranded: restart").Replace(overtaken))
	r.Reload(next, at)
	calls(t, &r, "ok") // which has it told that the run begins anew
	entries = whole(t, &r, entries)
	again := run.Replay(run.Config{Policy: next, Lasts: true}, slices.Values(reread(t, entries)), at)
	was, is := string(r.Registers().AppendJSON(nil)), string(again.Registers().AppendJSON(nil))
	if was != is || strings.Contains(was, "text") || !slices.ContainsFunc(entries, func(e run.Entry) bool { return e.Type == run.Reset }) {
		t.Errorf("it has %s, and %s when it is read again", was, is)
	}
}

// A step that begins the run anew is not durable yet when a call of the run before ends: it sets nothing in the next one.
func TestCallOfARunThatIsAboutToBeginAnew(t *testing.T) {
	p := parse(t, strings.NewReplacer("KIND", "{set: text, max: 3}", "VALUE", "{add: args.v}", "back: a", "back: a, end: {on_any: {to: a, terminal: true}}", "initial: a", "initial: b\non_complete: restart").Replace(overtaken))
	r := run.New(run.Config{Policy: p, Lasts: true}, at)
	last, note := calls(t, &r, "end"), calls(t, &r, "note")
	entries := whole(t, &r, nil)
	for _, c := range []*run.Call{last, note} {
		if _, _, err := r.Settle(c, run.End{Outcome: policy.Success}, at); err != nil {
			t.Fatal(err)
		}
	}
	entries = whole(t, &r, entries)
	again := run.Replay(run.Config{Policy: p, Lasts: true}, slices.Values(reread(t, entries)), at)
	was, is := string(r.Registers().AppendJSON(nil)), string(again.Registers().AppendJSON(nil))
	if was != is || strings.Contains(was, "text") || !slices.ContainsFunc(entries, func(e run.Entry) bool { return e.Step.Restarted }) {
		t.Errorf("it has %s, and %s when it is read again", was, is)
	}
}

// A reload brings what is to be remembered to a run of which nothing was, while a call has its turn: what comes beside that
// call and would be remembered waits until the run has moved, and is there when the run is read again.
func TestFirstMemoryWaitsForTheTurn(t *testing.T) {
	plain := parse(t, strings.NewReplacer("registers: {x: KIND}\n", "", "{set: {x: VALUE}}", "").Replace(overtaken))
	const counts = "at_most: {day: 9}"
	for name, next := range map[string]*policy.Policy{
		"registers": overtakenBy(t, "{set: text, max: 3}", "{add: args.v}"),
		"limits":    parse(t, strings.NewReplacer("registers: {x: KIND}\n", "", "set: {x: VALUE}", counts).Replace(overtaken)),
		"both":      parse(t, strings.NewReplacer("KIND", "{set: text, max: 3}", "{x: VALUE}", "{x: {add: args.v}}, "+counts).Replace(overtaken)),
	} {
		t.Run(name, func(t *testing.T) {
			r := run.New(run.Config{Policy: plain, Lasts: true, Shared: &run.Shared{Checkpoint: 1}}, at)
			going := calls(t, &r, "go")
			entries := whole(t, &r, nil)
			r.Reload(next, at)
			calls(t, &r, "ok") // of which nothing is remembered, and which goes beside
			note := &run.Call{Request: run.Request{Kind: policy.Tool, Name: "note", Arguments: args(`{"v":"text"}`), Listed: true, Known: true}}
			a, _ := r.Enter(note, 1, at)
			if a == run.Admitted {
				r.Begin(note, at)
			}
			entries = whole(t, &r, entries)
			if _, _, err := r.Settle(going, run.End{Outcome: policy.Success}, at); err != nil {
				t.Fatal(err)
			}
			entries = whole(t, &r, entries)
			if ready := r.Pass(going, at).Ready; slices.Contains(ready, note) {
				if a, _ = r.Granted(note, at); a != run.Admitted || r.Holds(note) {
					t.Fatalf("%v: it needs the turn no more", a)
				}
				r.Begin(note, at)
			}
			entries = whole(t, &r, entries)
			if _, _, err := r.Settle(note, run.End{Outcome: policy.Success}, at); err != nil {
				t.Fatal(err)
			}
			entries = reread(t, whole(t, &r, entries))
			remembers := func(r *run.Run) string { return string(r.Registers().AppendJSON(nil)) + string(r.Counts(at)) }
			was := remembers(&r)
			if strings.Contains(was, "text") == (name == "limits") || strings.Contains(was, "day") == (name == "registers") {
				t.Errorf("it has %s", was)
			}
			for i, e := range entries {
				if i > 0 && e.Type != run.Checkpoint {
					continue
				}
				again := run.Replay(run.Config{Policy: next, Lasts: true}, slices.Values(entries[i:]), at)
				if is := remembers(&again); was != is {
					t.Errorf("it has %s, and %s when it is read again from entry %d on", was, is, i+1)
				}
			}
		})
	}
}

// A call that has come by the turn is one that waits when it is about to begin: a reload brought the first memory meanwhile,
// and the run is about to begin anew.
func TestFirstMemoryIsWaitedForBeforeACallBegins(t *testing.T) {
	plain := parse(t, "version: 1\ninitial: a\nstates: {a: {tools: {go: b, note: b}}, b: {tools: {go: a}}}\n")
	r := run.New(run.Config{Policy: plain, Lasts: true}, at)
	going := calls(t, &r, "go")
	whole(t, &r, nil)
	note := &run.Call{Request: run.Request{Kind: policy.Tool, Name: "note", Arguments: args(`{"v":"text"}`), Listed: true, Known: true}}
	if a, _ := r.Enter(note, 1, at); a != run.Queued || !slices.Contains(r.Leave(going, at).Ready, note) {
		t.Fatal(a)
	}
	r.Reload(overtakenBy(t, "{set: text, max: 3}", "{add: args.v}"), at)
	r.RestartBy(run.Remark{}, at)
	if a, _ := r.Granted(note, at); a != run.Admitted {
		t.Fatal(a)
	}
	whole(t, &r, nil)
	if p, ok := r.Begin(note, at); ok {
		t.Fatalf("it goes, and nothing is remembered of it: %+v", p)
	}
	r.Leave(note, at)
	if a, _ := r.Enter(note, 1, at); a != run.Admitted {
		t.Fatal(a)
	}
	if p, ok := r.Begin(note, at); !ok || p == nil {
		t.Error("the run has moved, and it does not begin")
	}
}

// What a policy takes of what a run remembers is gone when the run is read again, though nobody used the run while it was in
// force; and the clock of its state begins with the policy that has the first.
func TestEntriesTellOfAPolicyBetween(t *testing.T) {
	plain := parse(t, strings.NewReplacer("registers: {x: KIND}\n", "", "{set: {x: VALUE}}", "").Replace(overtaken))
	const clock = "a: {after: {2h: b}, tools: {go: b}}"
	p := parse(t, strings.NewReplacer("KIND", "{set: text, max: 3}", "VALUE", "{add: args.v}", "a: {tools: {go: b}}", clock, "initial: a", "initial: a\nat_most: {day: 9}").Replace(overtaken))
	gone := parse(t, "version: 1\ninitial: c\nstates: {c: }\n")
	anew := parse(t, "version: 1\ninitial: c\nstranded: restart\nregisters: {x: {set: text, max: 3}}\nat_most: {day: 5}\nstates: {c: }\n")
	for name, reloads := range map[string][]*policy.Policy{
		"without memory":        {p, plain, p},
		"the first memory":      {plain, p},
		"of which another goes": {plain, p, plain, p},
		"stranded":              {p, plain, gone},
		"begun anew":            {p, plain, anew},
	} {
		for _, settled := range []bool{true, false} { // it is durable what was to be set
			now, next := at, reloads[len(reloads)-1]
			r := run.New(run.Config{Policy: reloads[0], Lasts: true, Shared: &run.Shared{Patience: time.Hour}}, now)
			note := calls(t, &r, "note")
			entries := whole(t, &r, nil)
			if _, _, err := r.Settle(note, run.End{Outcome: policy.Success}, now); err != nil {
				t.Fatal(err)
			}
			if settled {
				entries = whole(t, &r, entries)
			}
			for _, p := range reloads[1:] {
				now = now.Add(time.Minute)
				r.Reload(p, now)
			}
			now = now.Add(time.Minute)
			r.Inspect(now) // it is used
			entries = whole(t, &r, entries)
			again := run.Replay(run.Config{Policy: next, Lasts: true}, slices.Values(reread(t, entries)), now)
			remembers := func(r *run.Run) string {
				due, _ := r.Due()
				return string(r.Registers().AppendJSON(nil)) + string(r.Counts(now)) + due.UTC().String()
			}
			if was, is := remembers(&r), remembers(&again); was != is {
				t.Errorf("%s, %v: it has %s, and %s when it is read again", name, settled, was, is)
			}
		}
	}
}

// A task that the run has outlived was sent: what it has taken of limits stays taken, and its entry says how it has ended.
func TestTaskOfARunThatHasBegunAnew(t *testing.T) {
	p := parse(t, "version: 1\ninitial: a\nregisters: {n: counter}\nat_most: {day: 9}\nstates: {a: {tools: {go: {on_any: {to: b, set: {n: {add: 1}}}}}}, b: }\n")
	const taken = `[{"limit":"","span":"day","at_most":9,"taken":1}]`
	for name, lasts := range map[string]bool{"kept": true, "in memory": false} {
		t.Run(name, func(t *testing.T) {
			r := run.New(run.Config{Policy: p, Lasts: lasts}, at)
			c := calls(t, &r, "go")
			durable := func(entries []run.Entry) []run.Entry {
				if !lasts {
					return nil
				}
				return whole(t, &r, entries)
			}
			entries := durable(nil)
			task := c.Remains()
			if ok, _ := r.HandOver(c, &task); !ok {
				t.Fatal("it has no turn")
			}
			r.Restart(at)
			entries = durable(entries)
			e, _, err := r.Settle(&task, run.End{Outcome: policy.Error}, at)
			if err != nil {
				t.Fatal(err)
			}
			r.Pass(&task, at)
			entries = durable(entries)
			if lasts && (e.Type != run.Ended || e.Begun == 0) || e.Outcome != policy.Error || e.Step.Changed || e.Set != nil {
				t.Errorf("its end is %+v", e)
			}
			if got := string(r.Counts(at)); got != taken || r.Standing().State() != "a" || string(r.Registers().AppendJSON(nil)) != `{"n":0}` {
				t.Errorf("%s is taken in %s", got, r.Standing().State())
			}
			if again := run.Replay(run.Config{Policy: p, Lasts: true}, slices.Values(reread(t, entries)), at); lasts && string(again.Counts(at)) != taken {
				t.Errorf("read again it has %s", again.Counts(at))
			}
		})
	}
}

// A step in shadow waits for what was to be set before it, and for nothing else.
func TestStepInShadowBehindWhatIsToBeSet(t *testing.T) {
	p := parse(t, strings.NewReplacer("KIND", "{set: text, max: 3}", "VALUE", "{add: args.v}", "initial: a", "initial: b\non_complete: restart",
		"back: a", "back: {on_any: {to: a, set: {x: none}}}, end: {on_any: {to: a, terminal: true}}").Replace(overtaken))
	for _, tool := range []string{"back", "end"} {
		t.Run(tool, func(t *testing.T) {
			r := run.New(run.Config{Policy: p, Lasts: true}, at)
			note := calls(t, &r, "note")
			entries := whole(t, &r, nil)
			settle := func(c *run.Call) {
				if _, _, err := r.Settle(c, run.End{Outcome: policy.Success}, at); err != nil {
					t.Fatal(err)
				}
			}
			settle(note) // which is not durable yet
			r.SetShadow(true, at)
			settle(calls(t, &r, tool))
			if before := string(r.Registers().AppendJSON(nil)); strings.Contains(before, "text") {
				t.Errorf("it has %s before that is durable", before)
			}
			entries = whole(t, &r, entries)
			again := run.Replay(run.Config{Policy: p, Lasts: true}, slices.Values(reread(t, entries)), at)
			was, is := string(r.Registers().AppendJSON(nil)), string(again.Registers().AppendJSON(nil))
			if was != is || strings.Contains(is, "text") || r.Standing() != again.Standing() {
				t.Errorf("it has %s, and %s when it is read again", was, is)
			}
			if holder, _ := r.Holder(); holder != nil {
				t.Errorf("%+v has the turn", holder)
			}
			next := calls(t, &r, map[string]string{"back": "go", "end": "back"}[tool])
			if settle(next); r.Awaited() != nil || r.Standing() == again.Standing() {
				t.Error("nothing is to be set, and a step waits")
			}
		})
	}
}

// A policy is in force again that was before: a run whose state the one between had not is stranded no more, though it has
// been read by that very policy.
func TestStrandedUnderThePolicyOfBefore(t *testing.T) {
	was := parse(t, "version: 1\ninitial: a\nstates:\n  a: {tools: {go: b}}\n  b: {tools: {back: a}}\n")
	between := parse(t, "version: 1\ninitial: a\nstates:\n  a: {tools: {go: c, back: a}}\n  c: {tools: {back: a}}\n")
	r := run.New(run.Config{Policy: was, Lasts: true}, at)
	c := calls(t, &r, "go")
	entries := whole(t, &r, nil)
	if _, _, err := r.Settle(c, run.End{Outcome: policy.Success}, at); err != nil {
		t.Fatal(err)
	}
	entries = whole(t, &r, entries)
	r.Pass(c, at)
	r.Reload(between, at)
	r.Inspect(at)
	if entries = whole(t, &r, entries); r.Standing().Stranded.IsZero() || entries[len(entries)-1].Type != run.Stranded {
		t.Fatalf("it is not stranded: %+v", entries)
	}
	again := run.Replay(run.Config{Policy: was, Lasts: true}, slices.Values(entries), at)
	r.Reload(was, at)
	for how, r := range map[string]*run.Run{"in memory": &r, "read again": &again} {
		if s := r.Standing(); !s.Stranded.IsZero() || s.State() != "b" {
			t.Errorf("%s it is stranded since %v in %s", how, s.Stranded, s.State())
		}
		calls(t, r, "back")
		if made := whole(t, r, nil); made[0].Type != run.Moved || !made[0].To.Stranded.IsZero() {
			t.Errorf("%s it has made %+v", how, made)
		}
	}
}
