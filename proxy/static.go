package proxy

import (
	"bytes"
	"slices"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// neverListAgain are the clients known never to list again, by clientInfo.name.
// The sources stand in docs/clients.md.
var neverListAgain = []string{"codex-mcp-client", "claude-ai"}

// static reports whether a client gets the static surface.
func (c *call) static(client string) bool {
	switch c.s.p.cfg.Surface {
	case SurfaceDynamic:
		return false
	case SurfaceStatic:
		return true
	}
	name, _, _ := strings.Cut(client, " (via ") // what mcp-remote appends to the name of its client
	return slices.Contains(neverListAgain, name)
}

// whereAllowed is the end of a description on the static surface.
func whereAllowed(p *policy.Policy, states []policy.State) string {
	names := make([]string, len(states))
	for i, s := range states {
		names[i] = p.StateName(s)
	}
	return "[Allowed in state: " + strings.Join(names, ", ") + "]"
}

// describe returns an item with text at the end of its description.
func describe(item []byte, text string) []byte {
	var edits []wire.Edit
	_ = wire.Members(item, func(key string, at wire.Span) error {
		if key == "description" {
			said, _ := wire.Text(item[at.Start:at.End]) // what is no string says nothing
			edits = append(edits, wire.Edit{At: at, With: wire.AppendString(nil, strings.TrimSpace(said+" "+text))})
		}
		return nil
	})
	if edits == nil {
		member := append(wire.AppendString([]byte(`"description":`), text), ',')
		edits = []wire.Edit{{At: wire.Span{Start: 1, End: 1}, With: member}}
	}
	return wire.Splice(item, edits...)
}

// stateNote is what a result says of the run.
type stateNote struct {
	State            string   `json:"state"`
	Complete         bool     `json:"complete,omitzero"`
	Restarted        bool     `json:"restarted,omitzero"`
	ValidNextActions []string `json:"valid_next_actions"`
}

func (c *call) note() stateNote {
	at := c.s.run.where()
	names := c.s.allowed(at).of(c.Kind)
	return stateNote{State: at.State(), Complete: at.At.Complete, Restarted: c.restarted, ValidNextActions: names}
}

// textEdit appends a text item to a tool's content.
func (c *call) textEdit(m *wire.Message, note stateNote) []wire.Edit {
	content := m.Bytes(m.R.Content)
	if len(content) == 0 || content[0] != '[' {
		return nil
	}
	text := "State is now '" + note.State + "'. Allowed now: " + some(note.ValidNextActions) + "."
	switch {
	case note.Restarted:
		text = "The run was completed and begins again. " + text
	case note.Complete:
		text = "The run is complete. " + c.s.run.key.renews()
	}
	with := append(wire.AppendString([]byte(`{"type":"text","text":`), text), '}')
	if len(bytes.TrimSpace(content[1:])) > 1 {
		with = append([]byte{','}, with...)
	}
	end := m.R.Content.End - 1
	return []wire.Edit{{At: wire.Span{Start: end, End: end}, With: with}}
}
