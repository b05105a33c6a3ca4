package policy

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fsm-proxy/fsm-proxy/policy/guard"
)

// TestWaysDecide draws alternatives: what is said of each agrees with the decision, and with a naive reading: the first
// that is for who asks and whose guards are true, unless one before it cannot be evaluated.
func TestWaysDecide(t *testing.T) {
	conditions := []string{"args.n > 1.0", "args.n > 2.0 && has(args.m)", "args.m == 1.0", "has(args.m)"}
	audiences := []string{"", "for: {subject: ada}, ", "for: {scope: [a, b]}, "}
	rapid.Check(t, func(t *rapid.T) {
		var ways []string
		for range rapid.IntRange(1, 4).Draw(t, "alternatives") {
			ways = append(ways, fmt.Sprintf("{%swhen: %s}", rapid.SampledFrom(audiences).Draw(t, "for"), rapid.SampledFrom(conditions).Draw(t, "when")))
		}
		p, found := Parse("p.yaml", []byte("version: 1\ninitial: a\nstates: {a: {tools: {x: {by: k, when: args.z != 1.0, cases: {c: ["+strings.Join(ways, ", ")+"]}}}}}\n"))
		if p == nil {
			t.Fatal(found)
		}
		who := rapid.SampledFrom([]*guard.Who{nil, {Subject: "ada"}, {Subject: "bob", Scopes: []string{"b"}}}).Draw(t, "who")
		facts := &guard.Call{Args: []byte(rapid.SampledFrom([]string{`{"z":0}`, `{"z":0,"n":2}`, `{"z":0,"n":3,"m":1}`, `{"z":0,"m":1}`, `{"z":0,"n":"a","m":2}`, `{"z":1,"n":3}`, `{"n":3}`}).Draw(t, "args"))}
		if who != nil {
			facts.Who = *who
		}
		q := &Request{Name: "x", Who: who, Facts: facts, Listed: true, Args: Lookup(func([]string) Argument { return Text("c") })}
		v := p.Decide(p.Initial(), q)
		decided := -1
		for i, w := range p.Binding(p.Initial(), Tool, "x", true).Cases[0].Ways(q) {
			want := Holds
			for j, g := range w.Alternative.Guards {
				naive := Holds
				switch ok, err := g.Holds(facts); {
				case decided >= 0 || !fits(who, w.For...) || want != Holds:
					naive = LookedPast
				case err != nil:
					naive = LookFault
				case !ok:
					naive = HoldsNot
				}
				if w.Guards[j] != naive {
					t.Fatalf("guard %d of %d: %v, want %v", j, i, w.Guards[j], naive)
				}
				if naive != LookedPast {
					want = naive
				}
			}
			switch {
			case decided >= 0:
				want = LookedPast
			case !fits(who, w.For...):
				want = ForOthers
			}
			if w.Looks != want || (w.Fault != nil) != (want == LookFault) {
				t.Fatalf("alternative %d: %v, want %v; %v", i, w.Looks, want, w.Fault)
			}
			if want == Holds && (!v.Allowed || int(v.Symbol.Alternative) != i) {
				t.Fatalf("alternative %d holds, and the verdict is %+v", i, v)
			}
			if want == Holds || want == LookFault {
				decided = i
			}
		}
		if v.Allowed && decided < 0 || (v.Fault() != nil) != (decided >= 0 && !v.Allowed) {
			t.Fatalf("%+v", v)
		}
	})
}
