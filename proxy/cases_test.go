package proxy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	naive "github.com/fsm-proxy/fsm-proxy/internal/mcptest/model"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy"
)

// caseKeys are cases as they are written, of every kind.
var caseKeys = []string{
	`true`, `false`, `"true"`, `100`, `1e2`, `"100"`, `-0`, `1.50`, `9007199254740993`, `9007199254740992`, `"9007199254740993"`,
	`""`, `a`, `ab`, `aab`, `"a*"`, `"*b"`, `"a*b"`, `"*"`, `"ab*"`, `"*1*"`,
}

// caseValues are arguments as they are sent.
var caseValues = []string{
	`true`, `false`, `"true"`, `null`, `[]`, `["a"]`, `{}`, `{"a":"a"}`, `100`, `1e2`, `1E+2`, `100.0`, `"100"`, `"1e2"`, `0`, `-0`, `-0.0e9`, `1.5`, `"1.50"`,
	`9007199254740993`, `9007199254740992`, `9007199254740993.0`, `"9007199254740993"`, `1e400`, `""`, `"a"`, `"ab"`, `"a\u0062"`, `"aab"`, `"axb"`, `"b"`, `"a*"`, `"a*b"`, `"*"`, `"x1y"`, `"é"`,
}

// naively returns the cases among the file's keys that the argument at a path may select: by
// a decoder that knows nothing of ours, fractions, and a look at every glob. They are
// several where globs meet that say the same.
func naively(t *rapid.T, keys []string, path []string, arguments string) (selected []string) {
	dec := json.NewDecoder(strings.NewReader(arguments))
	dec.UseNumber()
	var at any
	if err := dec.Decode(&at); err != nil {
		t.Fatal(err)
	}
	for _, name := range path {
		object, _ := at.(map[string]any)
		at = object[name]
	}
	var fitting []string
	for _, key := range keys {
		text, quoted := strings.CutPrefix(key, `"`)
		text = strings.TrimSuffix(text, `"`)
		fits, exact := false, false
		switch at := at.(type) {
		case string:
			if quoted || !strings.ContainsAny(key[:1], "-0123456789tf") {
				exact = !strings.Contains(text, "*") && text == at
				fits = exact || strings.Contains(text, "*") && naive.Regexp(text).MatchString(at)
			}
		case bool:
			fits = !quoted && key == fmt.Sprint(at)
		case json.Number:
			x, ok := new(big.Rat).SetString(at.String())
			y, number := new(big.Rat).SetString(key)
			fits = ok && number && !quoted && x.Cmp(y) == 0
		}
		if exact {
			return []string{key}
		}
		if fits {
			fitting = append(fitting, key)
		}
	}
	for _, key := range fitting {
		if !slices.ContainsFunc(fitting, func(other string) bool { return other != key && narrower(other, key) }) {
			selected = append(selected, key)
		}
	}
	return selected
}

// narrower reports whether every word of one glob is one of another's, as far as short
// words tell.
func narrower(inner, outer string) bool {
	a, b := naive.Regexp(strings.Trim(inner, `"`)), naive.Regexp(strings.Trim(outer, `"`))
	return !slices.ContainsFunc(shortWords, func(w string) bool { return a.MatchString(w) && !b.MatchString(w) })
}

var shortWords = naive.Words("ab1x", 4)

// TestCasesAgainstNaiveReading: the case that a call's bytes select is the one that a
// naive reader of file and bytes finds.
func TestCasesAgainstNaiveReading(t *testing.T) {
	selected := map[bool]int{}
	for range 20 { // few draws select a case, and some of a round none
		if drawCases(t, selected); selected[true] > 0 && selected[false] > 0 {
			return
		}
	}
	t.Errorf("selected %v", selected)
}

