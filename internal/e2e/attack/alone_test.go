package attack

import (
	"net/http"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// Requests of the era without sessions, in which each stands alone.

// alone starts a proxy in front of HTTP clients, with one run for all, and a client of
// the era.
func alone(t *testing.T, front way, flags ...string) *rig {
	t.Helper()
	r := front.with(append([]string{"--run-key", "modern=process", "--annotate", "off"}, flags...)...).start(t)
	r.Modern(mcptest.Modern{})
	return r
}

// beside is another client of the era at the same proxy.
func (r *rig) beside() *rig {
	r.t.Helper()
	other := &rig{t: r.t, upstream: r.upstream, process: r.process, url: r.url}
	other.Session, other.web = mcptest.DialWeb(r.t, r.url)
	other.Modern(mcptest.Modern{})
	return other
}

// aloneCall is a tools/call of the era, with an id that every client has.
func aloneCall(params string) string { return call("1", mcptest.Modern{}.Params(params)) }

// Who reads headers and who reads bodies must see one call: what they could differ in
// is refused, and reaches nobody.
func TestHeaderAndBodyNameDifferentTools(t *testing.T) {
	fronts(t, func(t *testing.T, front way) {
		r := alone(t, front)
		for name, c := range map[string]struct {
			params string
			header http.Header
		}{
			"another tool":             {`{"name":"once"}`, http.Header{"Mcp-Name": {"ok"}}},
			"a hidden tool":            {`{"name":"hidden"}`, http.Header{"Mcp-Name": {"ok"}}},
			"another in Base64":        {`{"name":"once"}`, http.Header{"Mcp-Name": {"=?base64?b2s=?="}}},
			"both":                     {`{"name":"once"}`, http.Header{"Mcp-Name": {"once", "ok"}}},
			"both, turned":             {`{"name":"once"}`, http.Header{"Mcp-Name": {"ok", "once"}}},
			"both in one":              {`{"name":"once"}`, http.Header{"Mcp-Name": {"once, ok"}}},
			"capitals":                 {`{"name":"once"}`, http.Header{"Mcp-Name": {"Once"}}},
			"a lookalike":              {`{"name":"` + "\u043e" + `nce"}`, http.Header{"Mcp-Name": {"once"}}},
			"bytes beyond ASCII":       {`{"name":"` + "\u043e" + `nce"}`, http.Header{"Mcp-Name": {"\u043e" + "nce"}}},
			"what Base64 stands for":   {`{"name":"=?base64?b25jZQ==?="}`, http.Header{"Mcp-Name": {"=?base64?b25jZQ==?="}}},
			"two names in the body":    {`{"name":"once","name":"ok"}`, http.Header{"Mcp-Name": {"once"}}},
			"no name":                  {`{"name":"once"}`, http.Header{"Mcp-Name": nil}},
			"another method":           {`{"name":"once"}`, http.Header{"Mcp-Method": {"tools/list"}}},
			"two methods":              {`{"name":"once"}`, http.Header{"Mcp-Method": {"tools/call", "tools/list"}}},
			"no method":                {`{"name":"once"}`, http.Header{"Mcp-Method": nil}},
			"a revision with sessions": {`{"name":"once"}`, http.Header{"Mcp-Protocol-Version": {"2025-06-18"}}},
			"two revisions":            {`{"name":"once"}`, http.Header{"Mcp-Protocol-Version": {"2026-07-28", "2025-06-18"}}},
			"no revision":              {`{"name":"once"}`, http.Header{"Mcp-Protocol-Version": nil}},
		} {
			r.web.Header = c.header
			if answer := r.web.Post(t.Context(), aloneCall(c.params)); answer.Status != http.StatusBadRequest {
				t.Errorf("%s: answered %d %s", name, answer.Status, answer.Body)
			}
		}
		r.web.Header = http.Header{}
		if answer := r.say(aloneCall(`{"name":"ok"}`)); !strings.Contains(answer, `"text":"ok"`) {
			t.Errorf("the honest call is answered %s", answer)
		}
		r.reached("tools/call ok")
	})
}

// Clients that use the same ids cannot cancel each other's calls: neither by a message
// that names one, nor by closing a stream of their own.
func TestForeignCancelWithoutSessions(t *testing.T) {
	fronts(t, func(t *testing.T, front way) {
		r := alone(t, front)
		other := r.beside()
		answered := make(chan mcptest.Response, 1)
		go func() { answered <- r.web.Post(t.Context(), aloneCall(`{"name":"hold_open"}`)) }()
		r.upstream.Await(t, 1, "tools/call", "hold_open")
		for _, header := range []http.Header{{}, {"Mcp-Protocol-Version": {"2026-07-28"}}} {
			other.web.Header = header
			other.web.Post(t.Context(), mcptest.Notification("notifications/cancelled", `{"requestId":1}`))
			other.web.Post(t.Context(), mcptest.Notification("notifications/cancelled", mcptest.Modern{}.Params(`{"requestId":1}`)))
		}
		other.web.Header = http.Header{}
		_, leave := other.Open("subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`)
		if m := other.Next(); m.Method != "notifications/subscriptions/acknowledged" {
			t.Errorf("got %s", m)
		}
		leave()
		r.upstream.Open("hold_open")
		if answer := <-answered; !strings.Contains(string(answer.Body), "the true answer") {
			t.Errorf("answered %d %s", answer.Status, answer.Body)
		}
		r.reached("tools/call hold_open")
	})
}

// Closing the response cancels the call, whether or not anything came on it, also
// where the upstream has sessions.
func TestClosedResponseIsCancelled(t *testing.T) {
	fronts(t, func(t *testing.T, front way) {
		r := alone(t, front)
		_, leave := r.Open("tools/call", mcptest.ToolParams("hold_open", ""))
		r.upstream.Await(t, 1, "tools/call", "hold_open")
		leave()
		r.upstream.Await(t, 1, "notifications/cancelled")
		r.upstream.Open("hold_open")
		other := r.beside()
		if answer := other.say(aloneCall(`{"name":"ok"}`)); !strings.Contains(answer, `"text":"ok"`) {
			t.Errorf("the next call is answered %s", answer)
		}
	})
}

// Streams that listen are bounded, whoever opens them, and calls go on beside.
func TestFloodOfListenStreams(t *testing.T) {
	fronts(t, func(t *testing.T, front way) {
		r := alone(t, front, "--max-listen-streams", "3")
		listen := mcptest.Request(1, "subscriptions/listen", mcptest.Modern{}.Params(`{"notifications":{"toolsListChanged":true}}`))
		for range 3 {
			other := r.beside()
			_, leave := other.Open("subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`)
			defer leave()
			if m := other.Next(); m.Method != "notifications/subscriptions/acknowledged" {
				t.Fatalf("got %s", m)
			}
		}
		if answer := r.web.Post(t.Context(), listen); answer.Status != http.StatusServiceUnavailable {
			t.Errorf("one more is answered %d %s", answer.Status, answer.Body)
		}
		if answer := r.say(aloneCall(`{"name":"ok"}`)); !strings.Contains(answer, `"text":"ok"`) {
			t.Errorf("a call is answered %s", answer)
		}
	})
}

// A page that a browser is rebound to gets nothing of this era either.
func TestRebindingWithoutSessions(t *testing.T) {
	fronts(t, func(t *testing.T, front way) {
		r := alone(t, front)
		for _, header := range []http.Header{{"Origin": {"https://evil.example"}}, {"Origin": {"null"}}, {"Host": {"evil.example"}}} {
			r.web.Header = header
			for _, body := range []string{aloneCall(`{"name":"once"}`), mcptest.Request(1, "server/discover", mcptest.Modern{}.Params(""))} {
				if answer := r.web.Post(t.Context(), body); answer.Status != http.StatusForbidden {
					t.Errorf("%v: answered %d %s", header, answer.Status, answer.Body)
				}
			}
		}
		r.reached()
	})
}
