package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// What a client that opens in either way is answered under each --protocol: by a
// status and a text over HTTP, by a text on standard output.
var protocols = map[string]struct {
	discover, initialize, get       int
	discovered, initialized         string // over HTTP
	discoveredHere, initializedHere string // on stdio
}{
	"auto": {400, 200, 400, `"supported":["2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"requested":"2026-07-28"`,
		`"protocolVersion":"2025-11-25"`, `"supportedVersions":["2026-07-28","2025-11-25"`, `"protocolVersion":"2025-11-25"`},
	"both": {200, 200, 400, `"supportedVersions":["2026-07-28","2025-11-25"`, `"protocolVersion":"2025-11-25"`,
		`"supportedVersions":["2026-07-28","2025-11-25"`, `"protocolVersion":"2025-11-25"`},
	"legacy": {400, 200, 400, "exactly one Mcp-Session-Id is needed", `"protocolVersion":"2025-11-25"`,
		`"code":-32601`, `"protocolVersion":"2025-11-25"`},
	"modern": {200, 400, 405, `"supportedVersions":["2026-07-28"]`, `"supported":["2026-07-28"],"requested":"2025-11-25"`,
		`"supportedVersions":["2026-07-28"]`, `2026-07-28`},
}

const initializeParams = `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`

func TestProtocolOverHTTP(t *testing.T) {
	for name, want := range protocols {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := mcptest.Stdio(t, "quiet")
			path := mcptest.WritePolicy(t, plainPolicy)
			url, _ := mcptest.Listen(t, append([]string{"--policy", path, "--protocol", name, "--"}, u.Command()...)...)
			modern, web := mcptest.DialWeb(t, url)
			modern.Modern(mcptest.Modern{})
			r := web.Post(t.Context(), mcptest.Request(1, "server/discover", mcptest.Modern{}.Params("")))
			if r.Status != want.discover {
				t.Errorf("server/discover: HTTP %d %s", r.Status, r.Body)
			}
			contains(t, string(r.Body), want.discovered)
			if r.Status == http.StatusBadRequest && len(r.Messages) > 0 && r.Messages[0].IsResponse() && !strings.Contains(string(r.Body), `"code":-32022`) {
				t.Errorf("a client of both eras would not fall back: %s", r.Body)
			}
			_, web = mcptest.DialWeb(t, url)
			r = web.Post(t.Context(), mcptest.Request(1, "initialize", initializeParams))
			if r.Status != want.initialize {
				t.Errorf("initialize: HTTP %d %s", r.Status, r.Body)
			}
			contains(t, string(r.Body), want.initialized)
			if answer, err := http.Get(url); err != nil {
				t.Error(err)
			} else if answer.Body.Close(); answer.StatusCode != want.get && answer.StatusCode != http.StatusNotAcceptable {
				t.Errorf("GET: HTTP %d", answer.StatusCode)
			}
		})
	}
}

func TestProtocolOnStdio(t *testing.T) {
	for name, want := range protocols {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := mcptest.Stdio(t, "quiet")
			path := mcptest.WritePolicy(t, plainPolicy)
			command := append([]string{mcptest.Proxy(t), "run", "--policy", path, "--protocol", name, "--"}, u.Command()...)
			s, _ := mcptest.Dial(t, command...)
			contains(t, s.Call("server/discover", mcptest.Modern{}.Params("")).String(), want.discoveredHere)
			contains(t, s.Call("initialize", initializeParams).String(), want.initializedHere)
		})
	}
}
