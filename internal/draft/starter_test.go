package draft

import (
	"cmp"
	"encoding/json/v2"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fsm-proxy/fsm-proxy/internal/inventory"
	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/report"
)

// oddNames are names that YAML, or a policy, could take for something else.
var oddNames = []string{
	"on", "Off", "yes", "null", "~", "true", "12", "1e3", "0x1f", ".inf", "-", "- a", "? x", "a: b", "a:b", "a:", ":a", "a #b",
	"#a", "&a", "*a", "!a", "%a", "@a", "`a`", "{a}", "[a]", "a,b", "'a'", `"a"`, `a\b`, " a", "a ", "a\tb", "a\nb", "née", "日本",
	"😀", "\u0085", "\ufeff", "\u2028", "\u202e", "\x7f", "stay", "none", "<<", "=", "---", "...", "by", "cases", "on_success",
	"read_*", "a*b", "*", "file:///a b", "http://x/?q=1&r=*", "demo://resource/{id}", "Read", "READ", "read",
}

// listed is one thing that a server lists.
type listed struct {
	name, description, annotations string
}

func (l listed) item() wire.Item {
	raw := fmt.Sprintf(`{"name": %s, "description": %s, "annotations": %s}`, jsonText(l.name), jsonText(l.description), cmp.Or(l.annotations, "{}"))
	return wire.Item{Name: l.name, Raw: []byte(raw)}
}

func jsonText(text string) string {
	out, err := json.Marshal(strings.ToValidUTF8(text, "?"))
	if err != nil {
		panic(err)
	}
	return string(out)
}

// offering is the inventory of a server that lists some things of one kind.
func offering(kind policy.Kind, items ...listed) *inventory.Inventory {
	inv := &inventory.Inventory{Server: "s"}
	l := &wire.List{}
	for _, item := range items {
		l.Items = append(l.Items, item.item())
		inv.Offers = append(inv.Offers, report.Offer{Kind: kind, Name: item.name})
	}
	switch kind {
	case policy.Tool:
		inv.Tools = l
	case policy.Resource:
		inv.Resources = l
	case policy.Prompt:
		inv.Prompts = l
	}
	return inv
}

const (
	sayRead        = `{"readOnlyHint": true}`
	sayWrite       = `{"destructiveHint": false}`
	sayDestructive = `{"destructiveHint": true}`
)

// Whatever the server lists, the starter policy reads; it binds all names but
// those that are wildcards, and none of what is destructive. With the way opened
// it reads too, and binds the rest.
func TestStarterBindsOddNames(t *testing.T) {
	for _, kind := range policy.AllKinds {
		for _, annotations := range []string{"", sayRead, sayWrite, sayDestructive} {
			var items []listed
			for _, name := range oddNames {
				items = append(items, listed{name, name, annotations})
			}
			inv := offering(kind, items...)
			inv.Server = "odd: *server"
			mustBind(t, inv)
		}
	}
}

// A name that is listed twice is bound nowhere if the server calls it destructive once,
// whichever of the two a client believes.
func TestStarterTakesATwiceListedToolForTheWorst(t *testing.T) {
	for _, twice := range [][]string{{sayRead, sayDestructive}, {sayDestructive, sayRead}, {sayRead, ""}} {
		inv := offering(policy.Tool, listed{"get_x", "", twice[0]}, listed{"get_x", "", twice[1]}, listed{"get_y", "", sayRead})
		if got := New(inv).forbidden.all(); len(got) != 1 || got[0].name != "get_x" {
			t.Errorf("%q: forbidden are %v", twice, got)
		}
		mustBind(t, inv)
	}
}

func TestStarterBindsAnyNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var items []listed
		for _, name := range rapid.SliceOfN(rapid.StringN(1, 12, -1), 1, 5).Draw(t, "names") {
			items = append(items, listed{name, rapid.String().Draw(t, "description"),
				rapid.SampledFrom([]string{"", sayRead, sayWrite, sayDestructive}).Draw(t, "annotations")})
		}
		inv := offering(policy.Tool, items...)
		inv.Server = rapid.String().Draw(t, "server")
		mustBind(t, inv)
	})
}

// fataler is a testing.T or a rapid.T.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

