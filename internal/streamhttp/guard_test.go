package streamhttp

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

const ping = `{"jsonrpc":"2.0","id":7,"method":"ping"}`

func TestHostRebinding(t *testing.T) {
	local := newRig(t, ServerConfig{Loopback: true, AllowedHosts: []string{"proxy.example", "other.example:8443"}}, nil)
	open := newRig(t, ServerConfig{}, nil)
	listed := newRig(t, ServerConfig{AllowedHosts: []string{"proxy.example"}}, nil)
	for _, c := range []struct {
		rig  *rig
		host string
		want int
	}{
		{local, "localhost", 400}, {local, "LOCALHOST:8080", 400}, {local, "127.0.0.1:1", 400}, {local, "127.9.9.9", 400},
		{local, "[::1]:8080", 400}, {local, "[::1]", 400}, {local, "[::ffff:127.0.0.1]:1", 400},
		{local, "proxy.example", 400}, {local, "Proxy.Example:99", 400}, {local, "other.example:8443", 400},
		{local, "other.example", 403}, {local, "evil.example", 403}, {local, "evil.example:8080", 403}, {local, "", 403},
		{local, "localhost.evil.example", 403}, {local, "127.0.0.1.evil.example", 403}, {local, "10.0.0.1", 403},
		{local, "[::1", 403}, {local, "[fe80::1]", 403}, {local, "0.0.0.0", 403},
		{open, "anything.example", 400}, {open, "10.0.0.1:80", 400},
		{listed, "proxy.example:80", 400}, {listed, "localhost", 403}, {listed, "evil.example", 403},
	} {
		p := c.rig.do(post1(ping, "Host: "+c.host))
		if p.StatusCode != c.want {
			t.Errorf("Host %q: got %s, want %d", c.host, p.Status, c.want)
		}
	}
}

func TestOrigin(t *testing.T) {
	local := newRig(t, ServerConfig{Loopback: true, AllowedOrigins: []string{"https://app.example", "https://slash.example/"}}, nil)
	open := newRig(t, ServerConfig{AllowedOrigins: []string{"https://app.example"}}, nil)
	for _, c := range []struct {
		rig    *rig
		origin string
		want   int
	}{
		{local, "http://localhost:6274", 400}, {local, "http://127.0.0.1", 400}, {local, "https://[::1]:1", 400},
		{local, "https://app.example", 400}, {local, "https://APP.example", 400}, {local, "https://slash.example", 400},
		{local, "http://app.example", 403}, {local, "https://app.example:444", 403}, {local, "https://evil.example", 403},
		{local, "null", 403}, {local, "", 403}, {local, "http://localhost.evil.example", 403}, {local, "file://localhost", 403},
		{local, "http://localhost@evil.example", 403},
		{open, "https://app.example", 400}, {open, "http://localhost", 403}, {open, "https://evil.example", 403},
	} {
		p := c.rig.do(post1(ping, "Origin: "+c.origin))
		if p.StatusCode != c.want {
			t.Errorf("Origin %q: got %s, want %d", c.origin, p.Status, c.want)
		}
	}
}

func TestGuardStandsBeforeEveryMethodAndPath(t *testing.T) {
	r := newRig(t, ServerConfig{Loopback: true}, nil)
	for _, method := range []string{"POST", "GET", "DELETE", "OPTIONS", "PUT", "HEAD"} {
		for _, path := range []string{"/mcp", "/", "/other"} {
			c := r.connect().send(request(method, path, "", "Host: evil.example"))
			if resp := c.response(); resp.StatusCode != 403 {
				t.Errorf("%s %s: got %s, want 403", method, path, resp.Status)
			}
		}
	}
}

func TestCORS(t *testing.T) {
	r := newRig(t, ServerConfig{Loopback: true, Authenticate: bearers("secret")}, nil)
	p := r.do(request("OPTIONS", "/mcp", "", "Origin: http://localhost:6274",
		"Access-Control-Request-Method: POST", "Access-Control-Request-Headers: content-type,mcp-protocol-version"))
	p.want(t, 204, "").wantHeader(t, "Access-Control-Allow-Origin", "http://localhost:6274").
		wantHeader(t, "Access-Control-Allow-Headers", "content-type,mcp-protocol-version").
		wantHeader(t, "Access-Control-Allow-Methods", "GET, POST, DELETE").wantHeader(t, "Vary", "Origin")
	p = r.do(post1(strings.ReplaceAll(initBody, "%q", `"2025-06-18"`), "Origin: http://localhost:6274", "Authorization: Bearer secret"))
	p.want(t, 200, "result").wantHeader(t, "Access-Control-Expose-Headers", "Mcp-Session-Id, WWW-Authenticate")
	r.do(request("OPTIONS", "/mcp", "", "Origin: https://evil.example", "Access-Control-Request-Method: POST")).
		want(t, 403, "Origin").wantHeader(t, "Access-Control-Allow-Origin", "")
}

