package upstream

import (
	"encoding/json"
	"slices"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// capability is what an upstream says of one kind of list.
type capability struct{ offered, changes bool }

// capabilities are those by which lists are read.
type capabilities [wire.Templates + 1]capability

// change reports whether the upstream promises to tell of a list's changes.
func (c *capabilities) change() bool {
	return c[wire.Tools].changes || c[wire.Resources].changes || c[wire.Prompts].changes
}

// hello is what a server says of itself.
type hello struct {
	version  string   // of initialize
	versions []string // of server/discover
	caps     capabilities
}

// speaks reports whether the answer to server/discover names a revision.
func (h hello) speaks(revision string) bool { return slices.Contains(h.versions, revision) }

// readHello reads the result of initialize or of server/discover.
func readHello(result []byte) (h hello, err error) {
	var said struct {
		ProtocolVersion   string                     `json:"protocolVersion"`
		SupportedVersions []string                   `json:"supportedVersions"`
		Capabilities      map[string]json.RawMessage `json:"capabilities"`
	}
	if err := json.Unmarshal(result, &said); err != nil {
		return h, err
	}
	h.version, h.versions = said.ProtocolVersion, said.SupportedVersions
	h.caps[wire.Tools] = readCapability(said.Capabilities["tools"])
	h.caps[wire.Prompts] = readCapability(said.Capabilities["prompts"])
	h.caps[wire.Resources] = readCapability(said.Capabilities["resources"])
	h.caps[wire.Templates] = h.caps[wire.Resources]
	return h, nil
}

// supportsLegacy reports whether an error that a revision is not spoken names one of
// the legacy era as one that is.
func supportsLegacy(failure []byte) bool {
	var said struct {
		Data struct {
			Supported []string `json:"supported"`
		} `json:"data"`
	}
	return json.Unmarshal(failure, &said) == nil && slices.ContainsFunc(said.Data.Supported, wire.IsLegacyRevision)
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
