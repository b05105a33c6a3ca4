package policy

import (
	"bytes"
	"encoding/json"
)

// The JSON rendering: the compiled table, each state with everything that has a
// say in it.
type policyJSON struct {
	Name         string      `json:"name,omitempty"`
	Description  string      `json:"description,omitempty"`
	Instructions string      `json:"instructions,omitempty"`
	File         string      `json:"file"`
	Digest       string      `json:"digest"`
	Initial      string      `json:"initial"`
	OnComplete   string      `json:"on_complete"`
	States       []stateJSON `json:"states"`
}

type stateJSON struct {
	Name        string        `json:"name"`
	Description string        `json:"description,omitempty"`
	Initial     bool          `json:"initial,omitempty"`
	Terminal    bool          `json:"terminal,omitempty"`
	Bindings    []bindingJSON `json:"bindings"`
}

type bindingJSON struct {
	Kind       string     `json:"kind"`
	Pattern    string     `json:"pattern"`
	Glob       bool       `json:"glob,omitempty"`
	Everywhere bool       `json:"everywhere,omitempty"`
	Line       int        `json:"line"`
	Column     int        `json:"column"`
	None       bool       `json:"none,omitempty"`
	By         string     `json:"by,omitempty"`
	Edges      []edgeJSON `json:"edges,omitempty"`
}

type edgeJSON struct {
	Case      *string `json:"case,omitempty"`
	Outcome   string  `json:"outcome"`
	To        string  `json:"to"`
	Stays     bool    `json:"stays,omitempty"`
	Terminal  bool    `json:"terminal,omitempty"`
	Exclusive bool    `json:"exclusive,omitempty"`
}

// JSON renders the compiled policy as indented JSON: each state with every
// binding that has a say there, everywhere's included, and where each outcome
// leads.
func (p *Policy) JSON() []byte {
	out := policyJSON{
		Name: p.name, Description: p.description, Instructions: p.instructions,
		File: p.file, Digest: p.digest, Initial: p.StateName(p.initial), OnComplete: p.onComplete.String(),
	}
	for s := range p.states {
		out.States = append(out.States, p.stateJSON(State(s)))
	}
	return encodeJSON(out)
}

// encodeJSON encodes plain structs, which cannot fail.
func encodeJSON(v any) []byte {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		panic("encoding a plain struct: " + err.Error())
	}
	return out.Bytes()
}

func (p *Policy) stateJSON(s State) stateJSON {
	st := &p.states[s]
	out := stateJSON{
		Name: st.Name, Description: st.Description, Initial: s == p.initial, Terminal: st.Terminal,
		Bindings: []bindingJSON{},
	}
	p.effective(s, func(b *binding) { out.Bindings = append(out.Bindings, p.bindingJSON(b, s)) })
	return out
}

func (p *Policy) bindingJSON(b *binding, s State) bindingJSON {
	out := bindingJSON{
		Kind: b.kind.String(), Pattern: b.rule.Pattern, Glob: b.glob, Everywhere: b.home == here,
		Line: b.rule.Line, Column: b.rule.Column, None: b.none, By: b.by,
	}
	b.each(func(text string, e *edges) {
		var selected *string
		if b.by != "" {
			selected = &text
		}
		for i, o := range allOutcomes {
			t := e.to[i]
			out.Edges = append(out.Edges, edgeJSON{
				Case: selected, Outcome: o.String(), To: p.StateName(t.in(s)),
				Stays: !t.changes(s), Terminal: t.terminal, Exclusive: e.exclusive,
			})
		}
	})
	return out
}
