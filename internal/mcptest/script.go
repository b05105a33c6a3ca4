package mcptest

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// Script is a raw upstream described by its parts. Everything not given is as plain as can be; all JSON is
// sent byte for byte.
type Script struct {
	Capabilities string // default: tools, resources and prompts whose lists change, subscriptions, logging, completions
	Instructions string // no JSON; default none

	// Tools answer tools/call by name. One that is nil answers with its own name.
	Tools map[string]func(*Exchange)

	// Lists are whole results by method: "tools/list" and the like. A tools/list that is not given is made of
	// the names of Tools in their order.
	Lists map[string]string

	// Methods answer any other request or notification.
	Methods map[string]func(*Exchange)
}

const defaultCapabilities = `{"tools":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},` +
	`"prompts":{"listChanged":true},"logging":{},"completions":{}}`

// Server returns the raw upstream.
func (s Script) Server() Server { return Server{Handle: s.handle} }

func (s Script) handle(e *Exchange) {
	if own, ok := s.Methods[e.Method]; ok {
		own(e)
		return
	}
	if list, ok := s.Lists[e.Method]; ok {
		e.Result(list)
		return
	}
	switch {
	case e.Modern && e.Method == "server/discover":
		e.Result(s.discovered())
		return
	case !e.Modern && s.legacy(e):
		return
	}
	switch e.Method {
	case "tools/list":
		e.Result(`{"tools":[` + strings.Join(s.tools(), ",") + `]}`)
	case "tools/call":
		s.call(e)
	default:
		s.other(e)
	}
}

// legacy answers what the modern era has no more, and reports whether it is that.
func (s Script) legacy(e *Exchange) bool {
	switch e.Method {
	case "initialize":
		e.Result(s.initialized(e))
	case "ping", "resources/subscribe", "resources/unsubscribe", "logging/setLevel":
		e.Result("{}")
	default:
		return false
	}
	return true
}

// offer is what the server says of itself in either era.
func (s Script) offer() string {
	instructions := ""
	if s.Instructions != "" {
		instructions = string(encode(s.Instructions))
	}
	return `"capabilities":` + cmp.Or(s.Capabilities, defaultCapabilities) + member("instructions", instructions)
}

func (s Script) initialized(e *Exchange) string {
	var asked struct {
		ProtocolVersion string `json:"protocolVersion"`
	}
	if json.Unmarshal(e.Params, &asked) != nil || asked.ProtocolVersion == "" {
		asked.ProtocolVersion = "2025-11-25"
	}
	return `{"protocolVersion":` + string(encode(asked.ProtocolVersion)) + `,` + s.offer() +
		`,"serverInfo":{"name":"raw","version":"1.0.0"}}`
}

func (s Script) tools() []string {
	names := slices.Sorted(maps.Keys(s.Tools))
	for i, name := range names {
		names[i] = `{"name":` + string(encode(name)) + `,"inputSchema":{"type":"object"}}`
	}
	return names
}

func (s Script) call(e *Exchange) {
	tool, ok := s.Tools[e.Name]
	switch {
	case !ok:
		e.Fail(-32602, "Unknown tool: "+e.Name)
	case tool == nil:
		e.Result(Text(e.Name))
	default:
		tool(e)
	}
}

// other answers requests that nobody described.
func (s Script) other(e *Exchange) {
	if !e.IsRequest() {
		return
	}
	switch e.Method {
	case "resources/list":
		e.Result(`{"resources":[]}`)
	case "prompts/list":
		e.Result(`{"prompts":[]}`)
	case "resources/read":
		e.Result(`{"contents":[{"uri":` + string(encode(e.Name)) + `,"text":"read"}]}`)
	case "prompts/get":
		e.Result(`{"messages":[{"role":"user","content":{"type":"text","text":` + string(encode(e.Name)) + `}}]}`)
	default:
		e.Fail(-32601, "Method not found")
	}
}