func TestRequestRules(t *testing.T) {
	r := newRig(t, ServerConfig{MaxMessage: 1000, Limits: wire.Limits{Depth: 100}}, nil)
	c := r.begin("2025-06-18")
	long := `{"jsonrpc":"2.0","id":7,"method":"ping","params":{"x":"` + strings.Repeat("x", 1000) + `"}}`
	for _, test := range []struct {
		name, raw string
		status    int
		body      string
	}{
		{"wrong path", request("POST", "/other", ping, c.id), 404, "/mcp"},
		{"method", request("PUT", "/mcp", "", c.id), 405, "POST"},
		{"preflight without Origin", request("OPTIONS", "/mcp", "", c.id), 405, "POST"},
		{"no content type", post1(ping, c.id, "Content-Type: -"), 415, `"id":7,"error":{"code":-32600,"message":"the Content-Type must be application/json`},
		{"text", post1(ping, c.id, "Content-Type: text/plain"), 415, "application/json"},
		{"no json inside another type", post1(ping, c.id, "Content-Type: text/plain; a=application/json"), 415, ""},
		{"charset", post1(ping, c.id, "Content-Type: Application/JSON; charset=utf-8"), 200, "result"},
		{"accepts neither", post1(ping, c.id, "Accept: text/html"), 406, `"id":7,"error":{"code":-32600,"message":"answers are application/json or text/event-stream: accept both`},
		{"accepts q=0", post1(ping, c.id, "Accept: application/json;q=0, text/html"), 406, ""},
		{"accepts all", post1(ping, c.id, "Accept: */*"), 200, "result"},
		{"accepts types", post1(ping, c.id, "Accept: Text/*;q=0.5, application/*"), 200, "result"},
		{"no accept", post1(ping, c.id, "Accept: -"), 200, "result"},
		{"GET accepts JSON only", request("GET", "/mcp", "", c.id, "Accept: application/json"), 406, "event-stream"},
		{"a browser that takes pages only", request("GET", "/mcp", "", "Accept: text/html"), 406, "no page is here: this URL goes into the configuration of an MCP client. "},
		{"a browser", request("GET", "/mcp", "", "Accept: text/html,*/*;q=0.8"), 400, "no page is here: this URL goes into the configuration of an MCP client. "},
		{"another revision", post1(ping, c.id, "MCP-Protocol-Version: 2025-03-26"), 400, `"id":7,"error":{"code":-32600`},
		{"too large", post1(long, c.id), 200, `"id":7,"error":{"code":-32600,"message":"a message may have 1000 bytes`},
		{"too large, chunked", post1(fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(long), long), c.id, "Content-Length: -", "Transfer-Encoding: chunked"), 200, `"id":7,"error":{"code":-32600`},
		{"chunked", post1("28\r\n"+ping+"\r\n0\r\n\r\n", c.id, "Content-Length: -", "Transfer-Encoding: chunked"), 200, "result"},
		{"empty", post1("", c.id), 400, "-32700"},
		{"no JSON", post1("hello", c.id), 400, "-32700"},
		{"cut off", post1(ping[:20], c.id), 400, "-32700"},
		{"too deep", post1(`{"jsonrpc":"2.0","id":7,"method":"ping","params":{"x":`+strings.Repeat("[", 400)+strings.Repeat("]", 400)+`}}`, c.id), 200, `"id":7,"error":{"code":-32700,"message":"nesting`},
		{"duplicate", post1(`{"jsonrpc":"2.0","id":7,"method":"ping","method":"tools/call"}`, c.id), 200, `"id":7,"error":{"code":-32600`},
		{"batch", post1(`[`+ping+`]`, c.id), 400, "2025-03-26"},
		{"second initialize", post1(strings.ReplaceAll(initBody, "%q", `"2025-06-18"`), c.id), 200, `"id":1,"error":{"code":-32600`},
		{"after all that", post1(ping, c.id), 200, `"id":7`},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := r.do(test.raw).want(t, test.status, test.body)
			if test.status == 405 {
				p.wantHeader(t, "Allow", "GET, POST, DELETE")
			}
		})
	}
}

func TestBodyCutOff(t *testing.T) {
	r := newRig(t, ServerConfig{}, nil)
	c := r.begin("2025-06-18")
	conn := c.connect().send(post1(ping, c.id, "Content-Length: 1000"))
	if err := conn.Conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	conn.reply().want(t, 400, "too early")
	if got := c.methods(); got != "initialize" {
		t.Error("handled:", got)
	}
}

func TestHeadersAreBounded(t *testing.T) {
	r := newRig(t, ServerConfig{}, nil)
	r.do(post1(ping, "X-Long: "+strings.Repeat("x", 31<<10))).want(t, 400, "Mcp-Session-Id")
	r.do(post1(ping, "X-Long: "+strings.Repeat("x", 64<<10))).want(t, http.StatusRequestHeaderFieldsTooLarge, "")
}

func TestVersionHeader(t *testing.T) {
	r := newRig(t, ServerConfig{}, nil)
	c := r.begin("2025-06-18")
	for version, want := range map[string]int{
		"-": 200, "2025-06-18": 200,
		"2025-11-25": 400, "2025-03-26": 400, "2026-07-28": 400, "1999-01-01": 400, "": 400,
	} {
		if p := c.post(ping, "MCP-Protocol-Version: "+version); p.StatusCode != want {
			t.Errorf("%q: got %s %q, want %d", version, p.Status, p.body, want)
		}
		if p := r.do(request("DELETE", "/mcp", "", "MCP-Protocol-Version: "+version, "Mcp-Session-Id: none")); p.StatusCode != 404 {
			t.Errorf("without a session: %s", p.Status)
		}
	}
	c.post(ping, "MCP-Protocol-Version: 2025-06-18\r\nMCP-Protocol-Version: 2025-11-25").want(t, 400, "more than one")
	r.begin("2024-11-05").post(ping).want(t, 200, "result")
}
