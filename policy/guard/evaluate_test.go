package guard_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy/guard"
)

// verdict returns "true", "false", or why there is none.
func verdict(p *guard.Program, call *guard.Call) string {
	holds, err := p.Holds(call)
	if err == nil {
		return fmt.Sprint(holds)
	}
	own, ok := errors.AsType[*guard.Error](err)
	if !ok || holds {
		return fmt.Sprintf("%T, holds %v", err, holds)
	}
	return own.Reason.String()
}

const (
	yes     = "true"
	no      = "false"
	none    = "not evaluable"
	unclear = "unclear key"
	costly  = "cost exceeded"
	large   = "too large"
)

func TestGuards(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct{ args, text, want string }{
		// one value of each type, and type confusion
		{`{"x": "100"}`, `args.x <= 100`, none},
		{`{"x": "100"}`, `args.x == 100`, no},
		{`{"x": 100}`, `args.x == 100`, yes},
		{`{"x": 100}`, `args.x == "100"`, no},
		{`{"x": 1e2}`, `args.x == 100`, yes},
		{`{"x": 100.5}`, `args.x <= 100`, no},
		{`{"x": -0}`, `args.x == 0 && 1.0 / args.x > 0.0`, yes},
		{`{"x": -0.0}`, `1.0 / args.x > 0.0`, yes},
		{`{"x": ["a"]}`, `args.x == "a"`, no},
		{`{"x": ["a"]}`, `args.x in registers.reads`, none},
		{`{"x": 1}`, `!(args.x in registers.reads)`, none},
		{`{"x": null}`, `!(args.x in registers.reads)`, none},
		{`{"x": ["a"]}`, `args.x.startsWith("a")`, none},
		{`{"x": "a"}`, `args.x.all(i, i == "a")`, none},
		{`{"x": {}}`, `args.x.all(i, i == "a")`, yes}, // what check warns of
		{`{"x": []}`, `args.x.all(i, i == "a")`, yes},
		{`{"x": []}`, `size(args.x) > 0 && args.x.all(i, i == "a")`, no},
		{`{"x": ["a"]}`, `args.x != "a"`, yes}, // what check warns of
		{`{"x": ["a"]}`, `type(args.x) == string && args.x != "a"`, no},
		{`{"x": true}`, `args.x`, yes},
		{`{"x": "true"}`, `args.x`, none},
		{`{"x": 1}`, `args.x`, none},
		{`{"x": "1"}`, `int(args.x) == 1`, none},
		{`{"x": "1"}`, `double(args.x) == 1.0`, none},
		{`{"x": "true"}`, `bool(args.x)`, none},
		{`{"x": "1"}`, `uint(args.x) == 1u`, none},
		{`{"x": 4}`, `int(args.x) % 2 == 0`, yes},
		{`{"x": 4}`, `args.x + 1.0 == 5.0`, yes},
		{`{"x": "4"}`, `args.x + 1.0 == 5.0`, none},
		{`{"x": 1, "y": 1.0}`, `args.x == args.y`, yes},
		{`{"x": NaN}`, `args.x == args.x`, none},
		{`{"x": 2}`, `args.x in [1, 2]`, yes},
		{`{"x": 2.5}`, `args.x in [1, 2]`, no},
		{`{"x": "2"}`, `args.x in [1, 2]`, no},
		{`{"x": {"a": [1]}, "y": {"a": [1.0]}}`, `args.x == args.y`, yes},
		{`{"x": {"a": 1, "b": 2}, "y": {"b": 2, "a": 1}}`, `args.x == args.y`, yes},
		{`{"x": {"a": 1}, "y": {"b": 1}}`, `args.x == args.y`, no},
		{`{"x": {"a": 1}}`, `args.x == {"a": 1}`, yes},
		{`{"x": {"a": 1}}`, `{"a": 1} == args.x`, yes},
		{`{"x": {"b": 1, "a": 2}}`, `args.x.map(k, k) == ["b", "a"]`, yes}, // in the order of the file
		// numbers that doubles can't tell apart
		{`{"x": 9007199254740992}`, `args.x > 0`, yes},
		{`{"x": 9007199254740993}`, `args.x > 0`, none},
		{`{"x": 9007199254740993.0}`, `args.x > 0`, none},
		{`{"x": 9007199254740992.0}`, `args.x > 0`, none},
		{`{"x": 9.007199254740993e15}`, `args.x > 0`, none},
		{`{"x": 123456789012345678901234567890}`, `args.x > 0`, none},
		{`{"x": 1e400}`, `args.x > 0`, none},
		{`{"x": [9007199254740993]}`, `size(args.x) == 1`, none},
		{`{"x": 1, "y": 9007199254740993}`, `args.x > 0`, yes}, // not read
		// missing, null, and what leads nowhere
		{`{}`, `args.x == 1`, none},
		{``, `args.x == 1`, none},
		{``, `has(args.x)`, no},
		{`{}`, `has(args.x)`, no},
		{`{"x": null}`, `has(args.x)`, yes},
		{`{"x": null}`, `args.x == null`, yes},
		{`{"x": null}`, `args.x < 1`, none},
		{`{"x": null}`, `args.x.y == 1`, none},
		{`{"x": null}`, `has(args.x.y)`, none},
		{`{}`, `has(args.x.y)`, none},
		{`{"x": {}}`, `has(args.x.y)`, no},
		{`{"x": {"y": 0}}`, `has(args.x.y) && args.x.y == 0`, yes},
		{`{"x": [{"y": 1}]}`, `args.x[0].y == 1`, yes},
		{`{"x": [{"y": 1}]}`, `has(args.x[0].y)`, yes},
		{`{"x": []}`, `has(args.x[0].y)`, none},
		{`{"x": []}`, `args.x[0] == 1`, none},
		{`{"x": {"0": 1}}`, `args.x[0] == 1`, none},
		{`{"x": [1]}`, `args.x["0"] == 1`, none},
		{`{"x": {"y": 1}}`, `args["x"]["y"] == 1`, yes},
		{`{"x": {"y": 1}}`, `args.x.y == 1 && args.x == {"y": 1}`, yes},
		{`{"a-b": 1}`, `args["a-b"] == 1`, yes},
		{`{"a-b": 1}`, "has(args.`a-b`) && args.`a-b` == 1", yes},
		{`{}`, "has(args.`a-b`)", no},
		{`{"x": {"k": 1}, "k": "k"}`, `args.x[args.k] == 1`, yes}, // within a value, by what is computed
		// errors are absorbed by || and exists, and by nothing else
		{`{"x": "a"}`, `args.x > 1 || true`, yes},
		{`{"x": "a"}`, `args.x > 1 || false`, none},
		{`{"x": "a"}`, `args.x > 1 && true`, none},
		{`{"x": "a"}`, `args.x > 1 && false`, no},
		{`{"x": [1, "a", 3]}`, `args.x.exists(i, i > 2)`, yes},
		{`{"x": [1, "a", 3]}`, `args.x.exists(i, i > 4)`, none},
		{`{"x": 1}`, `args.x / 0.0 > 1.0`, yes},
		{`{"x": 1}`, `1 / 0 == 1`, none},
		// double and lookalike names, at each level of a path
		{`{"x": 1, "x": 1}`, `args.x == 1`, unclear},
		{`{"x": 1, "\u0078": 1}`, `args.x == 1`, unclear},
		{`{"X": 1}`, `args.x == 1`, unclear},
		{`{"X": 1}`, `has(args.x)`, unclear},
		{`{"x": 1, "X": 1}`, `args.x == 1`, unclear},
		{`{"x": 1, "X": 1}`, `args.x == 1 || true`, unclear}, // nothing absorbs it
		{`{"x": 1, "X": 1}`, `true || args.x == 1`, unclear},
		{`{"x\u0000y": 1}`, `has(args.x)`, unclear},
		{"{\"\u212aey\": 1}", `has(args.key)`, unclear},
		{`{"\u0131d": 1}`, `has(args.id)`, unclear},
		{`{"\u017f": 1}`, `has(args.s)`, unclear},
		{`{"x": {"y": 1, "Y": 2}}`, `args.x.y == 1`, unclear},
		{`{"x": {"y": 1, "y": 2}}`, `args.x.y == 1`, unclear},
		{`{"x": {"y": 1}, "X": {"y": 2}}`, `args.x.y == 1`, unclear},
		{`{"x": [{"y": 1, "Y": 2}]}`, `args.x[0].y == 1`, unclear},
		{`{"x": {"y": 1, "y": 1}}`, `args.x == {"y": 1}`, unclear},
		{`{"x": {"y": 1, "Y": 2}}`, `size(args.x) == 2`, yes}, // not looked up
		{`{"x": [{"y": 1, "Y": 2}]}`, `args.x.exists(i, i.y == 1)`, unclear},
		{`{"x": [{"Y": 2}]}`, `args.x.exists(i, has(i.y)) || true`, unclear},
		{`{"x": [{"Y": 2}]}`, `args.x.exists(i, "y" in i) || true`, unclear},
		{`{"x": [{"y": 2, "z": 1, "z": 2}]}`, `args.x.exists(i, i.y == 2) || true`, unclear},
		{`{"s": 1}`, `args["\u017f"] == 1`, unclear},
		{`{"x": {"y": {"z": 1, "z": 2}}}`, `has(args.x) && args.x.y.z == 1`, unclear},
		{`{"x": 1, "y": 1, "Y": 1}`, `args.x == 1`, yes}, // not read
		{`{"x": 1, "y": 1, "y": 1}`, `args.x == 1`, yes},
		{`{"x": 1, "y": {"X": 1}}`, `args.x == 1`, yes}, // at another level
		// no JSON
		{`{"x": 1`, `args.x == 1`, none},
		{`{"x": 1} `, `args.x == 1`, yes},
		{`{"x": 1}}`, `args.x == 1`, none},
		{`{"x": 1,}`, `args.x == 1`, none},
		{`{"x": 01}`, `args.x == 1`, none},
		{"{\"x\": 1, \"y\": \"\xff\"}", `args.x == 1`, none},
		{"{\"x\": 1, \"y\": \"\n\"}", `args.x == 1`, none},
		{`{"x": 1, "y": "\ud800"}`, `args.x == 1`, none},
		{`[1]`, `args.x == 1`, none},
		{`[1]`, `has(args.x)`, none},
		{`{"x": 1, "y": ` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `}`, `args.x == 1`, none},
		// registers, run, who and the rest
		{`{}`, `registers.plan == ""`, none},
		{`{}`, `registers.plan != ""`, none},
		{`{}`, `has(registers.plan)`, no},
		{`{}`, `has(registers.total) && has(registers.n)`, yes},
		{`{}`, `registers.total == 0.5 && registers.n == 0 && registers.n + 1 == 1`, yes},
		{`{}`, `registers.done`, none},
		{`{}`, `"a" in registers.reads && !("b" in registers.reads) && size(registers.reads) == 2`, yes},
		{`{}`, `registers.reads.exists(r, r.startsWith("/"))`, yes},
		{`{"x": "/b"}`, `args.x in registers.reads`, yes},
		{`{}`, `name == "tool" && run.state == "building"`, yes},
		{`{}`, `now - run.entered == duration("10m") && run.began < run.entered`, yes},
		{`{}`, `now.getHours() == 3 && now.getDayOfWeek() == 5`, yes},
		{`{}`, `who.subject == "ann" && "read" in who.scopes`, yes},
		{`{}`, `who.issuer == ""`, none},
		{`{}`, `has(who.issuer)`, no},
		{`{}`, `has(who.subject) && has(who.scopes)`, yes},
		{`{}`, `who.claims.team == "x" && who.claims.roles[0] == "dev"`, yes},
		{`{}`, `who.claims.twice == 1`, none}, // the client's arguments are not to blame
		{`{}`, `has(who.claims.email)`, no},
		// functions
		{`{"x": "npm test"}`, `words(args.x) == ["npm", "test"]`, yes},
		{`{"x": "npm   test "}`, `words(args.x).size() == 2`, yes},
		{`{"x": ""}`, `words(args.x).size() > 0`, no},
		{`{"x": 1}`, `words(args.x).size() > 0`, none},
		{`{"x": ["npm"]}`, `words(args.x).size() > 0`, none},
		{`{"x": "{\"a\": [1]}"}`, `json(args.x).a[0] == 1`, yes},
		{`{"x": "{\"a\": 1, \"a\": 2}"}`, `json(args.x).a == 1`, none},
		{`{"x": "{\"a\": 1, \"A\": 2}"}`, `json(args.x).a == 1`, none},
		{`{"x": "{\"a\": 9007199254740993}"}`, `json(args.x).a > 1`, none},
		{`{"x": "{}x"}`, `json(args.x) == {}`, none},
		{`{"x": "{'a': 1}"}`, `has(json(args.x).a)`, none},
		{`{"x": {"k": ["a", 1, {"b": "c"}]}, "y": "d"}`, `texts(args) == ["x", "k", "a", "b", "c", "y", "d"]`, yes},
		{`{"x": {"k": "a"}, "y": "d"}`, `texts(args.x) == ["k", "a"]`, yes},
		{`{"x": {"k": 1, "k": 2}}`, `texts(args).size() > 0 || true`, unclear},
		{`{"x": {"k": 1, "k": 2}}`, `digest(args) == "" || true`, unclear},
		{`{"x": 1}`, `texts(args.y) == []`, none},
		{`{"x": [1]}`, `digest(args.y) == ""`, none},
		{`{"x": "a"}`, `args.x.matches("^a$") && matches(args.x, "a")`, yes},
		{`{"x": 1}`, `args.x.matches("1")`, none},
	} {
		call := &guard.Call{
			Name: "tool", Args: []byte(c.args), Now: now,
			Registers: registers{"total": 0.5, "n": int64(0), "reads": setOf("a", "/b")},
			Run:       guard.Run{State: "building", Began: now.Add(-time.Hour), Entered: now.Add(-10 * time.Minute)},
			Who: guard.Who{
				Subject: "ann", Scopes: []string{"read"}, Claims: []byte(`{"team": "x", "roles": ["dev"], "twice": 1, "twice": 2}`),
			},
		}
		p := compile(t, c.text)
		for range 2 { // what one evaluation leaves behind does not change the next
			if got := verdict(p, call); got != c.want {
				t.Errorf("%s on %.80s: %s, not %s", c.text, c.args, got, c.want)
			}
		}
	}
}

