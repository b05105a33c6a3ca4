package process

import (
	"strings"
	"testing"
)

func TestLastLines(t *testing.T) {
	stack := strings.Repeat("    at Module._load (node:internal/errors:1:2)\n", 9)
	for name, c := range map[string]struct{ said, want string }{
		"nothing":     {"", ""},
		"one line":    {"no configuration", "no configuration"},
		"npm":         {"npm warn old\nnpm error code E404\nnpm error 404 Not Found - GET x\nnpm error 404\nnpm error A complete log", "npm error code E404 / npm error 404 Not Found - GET x"},
		"Node.js":     {"/srv/a.js:3\nthrow new Error('no key')\n^\nError: no key\n" + stack + "Node.js v22.0.0", "Error: no key"},
		"Python":      {"Traceback (most recent call last):\n  File \"a.py\", line 1\nModuleNotFoundError: No module named 'x'", "ModuleNotFoundError: No module named 'x'"},
		"long before": {"an error\n" + strings.Repeat("all is well\n", errorAge) + "bye", "bye"},
		"long line":   {strings.Repeat("é", keptLine), strings.Repeat("é", keptLine/2)},
	} {
		var l lastLines
		for line := range strings.Lines(c.said) {
			l.keep(strings.TrimSuffix(line, "\n"))
		}
		if got := l.String(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
