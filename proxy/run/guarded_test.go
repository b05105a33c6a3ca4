package run_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// A reload has other registers while a call has the turn: what comes beside that is decided by what the run will remember
// when it has moved, and what would be remembered of it waits until then.
func TestGuardsOfAReloadSeeItsRegisters(t *testing.T) {
	next := parse(t, `
version: 1
initial: a
registers: {n: counter, turned: counter, seen: {set: text, max: 3}}
states:
  a:
    tools:
      go: b
      first: {when: size(registers.seen) == 0}
      second: {when: size(registers.seen) > 0}
      kept: {when: registers.n == 1}
      turned: {when: registers.turned == 0}
      add: {set: {seen: {add: args.v}}}
  b: {tools: {add: {set: {seen: {add: args.v}}}}}
`)
	for name, before := range map[string]string{
		"others": "registers: {n: counter, turned: text, gone: text}\nstates: {a: {tools: {go: b, count: {set: {n: {add: 1}, turned: args.v}}}}, b: }\n",
		"none":   "states: {a: {tools: {go: b, count: }}, b: }\n",
	} {
		for _, lasts := range []bool{true, false} {
			t.Run(fmt.Sprint(name, lasts), func(t *testing.T) {
				r := run.New(run.Config{Policy: parse(t, "version: 1\ninitial: a\n"+before), Lasts: lasts}, at)
				enter := func(name string) (*run.Call, run.Admission) {
					c := &run.Call{Request: run.Request{Kind: policy.Tool, Name: name, Arguments: args(`{"v":"x"}`), Listed: true, Known: true}}
					a, _ := r.Enter(c, 1, at)
					return c, a
				}
				settle := func(c *run.Call) {
					if _, _, err := r.Settle(c, run.End{Outcome: policy.Success}, at); err != nil {
						t.Fatal(err)
					}
					whole(t, &r, nil)
				}
				count, _ := enter("count")
				r.Begin(count, at)
				whole(t, &r, nil)
				settle(count)
				r.Pass(count, at)
				going, a := enter("go")
				if a != run.Admitted {
					t.Fatal(a)
				}
				r.Begin(going, at)
				whole(t, &r, nil)
				r.Reload(next, at)
				for tool, want := range map[string]policy.Code{"first": policy.CodeNone, "turned": policy.CodeNone, "second": policy.GuardFailed, "kept": policy.GuardFailed} {
					if tool == "kept" && name == "others" {
						want = policy.CodeNone
					}
					if c, a := enter(tool); a == run.Queued || c.Verdict.Code != want || c.Verdict.Fault() != nil {
						t.Errorf("%s: %v, %v", tool, c.Verdict.Code, c.Verdict.Fault())
					}
				}
				add, a := enter("add")
				if name == "none" && !lasts { // of which there is no other memory
					return
				}
				if a != run.Queued {
					t.Fatalf("add: %v, %v, %v", a, add.Verdict.Code, add.Verdict.Because())
				}
				settle(going)
				if ready := r.Pass(going, at).Ready; !slices.Contains(ready, add) {
					t.Fatal("its turn does not come")
				}
				if a, _ := r.Granted(add, at); a != run.Admitted {
					t.Fatalf("add: %v, %v, %v", a, add.Verdict.Code, add.Verdict.Because())
				}
				r.Begin(add, at)
				whole(t, &r, nil)
				settle(add)
				if is, want := string(r.Registers().AppendJSON(nil)), map[string]string{"others": `{"n":1,"turned":0,"seen":["x"]}`, "none": `{"n":0,"turned":0,"seen":["x"]}`}[name]; is != want {
					t.Errorf("it has %s, want %s", is, want)
				}
			})
		}
	}
}
