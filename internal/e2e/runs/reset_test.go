package runs

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// lasting are the keys under which a run outlives its client's connections, whatever the client does.
var lasting = those("principal", byHeader, "path")

// once fails the test unless the edge that can be taken once is behind the client, and was taken once.
func (h *house) once(c *client) {
	h.t.Helper()
	if r := c.call("once", ""); r.verdict != "invalid_transition" || r.state != "after" {
		h.t.Errorf("once again: %s", r.raw)
	}
	if n := h.upstream.Count("tools/call", "once"); n != 1 {
		h.t.Errorf("once has reached the upstream %d times", n)
	}
}

func (h *house) taken(c *client) *client {
	h.t.Helper()
	if r := c.call("once", ""); r.verdict != "success" {
		h.t.Fatalf("once: %s", r.raw)
	}
	return c
}

func TestResetByReconnect(t *testing.T) {
	each(t, lasting, func(t *testing.T, k key) {
		h := counted(t, k, steps)
		c := h.taken(h.enter(k, ""))
		for range 3 {
			again := h.enter(k, c.run())
			h.once(again)
			again.Close()
		}
		h.once(c)
	})
}

// The other era finds the same run, though the key is named for one era alone.
func TestResetByOtherEra(t *testing.T) {
	each(t, append(those("process"), lasting...), func(t *testing.T, k key) {
		h := counted(t, k, steps)
		c := h.taken(h.enter(k, ""))
		other := key{"modern", k.kind}
		if k.modern() {
			other.era = "legacy"
		}
		h.once(h.enter(other, c.run()))
		h.once(c)
	})
}

// asked is what a client is answered by HTTP: to initialize or to a call of the modern era.
func (h *house) asked(c *client) mcptest.Response {
	if c.key.modern() {
		return c.web.Post(h.t.Context(), mcptest.Request(1, "tools/call", mcptest.Modern{}.Params(mcptest.ToolParams("once", ""))))
	}
	return c.web.Post(h.t.Context(), mcptest.Request(1, "initialize",
		`{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}`))
}

// refused fails the test if a client has got a session, or a result that is none of a refusal.
func (h *house) refused(what string, c *client) {
	h.t.Helper()
	r := h.asked(c)
	body := string(r.Body)
	refusal := strings.Contains(body, "run_not_found")
	if r.Header.Get("Mcp-Session-Id") != "" || r.Status == http.StatusOK && !refusal || r.Status == 0 {
		h.t.Errorf("%s is answered %d %v %s", what, r.Status, r.Err, body)
	}
}

// Without its key, with two, or with another's word for it a client finds no run and begins none.
func TestResetByDroppingTheKey(t *testing.T) {
	each(t, append(lasting, those("handle")...), func(t *testing.T, k key) {
		h := counted(t, k, steps)
		c := h.taken(h.enter(k, ""))
		for what, drop := range drops[k.kind] {
			stripped := h.who(k, "")
			stripped.web.URL = c.web.URL
			for name, values := range c.web.Header {
				stripped.web.Header[name] = values
			}
			drop(stripped)
			h.refused(what, stripped)
		}
		h.once(c)
		if n := len(h.runs(k)); n != 1 {
			t.Errorf("there are %d runs", n)
		}
	})
}

// runs are those that are found by a key.
func (h *house) runs(k key) (some []known) {
	h.t.Helper()
	kind, _, _ := strings.Cut(k.kind, ":")
	for _, r := range h.known() {
		if r.Key == kind {
			some = append(some, r)
		}
	}
	return some
}

func header(name string, values ...string) func(*client) {
	return func(c *client) { c.web.Header[name] = values }
}

func path(from, to string) func(*client) {
	return func(c *client) { c.web.URL = strings.Replace(c.web.URL, from, to, 1) }
}

