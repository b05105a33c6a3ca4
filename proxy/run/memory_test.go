package run_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

const remembering = `
version: 1
initial: work
registers:
  reads: {set: text, max: 100}
  plan: text
  calls: counter
states:
  work:
    tools:
      read: {set: {reads: {add: args.path}}}
      edit: {when: args.path in registers.reads}
      forget: {set: {reads: {remove: args.path}}}
      plan: {on_success: {to: planned, set: {plan: result.structuredContent.id}}, on_any: stay}
      count: {when: registers.calls < 3, set: {calls: {add: 1}}}
      review: {when: has(registers.plan) && args.plan != "", on_any: work}
  planned:
    tools:
      apply: {when: args.plan == registers.plan, on_any: {to: work, set: {plan: none, reads: none}}}
      end: {on_any: {to: work, terminal: true}}
`

// args are arguments as a client sends them.
type args string

func (a args) JSON() []byte { return []byte(a) }

func (a args) At([]string) (policy.Argument, bool) { return policy.Argument{}, false }

func (w *walk) enterWith(name, arguments string) (*run.Call, run.Admission) {
	c := &run.Call{Request: run.Request{Kind: policy.Tool, Name: name, Arguments: args(arguments), Listed: true, Known: true}}
	a, _ := w.Enter(c, 100, w.now)
	return c, a
}

// with has a call let go, or refused with a code.
func (w *walk) with(name, arguments string, code policy.Code) *run.Call {
	w.Helper()
	c, a := w.enterWith(name, arguments)
	if (a == run.Admitted) != (code == policy.CodeNone) || c.Verdict.Code != code {
		w.Fatalf("%s %s: %v, %v, %v", name, arguments, a, c.Verdict.Code, c.Verdict.Fault())
	}
	return c
}

// result settles a call by a result, and passes its turn on.
func (w *walk) result(c *run.Call, o policy.Outcome, result string) (run.Entry, error) {
	var raw []byte
	if result != "" {
		raw = []byte(result)
	}
	e, _, err := w.Settle(c, run.End{Outcome: o, Result: raw}, w.now)
	if c.Verdict.Turn {
		w.Pass(c, w.now)
	}
	return e, err
}

func (w *walk) registers(want string) {
	w.Helper()
	if got := string(w.Registers().AppendJSON(nil)); got != want {
		w.Fatalf("registers %s; want %s", got, want)
	}
}

func TestRegistersOfARun(t *testing.T) {
	w := begin(t, remembering)
	w.with("edit", `{"path":"a"}`, policy.GuardFailed)
	read := w.with("read", `{"path":"a"}`, policy.CodeNone)
	w.with("edit", `{"path":"a"}`, policy.GuardFailed) // it applies when the call ends
	w.result(read, policy.Success, "{}")
	w.result(w.with("edit", `{"path":"a"}`, policy.CodeNone), policy.Success, "{}")
	w.result(w.with("read", `{"path":"b"}`, policy.CodeNone), policy.Error, "{}") // beside the edges: success alone
	w.registers(`{"reads":["a"],"plan":null,"calls":0}`)
	w.with("read", `{"path":1}`, policy.GuardFailed)
	w.with("read", `{}`, policy.GuardFailed)

	if e, err := w.result(w.with("plan", `{}`, policy.CodeNone), policy.Success, `{"structuredContent":{"id":7}}`); err == nil || e.Outcome != policy.Unknown {
		t.Errorf("a number for a text: %v, %v", e.Outcome, err)
	}
	w.in("work")
	w.registers(`{"reads":["a"],"plan":null,"calls":0}`)
	w.result(w.with("plan", `{}`, policy.CodeNone), policy.Success, `{"structuredContent":{"id":"p1"}}`)
	w.in("planned")
	w.with("apply", `{"plan":"p2"}`, policy.GuardFailed)
	w.result(w.with("apply", `{"plan":"p1"}`, policy.CodeNone), policy.Unknown, "")
	w.registers(`{"reads":[],"plan":null,"calls":0}`)

	w.result(w.with("plan", `{}`, policy.CodeNone), policy.Success, `{"structuredContent":{"id":"p3"}}`)
	before := w.Registers()
	w.result(w.with("end", `{}`, policy.CodeNone), policy.Success, "")
	w.registers(`{"reads":[],"plan":null,"calls":0}`)
	if before.Register("plan") != "p3" {
		t.Error("what was seen has changed")
	}
}

// TestAddOfABegunRun ends calls whose run began anew meanwhile: they set nothing.
func TestAddOfABegunRun(t *testing.T) {
	w := begin(t, remembering)
	read := w.with("read", `{"path":"a"}`, policy.CodeNone)
	plan := w.with("plan", `{}`, policy.CodeNone)
	w.Restart(w.now)
	w.result(read, policy.Success, "{}")
	w.result(plan, policy.Success, `{"structuredContent":{"id":"p1"}}`)
	w.in("work")
	w.registers(`{"reads":[],"plan":null,"calls":0}`)
}

