package bridge

import (
	"encoding/json/jsontext"
	"encoding/json/v2"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// Introduction is how a client is introduced to an upstream.
type Introduction struct {
	Capabilities, Info []byte // nil: none, and no name
	Level              string // of the log messages that it wants; empty: it has not said
}

// Elicits reports whether the client can ask its user to fill in a form: it says so, and of a form where it says of what
// (2025-11-25, client/elicitation, "Capabilities").
func (i Introduction) Elicits() bool {
	value := wire.Member(i.Capabilities, "elicitation")
	return len(value) > 0 && value[0] == '{' && (!has(value, "url") || has(value, "form"))
}

// IntroductionIn is what a stateless client says of itself in a request.
func IntroductionIn(m *wire.Message) Introduction {
	return Introduction{Capabilities: m.Bytes(m.P.Modern.Capabilities), Info: m.Bytes(m.P.Modern.ClientInfo)}
}

// LogLevel is which log messages a stateless request asks for; empty: none.
func LogLevel(m *wire.Message) string { return m.P.Modern.LogLevel }

// Revision is the revision of stateless clients, Latest the newest that has sessions.
const (
	Revision = wire.ModernRevision
	Latest   = wire.LatestLegacy
)

// Opens reports whether a revision is one that begins with initialize.
func Opens(revision string) bool { return wire.IsLegacyRevision(revision) }

// SessionsOnly is what is wrong with a stateless request where clients that know
// sessions are to begin one.
func SessionsOnly(m *wire.Message) *wire.Fault {
	fault := ProtocolLegacy.Spoken().Unsupported(m.P.Modern.Version)
	fault.Text = "unsupported protocol version: begin a session with initialize, of revision 2024-11-05 to " + Latest +
		"; for a client that knows " + Revision + " alone start fsm-proxy with --protocol both"
	return fault
}

// meta are the members of _meta by which a client is introduced.
func (i Introduction) meta() (names []string, values [][]byte) {
	capabilities := i.Capabilities
	if capabilities == nil {
		capabilities = []byte("{}")
	}
	names = append(make([]string, 0, 4), wire.MetaVersion, wire.MetaCapabilities)
	values = append(make([][]byte, 0, 4), []byte(`"`+wire.ModernRevision+`"`), capabilities)
	if i.Info != nil {
		names, values = append(names, wire.MetaClientInfo), append(values, i.Info)
	}
	if i.Level != "" {
		names, values = append(names, wire.MetaLogLevel), append(values, wire.AppendString(nil, i.Level))
	}
	return names, values
}

// Meta is the _meta with which the upstream is asked on the client's behalf; nil: none.
func (i Introduction) Meta(of Server) []byte {
	if of.era != wire.Modern {
		return nil
	}
	return wire.Object(i.meta())
}

// Opening is what a connection may be opened with.
type Opening struct {
	// Initialize opens a connection of the legacy era, Discover (server/discover with
	// all of its _meta) one of the modern era. Nil: not of that era.
	Initialize, Discover *wire.Message
	// Prefer is the era that is tried first where both can be.
	Prefer wire.Era
}

// Opening introduces a client in both eras, preferably in its own.
func (c Client) Opening(of Introduction) Opening {
	initialize := wire.Object([]string{"protocolVersion", "capabilities", "clientInfo"},
		[][]byte{wire.AppendString(nil, wire.LatestLegacy), of.Capabilities, of.Info})
	discover := append(append([]byte(`{"_meta":`), wire.Object(of.meta())...), '}')
	return Opening{
		Initialize: wire.Made(wire.RequestMessage(0, "initialize", initialize)),
		Discover:   wire.Made(wire.RequestMessage(0, "server/discover", discover)),
		Prefer:     c.era,
	}
}

// Askable are client capabilities by which an upstream may ask for all that is not hidden.
func Askable(hidden Hidden) []byte {
	var names []string
	var values [][]byte
	for _, name := range Asked {
		if hidden.capability(name) {
			continue
		}
		value := "{}"
		if name == "elicitation" {
			value = `{"form":{},"url":{}}`
		}
		names, values = append(names, name), append(values, []byte(value))
	}
	return wire.Object(names, values)
}

// InitializeResult is a server's introduction as the answer to a client's initialize.
func (s Server) InitializeResult(hello, initialize *wire.Message) *wire.Message {
	if s.era == wire.Legacy {
		return hello
	}
	version := wire.LatestLegacy
	if asked := initialize.P.ProtocolVersion; wire.IsLegacyRevision(asked) {
		version = asked
	}
	names := []string{"protocolVersion"}
	values := [][]byte{wire.AppendString(nil, version)}
	result := hello.Bytes(hello.Result)
	_ = wire.Members(result, func(key string, at wire.Span) error {
		if key == "capabilities" || key == "instructions" {
			names, values = append(names, key), append(values, result[at.Start:at.End])
		}
		return nil
	})
	info := hello.ServerInfo()
	if info == nil {
		info = []byte(`{"name":"unknown","version":""}`)
	}
	names, values = append(names, "serverInfo"), append(values, info)
	return wire.Made(wire.ResultAnswer(initialize.Bytes(initialize.ID), wire.Object(names, values)))
}

// Offered is what an upstream offers a client.
type Offered struct {
	Lists [4]bool // by wire.ListKind
	Tasks bool    // that the client can follow
	Logs  bool    // log messages
}

// Offered reads what the capabilities of an upstream offer the client.
func (c Client) Offered(capabilities []byte) (o Offered) {
	_ = wire.Members(capabilities, func(name string, at wire.Span) error {
		value := capabilities[at.Start:at.End]
		if string(value) == "null" { // offers nothing
			return nil
		}
		switch name {
		case "tools":
			o.Lists[wire.Tools] = true
		case "resources":
			o.Lists[wire.Resources], o.Lists[wire.Templates] = true, true
		case "prompts":
			o.Lists[wire.Prompts] = true
		case "logging":
			o.Logs = true
		}
		o.Tasks = o.Tasks || c.tasks(name, value) != nil
		return nil
	})
	return o
}

// tasks is a capability, if it offers tasks to the client, with that alone in it.
func (c Client) tasks(name string, value []byte) []byte {
	switch {
	case name == "tasks" && !c.Stateless():
		return value
	case name == "extensions" && c.Stateless() && has(value, tasksExtension):
		return wire.Object([]string{tasksExtension}, [][]byte{wire.Member(value, tasksExtension)})
	}
	return nil
}

// Carried are the capabilities of an upstream that the proxy carries for the client,
// or passes through. It promises list_changed for all that it lists.
func (c Client) Carried(capabilities []byte, passes func(name string) bool) []byte {
	return wire.Pick(capabilities, func(name string, value []byte) []byte {
		if string(value) == "null" {
			return nil
		}
		switch name {
		case "tools", "resources", "prompts":
			return ListChanges(value)
		case "logging", "completions":
			return value
		}
		if tasks := c.tasks(name, value); tasks != nil {
			return tasks
		}
		if passes(name) {
			return value
		}
		return nil
	})
}

// ListChanges is a list's capability with list_changed promised.
func ListChanges(capability []byte) []byte {
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

// Discovered is the result of server/discover.
func Discovered(revisions []string, capabilities []byte, instructions string) []byte {
	versions, _ := json.Marshal(revisions)
	names := []string{"supportedVersions", "capabilities"}
	values := [][]byte{versions, capabilities}
	if instructions != "" {
		names, values = append(names, "instructions"), append(values, wire.AppendString(nil, instructions))
	}
	return wire.Object(names, values)
}