func TestOutcomes(t *testing.T) {
	env := guard.New(nil)
	for _, c := range []struct{ result, text, want string }{
		{`{}`, `result.isError`, no},
		{``, `result.isError`, no},
		{`{"isError": null}`, `result.isError`, no},
		{`{"isError": false}`, `result.isError`, no},
		{`{"isError": true}`, `result.isError`, yes},
		{`{"isError": "false"}`, `result.isError`, yes},
		{`{"isError": 0}`, `result.isError`, yes},
		{`{"isError": [] }`, `result.isError`, yes},
		{`{"isError": false, "isError": true}`, `!result.isError`, none},
		{`{"isERROR": true}`, `!result.isError`, none},
		{`[]`, `result.isError`, none},
		{`{"structuredContent": {"failed": 2}}`, `result.structuredContent.failed > 0`, yes},
		{`{"structuredContent": {"failed": 2, "Failed": 0}}`, `result.structuredContent.failed > 0 || true`, none},
		{`{"structuredContent": {"list": [{"a": 1, "A": 0}]}}`, `result.structuredContent.list.exists(i, i.a > 0)`, none},
		{`{"structuredContent": {"list": [{"a": 1, "A": 0}]}}`, `result.structuredContent.list.exists(i, i.a > 0) || true`, none},
		{`{"structuredContent": {"list": [{"a": 1, "a": 0}]}}`, `result.structuredContent.list.exists(i, i.a > 0) || true`, none},
		{`{"structuredContent": null}`, `result.structuredContent.failed > 0`, none},
		{`{"content": [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]}`, `result.text == "a\nb"`, yes},
		{`{"content": []}`, `result.text == ""`, yes},
		{`{}`, `result.text == ""`, yes},
		{`{"content": null}`, `result.text == ""`, none},
		{`{"content": [{"text": "a"}]}`, `result.text == ""`, none},
		{`{"content": [{"type": "text", "Type": "image", "text": "a"}]}`, `result.text == ""`, none},
		{`{"content": [{"type": "text", "text": "a", "TEXT": "b"}]}`, `result.text == "a"`, none},
		{`{"content": [{"type": "text", "text": 1}]}`, `result.text == ""`, none},
		{`{"content": [{"type": "text", "text": "{\"n\": 1}"}]}`, `json(result.text).n == 1`, yes},
		{`{"contents": [{"uri": "a"}]}`, `result.contents[0].uri == "a"`, yes},
		{`{"messages": []}`, `size(result.messages) == 0 && args.x == 1`, yes},
		{`{"content": []}`, `has(result.content) && !has(result.messages) && !has(result.isError)`, yes},
		{`{"isError": false}`, `has(result.isError)`, yes},
		{`{"content": [{"type": "text", "text": "x"}]}`, `has(result.text) && result.text == "x"`, yes},
		{`{"text": "x"}`, `has(result.text)`, no},
		{`{"content": ["a"]}`, `texts(result.content) == ["a"] && digest(result.content) == digest(result.content)`, yes},
	} {
		p, problems := env.Outcome(c.text)
		if p == nil {
			t.Fatalf("%s: %+v", c.text, problems)
		}
		if got := verdict(p, &guard.Call{Args: []byte(`{"x": 1}`), Result: []byte(c.result)}); got != c.want {
			t.Errorf("%s on %s: %s, not %s", c.text, c.result, got, c.want)
		}
	}
	for _, text := range []string{`result == 1`, `result.typo == 1`, `result.text.x == 1`, `result.isError.x`, `size(result) > 0`, `digest(result) == ""`, `texts(result.typo) == []`, `texts(result.text) == []`, `result[0] == 1`} {
		if p, problems := env.Outcome(text); p != nil || len(problems) != 1 || problems[0].Warning != "" {
			t.Errorf("%s: %+v", text, problems)
		}
	}
}

