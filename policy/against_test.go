package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
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
		{Kind: Resource, Name: "file:///a"}, {Kind: Prompt, Name: "great"}, {Kind: 9, Name: "what"},
	}
	for _, n := range []string{"status", "read_file", "write_a", "write_b", "deploy", "go", "said", "set", "back", "extra"} {
		offers = append(offers, Offer{Name: n})
	}
	return offers
}

func TestAgainst(t *testing.T) {
	p := parse(t, "p.yaml", []byte(againstSource))
	found := p.Against(againstOffers(), func(uri string) bool { return strings.HasPrefix(uri, "file:///t/") })
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
	found := p.Against(nil, nil)
	if got := found.Errors()[0].Message; got != `the upstream lists no tool "status"; it lists none` {
		t.Error(got)
	}
}

// A server makes the warnings on edges without on_unknown notes for tools that it calls
// read-only or idempotent, and names those that it does not.
func TestMergeTakesTheUpstreamsWord(t *testing.T) {
	p, parsed := Parse("p.yaml", []byte(againstSource))
	levels := func(fs Findings) (out []string) {
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
	both := parsed.Merge(p.Against(againstOffers(), nil))
	if got, want := levels(both), []string{"9 warning", "14 warning", "15 note", "16 note", "18 warning", "22 warning"}; !slices.Equal(got, want) {
		t.Errorf("with one: %v, want %v", got, want)
	}
	if notes := both.Notes(); notes[len(notes)-1].Line != 0 || len(notes) < 6 {
		t.Errorf("notes: %v", notes)
	}
}

func TestStrictAndErr(t *testing.T) {
	f := Findings{{Level: LevelNote, File: "p", Message: "n"}, {Level: LevelWarning, File: "p", Line: 1, Column: 2, Code: "c", Message: "w"}}
	if f.Err() != nil || len(f.Warnings()) != 1 || len(f.Notes()) != 1 {
		t.Error("levels differ")
	}
	err := f.Strict().Err()
	if err == nil || err.Error() != "p:1:2: error: w (c)" {
		t.Errorf("strict: %v", err)
	}
	if f[1].Level != LevelWarning {
		t.Error("Strict changed its receiver")
	}
}

func TestTooLarge(t *testing.T) {
	p, found := Parse("p.yaml", make([]byte, strictyaml.MaxSource+1))
	if p != nil || found.String() != "p.yaml: error: the file has more than 1048576 bytes, the most that a policy may have (too-large)" {
		t.Error(found)
	}
}

func TestTooManyGlobs(t *testing.T) {
	var out strings.Builder
	out.WriteString("version: 1\ninitial: a\nstates:\n  a:\n    tools:\n")
	for i := range maxGlobs + 1 {
		out.WriteString("      t" + strings.Repeat("x", i) + "y*: stay\n")
	}
	p, found := Parse("p.yaml", []byte(out.String()))
	if p != nil || !strings.Contains(found.String(), "p.yaml:6:7: error: 257 globs over tools in one place; at most 256") {
		t.Error(found)
	}
}

// TestBytesBeforeYAML checks the places of what YAML's decoder would report
// without one.
func TestBytesBeforeYAML(t *testing.T) {
	for src, want := range map[string]string{
		"a: \"\xff\"":                  "p:1:5: error: bytes that are not UTF-8",
		"a: b\nä: \x00":                "p:2:4: error: a control character, U+0000",
		"\xff\xfea\x00":                "p:1:1: error: bytes that are not UTF-8",
		"a: \u0080":                    "p:1:4: error: a control character, U+0080",
		"a: 1\r\n\ufeff\u0007":         "p:2:2: error: a control character, U+0007",
		"\ufeff\u0007":                 "p:1:1: error: a control character, U+0007",
		"\ufeffversion: 1\ninitial: b": "p:1:1: error: no states",
	} {
		_, found := Parse("p", []byte(src))
		if !strings.HasPrefix(found.String(), want) {
			t.Errorf("%q: %v", src, found)
		}
	}
}

// TestExpansionIsBounded reads the classic of nested aliases at once.
func TestExpansionIsBounded(t *testing.T) {
	src := "x-0: &a0 {a: b}\n"
	for i := range 40 {
		n, m := string(rune('A'+i)), "a0"
		if i > 0 {
			m = string(rune('A' + i - 1))
		}
		src += "x-" + n + ": &" + n + " [*" + m + ", *" + m + "]\n"
	}
	if _, found := Parse("p", []byte(src)); !strings.Contains(found.String(), "aliases make the file") && !strings.Contains(found.String(), "not YAML") {
		t.Error(found)
	}
}
