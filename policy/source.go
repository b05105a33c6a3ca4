package policy

// source is what a policy file says, before names are resolved.
type source struct {
	settings
	version    bool
	initial    text
	hasStates  bool
	hasInitial bool
	everywhere placeSource
	states     []stateSource
	renames    []renameSource
}

// text is a text with its place.
type text struct {
	at
	value string
	given bool
	// joined is whether a slip may hide in it: an unquoted name with no value,
	// which NAME:STATE is in YAML.
	joined bool
}

// renameSource is one entry of renamed.
type renameSource struct{ old, new text }

// placeSource is what one place binds: a state or everywhere.
type placeSource struct {
	at
	kinds [Kinds][]bindingSource
}

// stateSource is one state.
type stateSource struct {
	placeSource
	name        text
	description string
	terminal    bool
	without     bool // everywhere: false
}

// bindingSource is one name with its value.
type bindingSource struct {
	pattern text
	value   valueSource
}

// valueSource is the value of a binding or of a case.
type valueSource struct {
	at
	none, exclusive bool
	bare            bool // nothing is said: a name alone in a mapping
	short           bool // one word, which is on_success
	null            text // the word that said nothing: null or ~
	edges           [outcomes + 1]targetSource
	by              text
	cases           []caseSource
	hasCases        bool
}

// The places of the edges in valueSource.edges: the three outcomes, and on_any.
const onAny = outcomes

// hasEdges reports whether any edge is given.
func (v *valueSource) hasEdges() bool {
	for _, t := range v.edges {
		if t.given {
			return true
		}
	}
	return false
}

// edge returns the edge of an outcome, and whether the file gives it: its own,
// else on_any's; else, for unknown only, on_error's, which is not given.
func (v *valueSource) edge(o Outcome) (t targetSource, given bool) {
	if t := v.edges[o.index()]; t.given {
		return t, true
	}
	if t := v.edges[onAny]; t.given {
		return t, true
	}
	if o == Unknown {
		return v.edges[Error.index()], false
	}
	return targetSource{}, false
}

// caseSource is one case of a split binding.
type caseSource struct {
	text  text
	value valueSource
}

// targetSource is where an edge leads; the zero value stays.
type targetSource struct {
	given    bool
	to       text // not given: this state
	terminal bool
}