// TestCounterAndItsGuard has many calls at once: the guard is decided one after the other.
func TestCounterAndItsGuard(t *testing.T) {
	w := begin(t, remembering)
	first := w.with("count", `{}`, policy.CodeNone)
	for range 10 {
		if _, a := w.enterWith("count", `{}`); a != run.Queued {
			t.Fatal(a)
		}
	}
	w.Settle(first, run.End{Outcome: policy.Success}, w.now)
	ready, sent := w.Pass(first, w.now).Ready, 1
	for len(ready) > 0 {
		c := ready[0]
		a, e := w.Granted(c, w.now)
		if ready = e.Ready; a != run.Admitted {
			continue
		}
		o := policy.Success
		if sent++; sent == 2 {
			o = policy.Unknown // and is not counted
		}
		w.Settle(c, run.End{Outcome: o}, w.now)
		ready = w.Pass(c, w.now).Ready
	}
	if w.registers(`{"reads":[],"plan":null,"calls":3}`); sent != 4 {
		t.Errorf("%d were sent", sent)
	}
}

// TestHundredAtOnce adds more texts at once than a set holds.
func TestHundredAtOnce(t *testing.T) {
	w := begin(t, remembering)
	var sent []*run.Call
	for i := range 164 {
		c, a := w.enterWith("read", fmt.Sprintf(`{"path":"%d"}`, i))
		if a == run.Admitted {
			sent = append(sent, c)
		} else if c.Verdict.Code != policy.LimitReached {
			t.Fatal(c.Verdict.Code)
		}
	}
	if len(sent) != 100 {
		t.Fatalf("%d were sent", len(sent))
	}
	w.Leave(sent[0], w.now) // of which one is cancelled
	w.result(w.with("read", `{"path":"another"}`, policy.CodeNone), policy.Success, "{}")
	w.with("read", `{"path":"one more"}`, policy.LimitReached)
	for _, c := range sent[1:] {
		w.result(c, policy.Success, "{}")
	}
	if set := w.Registers().Register("reads").(interface{ Len() int }); set.Len() != 100 {
		t.Error(set.Len())
	}
}

// TestListsFollowRegisters shows a tool once its guard may hold, whatever its arguments.
func TestListsFollowRegisters(t *testing.T) {
	w := begin(t, remembering)
	shown := func(want ...string) {
		t.Helper()
		if got := w.Snapshot(w.now).Exact(policy.Tool); !slices.Equal(got, want) {
			t.Errorf("shown: %v; want %v", got, want)
		}
	}
	shown("read", "edit", "forget", "plan", "count")
	w.result(w.with("plan", `{}`, policy.CodeNone), policy.Success, `{"structuredContent":{"id":"p1"}}`)
	w.result(w.with("end", `{}`, policy.CodeNone), policy.Error, "")
	shown("read", "edit", "forget", "plan", "count")
	for range 3 {
		from := w.Snapshot(w.now)
		w.result(w.with("count", `{}`, policy.CodeNone), policy.Success, "{}")
		if differs := from.Differs(w.Snapshot(w.now), policy.Tool); differs != !slices.Contains(w.Snapshot(w.now).Exact(policy.Tool), "count") {
			t.Errorf("differs: %v", differs)
		}
	}
	shown("read", "edit", "forget", "plan")
	if w.with("count", `{}`, policy.GuardFailed).Snapshot.Visible(policy.Tool, "count") {
		t.Error("shown, and refused whatever its arguments")
	}
}

// TestReloadKeepsRegisters moves a run to policies with other registers.
func TestReloadKeepsRegisters(t *testing.T) {
	w := begin(t, remembering)
	w.result(w.with("read", `{"path":"a"}`, policy.CodeNone), policy.Success, "{}")
	w.result(w.with("count", `{}`, policy.CodeNone), policy.Success, "{}")
	late := w.with("read", `{"path":"b"}`, policy.CodeNone)
	w.reload(`
version: 1
initial: work
registers: {reads: {set: text, max: 1}, calls: text, added: boolean}
states: {work: {tools: {read: {set: {reads: {add: args.path}}}, note: {set: {added: "true"}}}}}
`)
	w.registers(`{"reads":["a"],"calls":null,"added":null}`)
	w.result(late, policy.Success, "{}") // what was promised is kept
	w.result(w.with("note", `{}`, policy.CodeNone), policy.Success, "{}")
	w.registers(`{"reads":["a","b"],"calls":null,"added":true}`)
	w.with("read", `{"path":"c"}`, policy.LimitReached)
	w.reload("version: 1\ninitial: work\nstates: {work: {tools: {read: }}}\n")
	w.registers(`{}`)
	w.reload(remembering)
	w.registers(`{"reads":[],"plan":null,"calls":0}`)
}

