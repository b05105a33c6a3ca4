package guard_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy/guard"
)

// Each rule's error, with where it points to: the text from the offset on begins with at.
func TestErrorsOfLoading(t *testing.T) {
	for _, c := range []struct{ text, at, says string }{
		// args by constant paths alone
		{`size(args) > 0`, `args)`, "constant paths"},
		{`dyn(args).x == 1`, `args)`, "constant paths"},
		{`[args][0].x == 1`, `args]`, "constant paths"},
		{`{"a": args}.a.x == 1`, `args}`, "constant paths"},
		{`args[name] == "x"`, `args[`, "constant paths"},
		{`args["a" + "b"] == "x"`, `args[`, "constant paths"},
		{`args[1.0] == "x"`, `args[`, "constant paths"},
		{`args[true] == "x"`, `args[`, "constant paths"},
		{`args[-1] == "x"`, `args[`, "constant paths"},
		{`"x" in args`, `args`, "constant paths"},
		{`args.all(k, k == "x")`, `args.`, "constant paths"},
		{`(true ? args : args).x == 1`, `args :`, "constant paths"},
		{`.args == 1`, `args`, "constant paths"},
		{`args == args`, `args`, "constant paths"},
		{`[1].exists(args, args == 1)`, `(`, "another name"},
		{`[1].exists(result, true)`, `(`, "another name"},
		{`[[1]].exists(x, x.exists(registers, true))`, `(registers`, "another name"},
		// what there is
		{`result.isError`, `result`, "no result"},
		{`registers.typo == "x"`, `registers.typo ==`, `no register "typo"; there are done, n, plan, reads, total`},
		{`has(registers.typo)`, `registers.typo)`, `no register "typo"`},
		{`registers == 1`, `registers`, "by name"},
		{`registers["pl" + "an"] == "x"`, `registers`, "by name"},
		{`registers.plan.x == "x"`, `registers`, "has nothing in it"},
		{`run.stat == "x"`, `run`, "state, began and entered"},
		{`run == 1`, `run`, "state, began and entered"},
		{`who.name == "x"`, `who`, "subject, issuer, scopes and claims"},
		{`who.claims == 1`, `who`, "constant paths"},
		{`name.x == 1`, `name`, "nothing in it"},
		{`unknown == 1`, `unknown`, "there are args"},
		{`argss.path == "x"`, `argss`, "there are args"},
		{`frobnicate(args.x)`, `(args`, "undeclared"},
		{`google.protobuf.Int64Value{value: 1} == 1`, `{`, "makes a message"},
		// texts are converted to no number and no boolean
		{`int("1") == 1`, `("1")`, "no matching overload"},
		{`double("1") == 1.0`, `("1")`, "no matching overload"},
		{`uint("1") == 1u`, `("1")`, "no matching overload"},
		{`bool("true")`, `("true")`, "no matching overload"},
		{`now.getHours("Europe/Berlin") == 1`, `("Europe`, "no matching overload"},
		{`"a".charAt(0) == "a"`, `(0)`, "undeclared"}, // an extension library
		{`math.greatest(1, 2) == 2`, `math`, "undeclared"},
		{`args.?x.orValue("a") == "a"`, `.?`, "unsupported syntax"},
		// types
		{`registers.plan > 1`, `> 1`, "no matching overload"},
		{`"a"`, `"a"`, "a boolean is needed"},
		{`registers.n`, `registers`, "a boolean is needed"},
		{`args.x + 1 == 2`, `1 ==`, "write 1.0"},
		{`2 * args.x == 2.0`, `2 *`, "write 2.0"},
		{`args.x - registers.n > 0`, `registers`, "write double(registers.n)"},
		{`args.x % 2 == 0`, `2 ==`, "write int(args.x)"},
		{`args.list.all(i, i + 1 > 2) && size(args.list) > 0`, `1 >`, "write 1.0"},
		{`args.x == 9007199254740993`, `9007`, "beyond 2^53"},
		// regular expressions
		{`args.x.matches(args.y)`, `args.y`, "literal"},
		{`args.x.matches("a" + "b")`, `+`, "literal"},
		{`["a"].exists(r, args.x.matches(r))`, `r))`, "literal"},
		{`args.x.matches("(")`, `"("`, "wrong"},
		{`matches(args.x, "((a{1,100}){1,100}){1,100}")`, `"((`, "wrong, or larger"},
		// texts and digest
		{`digest("x") == ""`, `("x")`, "digest(args)"},
		{`texts([1]).size() > 0`, `([1]`, "texts(args)"},
		{`digest(registers.plan) == ""`, `(registers`, "digest(args)"},
		{`digest(result.content) == ""`, `result`, "no result"},
		{`texts() == []`, `(`, "texts(args)"},
		{`args.x.texts() == []`, `()`, "texts(args)"},
		{`texts(has(args.x)) == []`, `(has`, "texts(args)"},
		// bounds
		{`[1].all(a, [1].all(b, [1].all(c, true)))`, `(c`, "at most 2 deep"},
		{`[1].map(a, [1].filter(b, [1].exists(c, true)).size() > 0)[0]`, `(c`, "at most 2 deep"},
		{strings.Repeat("[", 300) + strings.Repeat("]", 300) + " == []", ``, "recursion"},
		{`registers.reads[0] == "a"`, `registers`, "asked by in"},
		{strings.Repeat("(", 300) + "true" + strings.Repeat(")", 300), ``, "recursion"},
		{strings.Repeat(" ", 2<<10) + "true", `true`, "2048 bytes"},
		{"true && \xff", "", "UTF-8"},
		// syntax, with characters of several bytes before it
		{"\"\u00e4\u00f6\u00fc\" == ", "", "Syntax error"},
		{"\"\u00e4\" == args.x &&\n \"\u00e4\" == typo", "typo", "there are args"},
		{"", "", "Syntax error"},
	} {
		p, problems := guard.New(declared()).Guard(c.text)
		if p != nil || len(problems) == 0 {
			t.Errorf("%s: no error", c.text)
			continue
		}
		first := problems[0]
		if first.Offset < 0 || first.Offset > len(c.text) {
			t.Errorf("%s: at %d", c.text, first.Offset)
		} else if !strings.HasPrefix(c.text[first.Offset:], c.at) {
			t.Errorf("%s: at %q, not %q", c.text, c.text[first.Offset:], c.at)
		}
		if first.Warning != "" || !strings.Contains(first.Message, c.says) {
			t.Errorf("%s: %q does not say %q", c.text, first.Message, c.says)
		}
		if strings.Contains(first.Message, "@") && !strings.Contains(c.text, "@") {
			t.Errorf("%s: %q names a variable of ours", c.text, first.Message)
		}
	}
}

