package cli

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
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

// By which run keys server/discover is answered, over HTTP: where the modern era has no handles, and where somebody has
// named a key for it, wherever that was.
func TestDiscoverByRunKey(t *testing.T) {
	tokens := write(t, "tokens.yaml", "version: 1\ntokens:\n  ann: sha256:"+fmt.Sprintf("%x", sha256.Sum256([]byte("token")))+"\n")
	file := func(lines string) string { return write(t, "fsm-proxy.yaml", "version: 1\n"+lines) }
	for name, tt := range map[string]struct {
		args     []string
		env      string
		answered bool
	}{
		"by default":                   {nil, "", false},
		"by handle":                    {[]string{"--protocol", "auto"}, "", false},
		"by session":                   {[]string{"--run-key", "legacy=session"}, "", false},
		"by process":                   {[]string{"--run-key", "legacy=process"}, "", true},
		"by principal":                 {[]string{"--run-key", "legacy=principal", "--tokens", tokens}, "", true},
		"by handle, with tokens":       {[]string{"--tokens", tokens}, "", false},
		"by path":                      {[]string{"--run-key", "legacy=path", "--path-create"}, "", true},
		"by header":                    {[]string{"--run-key", "legacy=header:X-Run", "--trusted-proxies", "127.0.0.0/8"}, "", true},
		"both":                         {[]string{"--protocol", "both"}, "", true},
		"both, in the environment":     {nil, "FSM_PROXY_PROTOCOL=both", true},
		"both, in the file":            {[]string{"--config", file("protocol: both\n")}, "", true},
		"by a key that is named":       {[]string{"--run-key", "modern=handle"}, "", true},
		"and with the default":         {[]string{"--run-key", "modern=handle", "--protocol", "auto"}, "", true},
		"named in the environment":     {nil, "FSM_PROXY_RUN_KEY=legacy=session,modern=handle", true},
		"named in the file":            {[]string{"--config", file("runs: {key: [modern=handle]}\n")}, "", true},
		"named in the file, not there": {[]string{"--config", file("runs: {key: [modern=handle]}\n"), "--run-key", "legacy=session"}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := mcptest.FreeAddress(t)
			args := append([]string{mcptest.Proxy(t), "run", "--listen", address, "--policy", mcptest.WritePolicy(t, plainPolicy)}, tt.args...)
			args = append(append(args, "--"), mcptest.Stdio(t, "quiet").Command()...)
			var env []string
			if tt.env != "" {
				env = []string{tt.env}
			}
			mcptest.Start(t, env, args...).AwaitListening(address)
			url := "http://" + address + "/mcp"
			if slices.Contains(tt.args, "--path-create") {
				url += "/runs/a8b7c6d5e4f3g2h1i0j9k8l7"
			}
			modern, web := mcptest.DialWeb(t, url)
			web.Header = http.Header{"Authorization": {"Bearer token"}, "X-Run": {"a"}}
			modern.Modern(mcptest.Modern{})
			answer := modern.Call("server/discover", "").String()
			if answered := strings.Contains(answer, `"supportedVersions"`); answered != tt.answered || !answered && !strings.Contains(answer, "--protocol both") {
				t.Errorf("answered %s", answer)
			}
		})
	}
}

// A change of the protocol, or of a key, in the configuration file waits for the next start: a client that was led to a
// session is not told something else by SIGHUP.
func TestProtocolIsNotReloaded(t *testing.T) {
	for before, after := range map[string]string{
		"protocol: auto": "protocol: both", "protocol: both": "protocol: auto", "runs: {key: [legacy=session]}": "runs: {key: [modern=handle]}",
		"runs: {key: [modern=handle]}": "protocol: modern",
	} {
		t.Run(before+" to "+after, func(t *testing.T) {
			t.Parallel()
			path := write(t, "fsm-proxy.yaml", "version: 1\n"+before+"\n")
			url, p := mcptest.Listen(t, append([]string{"--config", path, "--policy", mcptest.WritePolicy(t, plainPolicy), "--"}, mcptest.Stdio(t, "quiet").Command()...)...)
			modern, _ := mcptest.DialWeb(t, url)
			modern.Modern(mcptest.Modern{})
			first := modern.Call("server/discover", "")
			if err := os.WriteFile(path, []byte("version: 1\n"+after+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := p.Process.Signal(syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
			p.Log().Await(t, "take effect at the next start")
			if again := modern.Call("server/discover", ""); string(again.Result) != string(first.Result) || string(again.Error) != string(first.Error) {
				t.Errorf("answered %s, and before %s", again, first)
			}
		})
	}
}
