package lock

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

func canonical(t *testing.T, raw string) string {
	t.Helper()
	out, err := appendCanonical(nil, []byte(raw))
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return string(out)
}

// What says the same in another way is the same.
func TestCanonicalIsTheSame(t *testing.T) {
	for _, same := range [][]string{
		{`{"a":1,"b":[true,null]}`, `{ "b" : [ true , null ], "a":1}`, "{\"b\":[true,\n\tnull],\"a\":1.0}", `{"\u0061":1e0,"\u0062":[true,null]}`},
		{`1`, `1.0`, `1e0`, `10e-1`, `0.1E1`, `0.10e+1`},
		{`0`, `-0`, `0.000`, `0e99`, `-0.0E-5`},
		{`1500`, `1.5e3`, `15e2`, `150.00e1`},
		{`-0.5`, `-5e-1`, `-0.50`},
		{`9007199254740993`, `9007199254740993.0`, `9.007199254740993e15`},
		{`"é/\n"`, `"\u00e9\/\u000a"`},
		{`"😀"`, `"\ud83d\ude00"`},
	} {
		for _, raw := range same[1:] {
			if got, want := canonical(t, raw), canonical(t, same[0]); got != want {
				t.Errorf("%s is %s, but %s is %s", raw, got, same[0], want)
			}
		}
	}
}

// What says something else never is: above all where a double, or a reader that
// takes one of two, would see no difference.
func TestCanonicalIsAnother(t *testing.T) {
	all := []string{
		`9007199254740993`, `9007199254740992`, `1e400`, `1e401`, `-1`, `1`, `"1"`, `10`, `0.1`, `0.10000000000000000001`,
		`1e99999999999999999999`, `1e99999999999999999998`, `true`, `"true"`, `null`, `"null"`, `[]`, `{}`, `""`, `[1,2]`, `[2,1]`, `[[1],2]`, `[12]`,
		`{"a":1}`, `{"A":1}`, `{"a":1,"a":2}`, `{"a":2,"a":1}`, `{"a":2}`, `{"a":{"b":1}}`, `{"a":1,"b":1}`,
		`"\ud800"`, `"\udfff"`, `"\ufffd"`, "\"\xff\"", "\"\xfe\"", `"a\u0000b"`, `"a b"`, `"ab"`, `"\u00e9"`, `"e\u0301"`,
	}
	seen := map[string]string{}
	for _, raw := range all {
		form := canonical(t, raw)
		if other, there := seen[form]; there {
			t.Errorf("%s and %s are both %s", raw, other, form)
		}
		seen[form] = raw
	}
}

const tool = `{"name":"apply","title":"T","description":"D","inputSchema":{"type":"object","required":["a"]},"outputSchema":{"x":1},"annotations":{"readOnlyHint":true},"icons":[1],"_meta":{"n":1}}`