func mustBind(t fataler, inv *inventory.Inventory) {
	t.Helper()
	d := New(inv)
	closed := d.Policy()
	forbidden := map[string]bool{}
	for _, item := range d.forbidden.all() {
		forbidden[item.name] = true
	}
	for _, text := range []string{closed, opened(t, closed, d)} {
		p, findings := report.Parse("starter.yaml", []byte(text))
		if err := findings.Err(); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		for _, o := range inv.Offers {
			if !nameable(o.Kind, o.Name) || strings.Contains(o.Name, "*") {
				continue
			}
			v := p.Decide(p.Initial(), &policy.Request{Kind: o.Kind, Name: o.Name, Listed: true})
			if want := !(o.Kind == policy.Tool && forbidden[o.Name]); v.Allowed != want {
				t.Fatalf("%s %q: allowed %v, want %v, in\n%s", o.Kind, o.Name, v.Allowed, want, text)
			}
			if text != closed && p.BoundIn(o.Kind, o.Name, true) == nil {
				t.Fatalf("%s %q is bound nowhere in\n%s", o.Kind, o.Name, text)
			}
		}
	}
}

// opened is a starter policy after the steps that its end tells: the tool of the
// example leads to the destructive state, which is no comment any more.
func opened(t fataler, text string, d *Draft) string {
	t.Helper()
	if d.forbidden.count() == 0 {
		return text
	}
	above, below, _ := strings.Cut(text, "  # destructive:\n")
	_, example, _ := strings.Cut(above, "  # 1. ")
	_, example, _ = strings.Cut(example, "\n  #     ")
	example, _, _ = strings.Cut(example, "\n")
	if name, _, _ := strings.Cut(example, ": {on_success: "); name != "the_tool_before" {
		stays := "\n    " + name + ": stay"
		if i := strings.Index(above, stays); i >= 0 {
			above = above[:i] + "\n    " + example + above[i+len(stays):]
		} else if stays = "\n      " + name + ": stay"; strings.Contains(above, stays) {
			above = strings.Replace(above, stays, "\n      "+example, 1)
		} else {
			t.Fatalf("the example %q is no line of\n%s", example, text)
		}
	}
	var b strings.Builder
	b.WriteString(above + "  destructive:\n")
	for line := range strings.Lines(below) {
		b.WriteString(strings.Replace(line, "  # ", "  ", 1))
	}
	return b.String()
}

// Tools are sorted by annotations, and without them by name, and what is
// destructive stands in a comment.
func TestStarterSortsTools(t *testing.T) {
	inv := offering(policy.Tool,
		listed{"look", "Looks.", sayRead}, listed{"x_get", "", ""}, listed{"get_x", "", ""},
		listed{"put", "\n   Puts a\tthing.\nAnd more.", sayWrite}, listed{"burn", "Burns.", sayDestructive}, listed{"delete_x", "", ""})
	inv.Resources = offering(policy.Resource, listed{name: "file:///a"}).Resources
	inv.Prompts = offering(policy.Prompt, listed{name: "plan"}).Prompts
	d := New(inv)
	text := d.Policy()
	everywhere, rest, _ := strings.Cut(text, "\nstates:")
	working, destructive, _ := strings.Cut(rest, "\n  # destructive:")
	for part, lines := range map[string][]string{
		everywhere:  {"    look: stay   # Looks.\n", "    get_x: stay\n", "    \"file:///a\": stay\n", "    plan: stay\n", "#   forbidden   2 destructive tools: burn, delete_x\n"},
		working:     {"      put: stay   # Puts a thing.\n", "      x_get: stay\n"},
		destructive: {"  #     burn: {on_any: working}   # Burns.\n", "  #     delete_x: {on_any: working}\n"},
	} {
		for _, line := range lines {
			contains(t, part, line)
		}
	}
	if first, _, _ := strings.Cut(text, "\n"); first != "# yaml-language-server: $schema="+schemaURL {
		t.Errorf("the first line is %q", first)
	}
	if said := strings.Join(d.Summary(), "\n"); !strings.Contains(said, "annotations") || !strings.Contains(said, "by name") {
		t.Errorf("the summary does not say by what tools are sorted:\n%s", said)
	}
	if _, findings := report.Parse("opened", []byte(opened(t, text, d))); len(findings.Warnings())+len(findings.Errors()) > 0 {
		t.Errorf("opened as the end says:\n%v\n%s", findings, opened(t, text, d))
	}
}

// A description is one short line of a comment, whatever is in it.
func TestStarterDescriptionsStayComments(t *testing.T) {
	for _, end := range []string{"\n", "\r", "\r\n", "\v", "\f", "\u0085", "\u2028", "\u2029", "\x00", "\u202e", "\u2066", "\ufeff", "\x1b[2J"} {
		inv := offering(policy.Tool,
			listed{"a", "About a." + end + "      evil: stay", sayWrite}, listed{"b", end + "      evil: stay" + end, sayDestructive})
		inv.Server = "s" + end + "evil: 1"
		mustBind(t, inv)
		text := New(inv).Policy()
		p, _ := policy.Parse("", []byte(text))
		if p.BoundIn(policy.Tool, "evil", true) != nil {
			t.Errorf("%q: a description binds a tool:\n%s", end, text)
		}
		for line := range strings.Lines(text) {
			if body := strings.TrimSuffix(line, "\n"); end != "\n" && strings.Contains(body, end) {
				t.Errorf("%q stands in the line %q", end, body)
			}
		}
	}
	long := strings.Repeat("é", 3*maxDescription)
	if got := firstLine(long); got != strings.Repeat("é", maxDescription)+"…" {
		t.Errorf("a long description is cut to %q", got)
	}
}