func TestWordsAreOnePlainCommand(t *testing.T) {
	for text, want := range map[string]string{
		"git push origin main": yes, "a_b @c +d =e :f ,g ./h -i": yes, "a=b": none, "FOO=bar ls": none, "FOO+=bar ls": none, "ls FOO=bar": yes, "--x=y": yes,
		"": no, "   ": no, "a;b": none, "a|b": none, "a&b": none, "a`b`": none, "$(a)": none, "a\tb": none, "a\nb": none, "a\rb": none,
		"~/x": none, "*": none, "a?": none, "[a]": none, "{a,b}": none, "a>b": none, "a<b": none, "'a'": none, `"a"`: none, `a\b`: none,
		"!a": none, "#a": none, "%1": none, "^a^b": none, "a\x00b": none, "a\u00a0b": none, "a\u2003b": none, "\uff47it": none, "g\u0456t": none,
		"a\u200bb": none, "a\u202eb": none, "caf\u00e9": none, "\u0661": none, "a\u2028b": none,
	} {
		p := compile(t, `words(registers.plan).size() > 0`)
		if got := verdict(p, &guard.Call{Registers: registers{"plan": text}}); got != want {
			t.Errorf("words(%q): %s, not %s", text, got, want)
		}
	}
}

// A URL of another host by anybody's reading is false; one in which some read another is an error, negated too.
func TestHostMayBeNegated(t *testing.T) {
	is, not := compile(t, `host(registers.plan) in ["a.example", "b.example"]`), compile(t, `!(host(registers.plan) in ["a.example", "b.example"])`)
	for url, want := range map[string][2]string{
		"https://A.example/x": {yes, no}, "https://c.example": {no, yes}, "https://a.example.c.example/": {no, yes},
		"https://a.example@c.example": {none, none}, `https://c.example\@a.example`: {none, none}, "a.example": {none, none}, "": {none, none},
	} {
		call := &guard.Call{Registers: registers{"plan": url}}
		if got := [2]string{verdict(is, call), verdict(not, call)}; got != want {
			t.Errorf("%q: %v, not %v", url, got, want)
		}
	}
}

