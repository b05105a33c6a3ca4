package docs_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/fsm-proxy/fsm-proxy/internal/explain"
	player "github.com/fsm-proxy/fsm-proxy/internal/play"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/guard"
	"github.com/fsm-proxy/fsm-proxy/policy/report"
)

// block is one fenced block of a Markdown file.
type block struct {
	info string // what stands behind the fence: "yaml", "steps", …
	text string
	line int // of its first line
}

// fences returns the fenced blocks of a Markdown text.
func fences(text string) []block {
	var out []block
	var open *block
	for i, line := range strings.SplitAfter(text, "\n") {
		info, fence := strings.CutPrefix(strings.TrimRight(line, "\n"), "```")
		switch {
		case fence && open != nil:
			out, open = append(out, *open), nil
		case fence:
			open = &block{info: info, line: i + 2}
		case open != nil:
			open.text += line
		}
	}
	return out
}

// example is one policy of docs/policy.md with what is said of it: what check finds, and where calls lead.
type example struct {
	block
	finds string
	steps []block
	tests []block
	parts map[string]string // by their names
}

// open returns the file of a part.
func (e example) open(name string) ([]byte, error) {
	text, ok := e.parts[name]
	if !ok {
		return nil, fmt.Errorf("there is no %s", name)
	}
	return []byte(text), nil
}

func examples(t *testing.T) []example {
	t.Helper()
	text, err := os.ReadFile("policy.md")
	if err != nil {
		t.Fatal(err)
	}
	var out []example
	for _, b := range fences(string(text)) {
		switch b.info {
		case "yaml":
			if name, is := partName(b); is {
				out[len(out)-1].parts[name] = b.text
				continue
			}
			out = append(out, example{block: b, parts: map[string]string{}})
		case "finds":
			out[len(out)-1].finds = b.text
		case "steps":
			out[len(out)-1].steps = append(out[len(out)-1].steps, b)
		case "test":
			out[len(out)-1].tests = append(out[len(out)-1].tests, b)
		}
	}
	return out
}

// partName is the file that a block is, where it begins with that.
func partName(b block) (name string, is bool) {
	first, _, _ := strings.Cut(b.text, "\n")
	name, is = strings.CutPrefix(first, "# ")
	return name, is && strings.HasSuffix(name, ".yaml") && !strings.Contains(name, " ")
}

// Every example is read, and check finds what the page says: the errors and warnings of the block `finds`
// behind it, or none. The notes are part of such a block where it has one.
func TestPolicyExamples(t *testing.T) {
	for _, e := range examples(t) {
		_, findings := report.ParseParts("policy.yaml", []byte(e.text), e.open)
		grave := len(findings.Errors()) + len(findings.Warnings())
		switch got := report.Grouped(findings).String(); {
		case e.finds == "" && grave > 0:
			t.Errorf("policy.md:%d: the example is not clean:\n%s", e.line, got)
		case e.finds != "" && got+"\n" != e.finds:
			t.Errorf("policy.md:%d: the page says:\n%s\ncheck says:\n%s", e.line, e.finds, got)
		}
	}
}

// What the blocks `steps` behind an example say is what the policy does.
func TestPolicySteps(t *testing.T) {
	for _, e := range examples(t) {
		for _, b := range e.steps {
			p, findings := policy.CompileParts("policy.yaml", []byte(e.text), e.open)
			if p == nil {
				t.Fatalf("policy.md:%d: %v", e.line, findings)
			}
			for i, line := range strings.Split(strings.TrimSpace(b.text), "\n") {
				call, says, ok := strings.Cut(line, "→")
				if !ok {
					t.Fatalf("policy.md:%d: no arrow in %q", b.line+i, line)
				}
				if got := walk(t, p, strings.Fields(call)); got != strings.TrimSpace(says) {
					t.Errorf("policy.md:%d: %s: it is %q", b.line+i, line, got)
				}
			}
		}
	}
}

// Each test in a block `test` passes for the policy before it.
func TestPolicyTests(t *testing.T) {
	for _, e := range examples(t) {
		play(t, "policy.md", e, e.tests)
	}
}

