//go:build long && unix

package runs

import (
	"net/http"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// While the database is away no session begins, and none ends, at any replica: its client is told to try again. Once the database is
// back it does either, for all replicas.
func TestSessionsWhileTheDatabaseIsAway(t *testing.T) {
	database := databases(t)
	t.Parallel()
	_, upstream := mcptest.HTTP(t, server())
	k := key{"legacy", "session"}
	r := lined(t, k, twice, database(t), "--store-timeout", "500ms", "--upstream", upstream)
	goes, comes := r.enter(k, ""), r.who(k, "")
	const params = `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}`
	begins := func() mcptest.Response { x, _ := comes.posts(t, "initialize", params); return x }
	ends := func() mcptest.Response {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, goes.web.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		return goes.web.Do(request)
	}
	calls := func(c *client) bool {
		x, m := c.posts(t, "tools/call", mcptest.ToolParams("ok", "{}"))
		return x.Status == http.StatusOK && m.Result != nil && !strings.Contains(m.String(), `"isError":true`)
	}
	if !calls(goes) {
		t.Fatal("a call is refused")
	}
	for _, data := range r.data {
		data.cut()
	}
	for _, at := range r.all {
		r.come(at)
		if x := begins(); x.Status != http.StatusServiceUnavailable || x.Header.Get("Retry-After") == "" || !strings.Contains(string(x.Body), `"id":"posted","error":{"code":-32603,`) || !strings.Contains(string(x.Body), "try again") {
			t.Errorf("initialize is answered %d %s", x.Status, x.Body)
		}
		if x := ends(); x.Status != http.StatusServiceUnavailable || x.Header.Get("Retry-After") == "" || !strings.Contains(string(x.Body), "try again") {
			t.Errorf("DELETE is answered %d %s", x.Status, x.Body)
		}
	}
	if id := comes.web.ID(); id != "" {
		t.Errorf("the client has the session %s", id)
	}
	for _, data := range r.data {
		data.mend()
	}
	mcptest.Await(t, "a session begins", func() bool { return begins().Status == http.StatusOK })
	comes.Notify("notifications/initialized", "")
	for _, at := range r.all {
		r.come(at)
		for what, c := range map[string]*client{"that has begun": comes, "that was to end": goes} {
			mcptest.Await(t, "the session "+what+" goes on", func() bool { return calls(c) })
		}
	}
	mcptest.Await(t, "the session ends", func() bool { return ends().Status == http.StatusNoContent })
	for _, at := range r.all {
		r.come(at)
		if x, _ := goes.posts(t, "ping", ""); x.Status != http.StatusNotFound {
			t.Errorf("the session that has ended is answered %d %s", x.Status, x.Body)
		}
		if !calls(comes) {
			t.Error("the other does not go on")
		}
	}
	mcptest.Await(t, "the run of a session ends with it, and the session", func() bool {
		return one[int64](t, r.store, "SELECT (SELECT count(*) FROM fsm_proxy.runs WHERE ended IS NULL) + (SELECT count(*) FROM fsm_proxy.objects WHERE kind = 'session')") == 2
	})
	r.end()
	verified(t, r.store)
}