// A name with a star would open what it matches, also what is destructive: it is
// left out, and said to be.
func TestStarterBindsNoWildcards(t *testing.T) {
	inv := offering(policy.Tool, listed{"*", "", sayRead}, listed{"del*", "", sayWrite}, listed{"delete_x", "", sayDestructive})
	d := New(inv)
	text := d.Policy()
	p, findings := policy.Parse("", []byte(text))
	if findings.Err() != nil || p.BoundIn(policy.Tool, "delete_x", true) != nil {
		t.Errorf("delete_x is bound by a wildcard (%v):\n%s", findings, text)
	}
	contains(t, text, "# Left out, as a policy cannot name it, or takes its * for any text: tool del*\n")
	contains(t, strings.Join(d.Summary(), "\n"), "left out    2 tools: *, del*")
}

// Names are given once, though a server lists them twice, and in its order. Those
// that differ by case are two.
func TestStarterKeepsTheOrder(t *testing.T) {
	inv := offering(policy.Tool, listed{name: "b"}, listed{name: "a"}, listed{name: "B"}, listed{name: "b"})
	text := New(inv).Policy()
	contains(t, text, "      b: stay\n      a: stay\n      B: stay\n")
	if strings.Count(text, "      b: stay\n") != 1 {
		t.Errorf("b is given twice:\n%s", text)
	}
	contains(t, text, "Neither annotations nor names tell the server's tools apart, so all are allowed.")
	contains(t, text, "It forbids nothing yet")
	contains(t, text, "  #     b: {on_success: second, on_unknown: stay}\n")
	contains(t, text, "  # second:\n  #   tools:\n  #     <<: *working   # what is allowed there is allowed here\n  #     B: {on_any: working}")
}

// A server that lists nothing gets a policy all the same.
func TestStarterOfNothing(t *testing.T) { mustBind(t, &inventory.Inventory{Server: "empty"}) }

// Where all tools are destructive none is allowed.
func TestStarterOfDestructiveToolsAlone(t *testing.T) {
	inv := offering(policy.Tool, listed{"burn", "", sayDestructive})
	mustBind(t, inv)
	contains(t, New(inv).Policy(), "description: No tool is allowed yet.")
}

// Annotations that are the defaults for every tool are a library's, and tell
// nothing; for some tools only they are the server's word.
func TestStarterSortsByNameWhereAnnotationsAreALibrarys(t *testing.T) {
	const defaults = `{"readOnlyHint": false, "destructiveHint": true, "idempotentHint": false, "openWorldHint": true}`
	tools := []listed{{"get_x", "", defaults}, {"move", "", defaults}, {"delete_x", "", defaults}}
	d := New(offering(policy.Tool, tools...))
	if len(d.reads.named) != 1 || len(d.writes.named) != 1 || len(d.forbidden.named) != 1 {
		t.Errorf("all defaults: %+v", d)
	}
	d = New(offering(policy.Tool, append(tools, listed{"y", "", sayWrite})...))
	if len(d.forbidden.said) != 3 || len(d.writes.said) != 1 {
		t.Errorf("defaults and others: %+v", d)
	}
}

// With many tools the descriptions are left out before the file becomes larger than
// a policy may be.
func TestStarterOfManyTools(t *testing.T) {
	for n, described := range map[int]bool{500: true, 9000: false} {
		var items []listed
		for i := range n {
			items = append(items, listed{fmt.Sprintf("tool_%d_%s", i, strings.Repeat("x", 20)), strings.Repeat("d", 80), sayWrite})
		}
		inv := offering(policy.Tool, items...)
		text := New(inv).Policy()
		if len(text) > strictyaml.MaxSource || strings.Contains(text, "# ddd") != described {
			t.Errorf("%d tools: %d bytes, descriptions: %v", n, len(text), strings.Contains(text, "# ddd"))
		}
		if p, findings := policy.Parse("", []byte(text)); findings.Err() != nil || p.BoundIn(policy.Tool, items[n-1].name, false) == nil {
			t.Errorf("%d tools: %v", n, findings.Err())
		}
	}
}

func contains(t *testing.T, text, word string) {
	t.Helper()
	if !strings.Contains(text, word) {
		t.Errorf("nothing is said of %q in:\n%s", word, text)
	}
}
