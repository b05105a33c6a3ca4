package surface

import (
	"bytes"
	"encoding/json/v2"
	"strconv"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// Allowed are the names that are listed and allowed, by kind.
type Allowed struct {
	Tools     []string `json:"tools"`
	Resources []string `json:"resources"`
	Prompts   []string `json:"prompts"`
	Signals   []string `json:"signals,omitzero"` // nil: none
}

// Of returns those of a kind.
func (a *Allowed) Of(k policy.Kind) []string {
	switch k {
	case policy.Resource:
		return a.Resources
	case policy.Prompt:
		return a.Prompts
	case policy.Signal:
		return a.Signals
	}
	return a.Tools
}

// Allowed returns what is listed and allowed in a place, in the upstream's order.
func (s *Shown) Allowed(at run.Snapshot) *Allowed {
	return &Allowed{Tools: s.allowed(at, policy.Tool), Resources: s.allowed(at, policy.Resource), Prompts: s.allowed(at, policy.Prompt), Signals: at.Signals()}
}

// allowed returns the names of a kind, never nil: JSON has a list of none then.
func (s *Shown) allowed(at run.Snapshot, k policy.Kind) []string {
	if names := s.Names(at, k); names != nil {
		return names
	}
	return []string{}
}

// Note is what a result says of the run.
type Note struct {
	State            string   `json:"state"`
	Complete         bool     `json:"complete,omitzero"`
	Restarted        bool     `json:"restarted,omitzero"`
	ValidNextActions []string `json:"valid_next_actions"`
}

// Note returns what a result of a kind says of a run that is at a place; restarted tells that
// it has just begun anew.
func (s *Shown) Note(at run.Snapshot, k policy.Kind, restarted bool) Note {
	return Note{State: at.State(), Complete: at.At.Complete, Restarted: restarted, ValidNextActions: s.allowed(at, k)}
}

// Signalled is the result of a signal, after which the run is at a place; restarted is as for Note,
// renews as for Note.Item.
func (s *Shown) Signalled(at run.Snapshot, restarted bool, renews string) []byte {
	note := s.Note(at, policy.Tool, restarted)
	structured, _ := json.Marshal(struct {
		State     string   `json:"state"`
		Complete  bool     `json:"complete,omitzero"`
		Restarted bool     `json:"restarted,omitzero"`
		ValidNext *Allowed `json:"valid_next"`
	}{note.State, note.Complete, restarted, s.Allowed(at)})
	text := note.outcome(renews)
	if signals := at.Signals(); signals != nil {
		text += " Signals: " + Some(signals) + "."
	}
	out := append(wire.AppendString([]byte(`{"content":[{"type":"text","text":`), text), `}],"structuredContent":`...)
	return append(append(out, structured...), '}')
}

// JSON is the value of _meta["fsm-proxy/state"].
func (n Note) JSON() []byte {
	state, _ := json.Marshal(n)
	return state
}

// Text says where the run is, and what is allowed there.
func (n Note) Text() string {
	return "State is now '" + n.State + "'. Allowed now: " + Some(n.ValidNextActions) + "."
}

// outcome is Text after a step, which may have completed the run; renews is as for Item.
func (n Note) outcome(renews string) string {
	switch {
	case n.Restarted:
		return "The run was completed and begins again. " + n.Text()
	case n.Complete:
		return "The run is complete. " + renews
	}
	return n.Text()
}

// Item is the edit that adds a text item to a tool's content, none where that is no list.
// renews says how a run that is complete is followed by another.
func (n Note) Item(m *wire.Message, renews string) []wire.Edit {
	content := m.Bytes(m.R.Content)
	if len(content) == 0 || content[0] != '[' {
		return nil
	}
	with := append(wire.AppendString([]byte(`{"type":"text","text":`), n.outcome(renews)), '}')
	if len(bytes.TrimSpace(content[1:])) > 1 {
		with = append([]byte{','}, with...)
	}
	end := m.R.Content.End - 1
	return []wire.Edit{{At: wire.Span{Start: end, End: end}, With: with}}
}

// maxNamed is how many names a text has.
const maxNamed = 20

// Some names at most twenty names.
func Some(names []string) string {
	switch {
	case len(names) == 0:
		return "nothing"
	case len(names) > maxNamed:
		return strings.Join(names[:maxNamed], ", ") + ", and " + strconv.Itoa(len(names)-maxNamed) + " more"
	}
	return strings.Join(names, ", ")
}
