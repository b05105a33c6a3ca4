package guard_test

import (
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy/guard"
	"pgregory.net/rapid"
)

// shown returns what a part reads, and how it comes out on a call.
func shown(p *guard.Program, call *guard.Call) string {
	if p == nil {
		return "none"
	}
	r := p.Reads()
	var reads []string
	reads = append(append(append(reads, r.Args...), r.Claims...), r.Registers...)
	for name, does := range map[string]bool{"name": r.Name, "now": r.Now} {
		if does {
			reads = append(reads, name)
		}
	}
	if r.Who && len(r.Claims) == 0 {
		reads = append(reads, "who")
	}
	if r.Run {
		reads = append(reads, "run")
	}
	return strings.Join(reads, " ") + ": " + verdict(p, call)
}

func TestConjuncts(t *testing.T) {
	call := &guard.Call{
		Name: "tool", Args: []byte(`no JSON at all`), Registers: registers{"plan": "p", "n": int64(3), "reads": setOf("/a")},
		Run: guard.Run{State: "building"}, Who: guard.Who{Subject: "ann", Scopes: []string{"build"}, Claims: []byte(`{"team": "x", "two": 1, "Two": 2}`)},
	}
	for _, c := range []struct{ text, who, run string }{
		{`who.subject == "ann"`, "who: true", "none"},
		{`registers.n < 3`, "none", "n: false"},
		{`args.path in registers.reads`, "none", "none"},
		{`who.subject == "ann" && args.x == 1 && registers.n > 2 && run.state == "idle"`, "who: true", "n run: false"},
		{`(who.claims.team == "x" && (args.x == 1 && (registers.n > 2))) && now > run.began`, "who.claims.team: true", "n: true"},
		{`"build" in who.scopes && who.subject == name`, "who: true", "none"},
		{`who.subject == registers.plan && registers.n == 3`, "none", "n: true"},                    // one reads both
		{`who.subject == "bob" || args.x == 1`, "none", "none"},                                     // not split
		{`(who.subject == "bob" || registers.n == 3) && registers.n == 3`, "none", "n: true"},       // not split
		{`who.subject == "bob" ? registers.n == 3 : false`, "none", "none"},                         // not split
		{`!(who.subject == "ann" && registers.n == 3)`, "none", "none"},                             // not split
		{`(who.subject == "ann" && registers.n == 3) == true`, "none", "none"},                      // not split
		{`dyn(who.subject) == args.x && dyn(registers.n) == 3`, "none", "n: true"},                  // dyn hides nothing
		{`registers.reads.all(r, r == args.x && registers.n == 4)`, "none", "none"},                 // a loop's body is no conjunct
		{`registers.reads.exists(r, r.startsWith("/")) && args.x == 1`, "none", "reads: true"},      // and is read
		{`who.scopes.exists(s, registers.reads.exists(r, r == s)) && args.x == 1`, "none", "none"},  // in all its parts
		{`has(registers.plan) && has(registers.total) && has(args.x)`, "none", "plan total: false"}, // unset
		{`registers.total > 1.0 && args.x == 1`, "none", "total: not evaluable"},
		{`true && registers.n == 3 && 1 == 1`, "none", "n: true"},
		{`true`, "none", "none"},
		{`1 == 1 && "a".startsWith("a")`, "none", "none"},
		{`false`, "none", ": false"}, // never
		{`args.x == 1 && 1 / 0 == 1`, "none", ": not evaluable"},
		{`who.claims.two == 1 && args.x == 1`, "who.claims.two: not evaluable", "none"},
		{`who.claims.team == "x" && who.claims.two == args.x`, "who.claims.team: not evaluable", "none"}, // the whole is, too
	} {
		who, run := compile(t, c.text).Conjuncts()
		if got := shown(who, call); got != c.who {
			t.Errorf("%s: of who %s, not %s", c.text, got, c.who)
		}
		if got := shown(run, call); got != c.run {
			t.Errorf("%s: of the run %s, not %s", c.text, got, c.run)
		}
	}
}

func TestConjunctsAreOfGuardsAloneAndCountForNothing(t *testing.T) {
	env := guard.New(declared())
	o, _ := env.Outcome(`registers.n == 3 && result.isError`)
	if who, run := o.Conjuncts(); who != nil || run != nil {
		t.Error("an outcome has parts that lists follow")
	}
	for i := range 1999 {
		if p, problems := env.Guard(`has(who.subject) && registers.n == 3 && args.b`); p == nil {
			t.Fatalf("expression %d: %+v", i+2, problems)
		}
	}
	if p, _ := env.Guard(`true`); p != nil {
		t.Error("a policy has 2,001 expressions")
	}
}