// play plays blocks of tests, or of the steps of one, on runs of a policy.
func play(t *testing.T, page string, e example, tests []block) {
	t.Helper()
	for _, b := range tests {
		p, found := policy.CompileParts("policy.yaml", []byte(e.text), e.open)
		if p == nil {
			t.Fatalf("%s:%d: %v", page, e.line, found)
		}
		text, line := b.text, b.line-1
		if strings.HasPrefix(text, "- ") {
			text = "version: 1\npolicy: policy.yaml\ntests:\n- name: x\n  steps:\n  " + strings.ReplaceAll(text, "\n", "\n  ")
			line -= strings.Count(text, "\n") - strings.Count(b.text, "\n")
		}
		file, found := player.Read("policy.test.yaml", []byte(text))
		if file == nil {
			t.Fatalf("%s:%d: %v", page, b.line, found)
		}
		for i := range file.Tests {
			for _, failure := range file.Play(p, &file.Tests[i], player.NewCoverage(p)) {
				t.Errorf("%s:%d: %s", page, line+failure.Place.Line, failure.Text)
			}
		}
	}
}

// What a block `explain` says is what is said of the call.
func TestPolicyExplanations(t *testing.T) {
	var source string
	for _, b := range fences(read(t, "policy.md")) {
		call, explains := strings.CutPrefix(b.info, "explain ")
		if b.info == "yaml" {
			source = b.text
		}
		if !explains {
			continue
		}
		p, found := policy.Parse("policy.yaml", []byte(source))
		if p == nil {
			t.Fatal(found)
		}
		name, arguments, _ := strings.Cut(call, " ")
		q, err := (&explain.Asked{}).Question(p, name, arguments)
		if err != nil {
			t.Fatal(err)
		}
		x, err := explain.Explain(p, q)
		if err != nil {
			t.Fatal(err)
		}
		if text := x.Text(func(_ explain.Look, text string) string { return text }); text != b.text {
			t.Errorf("policy.md:%d: it says:\n%s", b.line, text)
		}
	}
}

// What a block `against` says is what a reload does: of the example before it in place of the one before that.
func TestPolicyAgainst(t *testing.T) {
	var old, new string
	for _, b := range fences(read(t, "policy.md")) {
		switch b.info {
		case "yaml":
			old, new = new, b.text
		case "against":
			before, _ := policy.Parse("old.yaml", []byte(old))
			after, _ := policy.Parse("new.yaml", []byte(new))
			if got := report.CompareText(before, after); got != b.text {
				t.Errorf("policy.md:%d: it says:\n%s", b.line, got)
			}
		}
	}
}

// walk plays one line, "STATE KIND NAME [ARGUMENT=VALUE|ARGUMENTS] [unlisted] OUTCOME[RESULT]", and says where it leads.
func walk(t *testing.T, p *policy.Policy, words []string) string {
	t.Helper()
	if len(words) < 4 {
		t.Fatalf("too few words in %q", words)
	}
	state, known := p.StateByName(words[0])
	if !known {
		t.Fatalf("no state %q", words[0])
	}
	at, rest := policy.Configuration{State: state}, words[3:len(words)-1]
	facts := &guard.Call{Name: words[2], Registers: noRegisters{}}
	if len(rest) > 0 && strings.HasPrefix(rest[0], "{") {
		facts.Args = []byte(rest[0])
	}
	verdict := p.Decide(at, &policy.Request{Kind: kindOf(t, words[1]), Name: words[2], Listed: !slices.Contains(rest, "unlisted"), Args: arguments(rest), Facts: facts})
	if !verdict.Allowed {
		return "refused: " + verdict.Code.String()
	}
	word, result, ok := strings.Cut(words[len(words)-1], "{")
	outcome := outcomeOf(t, word)
	if facts.Result = []byte("{" + result); ok {
		outcome, _ = verdict.Alternative.Outcome(outcome, facts)
	}
	step, err := p.Next(at, verdict.Symbol, outcome)
	if err != nil {
		t.Fatal(err)
	}
	return says(p, step, verdict.Turn)
}

// noRegisters are those of a run that has set none.
type noRegisters struct{}

func (noRegisters) Register(string) any { return nil }

func says(p *policy.Policy, step policy.Step, turn bool) string {
	to := p.StateName(step.To.State)
	switch {
	case step.Restarted:
		return p.StateName(step.Entered) + ", complete; a new run in " + to
	case step.To.Complete:
		return to + ", complete"
	case step.Changed:
		return to
	case turn:
		return "stays, with the turn"
	}
	return "stays"
}

