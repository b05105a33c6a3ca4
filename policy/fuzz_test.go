package policy

import (
	"slices"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest/model"
)

// FuzzParse feeds arbitrary bytes: nothing panics, errors and policies exclude
// each other, every finding has a text and a place within the file, the same
// bytes give the same answer, and what parses can be walked.
func FuzzParse(f *testing.F) {
	model.Seeds(f, ".")
	f.Fuzz(func(t *testing.T, src []byte) {
		p, found := Parse("f.yaml", src)
		if (p == nil) != (found.Err() != nil) {
			t.Fatalf("policy %v, findings %v", p != nil, found)
		}
		checkPlaces(t, src, found)
		again, sameFound := Parse("f.yaml", src)
		if found.String() != sameFound.String() {
			t.Fatalf("found first\n%v\nthen\n%v", found, sameFound)
		}
		if p != nil {
			if p.Digest() != again.Digest() {
				t.Fatal("two digests of one source")
			}
			walk(t, p)
		}
	})
}

func checkPlaces(t *testing.T, src []byte, found Findings) {
	lines := strings.FieldsFunc(string(src)+"\n", func(c rune) bool { return strings.ContainsRune("\n\r\u0085\u2028\u2029", c) })
	for _, f := range found {
		if f.Message == "" || f.Code == "" || strings.ContainsAny(f.Message, "\x00\n") {
			t.Fatalf("finding %+v", f)
		}
		if f.Line < 0 || f.Line > len(src)+1 || f.Column < 0 || f.Line == 0 && f.Code != "too-large" && f.Code != "more" {
			t.Fatalf("finding %+v in %d lines", f, len(lines))
		}
	}
}

// walk steps along every edge of a small policy: table and machine agree.
func walk(t *testing.T, p *Policy) {
	if len(p.states) > 20 {
		return
	}
	for s := range p.states {
		at := Configuration{State: State(s)}
		for _, k := range AllKinds {
			for _, name := range p.ExactIn(View{Configuration: at}, k) {
				walkName(t, p, at, Symbol{Kind: k, Name: name})
			}
		}
	}
}

func walkName(t *testing.T, p *Policy, at Configuration, symbol Symbol) {
	b := p.Binding(at, symbol.Kind, symbol.Name, true)
	for i := range b.Cases {
		c := &b.Cases[i]
		symbol.Case = c.Name
		if !c.None && slices.ContainsFunc(c.Alternatives, func(a Alternative) bool { return len(a.For)+len(a.Guards) > 0 }) {
			continue // it hangs on more than its name and case
		}
		v := p.Decide(at, &Request{Kind: symbol.Kind, Name: symbol.Name, Args: Lookup(func([]string) Argument { return c.Value })})
		if v.Allowed == c.None || v.Allowed && v.Symbol != symbol || !v.Allowed && v.Code != UnknownCase {
			t.Fatalf("%+v: %+v", symbol, v)
		}
		if c.None {
			if step, err := p.Next(at, symbol, Success); err == nil {
				t.Fatalf("%+v is none, and steps: %+v", symbol, step)
			}
			continue
		}
		for _, o := range AllOutcomes {
			step, err := p.Next(at, symbol, o)
			listed := c.Alternatives[0].Leads(o)
			to := listed.In(at.State)
			if to == Origin { // and nobody knows where the run came from
				to = p.initial
			}
			if err != nil || step.Changed && !v.Turn || step.Entered != to || step.Terminal != listed.Terminal {
				t.Fatalf("%+v on %v: %+v, %v", symbol, o, step, err)
			}
		}
	}
}
