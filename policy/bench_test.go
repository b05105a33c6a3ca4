package policy

import (
	"fmt"
	"strings"
	"testing"
)

// bigSource is a policy of 20 states with 12 tools each, globs, and everywhere.
func bigSource() []byte {
	var out strings.Builder
	out.WriteString("version: 1\ninitial: state_00\neverywhere: {tools: {get_status: stay, list_*: stay, abort: state_00}}\nstates:\n")
	for s := range 20 {
		fmt.Fprintf(&out, "  state_%02d:\n    tools:\n      read_*: stay\n", s)
		for i := range 12 {
			fmt.Fprintf(&out, "      tool_%02d: {on_success: state_%02d, on_error: state_%02d}\n", i, (s+i)%20, (s+1)%20)
		}
	}
	return []byte(out.String())
}

func BenchmarkDecide(b *testing.B) {
	p := parse(b, "big.yaml", bigSource())
	for _, c := range []struct{ title, name string }{
		{"Exact", "tool_07"}, {"Everywhere", "get_status"}, {"Glob", "read_file"}, {"EverywhereGlob", "list_files"}, {"Refused", "nothing"},
	} {
		b.Run(c.title, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.Decide(Configuration{State: 7}, &Request{Kind: Tool, Name: c.name, Listed: true})
			}
		})
	}
}

func BenchmarkDecideAndNext(b *testing.B) {
	p := parse(b, "big.yaml", bigSource())
	for _, c := range []struct{ title, name string }{{"Leave", "tool_07"}, {"Stay", "get_status"}} {
		b.Run(c.title, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				v := p.Decide(Configuration{State: 7}, &Request{Kind: Tool, Name: c.name, Listed: true})
				if _, err := p.Next(Configuration{State: 7}, v.Symbol, Success); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	src := bigSource()
	b.ReportAllocs()
	b.SetBytes(int64(len(src)))
	for b.Loop() {
		Parse("big.yaml", src)
	}
}

func BenchmarkMachine(b *testing.B) {
	p := parse(b, "big.yaml", bigSource())
	b.ReportAllocs()
	for b.Loop() {
		p.machines.New()
	}
}

// BenchmarkAdopt is what a reload asks for each run.
func BenchmarkAdopt(b *testing.B) {
	old, p := parse(b, "old", []byte(adoptOld)), parse(b, "new", fmt.Appendf(nil, adoptNew, "stop"))
	c := Configuration{State: stateOf(b, old, "before")}
	for b.Loop() {
		_, _ = p.Adopt(old, c)
	}
}
