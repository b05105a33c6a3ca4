package policy

import (
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestLiteral(t *testing.T) {
	for _, same := range [][]string{
		{"100", "1e2", "1E+2", "100.0", "1000e-1", "0.1e3", "100.000e0", "1e0000000000000000000000000002"},
		{"0", "-0", "0.0", "-0e5", "0e99999999999999999999999", "0e-99999999999999999999999"},
		{"-1.5", "-15e-1", "-0.15e1"},
		{"9007199254740993", "9007199254740993.0"},
		{"9007199254740992"},
		{"1e999999999999", "10e999999999998"},
		{"true"}, {"false"}, {"1"}, {"-100"}, {"1e-2", "0.01"},
	} {
		for _, a := range same {
			if Literal(a).Kind() == NoValue || Literal(a) != Literal(same[0]) {
				t.Errorf("%s is not %s: %q", a, same[0], Literal(a))
			}
			if Literal(a) == Text(a) {
				t.Errorf("%s is a text", a)
			}
		}
		if Literal(same[0]) == Literal("7") {
			t.Errorf("%s is 7", same[0])
		}
	}
	distinct := map[Argument]string{}
	for _, a := range []string{"0", "1", "-1", "100", "-100", "1e-2", "10", "1e999999999999", "9007199254740993", "9007199254740992", "true", "false"} {
		if b, twice := distinct[Literal(a)]; twice {
			t.Errorf("%s is %s", a, b)
		}
		distinct[Literal(a)] = a
	}
	for _, none := range []string{
		"", "-", "01", "007", "-01", ".5", "5.", "+1", "1e", "1e+", "1e1.5", "1ee2", "0x1F", "1_000", "Infinity", "NaN", ".inf", "null", "True", "tru", " 1", "1 ", "1,0",
		"1e1000000000000000000", "-1e-9999999999999999999", "\"1\"", "[1]", "--1", "1e--1", "１",
	} {
		if a := Literal(none); a.Kind() != NoValue {
			t.Errorf("%q is the %s %s", none, a.Kind(), a)
		}
	}
}

// A number of a megabyte costs a pass over it, and an exponent never expands.
func TestLongNumbers(t *testing.T) {
	long := strings.Repeat("9", 1<<20)
	if Literal(long) != Literal(long+".000e0") || Literal(long) == Literal(long+"0") {
		t.Error("long numbers are not compared by value")
	}
	if Literal("0."+strings.Repeat("0", 1<<20)+"1") != Literal("1e-1048577") {
		t.Error("zeros behind the point are not counted")
	}
}

// Two numbers are one argument if, and only if, they are equal as fractions.
func TestNumbersAgainstFractions(t *testing.T) {
	number := rapid.StringMatching(`-?(0|[1-9][0-9]{0,3})(\.[0-9]{1,3})?([eE][+-]?[0-9]{1,2})?`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := number.Draw(t, "a"), number.Draw(t, "b")
		x, _ := new(big.Rat).SetString(a)
		y, _ := new(big.Rat).SetString(b)
		if (Literal(a) == Literal(b)) != (x.Cmp(y) == 0) {
			t.Fatalf("%s and %s: %s and %s", a, b, Literal(a), Literal(b))
		}
		again, ok := new(big.Rat).SetString(Literal(a).String())
		if !ok || again.Cmp(x) != 0 || Literal(Literal(a).String()) != Literal(a) {
			t.Fatalf("%s is written %s", a, Literal(a))
		}
	})
}

// FuzzLiteral: whatever is a number to the reader is one to math/big, with the same value.
func FuzzLiteral(f *testing.F) {
	for _, seed := range []string{"1e2", "-0", "0.10", "1e999999999999999999", "true", "1e", "00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a := Literal(text)
		if a.Kind() == NoValue {
			return
		}
		if Literal(a.String()) != a {
			t.Fatalf("%q is %s, and that is %s", text, a, Literal(a.String()))
		}
		if at := strings.IndexAny(text, "eE"); a.Kind() == NumberValue && (at < 0 || len(text)-at < 6) {
			x, ok := new(big.Rat).SetString(text)
			y, _ := new(big.Rat).SetString(a.String())
			if !ok || x.Cmp(y) != 0 {
				t.Fatalf("%q is %s", text, a)
			}
		}
	})
}

const casesSource = `
version: 1
initial: a
states:
  a:
    tools:
      get: {by: in.code, cases: {100: stay, "100": b, true: {on_any: c}, "true": stay, 1.5e0: b, "\"quoted": stay, "\"100\"": c}}
      run:
        by: what
        cases: {"git *": stay, "git push*": none, "git push --dry-run": b, "*": c, "": stay, 7: b}
  b: {tools: {get: {by: in.code, cases: {1e2: a}}}}
  c: {}
`

