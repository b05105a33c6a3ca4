package streamhttp

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/asker"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// Each request's stream tells who asks as that request was let in, whoever began its session: alone, in a batch, and in
// the modern era.
func TestEachRequestSaysWhoAsks(t *testing.T) {
	scoped := func(_ http.ResponseWriter, r *http.Request) (*asker.Who, bool) {
		return &asker.Who{Issuer: "test", Subject: "ann", Scopes: r.Header["X-Scope"]}, true
	}
	var last atomic.Pointer[asker.Who]
	note := func(to wire.Stream) { last.Store(wire.AsksOn(to)) }
	r := newRig(t, ServerConfig{Authenticate: scoped, Modern: func(m *wire.Message, to wire.Stream, _ PeerInfo) wire.Pending {
		note(to)
		to.Answer(result(m, `{"resultType":"complete"}`))
		return nil
	}}, func(_ *script, m *wire.Message, to wire.Stream) wire.Pending {
		note(to)
		to.Answer(result(m, "{}"))
		return nil
	})
	p := r.do(post1(strings.ReplaceAll(initialize(), "2025-06-18", "2025-03-26"), "X-Scope: first")).want(t, 200, "result")
	id := "Mcp-Session-Id: " + p.Header.Get(headerSession)
	for scope, raw := range map[string]func(...string) string{
		"alone":  func(more ...string) string { return post1(ping, append(more, id)...) },
		"batch":  func(more ...string) string { return post1("["+ping+"]", append(more, id)...) },
		"modern": func(more ...string) string { return tool("x", more...) },
	} {
		last.Store(nil)
		r.do(raw("X-Scope: "+scope)).want(t, 200, "result")
		if who := last.Load(); who == nil || who.Subject != "ann" || len(who.Scopes) != 1 || who.Scopes[0] != scope {
			t.Errorf("%s: %+v", scope, who)
		}
	}
	if who := wire.AsksOn(nowhere{}); who != nil {
		t.Errorf("a notification's stream tells of %v", who)
	}
}
