package guard_test

import (
	"bytes"
	"encoding/json"
	"encoding/json/jsontext"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy/guard"
	"pgregory.net/rapid"
)

// Whatever an expression says, it is compiled or refused, and evaluated, without panic and in a bounded time.
func FuzzExpression(f *testing.F) {
	for _, text := range []string{
		`args.path in registers.reads`, `words(args.command).size() > 0`, `args.amount <= 100`, `!path_under(args.path, "/a")`, `host(args.path) == "a.example"`,
		`args["a"][0].b.exists(x, x.all(y, y == "\u00e4"))`, `json(args.t).a.matches("^a+$")`, `digest(args) == registers.plan`,
		`texts(args.x).exists(t, t.contains("rm"))`, `now - run.entered > duration("1h")`, `who.claims.team == "x" ? true : has(args.x.y)`,
		`[1].map(x,[x,x]).map(x,{"a":x})[0].a == dyn(args.x)`, `result.isError`, "\"\u00e4\" == typo", `{1: args}`, `args.x + 1 > 2`,
	} {
		f.Add(text)
	}
	call := &guard.Call{
		Name: "tool", Args: []byte(`{"path": "/a", "amount": 5, "a": [{"b": [["c"]]}], "x": {"y": 1}, "t": "{\"a\": \"aa\"}", "list": [1, "a", null]}`),
		Result: []byte(`{"content": [{"type": "text", "text": "a"}]}`), Registers: registers{"plan": "p", "n": int64(1), "reads": setOf("/a")},
		Who: guard.Who{Subject: "ann", Claims: []byte(`{"team": "x"}`)}, Now: time.Unix(1, 0),
	}
	f.Add("has(args.a) && // && \n(args.b == \"&&\" && args.x.y == 1.0) && args.amount <= 100")
	f.Fuzz(func(t *testing.T, text string) {
		env := guard.New(declared())
		if p, _ := env.Guard(text); p != nil {
			if holds, err := p.Holds(call); err == nil {
				all := true
				for _, clause := range env.Clauses(p) {
					ok, _ := clause.Holds(call)
					all = all && ok
				}
				if all != holds {
					t.Fatalf("it is %v, and its clauses are %v", holds, all)
				}
			}
		}
		start := time.Now()
		for _, compile := range []func(string) (*guard.Program, []guard.Problem){
			env.Guard, env.Outcome, func(text string) (*guard.Program, []guard.Problem) { return env.Value(text, guard.Text) },
		} {
			p, problems := compile(text)
			for _, problem := range problems {
				if problem.Offset < 0 || problem.Offset > len(text) || problem.Message == "" {
					t.Fatalf("%+v", problem)
				}
			}
			if p == nil {
				if len(problems) == 0 {
					t.Fatal("neither a program nor a problem")
				}
				continue
			}
			first, firstErr := p.Value(call)
			again, err := p.Value(call)
			if !reflect.DeepEqual(first, again) || fmt.Sprint(firstErr) != fmt.Sprint(err) {
				t.Fatalf("%v %v, and then %v %v", first, firstErr, again, err)
			}
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Fatalf("it took %s", took)
		}
	})
}

// What is read of arguments is what encoding/json reads, and no more is taken for JSON than it takes.
func FuzzArguments(f *testing.F) {
	for _, text := range []string{
		`{"x": 1}`, `{"x": "a\u0062\n"}`, `{"x": [1, 2.5e3, -0, {"y": null}]}`, `{"x": 1, "x": 2}`, `{"X": 1}`, `{"x": {"y": {"z": true}}}`, `{}`, `[]`, `{"x": 01}`, `{"x":`,
		"{\"x\": \"\xff\"}", `{"x": "\ud800"}`, `{"x": 9007199254740993}`, `{"\u0078": 1}`, `{"y": [[[]]], "x": 1e400}`, "\ufeff{}", `{"x": "\\\""}`, "{\"x\": \"12345678\x1f\"}",
	} {
		f.Add([]byte(text))
	}
	programs := map[string]*guard.Program{}
	for name, kind := range map[string]guard.Kind{`args.x`: guard.Text, `args.x + 0.0`: guard.Number, `args.x || false`: guard.Boolean} {
		programs[name], _ = guard.New(nil).Value(name, kind)
	}
	programs[`has`], _ = guard.New(nil).Guard(`has(args.x)`)
	programs[`digest`], _ = guard.New(nil).Value(`digest(args)`, guard.Text)
	programs[`texts`], _ = guard.New(nil).Value(`texts(args)[0]`, guard.Text)
	programs[`deep`], _ = guard.New(nil).Guard(`has(args.x.y) && args.x.y[0].z == args.x`)
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) == 0 {
			return // no arguments
		}
		call := &guard.Call{Args: text}
		for name, p := range programs {
			v, err := p.Value(call)
			if err == nil && !jsontext.Value(text).IsValid(jsontext.AllowDuplicateNames(true)) {
				t.Fatalf("%s is %v in what is no JSON", name, v)
			}
		}
		var want map[string]any
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		if d.Decode(&want) != nil {
			return
		}
		has, err := programs[`has`].Holds(call)
		if _, ok := want["x"]; err == nil && has != ok {
			t.Fatalf("has(args.x) is %v", has)
		}
		for name, p := range programs {
			if !strings.HasPrefix(name, "args") {
				continue
			}
			v, err := p.Value(call)
			if err != nil {
				continue
			}
			got := want["x"]
			if n, ok := got.(json.Number); ok {
				got, _ = strconv.ParseFloat(string(n), 64)
			}
			if v != got && !(v == 0.0 && got == math.Copysign(0, -1)) {
				t.Fatalf("%s is %v, and %v to encoding/json", name, v, got)
			}
		}
	})
}