// A path that is not under the root by anybody's reading is false; one that may be is an error, so that !path_under
// holds for the first alone.
func TestPathUnderMayBeNegated(t *testing.T) {
	const root = "/work/repo"
	cases := map[string]string{
		"/work/repo": yes, "/work/repo/": yes, "/work/repo/a": yes, "/work/repo/a/b.go": yes, "/work/repo/\u00e4": yes, "/work/repo/PROGRA~1": yes,
		"/work/repo2": no, "/work/rep": no, "/work": no, "/": no, "/etc/passwd": no, "/workx/repo/a": no, "/x/work/repo": no,
	}
	for _, path := range []string{
		"", "a", "./a", "work/repo", "/work/repo/..", "/work/repo/../x", "/work/./repo", "/etc/../work/repo", "/work//repo", "//work/repo", "/work/repo//",
		"//", "/work/%72epo", "/etc/%2e%2e/work", `/work\repo`, `\work\repo`, "/work/repo\x00", "/work/re\npo", "/work/\u0085", "/work/\x7f", "/WORK/repo/a", "/work/Repo",
		"C:/work/repo", "/work/re\u200cpo", "/work/rep\u043e", "/w\u00f6rk/repo", "/work./repo", "/work /repo", "/WORK~1/repo", "/work::$INDEX_ALLOCATION/repo", "/\u017fwork/repo",
	} {
		cases[path] = none
	}
	under, negated := compile(t, `path_under(registers.plan, "/work/repo")`), compile(t, `!path_under(registers.plan, "/work/repo/")`)
	opposite := map[string]string{yes: no, no: yes, none: none}
	for path, want := range cases {
		call := &guard.Call{Registers: registers{"plan": path}}
		if got := verdict(under, call); got != want {
			t.Errorf("path_under(%q, %q): %s, not %s", path, root, got, want)
		}
		if got := verdict(negated, call); got != opposite[want] {
			t.Errorf("!path_under(%q, %q): %s, not %s", path, root, got, opposite[want])
		}
	}
	if got := verdict(compile(t, `path_under("/a", "/") && path_under("/", "/")`), &guard.Call{}); got != yes {
		t.Errorf("under /: %s", got)
	}
	for _, root := range []string{"", "a", "/a/..", "//", "/a//b"} {
		if got := verdict(compile(t, `path_under("/a", registers.plan)`), &guard.Call{Registers: registers{"plan": root}}); got != none {
			t.Errorf("under %q: %s", root, got)
		}
	}
}

