package guard_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/policy/guard"
)

// kilobyte returns arguments of 1 KiB with some members.
func kilobyte(members string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, `{"encoding": "utf-8", "options": {"recursive": true, "depth": 3}, "tags": ["a", "b"], %s, "content": "`, members)
	b.WriteString(strings.Repeat("x", 1022-b.Len()))
	b.WriteString(`"}`)
	return []byte(b.String())
}

func BenchmarkHolds(b *testing.B) {
	call := &guard.Call{
		Args: kilobyte(`"path": "/work/a/b.go", "amount": 99.5, "mode": "fast"`),
		Registers: registers{
			"reads": setOf("/work/a/b.go", "/work/c"), "plan": "p1", "n": int64(3),
		},
	}
	for _, text := range []string{
		`args.path in registers.reads`,
		`args.amount <= 100`,
		`args.path == "/work/a/b.go"`,
		`path_under(args.path, "/work")`,
		`args.mode in ["fast", "slow"] && args.amount <= 1000 && registers.n < 5`,
		`args.path.matches("^/work/[a-z/]+[.]go$")`,
		`args.tags.all(t, t.size() < 10) && size(args.tags) > 0`,
	} {
		p := compile(b, text)
		if holds, err := p.Holds(call); !holds || err != nil {
			b.Fatalf("%s: %v %v", text, holds, err)
		}
		b.Run(text, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if holds, _ := p.Holds(call); !holds {
					b.Fatal("does not hold")
				}
			}
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	compile(b, `true`) // the environment
	for _, text := range []string{
		`args.path in registers.reads`,
		`args.amount <= 100`,
		`args.mode in ["fast", "slow"] && args.amount <= 1000 && registers.n < 5`,
	} {
		b.Run(text, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				compile(b, text)
			}
		})
	}
}