func TestErrorsComeAllAtOnce(t *testing.T) {
	_, problems := guard.New(declared()).Guard(`registers.a == registers.b && size(args) > 0`)
	if len(problems) != 3 {
		t.Errorf("%+v", problems)
	}
}

func TestAnExpressionReads64Places(t *testing.T) {
	var b strings.Builder
	b.WriteString("true")
	for i := range 64 {
		b.WriteString(" && args.a" + string(rune('a'+i/8)) + string(rune('a'+i%8)) + " == 1")
	}
	if p, problems := guard.New(nil).Guard(b.String()); p == nil {
		t.Errorf("64 places: %+v", problems)
	}
	if p, problems := guard.New(nil).Guard(b.String() + " && args.z == 1"); p != nil || !strings.Contains(problems[0].Message, "at most 64") {
		t.Errorf("65 places: %+v", problems)
	}
}

func TestAPolicyHas2000Expressions(t *testing.T) {
	env := guard.New(nil)
	for range 2000 {
		if p, _ := env.Guard("true"); p == nil {
			t.Fatal("within the limit")
		}
	}
	if p, problems := env.Guard("true"); p != nil || !strings.Contains(problems[0].Message, "2000") {
		t.Errorf("%+v", problems)
	}
}

func TestWarnings(t *testing.T) {
	for _, c := range []struct{ text, at, id string }{
		{`args.x != "a"`, `!=`, "guard-negation"},
		{`!(args.x == "a")`, `==`, "guard-negation"},
		{`!(args.x in ["a"])`, `in`, "guard-negation"},
		{`!(true && args.x == "a")`, `==`, "guard-negation"},
		{`type(args.y) == string && args.x != "a"`, `!=`, "guard-negation"},
		{`args.list.exists(i, i != "a")`, `!=`, "guard-negation"},
		{`who.claims.team != "a"`, `!=`, "guard-negation"},
		{`args.list.all(i, i == "a")`, `(`, "guard-all"},
		{`words(args.x).all(w, w == "a")`, `(`, "guard-all"},
		{`args.list.size() >= 0 && args.list.all(i, i == "a")`, `(i`, "guard-all"},
		{`args.list.size() <= 9 && args.list.all(i, i == "a")`, `(i`, "guard-all"},
		{`9 > args.list.size() && args.list.all(i, i == "a")`, `(i`, "guard-all"},
		{`args.list.size() != 1 && args.list.all(i, i == "a")`, `(i`, "guard-all"},
		{`registers.reads.all(r, r == "a") && args.y.size() > 0`, `(`, "guard-all"},
		{`type(args.x) == string && args.x != "a"`, ``, ""},
		{`args.x != null`, ``, ""},
		{`registers.plan != "a"`, ``, ""},
		{`!(args.x in registers.reads)`, ``, ""}, // an error of any other type
		{`!path_under(args.x, "/a")`, ``, ""},
		{`!has(args.x)`, ``, ""},
		{`!(args.x > 1)`, ``, ""},
		{`args.x == "a"`, ``, ""},
		{`args.list.size() > 0 && args.list.all(i, i == "a")`, ``, ""},
		{`size(args.list) > 0 && args.list.all(i, i == "a")`, ``, ""},
		{`args.list.size() != 0 && args.list.all(i, i == "a")`, ``, ""},
		{`0 < args.list.size() && args.list.all(i, i == "a")`, ``, ""},
		{`1 <= size(args.list) && args.list.all(i, i == "a")`, ``, ""},
		{`args.list.size() == 2 && args.list.all(i, i == "a")`, ``, ""},
		{`words(args.x).size() > 0 && words(args.x).all(w, w == "a")`, ``, ""},
		{`[1, 2].all(i, i > 0)`, ``, ""},
		{`args.list.exists(i, i == "a")`, ``, ""},
	} {
		p, problems := guard.New(declared()).Guard(c.text)
		switch {
		case p == nil:
			t.Errorf("%s: %+v", c.text, problems)
		case c.id == "" && len(problems) > 0:
			t.Errorf("%s: %+v", c.text, problems)
		case c.id != "" && (len(problems) != 1 || problems[0].Warning != c.id || !strings.HasPrefix(c.text[problems[0].Offset:], c.at)):
			t.Errorf("%s: %+v, and not %s at %q", c.text, problems, c.id, c.at)
		}
	}
}

