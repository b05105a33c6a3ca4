package policy

import "github.com/fsm-proxy/fsm-proxy/internal/strictyaml"

// topFields are the keys of a policy file.
func topFields() []field[source] {
	return []field[source]{
		key("version", "The version of the policy language: 1.", strictyaml.Const(1), readVersion),
		key("name", "What the policy is called, in logs and pictures.", textSchema, readText(func(s *source) *string { return &s.name })),
		key("description", "What the policy is for.", textSchema, readText(func(s *source) *string { return &s.description })),
		key("instructions", "Appended to the upstream's own instructions.", textSchema, readText(func(s *source) *string { return &s.instructions })),
		key("initial", "The state in which a run begins.", nameSchema, readInitial),
		key("on_complete", "What follows a terminal edge: restart begins a new run in the same step, stop offers nothing any more.",
			strictyaml.Enum(completions), readCompletion),
		key("everywhere", "Bound in every state that is not terminal.", refTo("place"), readEverywhere),
		key("states", "The states by name. A name not bound in a state cannot be used there.", statesSchema, readStates),
		key("renamed", "States with a new name, old: new, read when a reload moves runs.", strictyaml.Map(nameSchema), readRenamed),
		key("on_reload", "What a reload does to runs under way: move to the new policy, or pin them to the one that they began with.",
			strictyaml.Enum(reloads), readWord(reloads, func(s *source) *Reload { return &s.onReload })),
		key("stranded", "What becomes of a run whose state is gone after a reload.",
			strictyaml.Enum(strandeds), readWord(strandeds, func(s *source) *Stranded { return &s.stranded })),
		key("pin", "What a tool definition does that differs from the lock file: off, warn, or refuse.",
			strictyaml.Enum(pins), readPin),
		key("templates", "How resources/templates/list is answered: refuse with a reason, or an empty list for clients that stumble over that.",
			strictyaml.Enum(templatesWords), readWord(templatesWords, func(s *source) *Templates { return &s.templates })),
		key("upstream_may", "What the upstream may ask of the client; all, if it is not given.", strictyaml.List(strictyaml.Enum(upstreamAsks)), readUpstreamMay),
		key("validate", "Check arguments against the listed inputSchema before a call is sent.", strictyaml.Bool, readBool(func(s *source) *bool { return &s.validate })),
		key("passthrough", "Methods, notifications and vendor capabilities to let through that are refused otherwise.", strictyaml.List(nameSchema), readPassthrough),
	}
}

// placeFields are the keys of everywhere, and of a state.
func placeFields() []field[placeSource] {
	fields := make([]field[placeSource], Kinds)
	for i, k := range AllKinds {
		fields[i] = key(k.Plural(), placeDocs[k], refTo(bindingsDef(k)),
			func(r reader, e entry, into *placeSource) { into.kinds[k] = r.bindings(k, e) })
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
		key("description", "What is done in this state; shown in refusals.", textSchema, readText(func(s *stateSource) *string { return &s.description })),
		key("terminal", "An edge to this state completes the run. A terminal state binds nothing.", strictyaml.Bool, readBool(func(s *stateSource) *bool { return &s.terminal })),
		key("everywhere", "false: this state takes nothing of everywhere.", strictyaml.Bool, readInherits),
	}
	for _, f := range placeFields() {
		fields = append(fields, key(f.Name, f.Doc, f.Schema,
			func(r reader, e entry, into *stateSource) { f.Read(r, e, &into.placeSource) }))
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
		fields = append(fields, key(name, edgeDocs[i], refTo("target"),
			func(r reader, e entry, into *valueSource) { into.edges[i] = r.target(e) }))
	}
	return append(fields, key("exclusive", "Takes the run's turn though it stays: calls of one run then follow each other.",
		strictyaml.Bool, readBool(func(v *valueSource) *bool { return &v.exclusive })))
}

// valueFields are the keys of a binding's value.
func valueFields() []field[valueSource] {
	return append(caseFields(),
		key("by", "The top-level string argument whose text selects the case.", nameSchema, readBy),
		key("cases", "The texts that the argument may have; any other is refused.", strictyaml.Map(refTo("case")), readCases),
	)
}

// targetFields are the keys of an edge's target.
func targetFields() []field[targetSource] {
	return []field[targetSource]{
		key("to", "The state that the edge leads to; left out, this one.", nameSchema, readTo),
		key("terminal", "The edge completes the run.", strictyaml.Bool, readBool(func(t *targetSource) *bool { return &t.terminal })),
	}
}