// TestRegistersAreTheFold draws walks, and makes of their entries the run again.
func TestRegistersAreTheFold(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		now := time.Unix(1000, 0)
		p := parse(rt, remembering)
		r := run.New(run.Config{Policy: p}, now)
		var entries []run.Entry
		keep := func(all ...run.Entry) {
			entries = append(entries, slices.DeleteFunc(all, func(e run.Entry) bool { return e.Type == 0 })...)
		}
		var under []*run.Call
		for range rapid.IntRange(1, 40).Draw(rt, "deeds") {
			now = now.Add(time.Second)
			if len(under) > 0 && rapid.Bool().Draw(rt, "end one") {
				i := rapid.IntRange(0, len(under)-1).Draw(rt, "which")
				c := under[i]
				under = slices.Delete(under, i, i+1)
				o := rapid.SampledFrom(policy.AllOutcomes[:]).Draw(rt, "outcome")
				e, _, _ := r.Settle(c, run.End{Outcome: o, Result: []byte(`{"structuredContent":{"id":"p"}}`)}, now)
				keep(e)
				if c.Verdict.Turn {
					keep(r.Pass(c, now).Entries...)
				}
				continue
			}
			if rapid.IntRange(0, 9).Draw(rt, "restart") == 0 {
				keep(r.Restart(now).Entries...)
				continue
			}
			c := &run.Call{Request: run.Request{Kind: policy.Tool, Listed: true, Known: true,
				Name:      rapid.SampledFrom([]string{"read", "edit", "forget", "plan", "count", "apply", "end"}).Draw(rt, "tool"),
				Arguments: args(`{"path":"` + rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "path") + `","plan":"p"}`)}}
			a, e := r.Enter(c, 0, now)
			keep(e.Entries...)
			if a == run.Admitted {
				under = append(under, c)
			}
		}
		again := run.Replay(run.Config{Policy: p}, slices.Values(reread(rt, entries)), now)
		if was, is := r.Registers().AppendJSON(nil), again.Registers().AppendJSON(nil); string(was) != string(is) || r.Standing() != again.Standing() {
			rt.Fatalf("%s at %v, by its entries %s at %v", was, r.Standing(), is, again.Standing())
		}
	})
}

// TestAddBeforeARunHasMoved decides by a policy that has registers, while a call that the one
// without decided has the turn.
func TestAddBeforeARunHasMoved(t *testing.T) {
	w := begin(t, "version: 1\ninitial: work\nstates: {work: {tools: {go: planned, read: }}, planned: {tools: {go: work}}}\n")
	holder := w.call("go")
	w.reload(remembering)
	w.result(w.with("read", `{"path":"a"}`, policy.CodeNone), policy.Success, "{}")
	w.registers(`{"reads":["a"],"plan":null,"calls":0}`)
	w.result(holder, policy.Success, "")
	w.in("planned")
	w.registers(`{"reads":["a"],"plan":null,"calls":0}`)
}

// TestListOfTexts adds to a set, and removes, what a list of arguments or of a result holds: all of it or nothing.
func TestListOfTexts(t *testing.T) {
	w := begin(t, `
version: 1
initial: work
registers: {seen: {set: text, max: 3}}
states:
  work:
    tools:
      read: {set: {seen: {add: args.paths}}}
      forget: {set: {seen: {remove: args.paths}}}
      search: {set: {seen: {add: 'result.structuredContent.hits.map(h, string(h.id))'}}}
`)
	w.result(w.with("read", `{"paths":["a","b","a"]}`, policy.CodeNone), policy.Success, "{}")
	w.registers(`{"seen":["a","b"]}`)
	w.result(w.with("read", `{"paths":[]}`, policy.CodeNone), policy.Success, "{}")
	w.with("read", `{"paths":["c",1]}`, policy.GuardFailed)
	w.with("read", `{"paths":["c","d"]}`, policy.LimitReached)
	w.registers(`{"seen":["a","b"]}`)
	w.result(w.with("forget", `{"paths":["a","x"]}`, policy.CodeNone), policy.Success, "{}")
	w.result(w.with("search", `{}`, policy.CodeNone), policy.Success, `{"structuredContent":{"hits":[{"id":7},{"id":8}]}}`)
	w.registers(`{"seen":["b","7","8"]}`)
	if e, err := w.result(w.with("search", `{}`, policy.CodeNone), policy.Success, `{"structuredContent":{"hits":[{"id":9}]}}`); err == nil || e.Outcome != policy.Unknown {
		t.Errorf("more than there is room for: %v, %v", e.Outcome, err)
	}
	w.registers(`{"seen":["b","7","8"]}`)
}