// arguments reads ARGUMENT=VALUE: a number or a boolean without quotes, all else is a text, and may be quoted. An
// underscore in quotes stands for a space.
func arguments(words []string) policy.Lookup {
	return func(path []string) policy.Argument {
		for _, w := range words {
			value, ok := strings.CutPrefix(w, strings.Join(path, ".")+"=")
			if !ok {
				continue
			}
			if text, err := strconv.Unquote(value); err == nil {
				return policy.Text(strings.ReplaceAll(text, "_", " "))
			}
			if literal := policy.Literal(value); literal.Kind() != policy.NoValue {
				return literal
			}
			return policy.Text(value)
		}
		return policy.Argument{}
	}
}

func kindOf(t *testing.T, word string) policy.Kind {
	t.Helper()
	for _, k := range policy.SymbolKinds {
		if k.String() == word {
			return k
		}
	}
	t.Fatalf("no kind %q", word)
	return 0
}

func outcomeOf(t *testing.T, word string) policy.Outcome {
	t.Helper()
	for _, o := range []policy.Outcome{policy.Success, policy.Error, policy.Unknown} {
		if o.String() == word {
			return o
		}
	}
	t.Fatalf("no outcome %q", word)
	return 0
}

// Every key of the language has an example, and every word of its closed sets has one or is named.
func TestEveryKeyHasAnExample(t *testing.T) {
	used := map[string]bool{}
	for _, e := range examples(t) {
		if e.finds == "" {
			collect(t, e, used)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(keysOf(t))) {
		if !used[key] {
			t.Errorf("policy.md has no clean example of the key %q", key)
		}
	}
}

// Every key stands in the table of the section that is about where it stands.
func TestEveryKeyIsInItsTable(t *testing.T) {
	var schema struct {
		Properties map[string]any
		Defs       map[string]any `json:"$defs"`
	}
	if err := json.Unmarshal(policy.Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	page := read(t, "policy.md")
	for section, of := range map[string]any{
		"Top level": map[string]any{"properties": schema.Properties},
		"States":    schema.Defs["state"],
		"Bindings":  schema.Defs["value"],
		"Edges":     schema.Defs["target"],
		"Signals":   schema.Defs["signal"],
	} {
		keys := map[string]bool{}
		ownProperties(of, keys)
		_, text, _ := strings.Cut(page, "\n## "+section+"\n")
		text, _, _ = strings.Cut(text, "\n## ")
		var table strings.Builder
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "|") {
				table.WriteString(line)
			}
		}
		for key := range keys {
			if !regexp.MustCompile("`[^`]*\\b"+key+"\\b[^`]*`").MatchString(table.String()) && !strings.HasPrefix(key, "on_") {
				t.Errorf("the tables of %q lack the key %q", section, key)
			}
		}
		if len(keys) == 0 {
			t.Errorf("the schema has no keys for %q", section)
		}
	}
}

func collect(t *testing.T, e example, used map[string]bool) {
	t.Helper()
	var tree any
	if err := yaml.Unmarshal([]byte(e.text), &tree); err != nil {
		t.Fatalf("policy.md:%d: %v", e.line, err)
	}
	keysIn(tree, used)
}

func keysIn(tree any, into map[string]bool) {
	switch tree := tree.(type) {
	case map[string]any:
		for key, value := range tree {
			into[key] = true
			keysIn(value, into)
		}
	case []any:
		for _, value := range tree {
			keysIn(value, into)
		}
	}
}

// keysOf are the keys that the JSON Schema knows, at any level.
func keysOf(t *testing.T) map[string]bool {
	t.Helper()
	var schema any
	if err := json.Unmarshal(policy.Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	keys := map[string]bool{}
	properties(schema, keys)
	return keys
}

// ownProperties are those of an object, whichever of several it may be, and not of what is in it.
func ownProperties(schema any, into map[string]bool) {
	of, _ := schema.(map[string]any)
	own, _ := of["properties"].(map[string]any)
	for key := range own {
		into[key] = true
	}
	for _, word := range []string{"oneOf", "anyOf", "allOf"} {
		some, _ := of[word].([]any)
		for _, x := range some {
			ownProperties(x, into)
		}
	}
}

func properties(schema any, into map[string]bool) {
	switch schema := schema.(type) {
	case map[string]any:
		if own, ok := schema["properties"].(map[string]any); ok {
			for key := range own {
				into[key] = true
			}
		}
		for _, value := range schema {
			properties(value, into)
		}
	case []any:
		for _, value := range schema {
			properties(value, into)
		}
	}
}