// A reading of a part of the language in plain Go: nil is an error.
type expression struct {
	text string
	eval func(args map[string]any) any
}

// conditions draws an expression over args.a, args.b and args.c, and what it means.
func conditions(t *rapid.T, depth int) expression {
	name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")
	pick := 6
	if depth > 0 {
		pick = 10
	}
	switch rapid.IntRange(0, pick).Draw(t, "form") {
	case 0:
		return expression{"has(args." + name + ")", func(args map[string]any) any { _, ok := args[name]; return ok }}
	case 1:
		text := rapid.SampledFrom([]string{"", "x", "100", "\u00e4"}).Draw(t, "text")
		return expression{fmt.Sprintf("args.%s == %q", name, text), func(args map[string]any) any {
			v, ok := args[name]
			if !ok {
				return nil
			}
			return v == any(text)
		}}
	case 2, 3:
		n := rapid.IntRange(-2, 101).Draw(t, "n")
		op := rapid.SampledFrom([]string{"<", "<=", ">", ">="}).Draw(t, "op")
		return expression{fmt.Sprintf("args.%s %s %d", name, op, n), func(args map[string]any) any {
			v, ok := args[name].(float64)
			if !ok {
				return nil
			}
			switch m := float64(n); op {
			case "<":
				return v < m
			case "<=":
				return v <= m
			case ">":
				return v > m
			}
			return v >= float64(n)
		}}
	case 4:
		return expression{"args." + name + " in registers.reads", func(args map[string]any) any {
			v, ok := args[name].(string)
			if !ok {
				return nil
			}
			return v == "x"
		}}
	case 5:
		return expression{"args." + name + ` in ["x", 1]`, func(args map[string]any) any {
			v, ok := args[name]
			if !ok {
				return nil
			}
			return v == any("x") || v == any(1.0)
		}}
	case 6:
		return expression{"args." + name, func(args map[string]any) any {
			if v, ok := args[name].(bool); ok {
				return v
			}
			return nil
		}}
	case 7:
		a := conditions(t, depth-1)
		return expression{"!(" + a.text + ")", func(args map[string]any) any {
			if v, ok := a.eval(args).(bool); ok {
				return !v
			}
			return nil
		}}
	case 8:
		a, b, c := conditions(t, depth-1), conditions(t, depth-1), conditions(t, depth-1)
		return expression{"((" + a.text + ") ? (" + b.text + ") : (" + c.text + "))", func(args map[string]any) any {
			switch a.eval(args) {
			case true:
				return b.eval(args)
			case false:
				return c.eval(args)
			}
			return nil
		}}
	default:
		a, b := conditions(t, depth-1), conditions(t, depth-1)
		op, decides := "&&", false
		if rapid.Bool().Draw(t, "or") {
			op, decides = "||", true
		}
		return expression{"((" + a.text + ") " + op + " (" + b.text + "))", func(args map[string]any) any {
			x, y := a.eval(args), b.eval(args)
			switch {
			case x == any(decides) || y == any(decides):
				return decides
			case x == nil || y == nil:
				return nil
			}
			return !decides
		}}
	}
}

func TestExpressionsMeanWhatTheySay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		args := map[string]any{}
		for _, name := range []string{"a", "b", "c"} {
			if rapid.Bool().Draw(t, "present") {
				args[name] = rapid.SampledFrom([]any{"", "x", "100", "\u00e4", 0.0, 1.0, 100.0, -1.5, true, false, nil}).Draw(t, "value")
			}
		}
		e := conditions(t, 3)
		if len(e.text) > 2<<10 {
			t.Skip("longer than an expression may be")
		}
		p, problems := guard.New(declared()).Guard(e.text)
		if p == nil {
			t.Fatalf("%s: %+v", e.text, problems)
		}
		raw, err := json.Marshal(args)
		if err != nil {
			t.Fatal(err)
		}
		got := verdict(p, &guard.Call{Args: raw, Registers: registers{"reads": setOf("x", "y")}})
		want := none
		if v, ok := e.eval(args).(bool); ok {
			want = fmt.Sprint(v)
		}
		if got != want {
			t.Fatalf("%s on %s: %s, not %s", e.text, raw, got, want)
		}
	})
}
