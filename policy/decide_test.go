package policy

import (
	"slices"
	"testing"
)

const decideSource = `
version: 1
initial: a
everywhere:
  tools:
    status: stay
    read_x: b
    abort: a
    list_*: stay
  resources: ["file:///r", "file:///d/*"]
states:
  a:
    tools:
      read_*: stay
      read_secret: none
      list_*: none
      go: b
      once: {exclusive: true}
      split:
        by: command
        cases: {plan: stay, apply: b, "": stay, careful: {exclusive: true}}
      all: {by: c, exclusive: true, cases: {x: stay}}
    prompts: [p]
  b:
    everywhere: false
    tools: {only_b: a, to_c: c, read_secret: stay, "deep_*": a, "deep_er_*": none}
  end: {terminal: true}
  c: {tools: {finish: end, read_secret: none}}
`

// argument is the argument "command", or "c", with a text.
func argument(text string) Lookup {
	return func(path []string) Argument {
		if len(path) == 1 && (path[0] == "command" || path[0] == "c") {
			return Text(text)
		}
		return Argument{}
	}
}

func missing([]string) Argument { return Argument{} }

func TestDecide(t *testing.T) {
	p := parse(t, "d.yaml", []byte(decideSource))
	for _, c := range []struct {
		title, state string
		kind         Kind
		name         string
		unlisted     bool
		arg          Lookup
		code         Code // CodeNone allows
		turn, byGlob bool
		line         int
	}{
		{title: "everywhere's stay", state: "a", name: "status", line: 6},
		{title: "an exact name need not be listed", state: "a", name: "status", unlisted: true, line: 6},
		{title: "everywhere takes nothing into b", state: "b", name: "status", code: InvalidTransition},
		{title: "the state's own glob", state: "a", name: "read_file", byGlob: true, line: 14},
		{title: "a glob binds only what is listed", state: "a", name: "read_file", unlisted: true, code: UnknownAction},
		{title: "none beats the glob; bound in b", state: "a", name: "read_secret", code: InvalidTransition, line: 15},
		{title: "everywhere's exact name beats the state's glob", state: "a", name: "read_x", turn: true, line: 7},
		{title: "of equal globs the state's holds", state: "a", name: "list_all", code: InvalidTransition, byGlob: true, line: 16},
		{title: "everywhere's glob", state: "c", name: "list_all", byGlob: true, line: 9},
		{title: "an edge to this state stays", state: "a", name: "abort", line: 8},
		{title: "and leaves another", state: "c", name: "abort", turn: true, line: 8},
		{title: "a leaving edge takes the turn", state: "a", name: "go", turn: true, line: 17},
		{title: "so does exclusive", state: "a", name: "once", turn: true, line: 18},
		{title: "a terminal one", state: "c", name: "finish", turn: true, line: 28},
		{title: "bound elsewhere", state: "a", name: "only_b", code: InvalidTransition},
		{title: "bound nowhere", state: "a", name: "nothing", code: UnknownAction},
		{title: "kinds are apart", state: "a", kind: Prompt, name: "go", code: UnknownAction},
		{title: "a prompt", state: "a", kind: Prompt, name: "p", line: 23},
		{title: "a resource", state: "a", kind: Resource, name: "file:///r", unlisted: true, line: 10},
		{title: "byte for byte", state: "a", kind: Resource, name: "file:///R", code: UnknownAction},
		{title: "a listed resource by glob", state: "a", kind: Resource, name: "file:///d/x", byGlob: true, line: 10},
		{title: "never what a template could serve", state: "a", kind: Resource, name: "file:///d/x", unlisted: true, code: UnknownAction},
		{title: "a glob's own text is no name", state: "a", name: "read_*", unlisted: true, code: UnknownAction},
		{title: "the more specific glob unbinds", state: "b", name: "deep_er_x", code: UnknownAction, byGlob: true, line: 26},
		{title: "the wider one binds the rest", state: "b", name: "deep_x", byGlob: true, turn: true, line: 26},
		{title: "a case that stays", state: "a", name: "split", arg: argument("plan"), line: 19},
		{title: "a case that leaves", state: "a", name: "split", arg: argument("apply"), turn: true, line: 19},
		{title: "an exclusive case", state: "a", name: "split", arg: argument("careful"), turn: true, line: 19},
		{title: "the empty text is a case like others", state: "a", name: "split", arg: argument(""), line: 19},
		{title: "exclusive holds for each case", state: "a", name: "all", arg: argument("x"), turn: true, line: 22},
		{title: "no such case", state: "a", name: "split", arg: argument("destroy"), code: UnknownCase, line: 19},
		{title: "no such argument", state: "a", name: "split", arg: missing, code: UnknownCase, line: 19},
		{title: "no arguments at all", state: "a", name: "split", code: UnknownCase, line: 19},
		{title: "a terminal state binds nothing", state: "end", name: "status", code: InvalidTransition},
	} {
		s, ok := p.StateByName(c.state)
		if !ok {
			t.Fatal(c.state)
		}
		v := p.Decide(Configuration{State: s}, &Request{Kind: c.kind, Name: c.name, Listed: !c.unlisted, Args: c.arg})
		if v.Allowed != (c.code == CodeNone) || v.Code != c.code || v.Turn != c.turn || v.ByGlob != c.byGlob || v.Rule.Line != c.line {
			t.Errorf("%s: %+v", c.title, v)
		}
		if v.Symbol.Kind != c.kind || v.Symbol.Name != c.name {
			t.Errorf("%s: symbol %+v", c.title, v.Symbol)
		}
		if visible := p.Visible(View{Configuration: Configuration{State: s}}, c.kind, c.name); visible != v.Allowed && c.arg == nil && !c.unlisted && c.code != UnknownCase {
			t.Errorf("%s: visible %v", c.title, visible)
		}
	}
}