// at is an argument at a path.
func at(path string, a Argument) Lookup {
	return func(asked []string) Argument {
		if strings.Join(asked, "/") == path {
			return a
		}
		return Argument{}
	}
}

func TestCasesOfEveryKind(t *testing.T) {
	p := parse(t, "c.yaml", []byte(casesSource))
	for _, c := range []struct {
		tool, path string
		value      Argument
		name, to   string // no name: refused
	}{
		{"get", "in/code", Literal("100"), "100", "a"},
		{"get", "in/code", Literal("1e2"), "100", "a"},
		{"get", "in/code", Text("100"), `"100"`, "b"},
		{"get", "in/code", Text(`"100"`), `"\"100\""`, "c"},
		{"get", "in/code", Text("1e2"), "", ""},
		{"get", "in/code", Text(`"quoted`), `"\"quoted"`, "a"},
		{"get", "in/code", Literal("true"), "true", "c"},
		{"get", "in/code", Text("true"), `"true"`, "a"},
		{"get", "in/code", Literal("false"), "", ""},
		{"get", "in/code", Literal("1.50"), "1.5e0", "b"},
		{"get", "in/code", Argument{}, "", ""},
		{"get", "in.code", Literal("100"), "", ""},
		{"get", "code", Literal("100"), "", ""},
		{"get", "in", Literal("100"), "", ""},
		{"run", "what", Text("git status"), "git *", "a"},
		{"run", "what", Text("git push"), "", ""},
		{"run", "what", Text("git push -f"), "", ""},
		{"run", "what", Text("git push --dry-run"), "git push --dry-run", "b"},
		{"run", "what", Text("git  push"), "git *", "a"},
		{"run", "what", Text("ls"), "*", "c"},
		{"run", "what", Text("*"), "*", "c"},
		{"run", "what", Text("git *"), "git *", "a"},
		{"run", "what", Text("git push*"), "", ""},
		{"run", "what", Text("ls\n"), "*", "c"},
		{"run", "what", Text(""), "", "a"},
		{"run", "what", Literal("7"), "7", "b"},
		{"run", "what", Text("7"), "*", "c"},
		{"run", "what", Text("git\x00 log"), "", ""},
		{"run", "what", Text("git log\x00"), "", ""},
		{"run", "what", Literal("8"), "", ""},
		{"run", "what", Literal("true"), "", ""},
	} {
		v := p.Decide(p.Initial(), &Request{Kind: Tool, Name: c.tool, Listed: true, Args: at(c.path, c.value)})
		if c.to == "" {
			if v.Allowed || v.Code != UnknownCase || !v.Bound {
				t.Errorf("%s of %s %q: %+v", c.tool, c.value.Kind(), c.value, v)
			}
			continue
		}
		step, err := p.Next(p.Initial(), v.Symbol, Success)
		if !v.Allowed || v.Symbol != (Symbol{Kind: Tool, Name: c.tool, Case: c.name}) || err != nil || p.StateName(step.Entered) != c.to {
			t.Errorf("%s of %s %q: %+v to %s, %v", c.tool, c.value.Kind(), c.value, v, p.StateName(step.Entered), err)
		}
	}
	if _, err := p.Next(p.Initial(), Symbol{Kind: Tool, Name: "run", Case: "git push*"}, Success); err == nil {
		t.Error("a case that is none steps")
	}
	b, _ := p.StateByName("b")
	if v := p.Decide(Configuration{State: b}, &Request{Kind: Tool, Name: "get", Listed: true, Args: at("in/code", Literal("100"))}); v.Symbol.Case != "1e2" {
		t.Errorf("a case is not called as it is written: %+v", v)
	}
}

// A run that is stranded is tightened by what the argument is in the new policy, whatever
// the case is called there.
func TestDecideAnywhereByValue(t *testing.T) {
	p := parse(t, "c.yaml", []byte(casesSource))
	for value, want := range map[Argument]bool{
		Literal("100.0"): true, Text("100"): true, Literal("false"): false, Text("100.0"): false,
	} {
		if v := p.DecideAnywhere(&Request{Kind: Tool, Name: "get", Listed: true, Args: at("in/code", value)}); v.Allowed != want {
			t.Errorf("%s %s: %+v", value.Kind(), value, v)
		}
	}
}

// The table of a split by texts alone allocates nothing where it decides.
func BenchmarkDecideCase(b *testing.B) {
	p := parse(b, "c.yaml", []byte("{version: 1, initial: a, states: {a: {tools: {sh: {by: what, cases: {plan: stay, apply: stay, destroy: b}}}}, b: {}}}"))
	value := func([]string) Argument { return Text("apply") }
	b.ReportAllocs()
	for b.Loop() {
		v := p.Decide(p.Initial(), &Request{Kind: Tool, Name: "sh", Listed: true, Args: Lookup(value)})
		if _, err := p.Next(p.Initial(), v.Symbol, Success); err != nil {
			b.Fatal(err)
		}
	}
}
