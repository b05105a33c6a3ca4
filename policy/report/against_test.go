package report

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/policy"
)

const againstSource = `version: 1
initial: a
everywhere:
  tools: [status]
states:
  a:
    tools:
      read_fil: stay
      "write_*": b
      "drop_*": stay
      "purge_*": none
      deploy: none
      delploy: none
      go: {on_success: b, on_error: stay}
      look: b
      safe: b
      said: {on_success: b, on_unknown: a}
      set: {by: c, cases: {p: b}}
    resources: ["file:///a", "file:///t/1", "file:///x*"]
    prompts: [greet]
  b:
    tools: {read_fil: stay, back: a}
`

func againstOffers() []Offer {
	offers := []Offer{
		{Name: "look", ReadOnly: true}, {Name: "safe", Idempotent: true},
		{Kind: policy.Resource, Name: "file:///a"}, {Kind: policy.Prompt, Name: "great"}, {Kind: 9, Name: "what"},
	}
	for _, n := range []string{"status", "read_file", "write_a", "write_b", "deploy", "go", "said", "set", "back", "extra"} {
		offers = append(offers, Offer{Name: n})
	}
	return offers
}

func TestAgainst(t *testing.T) {
	p := parse(t, "p.yaml", []byte(againstSource))
	found := Against(p, againstOffers(), func(uri string) bool { return strings.HasPrefix(uri, "file:///t/") })
	want := `p.yaml:8:7: error: the upstream lists no tool "read_fil"; did you mean "read_file"? (unknown-name)
p.yaml:9:7: warning: "write_*" leads on and has no "on_unknown", and the upstream does not call "write_a" and "write_b" idempotent: a call that was sent and then cancelled, or never answered, may have happened; say where it leads (stay: it may be called again) (no-on-unknown)
p.yaml:10:7: warning: "drop_*" matches no tool that the upstream lists; it lists "look", "safe", "status", "read_file", "write_a", "write_b", "deploy", "go", "said", "set", "back" and "extra" (matches-nothing)
p.yaml:11:7: note: "purge_*": the upstream lists no such tool, so there is nothing to unbind (matches-nothing)
p.yaml:13:7: note: "delploy": the upstream lists no such tool, so there is nothing to unbind; did you mean "deploy"? (unknown-name)
p.yaml:14:7: warning: "go" leads on and has no "on_unknown", and the upstream does not call it idempotent: a call that was sent and then cancelled, or never answered, may have happened; say where it leads (stay: it may be called again) (no-on-unknown)
p.yaml:15:7: note: "look" leads on and has no "on_unknown"; the upstream lists no tool under it that does more when it is called twice (no-on-unknown)
p.yaml:16:7: note: "safe" leads on and has no "on_unknown"; the upstream lists no tool under it that does more when it is called twice (no-on-unknown)
p.yaml:18:7: warning: "set" leads on and has no "on_unknown", and the upstream does not call it idempotent: a call that was sent and then cancelled, or never answered, may have happened; say where it leads (stay: it may be called again) (no-on-unknown)
p.yaml:19:45: warning: "file:///x*" matches no resource that the upstream lists; it lists "file:///a" (matches-nothing)
p.yaml:20:15: error: the upstream lists no prompt "greet"; did you mean "great"? (unknown-name)
p.yaml:22:29: warning: "back" leads on and has no "on_unknown", and the upstream does not call it idempotent: a call that was sent and then cancelled, or never answered, may have happened; say where it leads (stay: it may be called again) (no-on-unknown)
p.yaml: note: the upstream's tool "read_file" is bound in no state, so it does not exist (unbound)
p.yaml: note: the upstream's tool "deploy" is bound in no state, so it does not exist (unbound)
p.yaml: note: the upstream's tool "extra" is bound in no state, so it does not exist (unbound)
p.yaml: note: the upstream's prompt "great" is bound in no state, so it does not exist (unbound)`
	if found.String() != want {
		t.Errorf("got\n%v", found)
	}
}

func TestAgainstNothing(t *testing.T) {
	p := parse(t, "p.yaml", []byte(againstSource))
	found := Against(p, nil, nil)
	if got := found.Errors()[0].Message; got != `the upstream lists no tool "status"; it lists none` {
		t.Error(got)
	}
}

// A server makes the warnings on edges without on_unknown notes for tools that it calls
// read-only or idempotent, and names those that it does not.
func TestMergeTakesTheUpstreamsWord(t *testing.T) {
	p, parsed := Parse("p.yaml", []byte(againstSource))
	levels := func(fs policy.Findings) (out []string) {
		for _, f := range fs {
			if f.Code == "no-on-unknown" {
				out = append(out, fmt.Sprintf("%d %v", f.Line, f.Level))
			}
		}
		return out
	}
	if got, want := levels(parsed), []string{"9 warning", "14 warning", "15 warning", "16 warning", "18 warning", "22 warning"}; !slices.Equal(got, want) {
		t.Errorf("without a server: %v, want %v", got, want)
	}
	both := parsed.Merge(Against(p, againstOffers(), nil))
	if got, want := levels(both), []string{"9 warning", "14 warning", "15 note", "16 note", "18 warning", "22 warning"}; !slices.Equal(got, want) {
		t.Errorf("with one: %v, want %v", got, want)
	}
	if notes := both.Notes(); notes[len(notes)-1].Line != 0 || len(notes) < 6 {
		t.Errorf("notes: %v", notes)
	}
}

