package proxy

import (
	"encoding/json/jsontext"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// offered is what an upstream has, as its capabilities say.
type offered struct {
	lists [4]bool // by wire.ListKind
	tasks bool    // in the client's era
	logs  bool    // log messages
}

// offeredIn reads what capabilities offer a client of an era.
func offeredIn(capabilities []byte, era wire.Era) (o offered) {
	_ = wire.Members(capabilities, func(name string, at wire.Span) error {
		value := capabilities[at.Start:at.End]
		if string(value) == "null" { // offers nothing
			return nil
		}
		switch name {
		case "tools":
			o.lists[wire.Tools] = true
		case "resources":
			o.lists[wire.Resources], o.lists[wire.Templates] = true, true
		case "prompts":
			o.lists[wire.Prompts] = true
		case "logging":
			o.logs = true
		case "tasks":
			o.tasks = o.tasks || era == wire.Legacy
		case "extensions":
			o.tasks = o.tasks || era == wire.Modern && has(value, tasksExtension)
		}
		return nil
	})
	return o
}

// carried are the capabilities of an upstream that the proxy carries for a client of
// an era, or the policy passes through. It promises list_changed for all that it lists.
func carried(capabilities []byte, era wire.Era, p *policy.Policy) []byte {
	return wire.Pick(capabilities, func(name string, value []byte) []byte {
		if string(value) == "null" {
			return nil
		}
		switch name {
		case "tools", "resources", "prompts":
			return listChanges(value)
		case "logging", "completions":
			return value
		case "tasks":
			if era == wire.Legacy {
				return value
			}
		case "extensions":
			if era == wire.Modern && has(value, tasksExtension) {
				return keepOnly(value, tasksExtension)
			}
		}
		if p.Passthrough(name) {
			return value
		}
		return nil
	})
}

// keepOnly returns an object of one member alone.
func keepOnly(object []byte, only string) []byte {
	return wire.Pick(object, func(name string, value []byte) []byte {
		if name != only {
			return nil
		}
		return value
	})
}

func listChanges(capability []byte) []byte {
	if jsontext.Value(capability).Kind() != '{' {
		return []byte(`{"listChanged":true}`)
	}
	out := wire.Pick(capability, func(name string, value []byte) []byte {
		if name == "listChanged" {
			return nil
		}
		return value
	})
	out = out[:len(out)-1]
	if len(out) > 1 {
		out = append(out, ',')
	}
	return append(out, `"listChanged":true}`...)
}