func TestDecideRefusesWhatCannotBe(t *testing.T) {
	p := parse(t, "d.yaml", []byte(decideSource))
	for title, c := range map[string]struct {
		at   Configuration
		kind Kind
		want Code
	}{
		"a complete run":          {Configuration{State: 0, Complete: true}, Tool, RunComplete},
		"a state below the first": {Configuration{State: -1}, Tool, NotAvailable},
		"a state past the last":   {Configuration{State: 99}, Tool, NotAvailable},
		"no kind":                 {Configuration{}, Kind(symbolKinds), NotAvailable},
	} {
		v := p.Decide(c.at, &Request{Kind: c.kind, Name: "status", Listed: true})
		if v.Allowed || v.Code != c.want {
			t.Errorf("%s: %+v", title, v)
		}
		if p.Visible(View{Configuration: c.at}, c.kind, "status") || p.By(c.at, c.kind, "split") != "" || p.ExactIn(View{Configuration: c.at}, c.kind) != nil {
			t.Errorf("%s: shows something", title)
		}
	}
	if (Verdict{}).Allowed {
		t.Error("the zero verdict allows")
	}
}

func TestBoundIn(t *testing.T) {
	p := parse(t, "d.yaml", []byte(decideSource))
	for _, c := range []struct {
		kind   Kind
		name   string
		listed bool
		want   []string
	}{
		{Tool, "status", false, []string{"a", "c"}},
		{Tool, "read_secret", true, []string{"b"}},
		{Tool, "list_x", true, []string{"c"}},
		{Tool, "list_x", false, nil},
		{Tool, "nothing", true, nil},
		{Resource, "file:///r", false, []string{"a", "c"}},
		{Kind(symbolKinds), "status", true, nil},
	} {
		var got []string
		for _, s := range p.BoundIn(c.kind, c.name, c.listed) {
			got = append(got, p.StateName(s))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("BoundIn(%s, %s, %v) = %v, want %v", c.kind, c.name, c.listed, got, c.want)
		}
	}
}

func TestExact(t *testing.T) {
	p := parse(t, "d.yaml", []byte(decideSource))
	want := []string{"status", "read_x", "abort", "go", "once", "split", "all", "only_b", "to_c", "read_secret", "finish"}
	if got := p.Exact(Tool); !slices.Equal(got, want) {
		t.Errorf("Exact = %v", got)
	}
	want = []string{"status", "read_x", "abort", "finish"}
	c, _ := p.StateByName("c")
	if got := p.ExactIn(View{Configuration: Configuration{State: c}}, Tool); !slices.Equal(got, want) {
		t.Errorf("ExactIn = %v", got)
	}
}

func TestByAndCases(t *testing.T) {
	p := parse(t, "d.yaml", []byte(decideSource))
	at := p.Initial()
	if by := p.By(at, Tool, "split"); by != "command" {
		t.Errorf("By = %q", by)
	}
	var names []string
	for _, c := range p.Cases(View{Configuration: at}, Tool, "split") {
		names = append(names, c.Name)
	}
	if !slices.Equal(names, []string{"plan", "apply", "", "careful"}) {
		t.Errorf("Cases = %q", names)
	}
	if by, cases := p.By(at, Tool, "go"), p.Cases(View{Configuration: at}, Tool, "go"); by != "" || cases != nil {
		t.Errorf("go is split by %q into %v", by, cases)
	}
}