func TestReads(t *testing.T) {
	p, problems := guard.New(declared()).Value(
		`has(args.b) && args.a.b[0] == "x" && who.claims.team == run.state && result.structuredContent["id"] == registers.plan && has(registers.n) ? texts(args)[0] : name`, guard.Text)
	if p == nil {
		t.Fatalf("%+v", problems)
	}
	r := p.Reads()
	if got := strings.Join(r.Args, " ") + "|" + strings.Join(r.Result, " ") + "|" + strings.Join(r.Claims, " ") + "|" + strings.Join(r.Registers, " "); got != "args args.a.b[0] args.b|result.structuredContent.id|who.claims.team|n plan" {
		t.Errorf("reads %s", got)
	}
	if !r.Name || !r.Run || !r.Who || r.Now {
		t.Errorf("%+v", r)
	}
	if r := compile(t, `now - run.entered > duration("1m")`).Reads(); !r.Now || !r.Run || r.Who || r.Name || r.Args != nil {
		t.Errorf("%+v", r)
	}
	if r := compile(t, `who.subject == "a"`).Reads(); !r.Who || r.Claims != nil {
		t.Errorf("%+v", r)
	}
}

// A text that lacks the quotes of CEL is shown with them.
func TestConstantTextsWantQuotes(t *testing.T) {
	env := guard.New(declared())
	for text, want := range map[string]string{
		`done`: `'"done"'`, `in review`: `'"in review"'`, `404`: `'"404"'`, `README.md`: `'"README.md"'`,
		`args.`: "Syntax error", `registers.typo`: "no register", `"a" "b"`: "Syntax error", `size("a") + 1`: "this is int",
	} {
		if p, problems := env.Value(text, guard.Text); p != nil || !strings.Contains(problems[0].Message, want) {
			t.Errorf("%s: %+v", text, problems)
		}
	}
}