const everywhereSource = `version: 1
initial: a
everywhere:
  tools: {status: , moves: b, excl: {exclusive: true}, "list_*": , split: {by: a, cases: {x: stay, y: b}}, unbound: , home: b}
states:
  a: {tools: {own: , both: }}
  b: {tools: {both: , unbound: none, "list_secret": none, finish: done}}
  done: {terminal: true}
`

func TestAgainstHandlesFindsWhereAToolIsBound(t *testing.T) {
	p, _ := policy.Parse("p.yaml", []byte(everywhereSource))
	found := AgainstHandles(p, map[string]string{"both": "it has a fault", "list_a": "it has another", "nothing": "it is not bound"}, policy.LevelWarning)
	var all []string
	for _, f := range found {
		all = append(all, f.String())
	}
	text := strings.Join(all, "\n")
	for _, want := range []string{`p.yaml:6:22: warning: "both" is out of reach`, `p.yaml:7:15: warning: "both"`, `p.yaml:4:56: warning: "list_a"`, "it has another; choose modern=principal"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if len(found) != 3 || found[0].Code != "no-handle" {
		t.Errorf("%d findings", len(found))
	}
}

// What expressions read of a result and the outputSchema does not have is told; what they ask for first is not, nor
// anything of a tool without an outputSchema. Outcomes read arguments, too.
func TestAgainstReadsOfResults(t *testing.T) {
	p := parse(t, "p.yaml", []byte(`version: 1
initial: a
registers: {plan: text}
states:
  a:
    tools:
      test:
        outcomes:
          red: result.structuredContent.faild > 0 && args.paht == "x"
          none: 'has(result.structuredContent.ran) && result.structuredContent.ran == 0'
          first: result.structuredContent.runs[0].ok
          plain: result.text == "x"
        set: {plan: result.structuredContent.out.id}
      bare: {set: {plan: result.structuredContent.id}}
`))
	declares := func(path []string) Argument {
		return Argument{Undeclared: path[0] != "failed", Others: []string{"failed"}}
	}
	var got []string
	for _, x := range Against(p, []Offer{{Name: "test", Argument: declares, Result: declares}, {Name: "bare"}}, nil) {
		if strings.HasPrefix(x.Code, "unknown-") {
			got = append(got, x.String())
		}
	}
	want := []string{
		`p.yaml:9:11: warning: outcomes: no argument "paht" is declared by the upstream's tool "test", and a success without it is unknown; there is "failed" (unknown-argument)`,
		`p.yaml:9:11: warning: outcomes: no "faild" is declared in the outputSchema of the upstream's tool "test", and a success without it is unknown; did you mean "failed"? (unknown-result)`,
		`p.yaml:11:11: warning: outcomes: no "runs" is declared in the outputSchema of the upstream's tool "test", and a success without it is unknown; there is "failed" (unknown-result)`,
		`p.yaml:13:15: warning: set: no "out.id" is declared in the outputSchema of the upstream's tool "test", and a success without it is unknown; there is "failed" (unknown-result)`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
}

// Arguments that expressions read and no item declares are told; those that it declares, that a
// guard asks for first, and behind which an item of a list is read are not.
func TestAgainstReads(t *testing.T) {
	p := parse(t, "p.yaml", []byte(`version: 1
initial: a
registers: {seen: {set: text}}
states:
  a:
    tools:
      read: {set: {seen: {add: args.paht}}}
      edit: {when: 'args.path in registers.seen && args.lines[0] == 1 && args["in"].x == 1'}
      ask: {when: "has(args.paht) && args.paht == args.deep.paht"}
`))
	declares := func(path []string) Argument {
		known := strings.Join(path, ".")
		return Argument{Undeclared: known != "path" && known != "lines", Others: []string{"path"}}
	}
	found := Against(p, []Offer{{Name: "read", Argument: declares}, {Name: "edit", Argument: declares}, {Name: "ask", Argument: declares}}, nil)
	var got []string
	for _, x := range found {
		if x.Code == "unknown-argument" {
			got = append(got, x.String())
		}
	}
	want := []string{
		`p.yaml:7:20: warning: set: no argument "paht" is declared by the upstream's tool "read", and a call without it is refused; did you mean "path"? (unknown-argument)`,
		`p.yaml:8:20: warning: when: no argument "in.x" is declared by the upstream's tool "edit", and a call without it is refused; there is "path" (unknown-argument)`,
		`p.yaml:9:19: warning: when: no argument "deep.paht" is declared by the upstream's tool "ask", and a call without it is refused; there is "path" (unknown-argument)`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
}
