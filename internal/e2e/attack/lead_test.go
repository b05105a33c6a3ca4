package attack

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// Of clients that are led to sessions (--protocol auto, by handle).

var discover = mcptest.Request(1, "server/discover", mcptest.Modern{}.Params(""))

// However server/discover is spelt, and whatever comes with it, it does not answer as a server without sessions does,
// and nothing of it reaches the upstream.
func TestDiscoverByOtherSpellings(t *testing.T) {
	fronts(t, func(t *testing.T, front way) {
		session := front.open(t)
		r := session.beside()
		for name, c := range map[string]struct {
			body   string
			header http.Header
			says   string
		}{
			"as it is":                   {discover, nil, `"code":-32022`},
			"with an id that is text":    {strings.Replace(discover, `"id":1`, `"id":"d"`, 1), nil, `"id":"d","error":{"code":-32022`},
			"escaped":                    {strings.Replace(discover, "server/discover", `server\/dis\u0063over`, 1), nil, `"code":-32022`},
			"for events alone":           {discover, http.Header{"Accept": {"text/event-stream"}}, `"code":-32022`},
			"with a session's id":        {discover, http.Header{"Mcp-Session-Id": {session.web.ID()}}, `"code":-32022`},
			"with an id of no session":   {discover, http.Header{"Mcp-Session-Id": {"x"}}, `"code":-32022`},
			"with a handle of no run":    {strings.Replace(discover, `"_meta":{`, `"_meta":{"fsm-proxy/run":"AAAAAAAAAAAAAAAAAAAAAAAAAA",`, 1), nil, `run_not_found`},
			"capitals":                   {strings.Replace(discover, "server/", "Server/", 1), http.Header{"Mcp-Method": {"Server/discover"}}, `"code":-32601`},
			"a space":                    {strings.Replace(discover, "discover", "discover ", 1), http.Header{"Mcp-Method": {"server/discover "}}, `"code":-32`},
			"without its header":         {discover, http.Header{"Mcp-Method": nil}, `"code":-32020`},
			"in a session, both eras":    {discover, http.Header{"Mcp-Session-Id": {session.web.ID()}, "Mcp-Protocol-Version": {"2025-11-25"}}, `"code":-32020`},
			"in a session":               {mcptest.Request(77, "server/discover", ""), http.Header{"Mcp-Session-Id": {session.web.ID()}, "Mcp-Protocol-Version": {"2025-11-25"}, "Mcp-Method": nil}, `"code":-32601`},
			"in a batch":                 {"[" + discover + "]", nil, "exactly one Mcp-Session-Id is needed"},
			"of a revision to come":      {strings.Replace(discover, "2026-07-28", "2030-01-01", 1), http.Header{"Mcp-Protocol-Version": {"2030-01-01"}}, `"code":-32022`},
			"of a revision with session": {strings.Replace(discover, "2026-07-28", "2025-11-25", 1), http.Header{"Mcp-Protocol-Version": {"2025-11-25"}}, `"code":-32022`},
		} {
			r.web.Header = c.header
			answer := r.web.Post(t.Context(), c.body)
			if text := string(answer.Body); !strings.Contains(text, c.says) || strings.Contains(text, `"supportedVersions"`) {
				t.Errorf("%s: answered %d %s", name, answer.Status, text)
			}
		}
		session.lives()
		session.reached()
	})
}

// Who is not let in is told nothing else: neither that it is led, nor which revisions there are.
func TestDiscoverNeedsAuthentication(t *testing.T) {
	fronts(t, func(t *testing.T, front way) {
		r := front.with("--tokens", namedTokens(t)).start(t)
		r.Modern(mcptest.Modern{})
		for _, header := range []http.Header{{}, {"Authorization": {"Bearer wrong"}}} {
			r.web.Header = header
			if answer := r.web.Post(t.Context(), discover); answer.Status != http.StatusUnauthorized || strings.Contains(string(answer.Body), "2025") {
				t.Errorf("answered %d %s", answer.Status, answer.Body)
			}
		}
		r.as("token of ann")
		if answer := r.web.Post(t.Context(), discover); answer.Status != http.StatusBadRequest || !strings.Contains(string(answer.Body), `"supported":["2025-11-25"`) {
			t.Errorf("answered %d %s", answer.Status, answer.Body)
		}
		r.process.Log().Await(t, "needs --protocol both")
	})
}

