package upstream

import (
	"encoding/json"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// capability is what an upstream says of one kind of list.
type capability struct{ offered, changes bool }

// capabilities are those by which lists are read.
type capabilities [wire.Templates + 1]capability

// readHello reads the result of initialize.
func readHello(result []byte) (version string, caps capabilities, err error) {
	var hello struct {
		ProtocolVersion string                     `json:"protocolVersion"`
		Capabilities    map[string]json.RawMessage `json:"capabilities"`
	}
	if err := json.Unmarshal(result, &hello); err != nil {
		return "", caps, err
	}
	caps[wire.Tools] = readCapability(hello.Capabilities["tools"])
	caps[wire.Prompts] = readCapability(hello.Capabilities["prompts"])
	caps[wire.Resources] = readCapability(hello.Capabilities["resources"])
	caps[wire.Templates] = caps[wire.Resources]
	return hello.ProtocolVersion, caps, nil
}

// readCapability takes anything but null for an offer, as clients do.
func readCapability(raw json.RawMessage) capability {
	if len(raw) == 0 || string(raw) == "null" {
		return capability{}
	}
	var c struct {
		ListChanged json.RawMessage `json:"listChanged"`
	}
	_ = json.Unmarshal(raw, &c)
	return capability{offered: true, changes: string(c.ListChanged) == "true"}
}
