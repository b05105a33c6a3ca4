package report

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/policy"
)

// padded is a file of nearly 1 MiB: as many items as it holds between head and
// tail.
func padded(head string, item func(i int) string, tail string) []byte {
	var b strings.Builder
	b.WriteString(head)
	for i := 0; b.Len() < maxSource-4100-len(tail); i++ {
		b.WriteString(item(i))
	}
	b.WriteString(tail)
	return []byte(b.String())
}

const maxSource = 1 << 20

// lines are n items, for the head of a file.
func lines(n int, item string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.ReplaceAll(item, "#", fmt.Sprint(i)))
	}
	return b.String()
}

// numbered is an item with its number in the place of each #.
func numbered(item string) func(int) string {
	return func(i int) string { return strings.ReplaceAll(item, "#", fmt.Sprint(i)) }
}

const (
	hostileStates = "version: 1\ninitial: s0\nstates:\n"
	hostileTools  = hostileStates + "  s0:\n    tools:\n"
	hostileAll    = "version: 1\ninitial: s0\neverywhere:\n  tools:\n"
)

// hostile are files that a parser of bad manners takes long for.
var hostile = map[string]func() []byte{
	"expressions in one line that commas cut": func() []byte {
		return padded(hostileTools+"      t: {outcomes: {", numbered("o#: has(args.x, y), "), "z: result.isError}}\n")
	},
	"expressions in one line that have no end": func() []byte {
		return padded(hostileTools+"      t: {outcomes: {", numbered("o#: has(, "), "z: result.isError}}\n")
	},
	"expressions in one line that are tags": func() []byte {
		return padded(hostileTools+"      t: {outcomes: {", numbered("o#: !result.isError, "), "z: result.isError}}\n")
	},
	"expressions in lines that are no YAML": func() []byte {
		return padded(hostileTools, numbered("      t#: {when: \"a\" in args.x}\n"), "")
	},
	"a chain of states": func() []byte {
		return padded(hostileStates, func(i int) string { return fmt.Sprintf("  s%d: {tools: {t: s%d}}\n", i, i+1) }, "  z: {terminal: true}\n")
	},
	"a ring of states": func() []byte {
		return padded(hostileStates, func(i int) string { return fmt.Sprintf("  s%d: {tools: {t: {on_any: s%d}}}\n", i+1, i) }, "  s0: {tools: {t: {on_any: s9999}}}\n")
	},
	"names that survive none": func() []byte {
		return padded(hostileAll+lines(8, "    g#:\n")+"states:\n", numbered("  s#: {tools: {'*': none}}\n"), "")
	},
	"unknown targets": func() []byte { return padded(hostileStates, numbered("  s#: {tools: {t: x#}}\n"), "") },
	"unknown keys":    func() []byte { return padded("version: 1\ninitial: s0\nstates: {s0: }\n", numbered("k#:\n"), "") },
	"one key":         func() []byte { return padded(hostileStates, numbered("  s:\n"), "") },
	"dead ends":       func() []byte { return padded(hostileStates, numbered("  s#:\n"), "") },
	"a list of one name": func() []byte {
		return padded("version: 1\ninitial: s0\nstates: {s0: {tools: [", numbered("a,"), "]}}\n")
	},
	"names unbound": func() []byte { return padded(hostileTools+"      t:\n", numbered("      t#: none\n"), "") },
	"everywhere": func() []byte {
		return padded(hostileStates+lines(20_000, "  s#: {tools: {a: s#}}\n")+"everywhere:\n  tools:\n", numbered("    g#:\n"), "")
	},
	"joined words": func() []byte {
		return padded(hostileStates+lines(40_000, "  s#:\n")+"  z:\n    tools:\n", numbered("      t#:x#:\n"), "")
	},
	"globs": func() []byte {
		return padded(hostileTools, numbered("      '*#*': {on_success: b}\n      '*x#*': none\n"), "  b:\n")
	},
	"long globs": func() []byte {
		return []byte(hostileAll + lines(250, "    '*"+strings.Repeat("a", 4000)+"#*b': s0\n") + "states: {s0: }\n")
	},
	"stars": func() []byte {
		return []byte(hostileAll + lines(250, "    '"+strings.Repeat("*a", 2000)+"#*b': s0\n") + "states: {s0: }\n")
	},
	"globs of everywhere": func() []byte {
		return padded(hostileAll+lines(256, "    '*#*': s#\n")+"states:\n", numbered("  s#: {everywhere: false}\n"), "")
	},
	"an error repeated": func() []byte {
		return padded("version: 1\ninitial: s0\nx-a: &a {t: nowhere}\nstates:\n", numbered("  s#: {tools: *a}\n"), "")
	},
}

// BenchmarkHostile: every file of 1 MiB is read in about a second.
func BenchmarkHostile(b *testing.B) {
	for name, source := range hostile {
		b.Run(name, func(b *testing.B) {
			src := source()
			for b.Loop() {
				_, _ = Parse("p.yaml", src)
			}
		})
	}
}

// More findings than anybody reads are counted.
func TestFindingsAreCounted(t *testing.T) {
	_, found := policy.Parse("p.yaml", padded(hostileStates, numbered("  s#: {tools: {t: x#}}\n"), ""))
	last := found[len(found)-1]
	if len(found) != 1001 || last.Code != "more" || !strings.Contains(last.Message, "there are ") {
		t.Errorf("%d findings, the last %v", len(found), last)
	}
}

func TestSizeLimits(t *testing.T) {
	for name, src := range map[string][]byte{
		"everywhere binds": hostile["everywhere"](),
		"a glob of":        []byte(hostileTools + "      '" + strings.Repeat("a", 4096) + "*': stay\n"),
	} {
		if _, found := policy.Parse("p.yaml", src); !strings.Contains(found.Errors().String(), name) {
			t.Errorf("%s: %.200s", name, found)
		}
	}
}
