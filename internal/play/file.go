// Package play plays calls on a run of a policy, without a proxy, a client or a server: the
// tests of a policy (test files, [Read]), and what there is to say of one call ([Explain]).
// It reads no clock and does no I/O.
package play

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/fsm-proxy/fsm-proxy/internal/asker"
	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/approval"
)

// File is the tests of one policy.
type File struct {
	Name   string
	Policy strictyaml.Text // the policy's file, as it is written
	Listed Names           // what the server lists, by kind; nil: whatever is asked for
	Tests  []Test
}

// Names are names by kind, nil where nothing is said of one.
type Names [policy.Kinds + 1][]string

// Test is steps of a run of its own.
type Test struct {
	Name  string
	Place strictyaml.Place
	Who   *asker.Who
	Steps []Step
}

// Step is one call, or a time in which nothing comes, and what is expected of it.
type Step struct {
	Place strictyaml.Place
	Kind  policy.Kind
	Name  string // "": there is no call
	Args  []byte
	From  policy.Sender
	Who   *asker.Who // in place of the test's
	Wait  time.Duration

	Approve approval.State // Allowed or Denied; zero: nobody says anything
	Answer  Answer

	Refused, Because, State *strictyaml.Text // nil: nothing is expected
	Registers               []Expected
	Lists                   Names
	ListsAt                 strictyaml.Place

	said map[string]bool // the keys that there are
}

// Answer is how a server answers. The zero value is a success.
type Answer struct {
	Outcome policy.Outcome // zero: a success
	Result  []byte
}

// Expected is a register's value as JSON.
type Expected struct {
	Register strictyaml.Text
	Value    []byte
}

// language is what messages call a file of tests.
var language = strictyaml.Language{Name: "a file of tests", Begin: `"version: 1", "policy:" and "tests:"`}

// Read reads a file of tests. It is nil if something is wrong with it.
func Read(file string, src []byte) (*File, policy.Findings) {
	r := strictyaml.NewReader(file, language)
	root := r.Tree(src)
	if root == nil {
		return nil, r.Findings()
	}
	into := reading{File: &File{Name: file}}
	strictyaml.ReadFields(r, root, "a file of tests", fileFields, &into)
	if !into.version {
		r.Errorf(strictyaml.PlaceOf(root), "version", "version is missing; begin with \"version: 1\"")
	}
	if into.Policy.Value == "" {
		r.Errorf(strictyaml.PlaceOf(root), "missing", "policy is missing; write \"policy: FILE\", as seen from the file of tests")
	}
	if len(into.Tests) == 0 && r.OK() {
		r.Errorf(strictyaml.PlaceOf(root), "missing", "there are no tests; write \"tests: [{name: NAME, steps: [...]}]\"")
	}
	if !r.OK() {
		return nil, r.Findings()
	}
	return into.File, r.Findings()
}

// reading is a file while it is read.
type reading struct {
	*File
	version bool
}

type (
	reader = strictyaml.Reader
	entry  = strictyaml.Entry
)

var fileFields = []strictyaml.Field[reading]{
	{Name: "version", Doc: "1", Schema: strictyaml.Const(1), Read: func(r *reader, e entry, into *reading) { r.Version(e); into.version = true }},
	{Name: "policy", Doc: "The policy, as seen from this file.", Schema: textSchema, Read: func(r *reader, e entry, into *reading) { into.Policy, _ = text(r, e, "a policy's file") }},
	{Name: "listed", Doc: "What the server lists, by kind. Default: whatever is asked for.", Schema: func() *schema { return namesSchema(policy.Kinds) }, Read: func(r *reader, e entry, into *reading) { into.Listed = names(r, e, policy.Kinds) }},
	{Name: "tests", Doc: "The tests, each a run of its own.", Schema: func() *schema { return &schema{Type: "array", MinItems: 1, Items: testSchema()} }, Read: func(r *reader, e entry, into *reading) {
		seen := map[string]bool{}
		for _, n := range list(r, e, "a list of tests, such as [{name: NAME, steps: [...]}]") {
			t := Test{Place: n.Place()}
			if !r.Mapping(n, "a test, such as {name: NAME, steps: [...]}") {
				continue
			}
			strictyaml.ReadFields(r, n.Value, "a test", testFields, &t)
			switch {
			case t.Name == "":
				r.Errorf(t.Place, "missing", "a test has no name; write \"name: NAME\"")
			case seen[t.Name]:
				r.Errorf(t.Place, "duplicate", "there is a test %s before; give this one another name", strictyaml.Quote(t.Name))
			}
			seen[t.Name] = true
			into.Tests = append(into.Tests, t)
		}
	}},
}

