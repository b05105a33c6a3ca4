package cli

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/fsm-proxy/fsm-proxy/internal/cli/screen"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// The carets stand under the word, whatever is before it and however wide the terminal is.
func TestExcerpt(t *testing.T) {
	long := strings.Repeat("x", 200)
	for _, c := range []struct {
		name, src    string
		line, column int
		width        int
		want         string
	}{
		{"plain", "a: 1\n  name: {b: c}\n", 2, 3, 80, "    2 |   name: {b: c}\n      |   ^^^^\n"},
		{"flow", "a: {go: b, jump: c}", 1, 12, 80, "    1 | a: {go: b, jump: c}\n      |            ^^^^\n"},
		{"quoted", `a: {"x \" , y": b}`, 1, 5, 80, "    1 | a: {\"x \\\" , y\": b}\n      |     ^^^^^^^^^^\n"},
		{"single quotes", `a: 'b, c' # d`, 1, 4, 80, "    1 | a: 'b, c' # d\n      |    ^^^^^^\n"},
		{"words", "a: b c  # d", 1, 4, 80, "    1 | a: b c  # d\n      |    ^^^^\n"},
		{"a colon within", "a: file:///b", 1, 4, 80, "    1 | a: file:///b\n      |    ^^^^^^^^^\n"},
		{"a bracket", "a: {b: c}", 1, 4, 80, "    1 | a: {b: c}\n      |    ^\n"},
		{"the end of a line", "a: b", 1, 5, 80, "    1 | a: b\n      |     ^\n"},
		{"beyond the line", "a: b", 1, 50, 80, "    1 | a: b\n      |     ^\n"},
		{"an empty line", "\n", 1, 1, 80, "    1 | \n      | ^\n"},
		{"beyond the file", "a", 2, 1, 80, ""},
		{"no place", "a", 0, 0, 80, ""},
		{"carriage returns", "a: b\r\nc: d\r\n", 2, 4, 80, "    2 | c: d\n      |    ^\n"},
		{"a byte order mark", "\uFEFFa: b", 1, 4, 80, "    1 | a: b\n      |    ^\n"},
		{"a tab", "a:\tb", 1, 4, 80, "    1 | a:    b\n      |       ^\n"},
		{"wide", "日本: b", 1, 5, 80, "    1 | 日本: b\n      |       ^\n"},
		{"wide itself", "日本: b", 1, 1, 80, "    1 | 日本: b\n      | ^^^^\n"},
		{"full width", "Ａ: b", 1, 4, 80, "    1 | Ａ: b\n      |     ^\n"},
		{"combining", "e\u0301: b", 1, 5, 80, "    1 | e\u0301: b\n      |    ^\n"},
		{"what moves the cursor", "\x1b[2J\x9b\u202e: b", 1, 9, 80, "    1 | �[2J��: b\n      |         ^\n"},
		{"a long line, its beginning", "go: " + long, 1, 1, 40, "    1 | go: " + strings.Repeat("x", 26) + "…\n      | ^^\n"},
		{"a long line, its end", long + " go: b", 1, 202, 40, "    1 | …" + strings.Repeat("x", 23) + " go: b\n      |                          ^^\n"},
		{"a long line, its middle", long + " go: " + long, 1, 202, 41, "    1 | …" + strings.Repeat("x", 13) + " go: " + strings.Repeat("x", 12) + "…\n      |                ^^\n"},
		{"a long word", long, 1, 1, 40, "    1 | " + strings.Repeat("x", 29) + "…\n      | " + strings.Repeat("^", 29) + "\n"},
		{"a terminal of no width", "日本日本日本日本日本日本: b", 1, 13, 1, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := page{Screen: screen.Screen{Width: c.width}}
			got := s.excerpt([]byte(c.src), policy.Finding{Line: c.line, Column: c.column}, screen.Red)
			if c.want != "" && got != c.want || c.want == "" && c.line > 0 && c.name != "a terminal of no width" && got != "" {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
			for line := range strings.Lines(got) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > max(c.width, minShown+len("    1 | ")) {
					t.Errorf("a line of %d characters where %d fit: %q", n, c.width, line)
				}
			}
		})
	}
}
