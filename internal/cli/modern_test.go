package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// webServer is a server that speaks the modern era, and no other unless it is one of both.
type webServer struct {
	both bool

	mu     sync.Mutex // guards opened
	opened []string   // the methods by which clients introduced themselves
}

// modernOnly starts one that speaks the modern era alone, and returns its URL.
func modernOnly(t *testing.T) string { return new(webServer).start(t) }

func (s *webServer) start(t *testing.T) string {
	t.Helper()
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	return web.URL
}

func (s *webServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const info = `"serverInfo":{"name":"modern-demo","version":"7"}`
	results := map[string]string{
		"server/discover": `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private",` +
			`"_meta":{"io.modelcontextprotocol/` + info[1:] + `}}`,
		"tools/list": `{"resultType":"complete","tools":[{"name":"act","inputSchema":{"type":"object"}}],"ttlMs":0,"cacheScope":"private"}`,
	}
	if s.both {
		results["initialize"] = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},` + info + `}`
	}
	raw, _ := io.ReadAll(r.Body)
	m, err := wire.Read(raw, wire.FromClient)
	if err == nil && (m.Method == "initialize" || m.Method == "server/discover") {
		s.mu.Lock()
		s.opened = append(s.opened, m.Method)
		s.mu.Unlock()
	}
	w.Header().Set("Content-Type", "application/json")
	switch {
	case err == nil && m.Kind == wire.Notification:
		w.WriteHeader(http.StatusAccepted)
	case err != nil || !s.both && (m.Era() != wire.Modern || r.Header.Get(wire.HeaderMethod) != m.Method):
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, "%s", wire.ErrorAnswer(nil, wire.CodeHeaderMismatch, "not of this era", nil))
	case results[m.Method] == "":
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, "%s", wire.ErrorAnswer(m.Bytes(m.ID), wire.CodeMethodNotFound, "unknown", nil))
	default:
		fmt.Fprintf(w, "%s", wire.ResultAnswer(m.Bytes(m.ID), []byte(results[m.Method])))
	}
}

// TestInventoryOfAModernServer is taken by init, check and lock alike.
func TestInventoryOfAModernServer(t *testing.T) {
	url := modernOnly(t)
	path := filepath.Join(t.TempDir(), "policy.yaml")
	for _, args := range [][]string{
		{"init", "-o", path, "--upstream", url},
		{"check", "--strict", path, "--upstream", url},
		{"lock", path, "--upstream", url},
	} {
		if r := command(t, nil, args...); r.code != 0 {
			t.Fatalf("%s: exit code %d\n%s%s", args[0], r.code, r.stdout, r.stderr)
		}
	}
	written, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(written), "modern-demo") || !strings.Contains(string(written), "act") {
		t.Errorf("%v\n%s", err, written)
	}
}

// A protocol that the server does not speak ends init, check and lock with what it speaks, and what to do; so it does
// a client's first request, over stdio and HTTP alike.
func TestProtocolThatTheServerDoesNotSpeak(t *testing.T) {
	policy := mcptest.WritePolicy(t, plainPolicy)
	for flag, tt := range map[string]struct {
		server []string
		says   string
	}{
		"legacy": {[]string{"--upstream", modernOnly(t)}, `the server speaks revision "2026-07-28", and none with sessions: leave --upstream-protocol legacy out`},
		"modern": {append([]string{"--"}, mcptest.Stdio(t, "quiet").Command()...), `the server speaks revision "2025-11-25", with sessions, and not 2026-07-28: leave --upstream-protocol modern out`},
	} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			says, quoted := tt.says, strings.ReplaceAll(tt.says, `"`, `\"`)
			server := append([]string{"--upstream-protocol", flag}, tt.server...)
			for _, args := range [][]string{{"init"}, {"check", policy}, {"lock", policy}} {
				r := command(t, nil, append(args, server...)...)
				if r.code != 1 {
					t.Errorf("%s: exit code %d", args[0], r.code)
				}
				contains(t, r.stdout+r.stderr, says)
				if strings.Contains(r.stderr, "runs by itself") {
					t.Error(r.stderr)
				}
			}
			run := append([]string{"--policy", policy}, server...)
			s, _ := mcptest.Dial(t, append([]string{mcptest.Proxy(t), "run"}, run...)...)
			contains(t, s.Call("initialize", initializeParams).String(), quoted)
			url, process := mcptest.Listen(t, append([]string{"--protocol", "both"}, run...)...)
			modern, _ := mcptest.DialWeb(t, url)
			modern.Modern(mcptest.Modern{})
			contains(t, modern.Call("server/discover", "").String(), quoted)
			legacy, _ := mcptest.DialWeb(t, url)
			contains(t, legacy.Call("initialize", initializeParams).String(), quoted)
			process.Log().Await(t, quoted)
		})
	}
}

// The protocol that is fixed is spoken with a server of both eras, whatever the client speaks.
func TestProtocolOfTheServerIsFixed(t *testing.T) {
	for flag, method := range map[string]string{"legacy": "initialize", "modern": "server/discover"} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			server := &webServer{both: true}
			config := write(t, "fsm-proxy.yaml", "version: 1\nupstream:\n  url: "+server.start(t)+"\n  protocol: "+flag+"\n")
			url, _ := mcptest.Listen(t, "--config", config, "--policy", mcptest.WritePolicy(t, strings.ReplaceAll(plainPolicy, "work", "act")))
			modern, _ := mcptest.DialWeb(t, url)
			modern.Modern(mcptest.Modern{})
			contains(t, modern.Call("tools/list", "").String(), `"name":"act"`)
			legacy, _ := mcptest.DialWeb(t, url)
			legacy.Initialize()
			contains(t, legacy.Call("tools/list", "").String(), `"name":"act"`)
			server.mu.Lock()
			defer server.mu.Unlock()
			for _, m := range server.opened {
				if m != method {
					t.Errorf("the server was sent %s", m)
				}
			}
			if len(server.opened) != 2 {
				t.Errorf("%d connections were opened", len(server.opened))
			}
		})
	}
}