var testFields = []strictyaml.Field[Test]{
	{Name: "name", Doc: "What the test shows.", Schema: textSchema, Read: func(r *reader, e entry, into *Test) {
		t, _ := text(r, e, "a name")
		into.Name = t.Value
	}},
	{Name: "who", Doc: "On whose behalf the calls come.", Schema: whoSchema, Read: func(r *reader, e entry, into *Test) { into.Who = who(r, e) }},
	{Name: "steps", Doc: "What happens, one after the other.", Schema: func() *schema { return &schema{Type: "array", Items: stepSchema()} }, Read: func(r *reader, e entry, into *Test) {
		for _, n := range list(r, e, "a list of steps, such as [{tool: NAME, state: STATE}]") {
			if r.Mapping(n, "a step, such as {tool: NAME, state: STATE}") {
				into.Steps = append(into.Steps, step(r, n))
			}
		}
	}},
}

// senders are who sends signals, by [policy.Sender].
var senders = []string{policy.Agent.String(), policy.Operator.String()}

// sayings are what is said of a call that is to be approved, by [approval.State] from Allowed on.
var sayings = []string{"allow", "deny"}

// calls are the keys that name what is called.
var calls = []string{"tool", "resource", "prompt", "signal"}

// step reads one step, and what of it does not go together.
func step(r *reader, e entry) Step {
	s := Step{Place: strictyaml.PlaceOf(e.Value), said: map[string]bool{}}
	for _, x := range r.Entries(e.Value) {
		s.said[x.Name()] = true
	}
	strictyaml.ReadFields(r, e.Value, "a step", stepFields, &s)
	count := 0
	for _, key := range append([]string{"wait"}, calls...) {
		if s.said[key] {
			count++
		}
	}
	if count != 1 {
		r.Errorf(s.Place, "missing", "a step has one of tool, resource, prompt, signal and wait, not %d of them", count)
	}
	for _, key := range []string{"args", "from", "answer", "approve", "refused", "because", "who"} {
		if s.said["wait"] && s.said[key] {
			r.Errorf(s.Place, "both", "%s: while a step waits nothing is called; make two steps of it", key)
		}
	}
	switch {
	case s.said["from"] && !s.said["signal"]:
		r.Errorf(s.Place, "both", "from: only a signal has a sender; remove it")
	case s.said["answer"] && s.said["signal"]:
		r.Errorf(s.Place, "both", "answer: nobody answers a signal; remove it")
	case s.said["approve"] && s.said["signal"]:
		r.Errorf(s.Place, "both", "approve: nobody approves a signal; remove it")
	case s.said["answer"] && s.said["refused"]:
		r.Errorf(s.Place, "both", "answer: nobody answers a call that is refused; remove it")
	case s.said["because"] && !s.said["refused"]:
		r.Errorf(s.Place, "missing", "because: it is told of calls that are refused; write \"refused: guard_failed\", or remove it")
	}
	return s
}

