package syntax

import "github.com/fsm-proxy/fsm-proxy/internal/strictyaml"

type (
	field[T any] = strictyaml.Field[T]
	schema       = strictyaml.Schema
)

// key is a row of a table of keys.
func key[T any](name, doc string, schema func() *schema, read func(*reader, entry, *T)) field[T] {
	return field[T]{Name: name, Doc: doc, Schema: schema, Read: read}
}

// fileKeys are the keys of a policy file.
func fileKeys() []field[File] {
	return []field[File]{
		key("version", "The version of the policy language: 1.", strictyaml.Const(1), readVersion),
		key("name", "What the policy is called, in logs and pictures.", textSchema, readText(func(f *File) *string { return &f.Name })),
		key("description", "What the policy is for.", textSchema, readText(func(f *File) *string { return &f.Description })),
		key("instructions", "Appended to the upstream's own instructions.", textSchema, readText(func(f *File) *string { return &f.Instructions })),
		key("initial", "The state in which a run begins.", textSchema, readInitial),
		key("on_complete", "What follows a terminal edge: restart begins a new run in the same step, stop offers nothing any more.",
			strictyaml.Enum(Completions), readChoice(Completions, func(f *File) *Choice { return &f.OnComplete })),
		key("registers", "Values that a run remembers beside its state, by name: text, number, boolean, counter, or {set: text, max: N}.",
			strictyaml.Map(registerSchema), readRegisters),
		key("use", "Parts by name: the policy files that stand for states, relative to this one and within the policy's folder.", strictyaml.Map(textSchema), readUse),
		key("at_most", "How many calls a run may make: N, or {run, minute, hour, day, principal: {minute, hour, day}}, of which all hold.", atMostSchema,
			readAtMost(0, func(f *File) *AtMost { return &f.AtMost })),
		key("everywhere", "Bound in every state that is not terminal.", refTo("place"), readEverywhere),
		key("states", "The states by name. A name not bound in a state cannot be used there.", statesSchema, readStates),
		key("renamed", "States with a new name, old: new, read when a reload moves runs.", strictyaml.Map(textSchema), readRenamed),
		key("on_reload", "What a reload does to runs under way: move to the new policy, or pin them to the one that they began with.",
			strictyaml.Enum(Reloads), readChoice(Reloads, func(f *File) *Choice { return &f.OnReload })),
		key("stranded", "What becomes of a run whose state is gone after a reload.",
			strictyaml.Enum(Stranded), readChoice(Stranded, func(f *File) *Choice { return &f.Stranded })),
		key("pin", "What a tool definition does that differs from the lock file: off, warn, or refuse.",
			strictyaml.Enum(Pins), readChoice(Pins, func(f *File) *Choice { return &f.Pin })),
		key("templates", "How resources/templates/list is answered: refuse with a reason, or an empty list for clients that stumble over that.",
			strictyaml.Enum(Templates), readChoice(Templates, func(f *File) *Choice { return &f.Templates })),
		key("upstream_may", "What the upstream may ask of the client; all, if it is not given.", strictyaml.List(strictyaml.Enum(Asks[:])), readUpstreamMay),
		key("validate", "Check arguments against the listed inputSchema before a call is sent.", strictyaml.Bool, readBool(func(f *File) *bool { return &f.Validate })),
		key("passthrough", "Methods, notifications and vendor capabilities to let through that are refused otherwise.", strictyaml.List(textSchema), readPassthrough),
	}
}

// scopeKeys are the keys of everywhere, and of a state.
func scopeKeys() []field[Scope] {
	fields := make([]field[Scope], len(Kinds))
	for i := range Kinds {
		fields[i] = key(plural(i), scopeDocs[i], refTo(plural(i)),
			func(r *reader, e entry, into *Scope) { into.Kinds[i] = readBindings(r, i, e) })
	}
	return append(fields, key("signals", "Signals by name: what no server does, and the agent or an operator says. Each leads to a state, or stays.",
		signalsSchema, readSignals))
}

func plural(kind int) string { return Kinds[kind] + "s" }

var scopeDocs = [len(Kinds)]string{
	"Tools, by name or glob: a mapping of name to value, or a list of names that all stay.",
	"Concrete resource URIs, or globs over them, compared byte for byte.",
	"Prompts, by name or glob.",
}

