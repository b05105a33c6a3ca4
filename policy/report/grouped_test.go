package report

import (
	"fmt"
	"strings"
	"testing"
)

// Many names of which the same is said are one line, with sixteen of them; what differs
// stays apart, and so does what is said once.
func TestGrouped(t *testing.T) {
	var src strings.Builder
	src.WriteString("version: 1\ninitial: a\nstates:\n  b: {tools: {back: {on_any: a}}}\n  a:\n    prompts: {ask: b, tell: b}\n    tools:\n      last: {on_success: b, on_error: b}\n")
	for i := range 20 {
		fmt.Fprintf(&src, "      t%d: b\n", i)
	}
	p, found := Parse("p.yaml", []byte(src.String()))
	if p == nil {
		t.Fatal(found)
	}
	var got []string
	for _, f := range Grouped(found) {
		if f.Code == noOnUnknown {
			name, _, _ := strings.Cut(f.Message, ":")
			got = append(got, fmt.Sprintf("%d %s %s", f.Line, f.Level, name))
		}
	}
	want := []string{
		`6 note "ask" and "tell" lead on and have no "on_unknown"`,
		`8 warning "last" leads on and has no "on_unknown"`,
		`9 warning "t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8", "t9", "t10", "t11", "t12", "t13", "t14", "t15" and 4 more ` +
			`(lines 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, …) lead on and have no "on_unknown"`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if n := len(found); n < 43 {
		t.Errorf("%d findings are left: Grouped changed its argument", n)
	}
}

// The same tool in two states is one name.
func TestGroupedNamesEachNameOnce(t *testing.T) {
	_, found := Parse("p.yaml", []byte("version: 1\ninitial: a\nstates:\n  a: {tools: {go: b}}\n  b: {tools: {go: a}}\n"))
	var got []string
	for _, f := range Grouped(found).Warnings() {
		got = append(got, f.Message)
	}
	if len(got) != 1 || !strings.HasPrefix(got[0], `"go" (lines 4, 5) leads on and has no "on_unknown": a call`) {
		t.Errorf("%q", got)
	}
}

// What a file says cannot begin a line of its own, or obey a terminal.
func TestMessagesAreOneLine(t *testing.T) {
	_, found := Parse("p.yaml", []byte(`version: 1
initial: a
states:
  a: {tools: {x: {by: "c\e[31m", cases: {"\e[2J\n::error::y": {}, "\u202e": [a]}}}}
`))
	if len(found) == 0 || strings.ContainsFunc(found.String(), func(r rune) bool { return r < ' ' && r != '\n' || r == '\u202e' }) {
		t.Errorf("%q", found.String())
	}
	if n := strings.Count(found.String(), "\n") + 1; n != len(found) {
		t.Errorf("%d lines of %d findings", n, len(found))
	}
}