// stepFields are the keys of a step.
var stepFields = []strictyaml.Field[Step]{
	callField(policy.Tool), callField(policy.Resource), callField(policy.Prompt), callField(policy.Signal),
	{Name: "args", Doc: "The arguments of the call.", Schema: objectSchema, Read: func(r *reader, e entry, into *Step) {
		if r.Mapping(e, "a mapping of arguments") {
			into.Args = asJSON(r, e.Value)
		}
	}},
	{Name: "from", Doc: "Who sends the signal. Default: agent.", Schema: strictyaml.Enum(senders), Read: func(r *reader, e entry, into *Step) {
		i, _ := r.Choice(e, senders)
		into.From = policy.Sender(i)
	}},
	{Name: "who", Doc: "On whose behalf this call comes, in place of the test's.", Schema: whoSchema, Read: func(r *reader, e entry, into *Step) { into.Who = who(r, e) }},
	{Name: "answer", Doc: "How the server answers. Default: success.", Schema: answerSchema, Read: func(r *reader, e entry, into *Step) { into.Answer = answer(r, e) }},
	{Name: "approve", Doc: "What whoever is asked to approve the call says. Default: nothing.", Schema: strictyaml.Enum(sayings), Read: func(r *reader, e entry, into *Step) {
		if i, ok := r.Choice(e, sayings); ok {
			into.Approve = approval.State(i + 1)
		}
	}},
	{Name: "wait", Doc: "For how long nothing is called, such as 31m.", Schema: textSchema, Read: func(r *reader, e entry, into *Step) {
		t, ok := text(r, e, "a time such as 30s, 5m or 1h30m")
		if d, err := time.ParseDuration(t.Value); ok && (err != nil || d <= 0) {
			r.Errorf(t.Place, "value", "wait: %s is no time; write it like 30s, 5m or 1h30m", strictyaml.Quote(t.Value))
		} else {
			into.Wait = d
		}
	}},
	{Name: "refused", Doc: "The code of the refusal. Default: the call goes.", Schema: func() *schema { return &schema{Enum: codes()} }, Read: func(r *reader, e entry, into *Step) {
		words := codes()
		if i, ok := r.Choice(e, words); ok {
			into.Refused = &strictyaml.Text{Place: strictyaml.PlaceOf(e.Value), Value: words[i]}
		}
	}},
	{Name: "because", Doc: "What the policy has the client told of the refusal.", Schema: textSchema, Read: func(r *reader, e entry, into *Step) { into.Because = given(r, e, "what is told") }},
	{Name: "state", Doc: "Where the run is then.", Schema: textSchema, Read: func(r *reader, e entry, into *Step) { into.State = given(r, e, "a state") }},
	{Name: "registers", Doc: "What the registers named here hold then; null: unset.", Schema: objectSchema, Read: func(r *reader, e entry, into *Step) {
		if r.Mapping(e, "a mapping of registers to their values") {
			for _, x := range r.Entries(e.Value) {
				into.Registers = append(into.Registers, Expected{strictyaml.Text{Place: x.Place(), Value: x.Name()}, asJSON(r, x.Value)})
			}
		}
	}},
	{Name: "lists", Doc: "All names that are shown then of the kinds named here.", Schema: func() *schema { return namesSchema(len(Names{})) }, Read: func(r *reader, e entry, into *Step) {
		into.Lists, into.ListsAt = names(r, e, len(into.Lists)), e.Place()
	}},
}

func callField(k policy.Kind) strictyaml.Field[Step] {
	return strictyaml.Field[Step]{Name: calls[k], Doc: "The " + calls[k] + " that is called.", Schema: textSchema, Read: func(r *reader, e entry, into *Step) {
		t, _ := text(r, e, "a name")
		into.Kind, into.Name = k, t.Value
	}}
}

// list returns the items of a list, each as an entry of the list's key.
func list(r *reader, e entry, want string) (items []entry) {
	if e.Value.Kind != yaml.SequenceNode {
		r.WrongType(e, want)
		return nil
	}
	for _, n := range e.Value.Content {
		n = strictyaml.Resolve(n)
		items = append(items, entry{Key: &yaml.Node{Kind: yaml.ScalarNode, Value: e.Name(), Line: n.Line, Column: n.Column}, Value: n})
	}
	return items
}

// text reads a text that is not empty.
func text(r *reader, e entry, want string) (strictyaml.Text, bool) {
	t, ok := r.Scalar(e, want)
	if ok && t.Value == "" {
		r.WrongType(e, want)
		return t, false
	}
	return t, ok
}

func given(r *reader, e entry, want string) *strictyaml.Text {
	if t, ok := text(r, e, want); ok {
		return &t
	}
	return nil
}

// names reads lists of names by the kinds' plurals, of the first so many kinds.
func names(r *reader, e entry, kinds int) (out Names) {
	if !r.Mapping(e, "a mapping of kinds to lists of names, such as {tools: [NAME]}") {
		return out
	}
	strictyaml.ReadFields(r, e.Value, e.Name(), namesFields(kinds), &out)
	return out
}

func namesFields(kinds int) []strictyaml.Field[Names] {
	fields := make([]strictyaml.Field[Names], kinds)
	for k := range fields {
		fields[k] = strictyaml.Field[Names]{Name: policy.Kind(k).Plural(), Doc: "Names of " + policy.Kind(k).Plural() + ".", Schema: textsSchema, Read: func(r *reader, e entry, into *Names) {
			into[k] = []string{}
			for _, t := range r.Items(e, "a list of names") {
				into[k] = append(into[k], t.Value)
			}
		}}
	}
	return fields
}

