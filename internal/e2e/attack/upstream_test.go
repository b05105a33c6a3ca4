package attack

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
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

// polling is a server that begins a call's stream with an id, ends it with the time to come back after, and gives the
// answer to who does, once the test has it.
func polling(t *testing.T, answer <-chan string) (url string) {
	t.Helper()
	var call atomic.Value // the id of the last
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		body, _ := io.ReadAll(in.Body)
		m := mcptest.ParseMessage(body)
		reply := func(kind, text string) {
			out.Header().Set("Content-Type", kind)
			_, _ = io.WriteString(out, text)
		}
		const events = "text/event-stream"
		switch {
		case m.Method == "initialize":
			reply(events, "data: "+mcptest.Result(m.ID, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"p","version":"1"}}`)+"\n\n")
		case m.Method == "tools/list":
			reply("application/json", mcptest.Result(m.ID, `{"tools":[`+items("once")+`]}`))
		case m.Method == "tools/call":
			call.Store(string(m.ID))
			reply(events, "id: a\ndata:\n\nretry: 20\n\n")
		case in.Header.Get("Last-Event-ID") == "a":
			select {
			case text := <-answer:
				reply(events, "id: b\ndata: "+mcptest.Result([]byte(call.Load().(string)), mcptest.Text(text))+"\n\n")
			case <-in.Context().Done():
			}
		case in.Method == http.MethodGet:
			out.WriteHeader(http.StatusMethodNotAllowed)
		default:
			out.WriteHeader(http.StatusAccepted)
		}
	}))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return server.URL + "/mcp"
}

// What a server that is polled does to the stream of a call is done to the client's, and its answer is the one that the
// client comes back for, with the run's step behind it, however big it is.
func TestPolledServerIsPolledByItsClient(t *testing.T) {
	t.Parallel()
	answer := make(chan string)
	r := &rig{t: t}
	r.url, r.process = mcptest.Listen(t, "--policy", mcptest.WritePolicy(t, plan), "--max-resume", "10KiB", "--call-timeout", "20s", "--upstream", polling(t, answer))
	r.Session, r.web = mcptest.DialWeb(t, r.url)
	r.Initialize()
	polled := r.web.Post(t.Context(), call("71", `{"name":"once"}`))
	first, rest, _ := strings.Cut(string(polled.Body), "\n")
	id, ok := strings.CutPrefix(first, "id: ")
	if !ok || rest != "retry: 1000\ndata: \n\nretry: 20\n\n" || polled.Err != nil {
		t.Fatalf("the response is %q, %v", polled.Body, polled.Err)
	}
	answer <- strings.Repeat("x", 1<<20)
	back := at(t, http.MethodGet, r.url)
	back.Header.Set("Accept", "text/event-stream")
	back.Header.Set("Last-Event-ID", id)
	resumed := r.web.Do(back)
	if all := resumed.Messages; len(all) != 2 || all[0].Method != "notifications/tools/list_changed" || string(all[1].ID) != "71" || len(resumed.Body) < 1<<20 {
		t.Errorf("who comes back gets %d %.300s", resumed.Status, resumed.Body)
	}
	r.in("after")
}