var drops = map[string]map[string]func(*client){
	"principal": {
		"no token":     func(c *client) { c.web.Header.Del("Authorization") },
		"empty token":  header("Authorization", "Bearer "),
		"wrong token":  header("Authorization", "Bearer nobody's"),
		"two tokens":   header("Authorization", "Bearer "+token("ann"), "Bearer "+token("bob")),
		"basic":        header("Authorization", "Basic YW5uOmFubg=="),
		"the name":     header("Authorization", "Bearer ann"),
		"another case": header("Authorization", "Bearer "+strings.ToUpper(token("ann"))),
	},
	byHeader: {
		"no header":    func(c *client) { c.web.Header.Del(gatewayHeader) },
		"empty header": header(gatewayHeader, ""),
		"two headers":  header(gatewayHeader, "the run", "another"),
		"twice":        header(gatewayHeader, "the run", "the run"),
		"long":         header(gatewayHeader, strings.Repeat("x", 300)),
	},
	"path": {
		"no path":      func(c *client) { c.web.URL, _, _ = strings.Cut(c.web.URL, "/runs/") },
		"empty path":   func(c *client) { c.web.URL, _, _ = strings.Cut(c.web.URL, "/runs/"); c.web.URL += "/runs/" },
		"guessed":      func(c *client) { c.web.URL = c.web.URL[:len(c.web.URL)-1] },
		"longer":       func(c *client) { c.web.URL += "A" },
		"unknown":      func(c *client) { c.web.URL = c.web.URL[:len(c.web.URL)-26] + "ABCDEFGHIJKLMNOPQRSTUVWXYZ" },
		"two slashes":  path("/runs/", "/runs//"),
		"behind":       func(c *client) { c.web.URL += "/" },
		"dots":         path("/runs/", "/runs/./"),
		"case":         func(c *client) { c.web.URL = strings.Replace(c.web.URL, "/runs/", "/RUNS/", 1) },
		"in the query": func(c *client) { c.web.URL = strings.Replace(c.web.URL, "/runs/", "?run=", 1) },
	},
	"handle": {
		"no handle":    func(*client) {},
		"a session id": header("Mcp-Session-Id", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
	},
}

// From anybody but a trusted gateway the header opens nothing. Loopback is none unless it is named.
func TestHeaderOfAStranger(t *testing.T) {
	each(t, those(byHeader), func(t *testing.T, k key) {
		h := counted(t, k, steps, "--trusted-proxies", "192.0.2.0/24")
		stranger := h.who(k, "")
		h.refused("no header", stranger)
		stranger.web.Header.Set(gatewayHeader, "the run")
		h.refused("a stranger's header", stranger)
		if n := h.upstream.Count("tools/call"); n != 0 || len(h.runs(k)) != 0 {
			t.Errorf("%d calls have reached the upstream; runs: %v", n, h.runs(k))
		}
	})
}

// A session goes by its key in each of its requests: its id alone, or another's key with it, is not enough.
func TestSessionWithoutItsKey(t *testing.T) {
	each(t, []key{{"legacy", "principal"}, {"legacy", byHeader}, {"legacy", "path"}}, func(t *testing.T, k key) {
		h := counted(t, k, steps)
		c := h.enter(k, "")
		for what, drop := range drops[k.kind] {
			for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
				thief := h.who(k, "")
				thief.web.URL = c.web.URL
				for name, values := range c.web.Header {
					thief.web.Header[name] = values
				}
				thief.web.SetID(c.web.ID())
				drop(thief)
				ctx, stop := context.WithTimeout(t.Context(), mcptest.Patience)
				request, err := http.NewRequestWithContext(ctx, method, thief.web.URL, strings.NewReader(mcptest.Request(7, "tools/call", mcptest.ToolParams("once", ""))))
				if err != nil {
					t.Fatal(err)
				}
				request.Header.Set("Content-Type", "application/json")
				request.Header.Set("Accept", "application/json, text/event-stream")
				if r := thief.web.Do(request); r.Status < 400 {
					t.Errorf("%s of a session with %s is answered %d %s", method, what, r.Status, r.Body)
				}
				stop()
			}
		}
		h.taken(c)
		h.once(c)
	})
}