// stateKeys are the keys of a state.
func stateKeys() []field[State] {
	fields := []field[State]{
		key("description", "What is done in this state; shown in refusals.", textSchema, readText(func(s *State) *string { return &s.Description })),
		key("terminal", "An edge to this state completes the run. A terminal state binds nothing.", strictyaml.Bool, readBool(func(s *State) *bool { return &s.Terminal })),
		key("everywhere", "false: this state takes nothing of everywhere.", strictyaml.Bool, readInherits),
		key("for", "To whom the state binds anything: {subject, issuer, scope, claim}.", audienceSchema,
			readAudience(func(s *State) *Text { return &s.For })),
		key("after", "A clock: {DURATION: EDGE}, which is taken by itself once the run has been in the state for so long, such as {30m: idle}.", afterSchema, readAfter),
		key("at_most", "How many calls a visit of the state may make: N, or {run, state, minute, hour, day, principal: {minute, hour, day}}, of which all hold.", atMostSchema,
			readAtMost(1, func(s *State) *AtMost { return &s.AtMost })),
		key("upstream_may", "What the upstream may ask of the client in this state, at most what it may under the policy; that, if it is not given.",
			strictyaml.List(strictyaml.Enum(Asks[:])), func(r *reader, e entry, into *State) { into.Asking = readAsking(r, e) }),
	}
	fields = append(fields, partKeys()...)
	for _, f := range scopeKeys() {
		fields = append(fields, key(f.Name, f.Doc, f.Schema,
			func(r *reader, e entry, into *State) { f.Read(r, e, &into.Scope) }))
	}
	return fields
}

// EdgeKeys are the keys of the edges, as Value has them.
var EdgeKeys = [len(Outcomes) + 1]string{"on_success", "on_error", "on_unknown", "on_any"}

var edgeDocs = [len(EdgeKeys)]string{
	"Where a success leads: a result without isError.",
	"Where an error leads: a result with isError: true, or a JSON-RPC error.",
	"Where an unknown outcome leads: sent, and no answer, so that it may have happened. Default: as on_error.",
	"Where every outcome leads that has no edge of its own.",
}

// conditionKeys are the keys of what has to hold before a call goes upstream.
func conditionKeys() []field[Value] {
	return []field[Value]{
		key("for", "To whom it is bound: {subject, issuer, scope, claim}, each a value or a list of which one is enough; of several keys all hold.", audienceSchema,
			readAudience(func(v *Value) *Text { return &v.For })),
		key("when", "A CEL expression over args, name, registers, run, who and now, which has to be true.", expressionSchema,
			readExpression(func(v *Value) *Text { return &v.When })),
		key("because", "What a client is told where a condition does not hold.", textSchema, readExpression(func(v *Value) *Text { return &v.Because })),
		key("at_most", "How often: N times in a run, or {run, state, minute, hour, day, principal: {minute, hour, day}}, of which all hold.", atMostSchema,
			readAtMost(0, func(v *Value) *AtMost { return &v.AtMost })),
		key("approve", "Who has to say yes to each call, before it goes: {by: operator, message: TEXT, timeout: 10m}.", approveSchema, readApprove),
		key("exclusive", "Takes the run's turn though it stays: calls of one run then follow each other.",
			strictyaml.Bool, readBool(func(v *Value) *bool { return &v.Exclusive })),
		key("irreversible", "What a call has done cannot be undone: no fork of a run goes back behind one.",
			strictyaml.Bool, readBool(func(v *Value) *bool { return &v.Irreversible })),
		key("timeout", "How long the answer to a call may take, from 1s to 24h, in place of what the proxy gives every call. It counts from when the call is sent.", strictyaml.DurationSchema,
			func(r *reader, e entry, into *Value) { into.Timeout = r.Duration(e, 1, maxTimeout) }),
	}
}

// maxTimeout is how long a timeout may be, in seconds.
const maxTimeout = 24 * 60 * 60