func TestDigestIsOfSortedKeysAndNumbersAsWritten(t *testing.T) {
	p, problems := guard.New(nil).Value(`digest(args)`, guard.Text)
	if p == nil {
		t.Fatalf("%+v", problems)
	}
	digest := func(args string) string {
		v, err := p.Value(&guard.Call{Args: []byte(args)})
		if err != nil {
			t.Fatalf("%s: %v", args, err)
		}
		return v.(string)
	}
	const args = `{"a":[1.0,true,null,"\u0062"],"b":{"c":{},"d":9007199254740993}}`
	sum := sha256.Sum256([]byte(`{"a":[1.0,true,null,"b"],"b":{"c":{},"d":9007199254740993}}`))
	if got := digest(args); got != hex.EncodeToString(sum[:]) {
		t.Errorf("digest is %s", got)
	}
	if digest(` { "b" : { "d":9007199254740993 , "c":{ } } , "\u0061" : [ 1.0, true , null,"b" ] } `) != digest(args) {
		t.Error("order, spaces and escapes make a difference")
	}
	if digest(`{"a":1}`) == digest(`{"a":1.0}`) {
		t.Error("numbers are not as they are written")
	}
	if digest(``) != digest(`{}`) {
		t.Error("no arguments are not {}")
	}
}