func drawCases(t *testing.T, selected map[bool]int) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		path := rapid.SampledFrom([][]string{{"a"}, {"a", "b"}, {"b", "a", "b"}}).Draw(t, "path")
		keys := rapid.SliceOfNDistinct(rapid.SampledFrom(caseKeys), 1, 6, rapid.ID[string]).Draw(t, "keys")
		none := map[string]bool{}
		var cases []string
		for _, key := range keys {
			value := "stay"
			if rapid.IntRange(0, 4).Draw(t, "none") == 0 {
				none[key], value = true, "none"
			}
			cases = append(cases, key+": "+value)
		}
		source := "version: 1\ninitial: s\nstates: {s: {tools: {x: {by: " + strings.Join(path, ".") + ", cases: {" + strings.Join(cases, ", ") + "}}}}}\n"
		p, _ := policy.Parse("p.yaml", []byte(source))
		if p == nil { // globs that contradict each other, one number twice, nothing but none
			return
		}
		arguments := drawObject(t, 3)
		raw := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":` + arguments + `}}`)
		m, err := wire.Read(bytes.Clone(raw), wire.FromClient)
		if err != nil {
			t.Fatal(err)
		}
		want := naively(t, keys, path, arguments)
		allowed := len(want) > 0 && !none[want[0]]
		v := p.Decide(p.Initial(), &policy.Request{Kind: policy.Tool, Name: "x", Listed: true, Args: policy.Lookup(func(path []string) policy.Argument {
			value, unclear := proxy.ArgumentsOf(m).At(path)
			if unclear {
				t.Fatalf("%s is unclear at %v", arguments, path)
			}
			return value
		})})
		selected[v.Allowed]++
		named := slices.ContainsFunc(want, func(key string) bool {
			return v.Symbol.Case == key || v.Symbol.Case == strings.Trim(key, `"`) && policy.Literal(v.Symbol.Case).Kind() == policy.NoValue
		})
		if v.Allowed != allowed || allowed && !named {
			t.Fatalf("%s of %v: %+v, want %s\n%s", arguments, path, v, want, source)
		}
	})
}

// drawObject draws an object with members a and b, or one of them.
func drawObject(t *rapid.T, depth int) string {
	var members []string
	for _, name := range []string{"a", "b"} {
		switch n := rapid.IntRange(0, 7).Draw(t, name); {
		case n == 0:
		case n < 4 && depth > 0:
			members = append(members, fmt.Sprintf("%q:%s", name, drawObject(t, depth-1)))
		default:
			members = append(members, fmt.Sprintf("%q: %s", name, rapid.SampledFrom(caseValues).Draw(t, "value")))
		}
	}
	return "{" + strings.Join(members, ",") + "}"
}

const paths = `
version: 1
initial: start
states:
  start:
    tools:
      set:
        by: in.what
        cases: {100: stay, "200": stay, true: stay, 1.5: moved, "git *": stay, "git push*": none}
  moved: {tools: {status: , set: {by: in.what, cases: {1e2: start}}}}
`