func TestReadsResult(t *testing.T) {
	env := guard.New(declared())
	for text, want := range map[string]bool{`result.text`: true, `result.isError ? "a" : "b"`: true, `has(result.content) ? "a" : "b"`: true, `args.result`: false, `"result"`: false} {
		p, problems := env.Value(text, guard.Text)
		if p == nil {
			t.Fatalf("%s: %+v", text, problems)
		}
		if p.ReadsResult() != want || p.ReadsResult() != (len(p.Reads().Result) > 0) {
			t.Errorf("%s: %v", text, p.ReadsResult())
		}
	}
}

// What an expression does not read is not looked at, however large or wrong it is.
func TestArgumentsThatAreNotReadAreNotLookedAt(t *testing.T) {
	p := compile(t, `registers.n == 3 && who.subject == "ann"`)
	call := &guard.Call{Args: []byte(`{"x": 1, "x": `), Result: []byte(`no JSON`), Registers: registers{"n": int64(3)}, Who: guard.Who{Subject: "ann", Claims: []byte(`]`)}}
	if got := verdict(p, call); got != yes {
		t.Error(got)
	}
}

// A conjunct of a guard, and what it reads.
type conjunct struct {
	text           string
	who, run, call bool
}

func (c conjunct) constant() bool { return !c.who && !c.run && !c.call }

// drawConjunct draws an expression that is no conjunction.
func drawConjunct(t *rapid.T, depth int) conjunct {
	forms := 9
	if depth > 0 {
		forms = 13
	}
	inner := func() conjunct { return drawConjunct(t, depth-1) }
	switch rapid.IntRange(0, forms).Draw(t, "form") {
	case 0:
		return conjunct{text: rapid.SampledFrom([]string{`who.subject == "ann"`, `who.issuer == "i"`, `who.subject.startsWith("b")`, `has(who.issuer)`}).Draw(t, "who"), who: true}
	case 1:
		return conjunct{text: rapid.SampledFrom([]string{`"build" in who.scopes`, `who.scopes.exists(s, s == "read")`, `size(who.scopes) > 1`}).Draw(t, "scopes"), who: true}
	case 2:
		return conjunct{text: rapid.SampledFrom([]string{`who.claims.team == "x"`, `has(who.claims.two)`, `who.claims.two == 1`, `who.claims.admin`}).Draw(t, "claims"), who: true}
	case 3:
		return conjunct{text: rapid.SampledFrom([]string{`registers.n < 3`, `registers.plan == "p"`, `has(registers.total)`, `registers.total > 1.0`, `registers.done`}).Draw(t, "register"), run: true}
	case 4:
		return conjunct{text: rapid.SampledFrom([]string{`"/a" in registers.reads`, `registers.reads.all(r, r.startsWith("/"))`, `size(registers.reads) == 1`}).Draw(t, "set"), run: true}
	case 5:
		return conjunct{text: rapid.SampledFrom([]string{`run.state == "building"`, `run.began < run.entered`}).Draw(t, "run"), run: true}
	case 6:
		return conjunct{text: rapid.SampledFrom([]string{`args.x == 1`, `args.b`, `name == "tool"`, `now > timestamp("2026-01-01T00:00:00Z")`, `has(args.x)`}).Draw(t, "call"), call: true}
	case 7:
		return conjunct{text: `args.x in registers.reads`, run: true, call: true}
	case 8:
		return conjunct{text: rapid.SampledFrom([]string{`who.subject == registers.plan`, `dyn(who.claims.two) == registers.n`}).Draw(t, "both"), who: true, run: true}
	case 9:
		return conjunct{text: rapid.SampledFrom([]string{`true`, `1 == 1`, `false`, `1 / 0 == 1`}).Draw(t, "constant")}
	case 10:
		a := inner()
		a.text = "!(" + a.text + ")"
		return a
	case 11, 12:
		a, b := inner(), inner()
		return conjunct{"((" + a.text + ") || (" + b.text + "))", a.who || b.who, a.run || b.run, a.call || b.call}
	default:
		a, b, c := inner(), inner(), inner()
		return conjunct{"((" + a.text + ") ? (" + b.text + ") : (" + c.text + "))", a.who || b.who || c.who, a.run || b.run || c.run, a.call || b.call || c.call}
	}
}

