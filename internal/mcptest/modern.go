package mcptest

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
)

// ModernRevision is the first revision of the protocol without sessions.
const ModernRevision = "2026-07-28"

// The members of _meta that make a message one of the modern era.
const (
	metaPrefix       = "io.modelcontextprotocol/"
	metaVersion      = metaPrefix + "protocolVersion"
	metaSubscription = metaPrefix + "subscriptionId"
)

// Modern is what a client of the modern era says of itself in each request. Its zero value is a client that can do
// everything. All members are JSON.
type Modern struct {
	Version      string // no JSON; default ModernRevision
	Capabilities string // default: sampling, elicitation and roots
	Client       string // default: a name
	Meta         string // further members of _meta, `"a":1,"b":2`; default none
}

// members are those of a request's _meta.
func (m Modern) members() string {
	text := `"` + metaVersion + `":` + string(encode(cmp.Or(m.Version, ModernRevision))) +
		`,"` + metaPrefix + `clientCapabilities":` + cmp.Or(m.Capabilities, `{"sampling":{},"elicitation":{},"roots":{}}`) +
		`,"` + metaPrefix + `clientInfo":` + cmp.Or(m.Client, `{"name":"raw","version":"1"}`)
	if m.Meta != "" {
		text += "," + m.Meta
	}
	return text
}

// Params returns the params of a request with the _meta of the modern era put in, beside what _meta holds already.
// Params is JSON, and may be empty.
func (m Modern) Params(params string) string {
	params = strings.TrimSpace(params)
	if inner := strings.TrimSpace(strings.Trim(params, "{}")); params == "" || inner == "" {
		return `{"_meta":{` + m.members() + `}}`
	}
	var read struct {
		Meta json.RawMessage `json:"_meta"`
	}
	if json.Unmarshal([]byte(params), &read) == nil && len(read.Meta) > 2 {
		return strings.Replace(params, string(read.Meta), `{`+m.members()+`,`+string(read.Meta[1:]), 1)
	}
	return params[:len(params)-1] + `,"_meta":{` + m.members() + `}}`
}

// Modern makes all later requests of the session those of a client of the modern era; there is nothing to initialize
// then. It is to be called before the first message.
func (s *Session) Modern(as Modern) { s.modern = &as }

// Open sends a request with the next free id, and returns the id and how the client takes the request back: by closing
// its response stream over HTTP, by a notification on stdio.
func (s *Session) Open(method, params string) (id int, leave func()) {
	id, text := s.request(method, params)
	return id, s.line.open(text)
}

// Subscribe opens a stream of notifications and returns when it is acknowledged; what else arrived until then is
// dropped. The filter is JSON: {"toolsListChanged":true}.
func (s *Session) Subscribe(filter string) (id int, leave func()) {
	s.t.Helper()
	id, leave = s.Open("subscriptions/listen", `{"notifications":`+filter+`}`)
	for {
		m := s.Next()
		if m.IsResponse() && string(m.ID) == string(encode(id)) {
			s.t.Fatalf("subscribing to %s: %s", filter, m)
		}
		if m.Method == "notifications/subscriptions/acknowledged" && m.Subscription() == string(encode(id)) {
			return id, leave
		}
	}
}

// Subscription returns the JSON of the id of the subscription that a notification belongs to; empty: none.
func (m Message) Subscription() string {
	var read struct {
		Meta map[string]json.RawMessage `json:"_meta"`
	}
	if json.Unmarshal(m.Params, &read) != nil {
		return ""
	}
	return string(read.Meta[metaSubscription])
}

// IsModern reports whether the message is a request of the modern era.
func (m Message) IsModern() bool {
	return bytes.Contains(m.Params, []byte(`"`+metaVersion+`"`))
}

// modernHeader sets the headers that say again what a message's body says.
func modernHeader(h http.Header, m Message) {
	var read struct {
		Meta   map[string]json.RawMessage `json:"_meta"`
		TaskID string                     `json:"taskId"`
	}
	var version string
	if json.Unmarshal(m.Params, &read) == nil {
		_ = json.Unmarshal(read.Meta[metaVersion], &version)
	}
	h.Set("MCP-Protocol-Version", version)
	h.Set("Mcp-Method", m.Method)
	switch m.Method {
	case "tools/call", "prompts/get", "resources/read":
		h.Set("Mcp-Name", HeaderValue(m.Name))
	case "tasks/get", "tasks/update", "tasks/cancel":
		h.Set("Mcp-Name", HeaderValue(read.TaskID))
	}
}

// HeaderValue returns a value as it stands in Mcp-Name and Mcp-Param-*: in base64 where it could not be told apart from
// what HTTP makes of it.
func HeaderValue(text string) string {
	plain := text == strings.TrimSpace(text) && !strings.HasPrefix(text, "=?base64?")
	for _, r := range text {
		plain = plain && r >= ' ' && r <= '~'
	}
	if plain {
		return text
	}
	return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(text)) + "?="
}