func TestWhatIsDecodedIsBounded(t *testing.T) {
	text := func(n int) string { return `"` + strings.Repeat("x", n-2) + `"` }
	args := func(n int) []byte { return []byte(`{"y": ` + text(5<<20) + `, "x": ` + text(n) + `}`) }
	p := compile(t, `args.x.startsWith("x")`)
	if got := verdict(p, &guard.Call{Args: args(64 << 10)}); got != yes {
		t.Errorf("64 KiB: %s", got)
	}
	if got := verdict(p, &guard.Call{Args: args(64<<10 + 1)}); got != large {
		t.Errorf("64 KiB and a byte: %s", got)
	}
	if got := verdict(compile(t, `has(args.y) || has(args.x)`), &guard.Call{Args: args(10)}); got != yes {
		t.Errorf("what is asked for and not read: %s", got)
	}
	if got := verdict(compile(t, `digest(args) == "" || true`), &guard.Call{Args: args(10)}); got != large {
		t.Errorf("all of it: %s", got)
	}
	o, _ := guard.New(nil).Outcome(`result.structuredContent.x.startsWith("x")`)
	for n, want := range map[int]string{1 << 20: yes, 1<<20 + 1: large} {
		if got := verdict(o, &guard.Call{Result: []byte(`{"structuredContent": {"x": ` + text(n) + `}}`)}); got != want {
			t.Errorf("a result's %d: %s", n, got)
		}
	}
}