// pathAttacks are arguments that are no listed case, by what they try.
var pathAttacks = map[string]string{
	"a text for a number":            `{"in":{"what":"100"}}`,
	"a number for a text":            `{"in":{"what":200}}`,
	"a text for a boolean":           `{"in":{"what":"true"}}`,
	"one for a boolean":              `{"in":{"what":1}}`,
	"another boolean":                `{"in":{"what":false}}`,
	"a list for a text":              `{"in":{"what":["200"]}}`,
	"a list for an object":           `{"in":[{"what":100}]}`,
	"a list's index":                 `{"in":["what",100]}`,
	"an object in a text":            `{"in":"{\"what\":100}"}`,
	"null":                           `{"in":{"what":null}}`,
	"null on the way":                `{"in":null}`,
	"missing":                        `{"in":{}}`,
	"missing on the way":             `{"what":100}`,
	"the path as a name":             `{"in.what":100}`,
	"the path as a name, deeper":     `{"in":{"in.what":100}}`,
	"one too deep":                   `{"in":{"what":{"what":100}}}`,
	"the name with a dot":            `{"in":{".what":100}}`,
	"a near number":                  `{"in":{"what":100.00000000000000000000000000000001}}`,
	"a huge exponent":                `{"in":{"what":1e999999999}}`,
	"a huge exponent, down":          `{"in":{"what":100e-999999999}}`,
	"an exponent beyond all":         `{"in":{"what":1e99999999999999999999999999}}`,
	"minus":                          `{"in":{"what":-100}}`,
	"minus zero":                     `{"in":{"what":-0}}`,
	"what none takes out":            `{"in":{"what":"git push --force"}}`,
	"what none takes out, itself":    `{"in":{"what":"git push*"}}`,
	"a glob's beginning":             `{"in":{"what":"git"}}`,
	"a glob in another case":         `{"in":{"what":"GIT status"}}`,
	"in front of a glob":             `{"in":{"what":" git status"}}`,
	"a glob in quotes":               `{"in":{"what":"\"git *\""}}`,
	"a number as a quoted text":      `{"in":{"what":"\"200\""}}`,
	"no arguments":                   ``,
	"no object":                      `[{"in":{"what":100}}]`,
	"a text in place of all":         `"in.what=100"`,
	"a number with a full-width one": `{"in":{"what":"１００"}}`,
}

// pathUnclear are arguments of which two readers can read two.
var pathUnclear = map[string]string{
	"a lookalike at the first name":             `{"in":{"what":100},"In":{"what":1.5}}`,
	"before it":                                 `{"IN":{"what":1.5},"in":{"what":100}}`,
	"alone at the first name":                   `{"In":{"what":100}}`,
	"a lookalike at the last name":              `{"in":{"what":100,"What":1.5}}`,
	"before the last name":                      `{"in":{"WHAT":1.5,"what":100}}`,
	"alone at the last name":                    `{"in":{"What":100}}`,
	"up to a NUL at the first name":             `{"in":{"what":100},"in\u0000":{"what":1.5}}`,
	"up to a NUL at the last name":              `{"in":{"what":100,"what\u0000x":1.5}}`,
	"a dotless i":                               `{"in":{"what":100},"\u0131n":{"what":1.5}}`,
	"a lookalike beside what is no case":        `{"in":{"what":"x","What":100}}`,
	"a lookalike beside what is no object":      `{"in":1,"IN":{"what":100}}`,
	"a lookalike of a call that takes the turn": `{"in":{"what":1.5,"What":100}}`,
}

// pathPass are arguments that are listed cases, and stay.
var pathPass = map[string]string{
	"a number":             `{"in":{"what":100}}`,
	"by an exponent":       `{"in":{"what":1e2}}`,
	"with a fraction":      `{"in":{"what":100.000}}`,
	"a text":               `{"in":{"what":"200"}}`,
	"a boolean":            `{"in":{"what":true}}`,
	"a glob":               `{"in":{"what":"git status"}}`,
	"in escapes":           `{"\u0069n":{"wh\u0061t":"g\u0069t log"}}`,
	"lookalikes elsewhere": `{"in":{"what":100,"other":{"WHAT":1}},"x":{"IN":1}}`,
	"a blank or two":       ` { "in" : { "what" : 100 } } `,
}

func setParams(arguments string) string {
	if arguments == "" {
		return `{"name":"set"}`
	}
	return `{"name":"set","arguments":` + arguments + `}`
}

