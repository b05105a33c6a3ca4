package play

import (
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/policy"
)

// What is wrong with a file of tests is told with its place, and with what to do.
func TestReadFindings(t *testing.T) {
	const head = "version: 1\npolicy: p\ntests:\n- name: n\n  steps:\n  - "
	for text, want := range map[string]string{
		"":                                               "f:0:0",
		"version: 2\npolicy: p\ntests: []\n":             "f:1:10: error: version: this program reads version 1",
		"policy: p\n":                                    "f:1:1: error: version is missing",
		"version: 1\n":                                   "f:1:1: error: policy is missing",
		"version: 1\npolicy: p\n":                        "f:1:1: error: there are no tests",
		"version: 1\npolicy: p\ntest: []\n":              `f:3:1: error: "test" is no key of a file of tests; did you mean "tests"?`,
		"version: 1\npolicy: p\ntests: {}\n":             "f:3:8: error: tests: wants a list of tests",
		"version: 1\npolicy: p\ntests: [x]\n":            "f:3:9: error: tests: wants a test",
		"version: 1\npolicy: p\ntests: [{}]\n":           "f:3:9: error: a test has no name",
		head + "{tool: x}\n- {name: n, steps: []}":       "there is a test \"n\" before",
		head + "{tol: x}":                                `f:6:6: error: "tol" is no key of a step; did you mean "tool"?`,
		head + "{}":                                      "f:6:5: error: a step has one of tool, resource, prompt, signal and wait, not 0",
		head + "{tool: x, prompt: y}":                    "not 2 of them",
		head + "{tool: [x]}":                             "f:6:12: error: tool: wants a name, not a list",
		head + "{tool: x, args: [1]}":                    "f:6:21: error: args: wants a mapping of arguments, not a list",
		head + "{tool: x, args: {a: 0x1F}}":              `f:6:25: error: "0x1F" is no number in JSON`,
		head + "{tool: x, args: {a: 1, a: 2}}":           "(duplicate-key)",
		head + "{tool: x, from: agent}":                  "f:6:5: error: from: only a signal has a sender",
		head + "{signal: x, from: me}":                   `f:6:23: error: from: "me" is none of "agent" or "operator"`,
		head + "{signal: x, answer: error}":              "f:6:5: error: answer: nobody answers a signal",
		head + "{tool: x, answer: perhaps}":              `f:6:23: error: answer: "perhaps" is none of`,
		head + "{tool: x, answer: {}}":                   "f:6:23: error: answer: wants success, error, unknown or {result",
		head + "{tool: x, answer: {results: {}}}":        `did you mean "result"?`,
		head + "{tool: x, refused: guard_failde}":        `did you mean "guard_failed"?`,
		head + "{tool: x, because: No.}":                 "f:6:5: error: because: it is told of calls that are refused",
		head + "{tool: x, refused: busy, answer: error}": "f:6:5: error: answer: nobody answers a call that is refused",
		head + "{wait: 3}":                               `f:6:12: error: wait: "3" is no time`,
		head + "{wait: -3s}":                             `f:6:12: error: wait: "-3s" is no time`,
		head + "{wait: 3s, args: {}}":                    "f:6:5: error: args: while a step waits nothing is called",
		head + "{tool: x, registers: [a]}":               "f:6:26: error: registers: wants a mapping of registers",
		head + "{tool: x, lists: {tool: [a]}}":           `did you mean "tools"?`,
		head + "{tool: x, who: {subjct: a}}":             `did you mean "subject"?`,
		"version: 1\npolicy: p\nlisted: {signals: [x]}\ntests: [{name: n}]\n": `"signals" is no key of listed`,
	} {
		f, found := Read("f", []byte(text))
		if f != nil || len(found.Errors()) == 0 {
			t.Errorf("%q: nothing is wrong with it", text)
			continue
		}
		if want != "f:0:0" && !strings.Contains(found.String(), want) {
			t.Errorf("%q: got\n%v\nwant %s", text, found, want)
		}
	}
}

// Values are as JSON has them: what stands in quotes is a text.
func TestReadValues(t *testing.T) {
	f, found := Read("f", []byte("version: 1\npolicy: p\ntests:\n- name: n\n  steps:\n  - {tool: x, args: {a: 1, b: '1', c: true, d: null, e: [1.5, {}], f: {g: \"h\\n\"}, h: word}}\n"))
	if f == nil {
		t.Fatal(found)
	}
	if got, want := string(f.Tests[0].Steps[0].Args), `{"a":1,"b":"1","c":true,"d":null,"e":[1.5,{}],"f":{"g":"h\n"},"h":"word"}`; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// FuzzRead reads and plays whatever there is: it returns, and says something of what it does not read.
func FuzzRead(f *testing.F) {
	f.Add([]byte("version: 1\npolicy: p\ntests:\n- name: n\n  who: {subject: a}\n  steps:\n  - {tool: read, args: {path: a}, registers: {seen: [a]}}\n  - {wait: 1h}\n"))
	f.Add([]byte("version: 1\npolicy: p\nlisted: {tools: [pay]}\ntests: [{name: n, steps: [{signal: approved, from: operator, state: done}]}]\n"))
	p, found := policy.Parse("p.yaml", []byte(shop))
	if p == nil {
		f.Fatal(found)
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		file, found := Read("f", src)
		if (file == nil) != (found.Err() != nil) {
			t.Fatalf("a file: %v, with %v", file != nil, found)
		}
		if file != nil {
			covered := NewCoverage(p)
			for i := range file.Tests {
				file.Play(p, &file.Tests[i], covered)
			}
			if seen, all := covered.Counts(); seen > all || len(covered.Missing()) != all-seen {
				t.Fatalf("%d of %d", seen, all)
			}
		}
	})
}