// A refused server/discover takes no session, no process and no connection to the upstream, however many there are, and
// the log has few lines on them. Each is on record.
func TestRefusedDiscoverHoldsNothing(t *testing.T) {
	t.Parallel()
	audit := filepath.Join(t.TempDir(), "audit.jsonl")
	r := webPipe.with("--max-sessions", "1", "--max-upstreams", "1", "--max-runs", "1", "--audit", audit).start(t)
	const many = 300
	modern := r.beside()
	for i := range many {
		body := mcptest.Request(i, "server/discover", mcptest.Modern{Client: fmt.Sprintf(`{"name":"client %d","version":"1"}`, i)}.Params(""))
		if answer := modern.web.Post(t.Context(), body); answer.Status != http.StatusBadRequest {
			t.Fatalf("answered %d %s", answer.Status, answer.Body)
		}
	}
	if all := r.upstream.Received(); len(all) != 0 {
		t.Errorf("the upstream got %q", all)
	}
	r.Initialize()
	r.lives()
	mcptest.Await(t, "each is on record", func() bool {
		text, err := os.ReadFile(audit)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(text), `"decision":"refuse","reason":"-32022"`) == many
	})
	r.Close()
	_ = r.process.Process.Signal(os.Interrupt)
	r.process.ExitCode() // by when all is in the log
	if n := strings.Count(r.process.Log().String(), "needs --protocol both"); n != 64 {
		t.Errorf("%d lines of the log", n)
	}
}

// A client that has fallen back, and then speaks the modern era as well, has a run in its session and one for each handle.
// Neither leads the other on, and what may be called once in a run is called once in it.
func TestErasMixedByALedClient(t *testing.T) {
	fronts(t, func(t *testing.T, front way) {
		r := front.start(t)
		modern := r.beside()
		if answer := r.beside().web.Post(t.Context(), discover); answer.Status != http.StatusBadRequest {
			t.Fatalf("answered %d %s", answer.Status, answer.Body)
		}
		r.Initialize()
		r.in("start")
		handle := modern.begin()
		for _, id := range []string{"", r.web.ID()} { // a session's id is nothing to a modern request
			modern.web.Header = http.Header{}
			if id != "" {
				modern.web.Header["Mcp-Session-Id"] = []string{id}
			}
			if answer := modern.Tool("once", ""); !strings.Contains(answer.String(), "run_not_found") {
				t.Errorf("without a handle: %s", answer)
			}
		}
		if answer := modern.Tool("once", of(handle)); !strings.Contains(answer.String(), "State is now 'after'") {
			t.Errorf("by the handle: %s", answer)
		}
		r.in("start")
		if answer := r.Tool("once", of(handle)); denied(answer.String()) { // a session has no handles: it is an argument
			t.Errorf("in the session: %s", answer)
		}
		r.in("after")
		for _, answer := range []mcptest.Message{r.Tool("once", ""), modern.Tool("once", of(handle))} {
			if !denied(answer.String()) {
				t.Errorf("once more: %s", answer)
			}
		}
		r.reached("tools/call once", "tools/call once")
	})
}

// Whoever was refused can listen all the same.
func TestListenWithoutDiscover(t *testing.T) {
	fronts(t, func(t *testing.T, front way) {
		r := front.start(t)
		r.Modern(mcptest.Modern{})
		r.beside().web.Post(t.Context(), discover)
		_, leave := r.Subscribe(`{"toolsListChanged":true}`)
		leave()
		r.reached()
	})
}
