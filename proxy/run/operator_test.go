package run_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// TestOperatorsAgainstModel plays signals of agents and operators, who each know some past of the run, restarts and reloads,
// and compares with a naive reading: a list of what has become of the run, and a table of what leads where.
func TestOperatorsAgainstModel(t *testing.T) {
	const source = `version: 1
name: v%d
initial: a
everywhere: {signals: {back: {to: a, from: operator}}}
states:
  a: {signals: {back: none, go: b, look: stay}}
  b: {signals: {go: c, let: {to: d, from: operator}}}
  c: {signals: {look: {from: operator}}}
  d: {signals: {end: {terminal: true}}}
`
	type edge struct {
		to         string
		byOperator bool
	}
	leads := map[string]map[string]edge{
		"a": {"go": {"b", false}, "look": {"a", false}},
		"b": {"go": {"c", false}, "let": {"d", true}, "back": {"a", true}},
		"c": {"look": {"c", true}, "back": {"a", true}},
		"d": {"end": {"a", false}, "back": {"a", true}},
	}
	versions := map[int]*policy.Policy{}
	for v := range 3 {
		versions[v] = parse(t, fmt.Sprintf(source, v))
	}
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1000, 0)
		r := run.New(run.Config{Policy: versions[0], Shared: &run.Shared{Patience: time.Hour}}, now)
		state, version := "a", 0
		moved := []bool{false} // by number of entry
		recorded := 0          // the version that its entries tell of: a reload is none until the run is used
		catchUp := func() {
			if recorded != version {
				moved, recorded = append(moved, true), version
			}
		}
		since := func(seq int) bool {
			if seq >= len(moved) {
				return true
			}
			for _, m := range moved[seq+1:] {
				if m {
					return true
				}
			}
			return false
		}
		t.Repeat(map[string]func(*rapid.T){
			"signal": func(t *rapid.T) {
				name := rapid.SampledFrom([]string{"go", "look", "let", "back", "end", "nothing"}).Draw(t, "name")
				from := rapid.SampledFrom([]policy.Sender{policy.Agent, policy.Operator}).Draw(t, "from")
				c := &run.Call{Request: run.Request{Kind: policy.Signal, Name: name, From: from, Listed: true, Known: true}}
				a, _ := r.Enter(c, 3, now)
				catchUp()
				want, bound := leads[state][name]
				if allowed := bound && (from == policy.Operator || !want.byOperator); allowed != (a == run.Admitted) {
					t.Fatalf("%s in %s by %s: %v %s", name, state, from, a, c.Verdict.Code)
				} else if !allowed {
					return
				}
				seen := rapid.IntRange(0, len(moved)+1).Draw(t, "seen")
				if r.MovedSince(uint64(seen)) != since(seen) {
					t.Fatalf("since %d of %v: %v", seen, moved, !since(seen))
				}
				if _, _, err := r.Settle(c, run.End{Outcome: policy.Success}, now); err != nil {
					t.Fatal(err)
				}
				r.Pass(c, now)
				moved = append(moved, name != "look")
				state = want.to
			},
			"restart": func(*rapid.T) {
				r.Restart(now)
				moved, state, recorded = append(moved, true), "a", version
			},
			"reload": func(t *rapid.T) {
				version = rapid.IntRange(0, 2).Draw(t, "version")
				r.Reload(versions[version], now)
			},
			"look": func(t *rapid.T) {
				signals, _ := r.Inspect(now)
				catchUp()
				if len(signals) != len(leads[state]) {
					t.Fatalf("in %s it takes %v", state, signals)
				}
				for _, x := range signals {
					if e := leads[state][x.Name]; e.to != x.To && !x.Completes || e.byOperator != (x.From == policy.Operator) {
						t.Fatalf("in %s: %+v", state, x)
					}
				}
			},
			"": func(t *rapid.T) {
				if r.Standing().State() != state || r.Seq() != uint64(len(moved)-1) {
					t.Fatalf("in %s, seq %d; want %s, %d", r.Standing().State(), r.Seq(), state, len(moved)-1)
				}
			},
		})
	})
}
