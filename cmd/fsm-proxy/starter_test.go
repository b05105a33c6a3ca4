package main

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fsm-proxy/fsm-proxy/policy"
)

// oddNames are names that YAML, or a policy, could take for something else.
var oddNames = []string{
	"on", "Off", "yes", "null", "~", "true", "12", "1e3", "0x1f", ".inf", "-", "- a", "? x", "a: b", "a:b", "a:", ":a", "a #b",
	"#a", "&a", "*a", "!a", "%a", "@a", "`a`", "{a}", "[a]", "a,b", "'a'", `"a"`, `a\b`, " a", "a ", "a\tb", "a\nb", "née", "日本",
	"😀", "\u0085", "\ufeff", "\u2028", "\x7f", "stay", "none", "<<", "=", "---", "...", "by", "cases", "on_success", "read_*", "a*b",
	"file:///a b", "http://x/?q=1&r=*", "demo://resource/{id}",
}

func odd(kind policy.Kind, readOnly bool) []policy.Offer {
	var offers []policy.Offer
	for _, name := range oddNames {
		offers = append(offers, policy.Offer{Kind: kind, Name: name, ReadOnly: readOnly})
	}
	return offers
}

// Whatever the server lists, the starter policy reads, and binds all of it.
func TestStarterBindsOddNames(t *testing.T) {
	for _, kind := range policy.AllKinds {
		for _, readOnly := range []bool{false, true} {
			mustBind(t, inventory{server: "odd: *server", offers: odd(kind, readOnly)})
		}
	}
}

func TestStarterBindsAnyNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfN(rapid.StringN(1, 12, -1), 1, 5).Draw(t, "names")
		inv := inventory{server: rapid.String().Draw(t, "server")}
		for _, name := range names {
			inv.offers = append(inv.offers, policy.Offer{Name: name, ReadOnly: rapid.Bool().Draw(t, "read-only")})
		}
		mustBind(t, inv)
	})
}

// fataler is a testing.T or a rapid.T.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

func mustBind(t fataler, inv inventory) {
	t.Helper()
	text := starter(inv)
	p, findings := policy.Parse("starter.yaml", []byte(text))
	if err := findings.Err(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, o := range inv.offers {
		if !nameable(o.Kind, o.Name) {
			continue
		}
		if v := p.Decide(p.Initial(), o.Kind, o.Name, true, nil); !v.Allowed {
			t.Fatalf("%s %q is not bound in\n%s", o.Kind, o.Name, text)
		}
	}
}

func TestStarterSaysWhatIsReadOnly(t *testing.T) {
	text := starter(inventory{server: "files", offers: []policy.Offer{
		{Name: "read", ReadOnly: true}, {Name: "write"},
		{Kind: policy.Resource, Name: "file:///a"}, {Kind: policy.Prompt, Name: "plan"},
	}})
	everywhere, states, _ := strings.Cut(text, "\nstates:")
	contains(t, everywhere, "    read: stay   # the server says read-only; check it\n")
	for _, line := range []string{"      write: stay\n", "      \"file:///a\": stay\n", "      plan: stay\n"} {
		contains(t, states, line)
	}
	if strings.Contains(everywhere, "write:") || strings.Contains(states, "      read:") {
		t.Errorf("a name stands on the wrong side:\n%s", text)
	}
	if first, _, _ := strings.Cut(text, "\n"); first != "# yaml-language-server: $schema="+schemaURL {
		t.Errorf("the first line is %q", first)
	}
}

// Names are given once, though a server lists them twice, and in its order.
func TestStarterKeepsTheOrder(t *testing.T) {
	text := starter(inventory{server: "s", offers: []policy.Offer{{Name: "b"}, {Name: "a"}, {Name: "b"}}})
	contains(t, text, "      b: stay\n      a: stay\n")
	if strings.Count(text, "      b: stay\n") != 1 {
		t.Errorf("b is given twice:\n%s", text)
	}
}

// A server that lists nothing gets a policy all the same.
func TestStarterOfNothing(t *testing.T) { mustBind(t, inventory{server: "empty"}) }
