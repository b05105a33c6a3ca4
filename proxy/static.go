package proxy

import (
	"bytes"
	"slices"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
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