func define(t *testing.T, raw string) Definition {
	t.Helper()
	d, err := Define([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDefinitionNamesWhatDiffers(t *testing.T) {
	for change, want := range map[string]string{
		`"name":"apply"|"name":"other"`: "",
		`"icons":[1]|"icons":[2]`:       "",
		`"title":"T"|"title":"U"`:       "title",
		`"title":"T",|`:                 "title",
		`"title":"T"|"title":null`:      "title",
		`"D"|"D "`:                      "description",
		`"description":"D"|"description":"D","description":"E"`:             "description",
		`"description":"D"|"description":"D","description":"D"`:             "description",
		`"description":"D"|"description":"D","Description":"E"`:             "description",
		`"description":"D"|"Description":"D"`:                               "description",
		`"description":"D"|"de\u0073cription":"\u0044"`:                     "",
		`"type":"object","required":["a"]|"required":["a"],"type":"object"`: "",
		`"required":["a"]|"required":["a","b"]`:                             "inputSchema",
		`{"x":1}|{"x":1.0}`:                                                 "",
		`{"x":1}|{"x":2}`:                                                   "outputSchema",
		`"readOnlyHint":true|"readOnlyHint":false`:                          "annotations",
		`"title":"T","description":"D"|"title":"D","description":"T"`:       "title, description",
	} {
		from, to, _ := strings.Cut(change, "|")
		changed := strings.Replace(tool, from, to, 1)
		if changed == tool {
			t.Fatalf("%s changes nothing", change)
		}
		if got := define(t, tool).Differ(define(t, changed)).String(); got != want {
			t.Errorf("%s: %q differs, want %q", change, got, want)
		}
	}
	if d := define(t, `{"name":"a","title":null}`); d != (Definition{}) {
		t.Errorf("null is something: %v", d)
	}
}

func tools(t *testing.T, items ...string) *wire.List {
	t.Helper()
	page, err := wire.Read(wire.ResultAnswer([]byte("0"), []byte(`{"tools":[`+strings.Join(items, ",")+`]}`)), wire.FromUpstream)
	if err != nil {
		t.Fatal(err)
	}
	l, err := wire.NewList(wire.Tools, []*wire.Message{page})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func bound(t *testing.T, names string) *policy.Policy {
	t.Helper()
	p, findings := policy.Parse("p.yaml", []byte("version: 1\ninitial: a\nstates: {a: {tools: {"+names+"}}}\n"))
	if p == nil {
		t.Fatal(findings)
	}
	return p
}

func TestTakeHasWhatIsBound(t *testing.T) {
	list := tools(t, tool, `{"name":"read_b"}`, `{"name":"read_a"}`, `{"name":"read_secret"}`, `{"name":"other"}`, `{"name":"read_b"}`)
	l, err := Take(bound(t, `apply: , "read_*": , read_secret: none, absent: `), Upstream{"s", "1"}, list)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(len(l.Tools), l.Globs); got != "3 map[read_*:[read_a read_b]]" {
		t.Error(got)
	}
	_, err = Take(bound(t, `"*": `), Upstream{}, tools(t, `{"name":"a"}`, `{"name":"a","title":"evil"}`))
	if err == nil || !strings.Contains(err.Error(), `"a" twice`) {
		t.Errorf("a tool that is there twice: %v", err)
	}
}

func TestCompare(t *testing.T) {
	l, err := Take(bound(t, `"*": `), Upstream{}, tools(t, tool, `{"name":"same"}`, `{"name":"gone"}`, `{"name":"twice"}`, `{"name":"again"}`))
	if err != nil {
		t.Fatal(err)
	}
	now := tools(t, strings.Replace(tool, `"D"`, `"E"`, 1), `{ "name" : "same", "annotations":null }`, `{"name":"new"}`,
		`{"name":"twice"}`, `{"name":"twice","description":"evil"}`, `{"name":"again"}`, `{"name":"again","icons":1}`)
	drift := l.Compare(now)
	for name, want := range map[string]string{"apply": "description", "same": "", "new": "unlocked", "twice": "ambiguous", "again": "", "gone": ""} {
		if got := drift.Of(name).String(); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	none := (*Lock)(nil).Compare(now)
	if got := none.Of("same").String(); got != "unlocked" {
		t.Errorf("without a lock: %q", got)
	}
}

func TestFormatIsRead(t *testing.T) {
	names := []string{"plain", "x-y", "null", "<<", "12", "a: b", "# no", `q"\`, "é😀", "tab\t\u0085\ufeff", " ", "*", "~", "-", "[a]", "!t", "a\nb"}
	items := make([]string, len(names))
	for i, name := range names {
		items[i] = `{"name":` + string(wire.AppendString(nil, name)) + `,"title":` + fmt.Sprint(i) + `}`
	}
	l, err := Take(bound(t, `"*": `), Upstream{"a\nserver: x", "1.0"}, tools(t, items...))
	if err != nil {
		t.Fatal(err)
	}
	text, err := l.Format("p.yaml\nversion: 2")
	if err != nil {
		t.Fatal(err)
	}
	again, findings := Parse("l", text)
	if again == nil {
		t.Fatalf("%v\n%s", findings, text)
	}
	if !again.Same(l) || again.Upstream != l.Upstream || len(again.Tools) != len(names) {
		t.Errorf("read back as something else:\n%s", text)
	}
	twice, _ := again.Format("p.yaml\nversion: 2")
	if string(twice) != string(text) {
		t.Errorf("written in another way the second time:\n%s", twice)
	}
}

func TestFormat(t *testing.T) {
	l, err := Take(bound(t, `apply: , "read_*": , "no_*": `), Upstream{"raw", "1.0.0"}, tools(t, `{"name":"apply","title":"T","description":"D"}`, `{"name":"read_a"}`))
	if err != nil {
		t.Fatal(err)
	}
	got, _ := l.Format("p.yaml")
	const want = `# The tool definitions that p.yaml is enforced with, while its pin is warn or refuse.
# Written by "fsm-proxy lock". Do not edit it: run that again, look at what has changed, and keep both files together.
version: 1
upstream:
  name: raw
  version: "1.0.0"
tools:
  apply:
    title: d9f6b13f2b6aa1c2ff8e5a11c19c0e7ba2a68a5c2b3f9d0d5d2d6e9a3b5c4b4e
    description: d9f6b13f2b6aa1c2ff8e5a11c19c0e7ba2a68a5c2b3f9d0d5d2d6e9a3b5c4b4e
  read_a:
globs:
  "no_*":
  "read_*":
    - read_a
`
	hex := func(text string) string { // digests are checked elsewhere
		lines := strings.Split(text, "\n")
		for i, line := range lines {
			if key, value, ok := strings.Cut(line, ": "); ok && len(value) == 64 {
				lines[i] = key + ": DIGEST"
			}
		}
		return strings.Join(lines, "\n")
	}
	if hex(string(got)) != hex(want) {
		t.Errorf("got\n%s", got)
	}
}

func TestParseFindsWhatIsWrong(t *testing.T) {
	const digest = "d9f6b13f2b6aa1c2ff8e5a11c19c0e7ba2a68a5c2b3f9d0d5d2d6e9a3b5c4b4e"
	for src, want := range map[string]string{
		"":                                      `l:1:1: error: the file is empty; a lock file begins with "version: 1" and "tools:", and is written by "fsm-proxy lock"`,
		"tools:\n":                              `l:1:1: error: version is missing; have the file written by "fsm-proxy lock"`,
		"version: 1\n":                          `l:1:1: error: tools is missing`,
		"version: 2\ntools:\n":                  `l:1:10: error: version: this program reads version 1`,
		"version: 1\ntools:\ntols:\n":           `l:3:1: error: "tols" is no key of a lock file; did you mean "tools"?`,
		"version: 1\ntools: [a]\n":              `l:2:8: error: tools: wants a mapping of tools to their digests, not a list`,
		"version: 1\ntools: {a: {title: 12}}\n": `l:2:20: error: title: "12" is no SHA-256 digest of 64 small hexadecimal digits`,
		"version: 1\ntools: {a: {title: " + strings.ToUpper(digest) + "}}\n": `is no SHA-256 digest`,
		"version: 1\ntools: {a: {title: " + digest + "00}}\n":                `is no SHA-256 digest`,
		"version: 1\ntools: {a: {title: " + strings.Repeat("0", 64) + "}}\n": `is no SHA-256 digest`,
		"version: 1\ntools: {a: {tilte: " + digest + "}}\n":                  `l:2:13: error: "tilte" is no key of a tool; did you mean "title"?`,
		"version: 1\ntools: {a: , a: }\n":                                    `l:2:14: error: "a" stands here a second time`,
		"version: 1\ntools:\nglobs: {x: [a, a]}\n":                           `"a" stands in x a second time`,
		"version: 1\ntools:\nupstream: {nam: x}\n":                           `did you mean "name"?`,
		"version: 1\ntools:\n---\n":                                          `second document`,
	} {
		l, findings := Parse("l", []byte(src))
		if l != nil || !strings.Contains(findings.String(), want) {
			t.Errorf("%q: found\n%s\nwant %s", src, findings, want)
		}
	}
}

func TestDifferences(t *testing.T) {
	p := bound(t, `"*": `)
	take := func(items ...string) *Lock {
		l, err := Take(p, Upstream{}, tools(t, items...))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	before := take(tool, `{"name":"gone"}`, `{"name":"same"}`)
	after := take(strings.Replace(tool, `"T"`, `"U"`, 1), `{"name":"same","icons":[]}`, `{"name":"new"}`)
	if got, want := fmt.Sprint(before.Differences(after)), "[{apply title false [*]} {gone  false []} {new  true [*]}]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if len(before.Differences(before)) > 0 || !before.Same(before) || before.Same(after) || before.Same(nil) || !(*Lock)(nil).Same(nil) {
		t.Error("the same is another")
	}
	if got := len((*Lock)(nil).Differences(after)); got != 3 {
		t.Errorf("a first lock differs in %d tools", got)
	}
}

func FuzzCanonical(f *testing.F) {
	for _, seed := range []string{tool, `1.50e3`, `{"a":1,"a":"\ud800"}`, `[-0,[],{}]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		form, err := appendCanonical(nil, raw)
		if err != nil {
			return
		}
		spaced := append(append([]byte(" "), raw...), '\n')
		if again, err := appendCanonical(nil, spaced); err != nil || string(again) != string(form) {
			t.Errorf("%q is %q, and with white space %q, %v", raw, form, again, err)
		}
	})
}
