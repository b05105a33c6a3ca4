package policy

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// field is one key of a mapping in the policy file. The tables of fields are the
// one source of what is read, of what is suggested for a misspelt key, and of the
// JSON Schema.
type field[T any] struct {
	name   string
	doc    string
	schema func() *schema
	read   func(r *reader, e entry, into *T)
}

func fieldNames[T any](fields []field[T]) []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	return names
}

// readFields reads a mapping by its table. what names it in messages.
func readFields[T any](r *reader, n *yaml.Node, what string, fields []field[T], into *T) {
	for _, e := range r.entries(n) {
		i := slices.IndexFunc(fields, func(f field[T]) bool { return f.name == e.name() })
		if i < 0 {
			r.unknownKey(e, what, fieldNames(fields))
			continue
		}
		fields[i].read(r, e, into)
	}
}

// unknownKey reports a key that a mapping of fields does not have.
func (r *reader) unknownKey(e entry, what string, names []string) {
	if name, rest, found := strings.Cut(e.name(), ":"); found && slices.Contains(names, name) {
		r.spaceAfterColon(e, name, rest)
		return
	}
	hint := r.didYouMean(e.name(), names)
	if hint == "" {
		hint = "; it knows " + listed(names)
	}
	r.errorf(e.at(), "unknown-key", "%s is no key of %s%s", quote(e.name()), what, hint)
}

// spaceAfterColon reports NAME: or NAME:STATE read as one word.
func (r *reader) spaceAfterColon(e entry, name, rest string) {
	example := name + ": " + rest
	if rest == "" {
		example = name + ": …"
	}
	r.errorf(e.at(), "colon", "%s is one word in YAML; put a space after the colon: %s", quote(e.name()), example)
}

// topFields are the keys of a policy file.
func topFields() []field[source] {
	return []field[source]{
		{"version", "The version of the policy language: 1.", constOf(1), readVersion},
		{"name", "What the policy is called, in logs and pictures.", textSchema, readText(func(s *source) *string { return &s.name })},
		{"description", "What the policy is for.", textSchema, readText(func(s *source) *string { return &s.description })},
		{"instructions", "Appended to the upstream's own instructions.", textSchema, readText(func(s *source) *string { return &s.instructions })},
		{"initial", "The state in which a run begins.", nameSchema, readInitial},
		{"on_complete", "What follows a terminal edge: restart begins a new run in the same step, stop offers nothing any more.",
			enumOf(completions), readWord(completions, func(s *source) *Completion { return &s.onComplete })},
		{"everywhere", "Bound in every state that is not terminal.", refTo("place"), readEverywhere},
		{"states", "The states by name. A name not bound in a state does not exist there.", statesSchema, readStates},
		{"renamed", "States with a new name, old: new, read when a reload moves runs.", mapOf(nameSchema), readRenamed},
		{"on_reload", "What a reload does to runs under way: move to the new policy, or pin them to the one that they began with.",
			enumOf(reloads), readWord(reloads, func(s *source) *Reload { return &s.onReload })},
		{"stranded", "What becomes of a run whose state is gone after a reload.",
			enumOf(strandeds), readWord(strandeds, func(s *source) *Stranded { return &s.stranded })},
		{"pin", "What a tool definition does that differs from the lock file: off, warn, or refuse.",
			enumOf(pins), readWord(pins, func(s *source) *Pin { return &s.pin })},
		{"templates", "How resources/templates/list is answered: refuse with a reason, or an empty list for clients that stumble over that.",
			enumOf(templatesWords), readWord(templatesWords, func(s *source) *Templates { return &s.templates })},
		{"upstream_may", "What the upstream may ask of the client; all, if it is not given.", listOf(enumOf(upstreamAsks)), readUpstreamMay},
		{"validate", "Check arguments against the listed inputSchema before a call is sent.", boolSchema, readBool(func(s *source) *bool { return &s.validate })},
		{"passthrough", "Methods, notifications and vendor capabilities to let through that are refused otherwise.", listOf(nameSchema), readPassthrough},
	}
}

// placeFields are the keys of everywhere, and of a state.
func placeFields() []field[placeSource] {
	fields := make([]field[placeSource], Kinds)
	for i, k := range AllKinds {
		fields[i] = field[placeSource]{k.Plural(), placeDocs[k], refTo(bindingsDef(k)),
			func(r *reader, e entry, into *placeSource) { into.kinds[k] = r.bindings(k, e) }}
	}
	return fields
}

var placeDocs = [Kinds]string{
	Tool:     "Tools, by name or glob: a mapping of name to value, or a list of names that all stay.",
	Resource: "Concrete resource URIs, or globs over them, compared byte for byte.",
	Prompt:   "Prompts, by name or glob.",
}

// stateFields are the keys of a state.
func stateFields() []field[stateSource] {
	fields := []field[stateSource]{
		{"description", "What is done in this state; shown in refusals.", textSchema, readText(func(s *stateSource) *string { return &s.description })},
		{"terminal", "An edge to this state completes the run. A terminal state binds nothing.", boolSchema, readBool(func(s *stateSource) *bool { return &s.terminal })},
		{"everywhere", "false: this state takes nothing of everywhere.", boolSchema, readInherits},
	}
	for _, f := range placeFields() {
		fields = append(fields, field[stateSource]{f.name, f.doc, f.schema,
			func(r *reader, e entry, into *stateSource) { f.read(r, e, &into.placeSource) }})
	}
	return fields
}

var edgeKeys = [outcomes + 1]string{"on_success", "on_error", "on_unknown", "on_any"}

var edgeDocs = [outcomes + 1]string{
	"Where a success leads: a result without isError.",
	"Where an error leads: a result with isError: true, or a JSON-RPC error.",
	"Where an unknown outcome leads: sent, and no answer, so that it may have happened. Default: as on_error.",
	"Where every outcome leads that has no edge of its own.",
}

// caseFields are the keys of a case's value.
func caseFields() []field[valueSource] {
	var fields []field[valueSource]
	for i, name := range edgeKeys {
		fields = append(fields, field[valueSource]{name, edgeDocs[i], refTo("target"),
			func(r *reader, e entry, into *valueSource) { into.edges[i] = r.target(e) }})
	}
	return append(fields, field[valueSource]{"exclusive", "Takes the run's turn though it stays: calls of one run then follow each other.",
		boolSchema, readBool(func(v *valueSource) *bool { return &v.exclusive })})
}

// valueFields are the keys of a binding's value.
func valueFields() []field[valueSource] {
	return append(caseFields(),
		field[valueSource]{"by", "The top-level string argument whose text selects the case.", nameSchema, readBy},
		field[valueSource]{"cases", "The texts that the argument may have; any other is refused.", mapOf(refTo("case")), readCases},
	)
}

// targetFields are the keys of an edge's target.
func targetFields() []field[targetSource] {
	return []field[targetSource]{
		{"to", "The state that the edge leads to; left out, this one.", nameSchema, readTo},
		{"terminal", "The edge completes the run.", boolSchema, readBool(func(t *targetSource) *bool { return &t.terminal })},
	}
}