// However much an expression asks for, it ends within a time that does not show.
func TestCostBombs(t *testing.T) {
	doubled := func(start, step string, n int) string { return start + strings.Repeat(step, n) }
	numbers := "[" + strings.Repeat("0,", 20000) + "0]"
	args := []byte(`{"list": ` + numbers + `, "text": "` + strings.Repeat("ab", 8000) + `", "nested": ` + strings.Repeat("[", 400) + strings.Repeat("]", 400) + `}`)
	for _, text := range []string{
		`args.list.all(a, args.list.all(b, a == b)) && size(args.list) > 0`,
		`args.list.all(a, size(args.text) > 0) && size(args.list) > 0`,
		`args.list.all(a, args.text.contains("zzzzzzzzzzzzzzz")  || args.text.startsWith("a") || true) && size(args.list) > 0`,
		`args.list.all(a, args.list == args.list) && size(args.list) > 0`,
		`args.list.all(a, !(1 in args.list)) && size(args.list) > 0`,
		`args.list.all(a, args.text + args.text != "x") && size(args.list) > 0`,
		`args.list.all(a, args.text.matches("(x+x+)+y") || true) && size(args.list) > 0`,
		`args.list.all(a, words(args.text).size() > 0) && size(args.list) > 0`,
		`args.list.all(a, (args.list + args.list).size() > 0) && size(args.list) > 0`,
		`args.list.map(a, args.list.map(b, b)).size() > 0`,
		doubled(`[args.text]`, `.map(x,x+x)`, 40) + `.size() > 0`,
		doubled(`["ab"]`, `.map(x,x+x)`, 40) + `.size() > 0`,
		doubled(`[args.list]`, `.map(x,x+x)`, 40) + `.size() > 0`,
		doubled(`[[1]]`, `.map(x,x+x)`, 40) + `.exists(x,2 in x)`,
		doubled(`[[1]]`, `.map(x,[x,x])`, 40) + `.exists(x,x==x)`,
		doubled(`[[1]]`, `.map(x,[x,x])`, 40) + `.exists(x,x in [x])`,
		doubled(`[[]]`, `.map(x,[x,x])`, 40) + `.exists(x,x!=x)`,
		doubled(`[{"a":1}]`, `.map(x,{"a":x,"b":x})`, 40) + `.exists(x,x==x)`,
		doubled(`[1]`, `.map(x,{"a":x,"b":[x]})`, 40) + `.exists(x,[x]==[x])`,
	} {
		p := compile(t, text)
		start := time.Now()
		if got := verdict(p, &guard.Call{Args: args}); got != costly {
			t.Errorf("%s: %s", text, got)
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("%s: %s", text, took)
		}
	}
	// What is lost in a message is not printed.
	start := time.Now()
	if got := verdict(compile(t, doubled(`[dyn(1)]`, `.map(x,[x,x])`, 40)+`.exists(x,{1:2}[dyn(x)]==2)`), &guard.Call{}); got != none {
		t.Errorf("a large key: %s", got)
	}
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("a large key: %s", took)
	}
	// A loop is paid by its steps.
	if got := verdict(compile(t, `args.list.map(a, a).filter(a, a == 0).size() == 2001`), &guard.Call{Args: []byte(`{"list": [` + strings.Repeat("0,", 2000) + `0]}`)}); got != yes {
		t.Errorf("2,001 elements: %s", got)
	}
	// Without elements, there is nothing to count.
	if got := verdict(compile(t, doubled(`[[]]`, `.map(x,x+x)`, 40)+`.exists(x,x.size()==0)`), &guard.Call{}); got != yes {
		t.Errorf("lists without elements: %s", got)
	}
	o, _ := guard.New(nil).Outcome(`result.text.matches("^(a{1,20}){1,20}$")`)
	result := []byte(`{"content": [{"type": "text", "text": "` + strings.Repeat("a", 1<<20-100) + `"}]}`)
	start = time.Now()
	if got := verdict(o, &guard.Call{Result: result}); got != costly {
		t.Errorf("a large expression on a large text: %s", got)
	}
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("a large expression on a large text: %s", took)
	}
}