// What fits one kind of register fits no other.
func TestValuesFitTheirRegisters(t *testing.T) {
	env := guard.New(declared())
	call := &guard.Call{
		Args: []byte(`{"t": "x", "n": 1.5, "i": 2, "b": true, "big": 1e300, "list": ["a", "b"], "mixed": ["a", 1]}`), Registers: registers{"n": int64(3)}, Now: time.Unix(0, 0),
	}
	for _, c := range []struct {
		kind guard.Kind
		text string
		want any // nil is an error of evaluation; "load" one of loading
	}{
		{guard.Text, `"x"`, "x"}, {guard.Text, `args.t`, "x"}, {guard.Text, `args.n`, nil}, {guard.Text, `1`, "load"}, {guard.Text, `now`, "load"},
		{guard.TextSet, `args.t`, "x"}, {guard.TextSet, `args.n`, nil}, {guard.TextSet, `registers.reads`, []string{}},
		{guard.TextSet, `args.list`, []string{"a", "b"}}, {guard.TextSet, `args.list.map(x, x + "!")`, []string{"a!", "b!"}}, {guard.TextSet, `args.mixed`, nil},
		{guard.TextSet, `args.list.map(x, 1)`, "load"}, {guard.TextSet, `[["a"]]`, "load"}, {guard.Text, `args.list`, nil}, {guard.Text, `["a"]`, "load"},
		{guard.Number, `args.n`, 1.5}, {guard.Number, `1`, 1.0}, {guard.Number, `registers.n`, 3.0}, {guard.Number, `args.t`, nil},
		{guard.Number, `args.big`, nil}, {guard.Number, `args.n / 0.0`, nil}, {guard.Number, `0.0 / 0.0`, nil}, {guard.Number, `"1"`, "load"},
		{guard.Boolean, `args.b`, true}, {guard.Boolean, `args.t`, nil}, {guard.Boolean, `1`, "load"},
		{guard.Counter, `registers.n + 1`, int64(4)}, {guard.Counter, `args.i`, int64(2)}, {guard.Counter, `args.n`, nil}, {guard.Counter, `1.0`, "load"},
		{guard.Text, `args`, "load"}, {guard.Text, `args.missing`, nil}, {guard.Text, `null`, "load"},
	} {
		p, problems := env.Value(c.text, c.kind)
		if (p == nil) != (c.want == "load") {
			t.Errorf("%s %s: %+v", c.kind, c.text, problems)
			continue
		}
		if p == nil {
			continue
		}
		if got, err := p.Value(call); !reflect.DeepEqual(got, c.want) || (err == nil) != (c.want != nil) {
			t.Errorf("%s %s: %v, %v", c.kind, c.text, got, err)
		}
	}
}
