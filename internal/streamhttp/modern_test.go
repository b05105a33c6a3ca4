package streamhttp

import (
	"net/http"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// What a request of the modern era, or one that looks like it, is answered with.
func TestModernRequests(t *testing.T) {
	r := newRig(t, answers(ServerConfig{}), nil)
	session := r.begin("2025-06-18").id
	list := alone("tools/list", "")
	meta := func(members string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{` + members + `}}}`
	}
	const version, able = `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`, `"io.modelcontextprotocol/clientCapabilities":{}`
	for name, c := range map[string]struct {
		raw    string
		status int
		want   string // code or text
	}{
		"a list":                    {headed(list, "tools/list"), 200, `"resultType":"complete"`},
		"a call":                    {tool("a"), 200, `"resultType"`},
		"no client info":            {headed(meta(version+","+able), "tools/list"), 200, `"resultType"`},
		"a session id is ignored":   {headed(list, "tools/list", session), 200, `"resultType"`},
		"an unknown one, too":       {headed(list, "tools/list", "Mcp-Session-Id: nobody's"), 200, `"resultType"`},
		"Last-Event-ID is ignored":  {headed(list, "tools/list", "Last-Event-ID: x.1.1"), 200, `"resultType"`},
		"a Base64 name":             {tool("a", "Mcp-Name: =?base64?YQ==?="), 200, `"resultType"`},
		"spaces around a name":      {tool("a", "Mcp-Name:   a  "), 200, `"resultType"`},
		"a name beyond ASCII":       {tool("é", "Mcp-Name: =?base64?w6k=?="), 200, `"resultType"`},
		"a resource":                {headed(alone("resources/read", `"uri":"a://b"`), "resources/read", "Mcp-Name: a://b"), 200, `"resultType"`},
		"a task":                    {headed(alone("tasks/get", `"taskId":"t"`), "tasks/get", "Mcp-Name: t"), 200, `"resultType"`},
		"a name that names nothing": {headed(list, "tools/list", "Mcp-Name: a"), 200, `"resultType"`},
		"a call of nothing":         {headed(alone("tools/call", ""), "tools/call"), 200, `"resultType"`},

		"unknown to the proxy":  {tool("code -32601"), 404, `-32601`},
		"mismatched, it finds":  {tool("code -32020"), 400, `-32020`},
		"lacking capabilities":  {tool("code -32021"), 400, `-32021`},
		"unsupported, it finds": {tool("code -32022"), 400, `-32022`},
		"invalid, it finds":     {tool("code -32602"), 200, `-32602`},

		"no version header":        {headed(list, "tools/list", "MCP-Protocol-Version: -"), 400, `-32020`},
		"a legacy version header":  {headed(list, "tools/list", "MCP-Protocol-Version: 2025-06-18"), 400, `-32020`},
		"the same in a session":    {headed(list, "tools/list", "MCP-Protocol-Version: 2025-06-18", session), 400, `-32020`},
		"none in a session":        {headed(list, "tools/list", "MCP-Protocol-Version: -", session), 400, `-32020`},
		"another version header":   {headed(list, "tools/list", "MCP-Protocol-Version: 2027-01-01"), 400, `-32020`},
		"no method header":         {headed(list, "tools/list", "Mcp-Method: -"), 400, `-32020`},
		"another method":           {headed(list, "tools/call"), 400, `-32020`},
		"a method in capitals":     {headed(list, "TOOLS/LIST"), 400, `-32020`},
		"no name header":           {tool("a", "Mcp-Name: -"), 400, `-32020`},
		"an empty name header":     {tool("a", "Mcp-Name:"), 400, `-32020`},
		"another name":             {tool("a", "Mcp-Name: b"), 400, `-32020`},
		"bad padding":              {tool("a", "Mcp-Name: =?base64?YQ?="), 400, `-32020`},
		"a header beyond ASCII":    {tool("é"), 400, `-32020`},
		"a name of no call":        {headed(alone("tools/call", ""), "tools/call", "Mcp-Name: a"), 400, `-32020`},
		"no name of a resource":    {headed(alone("resources/read", `"uri":"a://b"`), "resources/read"), 400, `-32020`},
		"no name of a task":        {headed(alone("tasks/get", `"taskId":"t"`), "tasks/get"), 400, `-32020`},
		"_meta of an unknown name": {headed(meta(`"io.modelcontextprotocol/protocolversion":"2026-07-28"`), "tools/list"), 400, `-32600`},

		"no _meta":             {headed(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "tools/list"), 400, `-32602`},
		"no version":           {headed(meta(able), "tools/list"), 400, `-32602`},
		"a version's number":   {headed(meta(`"io.modelcontextprotocol/protocolVersion":20260728,`+able), "tools/list"), 400, `-32602`},
		"no capabilities":      {headed(meta(version), "tools/list"), 400, `-32602`},
		"a list of them":       {headed(meta(version+`,"io.modelcontextprotocol/clientCapabilities":[]`), "tools/list"), 400, `-32602`},
		"an unknown version":   {headed(strings.Replace(list, "2026-07-28", "2027-01-01", 1), "tools/list", "MCP-Protocol-Version: 2027-01-01"), 400, `"data":{"supported":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"requested":"2027-01-01"}`},
		"one without _meta":    {headed(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "tools/list", "MCP-Protocol-Version: 2027-01-01"), 400, `-32022`},
		"an old one in _meta":  {headed(strings.Replace(list, "2026-07-28", "2025-11-25", 1), "tools/list", "MCP-Protocol-Version: 2025-11-25"), 400, `-32022`},
		"initialize":           {headed(alone("initialize", ""), "initialize"), 404, `-32601`},
		"its legacy body":      {headed(strings.Replace(initBody, "%q", `"2025-11-25"`, 1), "initialize"), 404, `-32601`},
		"ping":                 {headed(alone("ping", ""), "ping"), 404, `-32601`},
		"logging/setLevel":     {headed(alone("logging/setLevel", ""), "logging/setLevel"), 404, `-32601`},
		"resources/subscribe":  {headed(alone("resources/subscribe", `"uri":"a://b"`), "resources/subscribe"), 404, `-32601`},
		"a batch":              {headed("["+list+"]", "tools/list"), 400, `-32600`},
		"no JSON":              {headed("{", "tools/list"), 400, `-32700`},
		"a response":           {headed(`{"jsonrpc":"2.0","id":1,"result":{}}`, "tools/list"), 400, `-32600`},
		"an error":             {headed(`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}`, "tools/list"), 400, `-32600`},
		"a notification":       {headed(`{"jsonrpc":"2.0","method":"notifications/x"}`, "notifications/x"), 202, ""},
		"one without a method": {post1(`{"jsonrpc":"2.0","method":"notifications/x"}`, "MCP-Protocol-Version: 2026-07-28"), 202, ""},
		"one of another":       {headed(`{"jsonrpc":"2.0","method":"notifications/x"}`, "tools/call"), 400, `-32020`},
		"one of tomorrow":      {post1(`{"jsonrpc":"2.0","method":"notifications/x"}`, "MCP-Protocol-Version: 2027-01-01"), 400, `-32022`},

		"JSON only":       {tool("a", "Accept: application/json"), 200, `"resultType"`},
		"no Content-Type": {tool("a", "Content-Type: -"), 415, ""},
		"no answer taken": {tool("a", "Accept: text/html"), 406, ""},
		"listen to JSON":  {listenPost("Accept: application/json"), 406, "text/event-stream"},
		"GET":             {request("GET", "/mcp", "", "MCP-Protocol-Version: 2026-07-28"), 405, ""},
		"DELETE":          {request("DELETE", "/mcp", "", "MCP-Protocol-Version: 2026-07-28", session), 405, ""},
		"PUT":             {request("PUT", "/mcp", "", "MCP-Protocol-Version: 2026-07-28"), 405, ""},
		"another path":    {request("POST", "/other", list, "MCP-Protocol-Version: 2026-07-28"), 404, ""},

		"a legacy request without a session": {post1(ping), 400, "Mcp-Session-Id"},
		"a legacy batch":                     {post1("[" + ping + "]"), 400, "Mcp-Session-Id"},
		"a legacy request in a session":      {post1(ping, session), 200, `"result"`},
	} {
		t.Run(name, func(t *testing.T) {
			p := r.do(c.raw).want(t, c.status, c.want)
			if p.Header.Get(headerSession) != "" {
				t.Error("a session id is minted")
			}
			if strings.HasPrefix(c.want, "-32") && (p.Header.Get("Content-Type") != typeJSON || !strings.Contains(p.body, `"id":`)) {
				t.Errorf("%s %s is no JSON-RPC answer", p.Header.Get("Content-Type"), p.body)
			}
		})
	}
}

// A client of both eras takes anything but an error of the modern one for a server
// of sessions.
func TestModernDeclined(t *testing.T) {
	r := newRig(t, ServerConfig{}, nil)
	p := r.do(headed(alone("server/discover", ""), "server/discover")).want(t, 400, "")
	if strings.Contains(p.body, "jsonrpc") {
		t.Errorf("got %s", p.body)
	}
	r.do(request("GET", "/mcp", "", "MCP-Protocol-Version: 2026-07-28")).want(t, 400, "Mcp-Session-Id")
}

// Where nothing but the modern era is spoken, clients of the other are told so.
func TestModernAlone(t *testing.T) {
	srv := NewServer(answers(ServerConfig{}))
	r := startRigWith(t, srv)
	for name, c := range map[string]struct {
		raw    string
		status int
		want   string
	}{
		"a list":                  {headed(alone("tools/list", ""), "tools/list"), 200, `"resultType"`},
		"initialize":              {post1(strings.Replace(initBody, "%q", `"2025-11-25"`, 1)), 400, `"data":{"supported":["2026-07-28"],"requested":"2025-11-25"}`},
		"a request":               {post1(ping), 400, `-32020`},
		"a request of a session":  {post1(ping, "Mcp-Session-Id: x", "MCP-Protocol-Version: 2025-11-25"), 400, `-32022`},
		"an initialized":          {post1(`{"jsonrpc":"2.0","method":"notifications/initialized"}`), 202, ""},
		"GET":                     {request("GET", "/mcp", ""), 405, ""},
		"GET of a session":        {request("GET", "/mcp", "", "MCP-Protocol-Version: 2025-11-25", "Mcp-Session-Id: x"), 405, ""},
		"DELETE":                  {request("DELETE", "/mcp", ""), 405, ""},
		"PUT":                     {request("PUT", "/mcp", ""), 405, ""},
		"a batch":                 {post1("[" + ping + "]"), 400, `-32600`},
		"discover without header": {post1(alone("server/discover", "")), 400, `-32020`},
	} {
		t.Run(name, func(t *testing.T) { r.do(c.raw).want(t, c.status, c.want) })
	}
	r.do(request("GET", "/mcp", "")).wantHeader(t, "Allow", "POST")
}

// Who reads the headers and who reads the body must see one call. What differs for
// any reader is refused, and nobody is called.
func TestHeaderAndBodyNameDifferentTools(t *testing.T) {
	called := make(chan string, 100)
	r := newRig(t, ServerConfig{Modern: func(m *wire.Message, out wire.Stream, _ PeerInfo) wire.Pending {
		called <- m.P.Name
		out.Answer(result(m, "{}"))
		return nil
	}}, nil)
	const sneaky = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"apply",` + modernMeta + `}}`
	body := func(params string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{` + params + `,` + modernMeta + `}}`
	}
	for name, raw := range map[string]string{
		"another tool":            headed(sneaky, "tools/call", "Mcp-Name: read"),
		"another in Base64":       headed(sneaky, "tools/call", "Mcp-Name: =?base64?cmVhZA==?="),
		"two names":               headed(sneaky, "tools/call", "Mcp-Name: apply\r\nMcp-Name: read"),
		"two names, turned":       headed(sneaky, "tools/call", "Mcp-Name: read\r\nMcp-Name: apply"),
		"the same name twice":     headed(sneaky, "tools/call", "Mcp-Name: apply\r\nmcp-name: apply"),
		"a list of names":         headed(sneaky, "tools/call", "Mcp-Name: apply, read"),
		"two methods":             headed(sneaky, "tools/call\r\nMcp-Method: tools/list", "Mcp-Name: apply"),
		"two versions":            headed(sneaky, "tools/call", "Mcp-Name: apply", "MCP-Protocol-Version: 2026-07-28\r\nMCP-Protocol-Version: 2025-06-18"),
		"a legacy version first":  headed(sneaky, "tools/call", "Mcp-Name: apply", "MCP-Protocol-Version: 2025-06-18\r\nMCP-Protocol-Version: 2026-07-28"),
		"a lookalike name":        headed(sneaky, "tools/call", "Mcp-Name: Apply"),
		"a lookalike letter":      headed(body(`"name":"`+"\u0430"+`pply"`), "tools/call", "Mcp-Name: apply"),
		"a zero behind it":        headed(body(`"name":"apply\u0000"`), "tools/call", "Mcp-Name: apply"),
		"a space behind it":       headed(body(`"name":"apply "`), "tools/call", "Mcp-Name: apply "),
		"two names in the body":   headed(body(`"name":"apply","name":"read"`), "tools/call", "Mcp-Name: apply"),
		"a lookalike in the body": headed(body(`"name":"apply","Name":"read"`), "tools/call", "Mcp-Name: apply"),
		"a literal that is read":  headed(body(`"name":"=?base64?cmVhZA==?="`), "tools/call", "Mcp-Name: =?base64?cmVhZA==?="),
		"another method":          headed(sneaky, "tools/list", "Mcp-Name: apply"),
		"a folded header":         headed(sneaky, "tools/call", "Mcp-Name: apply\r\n read"),
		"a header of another era": headed(sneaky, "tools/call", "Mcp-Name: apply", "MCP-Protocol-Version: 2025-03-26"),
	} {
		t.Run(name, func(t *testing.T) {
			if p := r.do(raw); p.StatusCode != http.StatusBadRequest {
				t.Errorf("got %s %s", p.Status, p.body)
			}
			select {
			case tool := <-called:
				t.Errorf("%q was called", tool)
			default:
			}
		})
	}
}

// Others' requests are not cancelled by notifications, which name ids alone.
func TestModernCancelledByID(t *testing.T) {
	cfg, came := stands(ServerConfig{}, false)
	r := newRig(t, cfg, nil)
	victim := r.connect().send(tool("slow"))
	s := <-came
	r.do(headed(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, "notifications/cancelled")).want(t, 202, "")
	select {
	case other := <-came:
		t.Errorf("%s was handed on", other.m.Method)
	default:
	}
	s.answer(`"done"`)
	victim.reply().want(t, 200, `"done"`)
}

func TestModernOversized(t *testing.T) {
	r := newRig(t, answers(ServerConfig{MaxMessage: 1000}), nil)
	long := alone("tools/call", `"name":"a","arguments":{"x":"`+strings.Repeat("x", 1000)+`"}`)
	r.do(headed(long, "tools/call", "Mcp-Name: a")).want(t, 413, "")
	r.do(tool("a", "Mcp-Name: "+strings.Repeat("a", 40<<10))).want(t, 431, "")
	r.do(tool(strings.Repeat("a", 500), "Mcp-Name: "+strings.Repeat("b", 500))).want(t, 400, strings.Repeat("b", 128)+`\"`)
}

// What is refused here is told to whoever asks why.
func TestModernRefusedIsTold(t *testing.T) {
	told := make(chan Reason, 10)
	cfg := answers(ServerConfig{Refused: func(why Reason, _ int, _ *http.Request) { told <- why }})
	r := newRig(t, cfg, nil)
	for raw, want := range map[string]Reason{
		tool("a", "Mcp-Name: b"):                 ReasonHeader,
		headed("{", "tools/list"):                ReasonMessage,
		headed("[]", "tools/list"):               ReasonMessage,
		tool("a", "Origin: http://evil.example"): ReasonOrigin,
	} {
		r.do(raw)
		if got := <-told; got != want {
			t.Errorf("told %s, want %s", got, want)
		}
	}
}