var whoFields = []strictyaml.Field[asker.Who]{
	{Name: "subject", Doc: "The subject of the token or certificate.", Schema: textSchema, Read: func(r *reader, e entry, into *asker.Who) {
		t, _ := text(r, e, "a text")
		into.Subject = t.Value
	}},
	{Name: "issuer", Doc: "Its issuer.", Schema: textSchema, Read: func(r *reader, e entry, into *asker.Who) {
		t, _ := text(r, e, "a text")
		into.Issuer = t.Value
	}},
	{Name: "scopes", Doc: "Its scopes.", Schema: textsSchema, Read: func(r *reader, e entry, into *asker.Who) {
		for _, t := range r.Items(e, "a list of scopes") {
			into.Scopes = append(into.Scopes, t.Value)
		}
	}},
	{Name: "claims", Doc: "Its claims.", Schema: objectSchema, Read: func(r *reader, e entry, into *asker.Who) {
		if r.Mapping(e, "a mapping of claims") {
			into.Claims = asJSON(r, e.Value)
		}
	}},
}

func who(r *reader, e entry) *asker.Who {
	out := &asker.Who{}
	if r.Mapping(e, "who asks, such as {subject: ada, scopes: [build]}") {
		strictyaml.ReadFields(r, e.Value, "who", whoFields, out)
	}
	return out
}

// answers are the words of answers, in the order of the outcomes.
var answers = []string{"success", "error", "unknown"}

// answer reads how a server answers: a word, or a result.
func answer(r *reader, e entry) (a Answer) {
	if e.Value.Kind != yaml.MappingNode {
		if i, ok := r.Choice(e, answers); ok {
			a.Outcome = policy.AllOutcomes[i]
		}
		return a
	}
	strictyaml.ReadFields(r, e.Value, "an answer", answerFields, &a)
	if a.Result == nil && r.OK() {
		r.Errorf(strictyaml.PlaceOf(e.Value), "missing", "answer: wants success, error, unknown or {result: {…}}")
	}
	if a.Outcome = policy.Success; isError(a.Result) {
		a.Outcome = policy.Error
	}
	return a
}

var answerFields = []strictyaml.Field[Answer]{{
	Name: "result", Doc: "The result, as the server gives it.", Schema: objectSchema,
	Read: func(r *reader, e entry, into *Answer) {
		if r.Mapping(e, "a result, such as {structuredContent: {…}}") {
			into.Result = asJSON(r, e.Value)
		}
	},
}}

// isError reports whether a result says so: whatever is not absent, false or null does.
func isError(result []byte) bool {
	var members map[string]json.RawMessage
	if json.Unmarshal(result, &members) != nil {
		return false
	}
	value := string(members["isError"])
	return value != "" && value != "false" && value != "null"
}

// asJSON writes a value as JSON: scalars without quotes are what JSON has, or texts.
func asJSON(r *reader, n *yaml.Node) []byte {
	var out bytes.Buffer
	writeJSON(r, &out, n)
	return out.Bytes()
}

func writeJSON(r *reader, out *bytes.Buffer, n *yaml.Node) {
	switch n = strictyaml.Resolve(n); n.Kind {
	case yaml.MappingNode:
		out.WriteByte('{')
		for i, e := range r.Entries(n) {
			if i > 0 {
				out.WriteByte(',')
			}
			writeText(out, e.Name())
			out.WriteByte(':')
			writeJSON(r, out, e.Value)
		}
		out.WriteByte('}')
	case yaml.SequenceNode:
		out.WriteByte('[')
		for i, x := range n.Content {
			if i > 0 {
				out.WriteByte(',')
			}
			writeJSON(r, out, x)
		}
		out.WriteByte(']')
	default:
		writeScalar(r, out, n)
	}
}

func writeScalar(r *reader, out *bytes.Buffer, n *yaml.Node) {
	switch {
	case strictyaml.IsNothing(n):
		out.WriteString("null")
	case !strictyaml.IsResolved(n):
		writeText(out, n.Value)
	case n.Tag == "!!bool":
		value, _ := strconv.ParseBool(n.Value)
		out.WriteString(strconv.FormatBool(value))
	case json.Valid([]byte(n.Value)):
		out.WriteString(n.Value)
	default:
		r.Errorf(strictyaml.PlaceOf(n), "value", "%s is no number in JSON; write it as JSON does, or quote it to mean the text", strictyaml.Quote(n.Value))
		out.WriteString("null")
	}
}

func writeText(out *bytes.Buffer, text string) {
	quoted, _ := json.Marshal(text) // a text has an encoding
	out.Write(quoted)
}