// drawCall draws what guards see. Its claims may be unclear.
func drawCall(t *rapid.T) *guard.Call {
	began := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	call := &guard.Call{
		Name: rapid.SampledFrom([]string{"tool", "other"}).Draw(t, "name"),
		Args: []byte(rapid.SampledFrom([]string{`{}`, `{"x": 1, "b": true}`, `{"x": "/a", "b": true}`, `{"X": 1}`, `{`}).Draw(t, "args")),
		Run:  guard.Run{State: rapid.SampledFrom([]string{"building", "idle"}).Draw(t, "state"), Began: began, Entered: began.Add(rapid.SampledFrom([]time.Duration{0, 1}).Draw(t, "entered"))},
		Who: guard.Who{
			Subject: rapid.SampledFrom([]string{"", "ann", "bob", "p"}).Draw(t, "subject"), Issuer: rapid.SampledFrom([]string{"", "i"}).Draw(t, "issuer"),
			Scopes: rapid.SampledFrom([][]string{nil, {"build"}, {"build", "read"}}).Draw(t, "scopes"),
			Claims: []byte(rapid.SampledFrom([]string{``, `{"team": "x", "two": 1, "admin": true}`, `{"team": "y", "two": 3}`, `{"team": "x", "two": 1, "Two": 1}`, `{"admin": 1`}).Draw(t, "claims")),
		},
		Now: began,
	}
	if rapid.Bool().Draw(t, "set") {
		call.Registers = registers{"plan": "p", "n": int64(rapid.IntRange(1, 4).Draw(t, "n")), "done": rapid.Bool().Draw(t, "done"), "total": 1.5, "reads": setOf("/a")}
	}
	return call
}

// However a guard is written, what it permits each of its parts permits; and a part is the conjunction of what hangs on
// nothing else.
func TestPartsPermitWhatTheGuardPermits(t *testing.T) {
	permitted := 0
	rapid.Check(t, func(t *rapid.T) {
		compile := func(text string) *guard.Program {
			p, problems := guard.New(declared()).Guard(text)
			if p == nil {
				t.Fatalf("%s: %+v", text, problems)
			}
			return p
		}
		var text string
		var who, run []string
		for i := range rapid.IntRange(1, 6).Draw(t, "conjuncts") {
			c := drawConjunct(t, 2)
			switch {
			case i == 0:
				text = c.text
			case rapid.Bool().Draw(t, "left"):
				text = "(" + text + ") && " + c.text
			default:
				text = c.text + " && (" + text + ")"
			}
			constant := c.constant() && verdict(compile(c.text), &guard.Call{}) != yes
			switch {
			case c.call, c.who && c.run:
			case c.who:
				who = append(who, "("+c.text+")")
			case c.run, constant:
				run = append(run, "("+c.text+")")
			}
		}
		if len(text) > 2<<10 {
			t.Skip("longer than an expression may be")
		}
		p := compile(text)
		gotWho, gotRun := p.Conjuncts()
		for range 5 {
			call := drawCall(t)
			whole := verdict(p, call)
			if whole == yes {
				permitted++
			}
			for part, of := range map[*guard.Program][]string{gotWho: who, gotRun: run} {
				if part == nil {
					continue
				}
				got, want := verdict(part, call), verdict(compile(strings.Join(of, " && ")), call)
				if whole == yes && got != yes {
					t.Fatalf("%s is true, and of its parts %s %s", text, of, got)
				}
				if clear := !strings.Contains(string(call.Who.Claims), "Two") && !strings.HasSuffix(string(call.Who.Claims), "1"); clear && got != want {
					t.Fatalf("%s: a part is %s, and %s is %s", text, got, of, want)
				}
			}
		}
		if (gotWho == nil) != (len(who) == 0) || (gotRun == nil) != (len(run) == 0) {
			t.Fatalf("%s: parts %v and %v, of %s and %s", text, gotWho, gotRun, who, run)
		}
		for _, part := range []*guard.Program{gotWho, gotRun} {
			if part != nil && (len(part.Reads().Args) > 0 || part.Reads().Name || part.Reads().Now) {
				t.Fatalf("%s: a part reads %+v", text, part.Reads())
			}
		}
	})
	if permitted == 0 {
		t.Error("no guard permitted anything")
	}
}