// caseKeys are the keys of a case's value, and of an alternative.
func caseKeys() []field[Value] {
	var fields []field[Value]
	for i, name := range EdgeKeys {
		fields = append(fields, key(name, edgeDocs[i], refTo("target"),
			func(r *reader, e entry, into *Value) { into.Edges[i] = readTarget(r, e) }))
	}
	named := key("on_NAME", "Where the outcome of that name leads.", refTo("target"), readNamedEdge)
	named.Matches, named.Pattern = isNamedEdge, "^on_[A-Za-z][A-Za-z0-9_]*$"
	return append(append(fields, named,
		key("outcomes", "Outcomes by name, each a CEL expression over the result: the first that is true is the outcome.",
			strictyaml.Map(expressionSchema), readOutcomes),
		key("set", "What a success sets: registers, each to a CEL expression, to none, or {add: …} or {remove: …}.", refTo("set"),
			func(r *reader, e entry, into *Value) { into.Set = readSet(r, e) })),
		conditionKeys()...)
}

// bindingKeys are the keys of a binding's value.
func bindingKeys() []field[Value] {
	return append(caseKeys(),
		key("by", "The argument whose value selects the case: a dotted path through objects.", textSchema, readBy),
		key("cases", "What the argument may be, and all else is refused: texts, globs over them, and, without quotes, numbers and booleans.", casesSchema, readCases),
	)
}

// targetKeys are the keys of an edge's target.
func targetKeys() []field[Target] {
	return []field[Target]{
		key("to", "The state that the edge leads to; left out, this one.", textSchema, readTo),
		key("terminal", "The edge completes the run.", strictyaml.Bool, readBool(func(t *Target) *bool { return &t.Terminal })),
		key("return", "In place of to: the edge leads to where the state, or the part, was entered from.", strictyaml.Const(true), readReturn),
		key("set", "What goes with the edge: registers, each to a CEL expression, to none, or {add: …} or {remove: …}.", refTo("set"),
			func(r *reader, e entry, into *Target) { into.Set = readSet(r, e) }),
	}
}

// signalKeys are the keys of a signal's value.
func signalKeys() []field[Value] {
	var fields []field[Value]
	for _, f := range targetKeys() {
		fields = append(fields, key(f.Name, f.Doc, f.Schema, func(r *reader, e entry, into *Value) {
			f.Read(r, e, &into.Edges[onAny])
		}))
	}
	fields = append(fields, conditionKeys()[:4]...)
	return append(fields,
		key("description", "What the signal says; shown to who may send it.", textSchema, readText(func(v *Value) *string { return &v.Description })),
		key("from", "Who sends it: the agent, or an operator alone. An operator may send every signal. Default: agent.",
			strictyaml.Enum(Senders), readChoice(Senders, func(v *Value) *Choice { return &v.From })),
	)
}

// SchemaURL is where the JSON Schema of policy files is published.
const SchemaURL = "https://raw.githubusercontent.com/fsm-proxy/fsm-proxy/main/policy/policy.schema.json"

// Schema returns the JSON Schema (draft 2020-12) of policy files, generated from
// the tables that Read reads by. It is checked in as policy.schema.json.
func Schema() []byte {
	s := strictyaml.ObjectOf(fileKeys())
	s.Schema = strictyaml.Draft
	s.ID = SchemaURL
	s.Title = "fsm-proxy policy"
	s.Description = "A deterministic finite automaton over the tools, resources and prompts of an MCP server."
	s.Required = []string{"version", "initial", "states"}
	s.PatternProperties = strictyaml.Extensions()
	s.Defs = map[string]*schema{
		"name":  {Type: []string{"string", "number", "boolean"}}, // numbers and booleans are their text
		"place": orNull(strictyaml.ObjectOf(scopeKeys())),
		"state": orNull(strictyaml.ObjectOf(stateKeys())),
		"value": alternativesSchema("A binding's value: nothing or stay, none, a state (on_success), a mapping, or a list of alternatives.", strictyaml.ObjectOf(bindingKeys())),
		"case":  alternativesSchema("A case's value: nothing or stay, none, a state (on_success), a mapping, or a list of alternatives.", strictyaml.ObjectOf(caseKeys())),

		"alternative": strictyaml.ObjectOf(caseKeys()),
		"set":         {Type: "object", AdditionalProperties: assignmentSchema(), MinProperties: 1},
	}
	s.Defs["alternative"].MinProperties = 1
	s.Defs["signal"] = valueSchema("A signal's value: a state, stay, none, or a mapping.", strictyaml.ObjectOf(signalKeys()))
	s.Defs["signal"].AnyOf[0] = s.Defs["name"]
	s.Defs["target"] = valueSchema("An edge's target: a state, stay, or {to: STATE, terminal: true}.", strictyaml.ObjectOf(targetKeys()))
	s.Defs["target"].AnyOf[0] = s.Defs["name"]
	s.Defs["exit"] = valueSchema("Where an exit of a part leads: a state, or {to: STATE, terminal: true}.", strictyaml.ObjectOf(exitKeys()))
	s.Defs["exit"].AnyOf[0] = s.Defs["name"]
	s.Defs["value"].AnyOf[1].DependentRequired = map[string][]string{"by": {"cases"}, "cases": {"by"}}
	for i := range Kinds {
		s.Defs[plural(i)] = &schema{AnyOf: []*schema{
			{Type: []string{"object", "null"}, PropertyNames: patternSchema(), AdditionalProperties: refTo("value")()},
			{Type: "array", Items: textSchema(), UniqueItems: true, Description: "Names that all stay."},
		}}
	}
	return s.Encode()
}

