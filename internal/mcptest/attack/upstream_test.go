package attack

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// tokenEndpoint is an authorization server that gives this token, whatever it is, and the flags for it.
func tokenEndpoint(t *testing.T, kind, token string) []string {
	t.Helper()
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	say := func(what map[string]any) http.HandlerFunc {
		return func(out http.ResponseWriter, _ *http.Request) {
			out.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(out).Encode(what)
		}
	}
	mux.HandleFunc("/metadata", say(map[string]any{"issuer": server.URL, "authorization_endpoint": server.URL + "/authorize",
		"token_endpoint": server.URL + "/token", "response_types_supported": []string{"code"}}))
	mux.HandleFunc("/token", say(map[string]any{"access_token": token, "token_type": kind, "expires_in": 3600}))
	return []string{"--upstream-oauth-client-id", "me", "--upstream-oauth-client-secret-file", secretFile(t, "client-1234567890"),
		"--upstream-oauth-metadata-url", server.URL + "/metadata"}
}

// A token endpoint makes no request of its own out of the proxy's by a line break in what it gives: nothing is sent,
// and the token is in no message.
func TestTokenSplitsNoRequest(t *testing.T) {
	t.Parallel()
	smuggled := mcptest.Request(1, "initialize", `{"name":"smuggled"}`)
	split := "1234567890\r\nContent-Length: 0\r\n\r\nPOST /mcp HTTP/1.1\r\nHost: upstream\r\nContent-Type: application/json\r\n" +
		fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(smuggled), smuggled)
	for name, given := range map[string][2]string{"access_token": {"bearer", split}, "token_type": {split, "1234567890"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u, url := mcptest.HTTP(t, world())
			args := append([]string{mcptest.Proxy(t), "run", "--policy", mcptest.WritePolicy(t, plan), "--connect-timeout", "1s",
				"--log-level", "trace", "--upstream", url}, tokenEndpoint(t, given[0], given[1])...)
			r := &rig{t: t, upstream: u}
			r.Session, r.process = mcptest.Dial(t, args...)
			answer := r.Call("initialize", oldHello)
			if !denied(answer.String()) || !strings.Contains(answer.String(), "the header Authorization has a line break") {
				t.Errorf("initialize is answered %s", answer)
			}
			r.Close()
			if all := u.Received(); len(all) > 0 {
				t.Errorf("the upstream got %v", all)
			}
			r.nowhereIn(answer.String())
			r.nowhereIn(r.process.Log().String())
		})
	}
}

// An answer with a status below 100 is no answer, and no interim one either: what stands behind it is not taken for the
// answer.
func TestStatusOfThreeDigits(t *testing.T) {
	t.Parallel()
	for _, status := range []string{"099", "000", "+99"} {
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
				body, _ := io.ReadAll(in.Body)
				c, _, err := http.NewResponseController(out).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				forged := mcptest.Result(mcptest.ParseMessage(body).ID, oldGreeting)
				fmt.Fprintf(c, "HTTP/1.1 %s X\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
					status, len(forged), forged)
			}))
			t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
			r := &rig{t: t}
			r.Session, r.process = mcptest.Dial(t, mcptest.Proxy(t), "run", "--policy", mcptest.WritePolicy(t, plan),
				"--connect-timeout", "1s", "--upstream", server.URL+"/mcp")
			if answer := r.Call("initialize", oldHello); !denied(answer.String()) {
				t.Errorf("initialize is answered %s", answer)
			}
		})
	}
}

const oldGreeting = `{"protocolVersion":"2025-03-26","capabilities":{},"serverInfo":{"name":"forged","version":"1"}}`