// What goes over a text or a list is paid by its length: a thousand times is too much of 16 KiB, and not of nothing.
func TestWorkIsPaid(t *testing.T) {
	zeros := "[" + strings.Repeat("0,", 999) + "0]"
	for _, text := range []string{
		`size(args.text) >= 0`, `args.text.startsWith("a") || true`, `args.text.endsWith("a") || true`, `args.text.contains("b") || true`,
		`args.text.matches("^.*b$") || true`, `words(args.text).size() >= 0`, `path_under("/" + args.text, "/a") || true`, `path_under("/a", "/" + args.text) || true`,
		`has(json(args.json).a)`, `(args.text + "a").size() > 0`, `args.text == args.same`, `!(args.text != args.same)`, `args.text <= args.same`,
		`string(args.text) != "b"`, `bytes(args.text) != b"b"`, `args.items == args.items`, `!("b" in args.items)`, `(args.items + ["b"]).size() > 0`,
		`{"a": args.items} == {"a": args.items}`, `args.object == args.object`, `!("b" in texts(args.items))`,
	} {
		p := compile(t, `args.list.all(i, `+text+`)`)
		for long, want := range map[bool]string{true: costly, false: yes} {
			word, items := "", ""
			if long {
				word, items = strings.Repeat("a", 16000), strings.Repeat(`"a",`, 2000)
			}
			args := fmt.Sprintf(`{"list": %s, "text": %q, "same": %q, "items": [%s"a"], "object": {"k": [%[4]s"a"]}, "json": "{\"a\": \"%[5]s\"}"}`, zeros, word, word, items, word)
			if got := verdict(p, &guard.Call{Args: []byte(args)}); got != want {
				t.Errorf("%s, long %v: %s, not %s", text, long, got, want)
			}
		}
	}
}

// Programs are for any number of goroutines; the race detector looks on.
func TestProgramsAreShared(t *testing.T) {
	p := compile(t, `args.x in registers.reads && args.list.exists(i, i.y == args.x) && !(args.x < 1)`)
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			want, args := none, `{"x": "a", "list": [{"y": "a"}]}`
			switch g % 3 {
			case 1:
				want, args = unclear, `{"x": "a", "list": [{"Y": "a"}]}`
			case 2:
				want, args = none, `{"x": 1, "list": [{"y": 1}]}`
			}
			for range 200 {
				if got := verdict(p, &guard.Call{Args: []byte(args), Registers: registers{"reads": setOf("a")}}); got != want {
					t.Errorf("%s: %s", args, got)
				}
			}
		})
	}
	all.Wait()
}

func TestCountersAndSetsBeginEmpty(t *testing.T) {
	for text, want := range map[string]string{
		`registers.n == 0 && has(registers.n)`: yes, `registers.reads == [] && has(registers.reads)`: yes, `"a" in registers.reads`: no, `1.0 in [dyn("a")]`: no,
		`args.x in registers.reads`: none, `has(registers.total)`: no, `registers.total == 0.0`: none,
	} {
		if got := verdict(compile(t, text), &guard.Call{Args: []byte(`{"x": 1}`)}); got != want {
			t.Errorf("%s: %s, not %s", text, got, want)
		}
	}
}

// A register of 10,000 texts is asked for one, and not gone over.
type hashed struct {
	t testing.TB
	textSet
}

func (h *hashed) Values() []string {
	h.t.Error("a look-up goes over the set")
	return h.values
}

func TestMembershipIsByHash(t *testing.T) {
	for text, want := range map[string]string{`"a" in registers.reads`: yes, `args.x in registers.reads`: yes, `!("b" in registers.reads) && size(registers.reads) == 1`: yes} {
		if got := verdict(compile(t, text), &guard.Call{Args: []byte(`{"x": "a"}`), Registers: registers{"reads": &hashed{t, *setOf("a")}}}); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
}