func TestVisibleDiffers(t *testing.T) {
	p := parse(t, "v.yaml", []byte(`
version: 1
initial: a
everywhere: {tools: [x, "r*"]}
states:
  a: {tools: {go: b}}
  b: {tools: {go: {on_error: f}, x: a}}
  c: {tools: {go: stay, nothing_here: none}, prompts: [p]}
  d: {tools: {go: stay, read: none}}
  e: {everywhere: false}
  f: {terminal: true}
`))
	at := func(name string) Configuration {
		s, _ := p.StateByName(name)
		return Configuration{State: s}
	}
	for _, c := range []struct {
		a, b string
		kind Kind
		want bool
	}{
		{"a", "b", Tool, false},
		{"a", "c", Tool, false},
		{"a", "c", Prompt, true},
		{"a", "d", Tool, true},
		{"a", "e", Tool, true},
		{"e", "f", Tool, false},
		{"a", "b", Resource, false},
	} {
		if got := p.VisibleDiffers(View{Configuration: at(c.a)}, View{Configuration: at(c.b)}, c.kind); got != c.want {
			t.Errorf("%s and %s, %ss: %v", c.a, c.b, c.kind, got)
		}
	}
	if done := (Configuration{State: 0, Complete: true}); !p.VisibleDiffers(View{Configuration: at("a")}, View{Configuration: done}, Tool) || p.VisibleDiffers(View{Configuration: at("e")}, View{Configuration: done}, Tool) {
		t.Error("a complete run shows what a state with nothing shows")
	}
}

// A none of everywhere takes from what a state's glob binds.
func TestVisibleDiffersByANoneOfEverywhere(t *testing.T) {
	p := parse(t, "v.yaml", []byte("{version: 1, initial: a, everywhere: {tools: {x: none}}, states: {a: {everywhere: false, tools: {\"*\": stay}}, b: {tools: {\"*\": stay}}, c: {everywhere: false}, d: {}}}"))
	if a, b := (Configuration{State: 0}), (Configuration{State: 1}); !p.VisibleDiffers(View{Configuration: a}, View{Configuration: b}, Tool) {
		t.Error("a shows x, b does not")
	}
	if c, d := (Configuration{State: 2}), (Configuration{State: 3}); p.VisibleDiffers(View{Configuration: c}, View{Configuration: d}, Tool) {
		t.Error("c and d show nothing")
	}
}

func TestSettings(t *testing.T) {
	p := load(t, "testdata/valid/everything-said.yaml")
	if p.Name() != "everything-said" || p.Description() != "Every key of the language." || p.Instructions() != "Two lines\nof instructions.\n" || p.File() != "everything-said.yaml" {
		t.Error("texts differ")
	}
	if p.OnComplete() != Stop || p.OnReload() != ReloadPin || p.Stranded() != StrandedRestart || p.Pin() != PinWarn || p.Templates() != TemplatesEmpty || !p.Validate() {
		t.Error("words differ")
	}
	if p.UpstreamMay() != (UpstreamMay{Sampling: true, Roots: true}) {
		t.Errorf("upstream may %+v", p.UpstreamMay())
	}
	if !p.Passthrough("vendor/method") || p.Passthrough("other") || len(p.settings.Passthrough) != 2 {
		t.Error("passthrough differs")
	}
	if got := p.Renamed(); !slices.Equal(got, []Rename{{"old", "start"}}) {
		t.Errorf("renamed %v", got)
	}
	if len(p.Digest()) != 64 || p.State(p.Initial().State).Description != "Where it begins." || p.State(99) != (StateInfo{}) {
		t.Error("digest or states differ")
	}
	d := load(t, "testdata/valid/minimal.json")
	if d.UpstreamMay() != (UpstreamMay{true, true, true}) || d.OnComplete() != Restart || d.Validate() {
		t.Error("defaults differ")
	}
}

func TestWords(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{Tool.String(), "tool"}, {Resource.Plural(), "resources"}, {Prompt.String(), "prompt"}, {Kind(9).String(), "Kind(9)"},
		{Success.String(), "success"}, {Error.String(), "error"}, {Unknown.String(), "unknown"}, {Outcome(0).String(), "Outcome(0)"},
		{LevelError.String(), "error"}, {LevelWarning.String(), "warning"}, {LevelNote.String(), "note"}, {Level(9).String(), "Level(9)"},
		{CodeNone.String(), ""}, {InvalidTransition.String(), "invalid_transition"}, {RunExpired.String(), "run_expired"}, {Code(99).String(), "Code(99)"},
		{Stop.String(), "stop"}, {TemplatesEmpty.String(), "empty"}, {ReloadPin.String(), "pin"}, {StrandedRefuse.String(), "refuse"}, {PinRefuse.String(), "refuse"},
		{Rule{}.String(), ""}, {Rule{"f", 1, 2, "p"}.String(), "f:1:2"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}
