package policy

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest/model"
)

// TestAgainstModel compares what is compiled with the naive reading: which
// policies have contradicting globs, and every decision and step of the others.
func TestAgainstModel(t *testing.T) {
	names := append(model.Words("abc", 3), "fin", "a*", "abab")
	rapid.Check(t, func(t *rapid.T) {
		m := model.Draw(t)
		src := m.YAML()
		p, found := Parse("m.yaml", []byte(src))
		if (p == nil) != m.Overlaps() {
			t.Fatalf("%s\n%v", src, found)
		}
		if p == nil {
			return
		}
		c := comparison{t, m, p, src}
		for s := range m.States() {
			for _, name := range names {
				c.decide(s, name, true)
				c.decide(s, name, false)
			}
			c.visible(s, names)
		}
	})
}

// drawPolicy draws a policy without errors.
func drawPolicy(t *rapid.T) *Policy {
	return rapid.Custom(func(t *rapid.T) *Policy {
		p, _ := Parse("m.yaml", []byte(model.Draw(t).YAML()))
		return p
	}).Filter(func(p *Policy) bool { return p != nil }).Draw(t, "policy")
}

type comparison struct {
	*rapid.T
	m   *model.Model
	p   *Policy
	src string
}

func (c comparison) decide(s int, name string, listed bool) {
	v, found := c.m.Lookup(s, name, listed)
	at := Configuration{State: State(s)}
	if !found || v.None {
		got := c.p.Decide(at, &Request{Kind: Tool, Name: name, Listed: listed})
		want := UnknownAction
		for other := range c.m.States() {
			if c.m.Bound(other, name, listed) {
				want = InvalidTransition
			}
		}
		if got.Allowed || got.Bound || got.Code != want {
			c.Fatalf("%q in s%d: %+v, want %v\n%s", name, s, got, want, c.src)
		}
		return
	}
	if !v.Split {
		c.allowed(s, name, listed, "", v.Edges)
		return
	}
	for _, text := range []string{"x", "y"} {
		if e, ok := v.Cases[text]; ok {
			c.allowed(s, name, listed, text, e)
		} else if got := c.p.Decide(at, &Request{Kind: Tool, Name: name, Listed: listed, Args: argument(text)}); got.Allowed || !got.Bound || got.Code != UnknownCase {
			c.Fatalf("%q in s%d, case %s: %+v\n%s", name, s, text, got, c.src)
		}
	}
}

func (c comparison) allowed(s int, name string, listed bool, text string, e model.Edges) {
	at := Configuration{State: State(s)}
	got := c.p.Decide(at, &Request{Kind: Tool, Name: name, Listed: listed, Args: argument(text)})
	turn := e.Exclusive
	for i, o := range AllOutcomes {
		to := c.m.Leads(s, e, i)
		turn = turn || to.Terminal || to.State != s
		want := Step{From: at, Entered: State(to.State), Terminal: to.Terminal, Restarted: to.Terminal, To: Configuration{State: State(to.State)}}
		if to.Terminal {
			want.To = c.p.Initial()
		}
		want.Changed = to.Terminal || to.State != s
		step, err := c.p.Next(at, got.Symbol, o)
		if !listed && err == nil && step != want || listed && (err != nil || step != want) {
			c.Fatalf("%q in s%d on %v: %+v, %v; want %+v\n%s", name, s, o, step, err, want, c.src)
		}
	}
	want := Symbol{Kind: Tool, Name: name, Case: text}
	if !got.Allowed || !got.Bound || got.Code != CodeNone || got.Turn != turn || got.Symbol != want {
		c.Fatalf("%q in s%d: %+v, turn %v\n%s", name, s, got, turn, c.src)
	}
}

// visible checks that configurations that do not differ show the same.
func (c comparison) visible(s int, names []string) {
	shown := func(s int) (out []string) {
		for _, n := range names {
			if c.p.Visible(View{Configuration: Configuration{State: State(s)}}, Tool, n) {
				out = append(out, n)
			}
		}
		return out
	}
	for other := range c.m.States() {
		differs := c.p.VisibleDiffers(View{Configuration: Configuration{State: State(s)}}, View{Configuration: Configuration{State: State(other)}}, Tool)
		if !differs && !slices.Equal(shown(s), shown(other)) {
			c.Fatalf("s%d and s%d show different tools\n%s", s, other, c.src)
		}
	}
}