// TestPathAttacks: nothing but a listed case reaches the upstream, on either surface, and the bytes
// that do are those that were decided on.
func TestPathAttacks(t *testing.T) {
	for surface, option := range map[string]func(*proxy.Config, *server){"dynamic": with(func(*proxy.Config) {}), "static": static} {
		t.Run(surface, func(t *testing.T) {
			bubble(t, paths, func(r *rig) {
				r.up.names(wire.Tools, "set", "status")
				c := r.connect(plainHello)
				for name, arguments := range pathPass {
					answer := c.request("tools/call", setParams(arguments))
					k := r.up.next()
					equal(t, name, string(k.m.Bytes(k.m.P.Arguments)), strings.TrimSpace(arguments))
					k.result(ok)
					answer.wait()
				}
				reached := len(r.up.reached())
				for name, arguments := range pathAttacks {
					refusal := c.refused(c.ask("tools/call", setParams(arguments)), policy.UnknownCase)
					if want := `unless 'in.what' is one of these, where * is any text: 100, "200", true, 1.5, git *; and none of these: git push*.`; !strings.Contains(refusal.Message, want) {
						t.Errorf("%s: %s", name, refusal.Message)
					}
				}
				for name, arguments := range pathUnclear {
					if answer := c.ask("tools/call", setParams(arguments)); !strings.Contains(answer, "-32600") {
						t.Errorf("%s: %s", name, answer)
					}
				}
				deep := strings.Repeat(`{"in":`, 400) + `100` + strings.Repeat(`}`, 400)
				c.refused(c.ask("tools/call", setParams(deep)), policy.UnknownCase)
				equal(t, "reached", len(r.up.reached()), reached)
				answer := c.request("tools/call", setParams(`{"in":{"what":15e-1}}`))
				r.up.next().result(ok)
				answer.wait()
				c.in("moved")
			}, option)
		})
	}
}

// TestPathAttacksModern is TestPathAttacks of a client that has no session.
func TestPathAttacksModern(t *testing.T) {
	bubble(t, paths, func(r *rig) {
		r.up.names(wire.Tools, "set", "status")
		c := r.modern()
		for name, arguments := range pathAttacks {
			if answer := c.ask("tools/call", meta(setParams(arguments))); !strings.Contains(answer, "unknown_case") {
				t.Errorf("%s: %s", name, answer)
			}
		}
		for name, arguments := range pathUnclear {
			if answer := c.ask("tools/call", meta(setParams(arguments))); !strings.Contains(answer, "-32600") {
				t.Errorf("%s: %s", name, answer)
			}
		}
		equal(t, "reached", len(r.up.reached()), 0)
		for _, arguments := range pathPass {
			answer := c.request("tools/call", meta(setParams(arguments)))
			r.up.next().result(ok)
			answer.wait()
		}
	})
}

// TestReloadChangesCasesOfACallUnderWay: a call that was decided by a case steps by it,
// whatever the new policy says of the case; the next is decided by the new one.
func TestReloadChangesCasesOfACallUnderWay(t *testing.T) {
	const before = "version: 1\ninitial: start\nstates:\n  start: {tools: {set: {by: in.what, cases: {100: {on_any: moved}, \"git *\": {exclusive: true}}}}}\n  moved: {tools: {status: }}\n"
	after := strings.NewReplacer(`100:`, `"100":`, `"git *": {exclusive: true}`, `"git *": stay, "git push*": none`).Replace(before)
	bubble(t, before, func(r *rig) {
		r.up.names(wire.Tools, "set", "status")
		c := r.connect(plainHello)
		pushing := c.request("tools/call", setParams(`{"in":{"what":"git push"}}`))
		k := r.up.next()
		waiting := c.request("tools/call", setParams(`{"in":{"what":100}}`)) // behind the turn
		c.rest()
		r.p.Reload(parse(t, after))
		k.result(ok)
		if answer := pushing.wait(); !strings.Contains(answer, `"ok"`) {
			t.Errorf("a call that had gone out is answered %s", answer)
		}
		c.refused(waiting.wait(), policy.UnknownCase)
		c.refused(c.ask("tools/call", setParams(`{"in":{"what":"git push"}}`)), policy.UnknownCase)
		c.in("start")
		moving := c.request("tools/call", setParams(`{"in":{"what":"100"}}`))
		k = r.up.next()
		r.p.Reload(parse(t, before)) // the case is a number again, and the text none
		k.result(ok)
		moving.wait()
		c.in("moved")
	})
}