// signalName is what a signal's name matches.
const signalName = `^[A-Za-z0-9_.-]{1,64}$`

func signalsSchema() *schema {
	return &schema{
		Type:                 []string{"object", "null"},
		PropertyNames:        &schema{Pattern: signalName},
		AdditionalProperties: refTo("signal")(),
	}
}

func refTo(def string) func() *schema {
	return func() *schema { return &schema{Ref: "#/$defs/" + def} }
}

func textSchema() *schema { return refTo("name")() }

// patternSchema is the schema of names and globs.
func patternSchema() *schema { return &schema{Not: &schema{Pattern: `\*\*`}} }

func casesSchema() *schema {
	return &schema{Type: "object", PropertyNames: patternSchema(), AdditionalProperties: refTo("case")(), MinProperties: 1}
}

func statesSchema() *schema {
	return &schema{
		Type:                 "object",
		PropertyNames:        &schema{Not: &schema{Enum: []string{"stay", "none"}}},
		AdditionalProperties: refTo("state")(),
		MinProperties:        1,
	}
}

func audienceSchema() *schema {
	var a audience
	s := strictyaml.ObjectOf(audienceKeys(&a))
	s.MinProperties = 1
	return s
}

func atMostSchema() *schema {
	s := strictyaml.ObjectOf(spanKeys())
	s.MinProperties = 1
	return &schema{AnyOf: []*schema{countSchema(maxCount), s}}
}

func afterSchema() *schema {
	return &schema{Type: "object", PropertyNames: strictyaml.DurationSchema(), AdditionalProperties: refTo("target")(), MinProperties: 1, MaxProperties: 1}
}

func countSchema(most int) *schema { return &schema{Type: "integer", Minimum: 1, Maximum: most} }

func expressionSchema() *schema { return textSchema() }

func registerSchema() *schema {
	set := strictyaml.ObjectOf(registerKeys())
	set.Required = []string{"set"}
	return &schema{AnyOf: []*schema{{Enum: RegisterTypes[:RegisterSet]}, set}}
}

func assignmentSchema() *schema {
	changes := strictyaml.ObjectOf(changeKeys())
	changes.MinProperties, changes.MaxProperties = 1, 1
	return &schema{AnyOf: []*schema{textSchema(), changes}}
}

func expressionsSchema() *schema {
	return &schema{AnyOf: []*schema{textSchema(), {Type: "array", Items: textSchema(), MinItems: 1}}}
}

// alternativesSchema is valueSchema for what may be a list of alternatives.
func alternativesSchema(doc string, object *schema) *schema {
	s := valueSchema(doc, object)
	s.AnyOf = append(s.AnyOf, &schema{Type: "array", Items: refTo("alternative")(), MinItems: 1})
	return s
}

func orNull(s *schema) *schema {
	s.Type = []string{"object", "null"}
	return s
}

func valueSchema(doc string, object *schema) *schema {
	object.MinProperties = 1
	return &schema{
		Description: doc,
		AnyOf:       []*schema{{Type: []string{"string", "number", "boolean", "null"}}, object},
	}
}
