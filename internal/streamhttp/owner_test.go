package streamhttp

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/asker"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"

	"github.com/fsm-proxy/fsm-proxy/internal/httpserver"
)

// bearers lets in who has one of the tokens; each is a principal of that name.
func bearers(tokens ...string) func(http.ResponseWriter, *http.Request) (*asker.Who, bool) {
	return func(w http.ResponseWriter, r *http.Request) (*asker.Who, bool) {
		for _, token := range tokens {
			if httpserver.Authorized(r, token) {
				return &asker.Who{Issuer: "test", Subject: token}, true
			}
		}
		refuse(w, http.StatusUnauthorized, "a bearer token is needed")
		return nil, false
	}
}

func as(token string) string { return "Authorization: Bearer " + token }

func initialize() string { return fmt.Sprintf(initBody, "2025-06-18") }

// Somebody else's session answers as one that is not there, whatever is asked of it.
func TestForeignSession(t *testing.T) {
	r := newRig(t, ServerConfig{Authenticate: bearers("ann", "bob")}, nil)
	p := r.do(post1(initialize(), as("ann"))).want(t, 200, "result")
	id := "Mcp-Session-Id: " + p.Header.Get(headerSession)
	if who := (<-r.sessions).info.Principal; who.Subject != "ann" {
		t.Errorf("the session was begun by %v", who)
	}
	events := "Accept: text/event-stream"
	for _, raw := range []func(more ...string) string{
		func(more ...string) string { return post1(ping, more...) },
		func(more ...string) string { return post1("["+ping+"]", more...) },
		func(more ...string) string { return post1("nonsense", more...) },
		func(more ...string) string { return request("GET", "/mcp", "", append(more, events)...) },
		func(more ...string) string {
			return request("GET", "/mcp", "", append(more, events, "Last-Event-ID: 1-1")...)
		},
		func(more ...string) string { return request("DELETE", "/mcp", "", more...) },
	} {
		foreign, unknown := r.do(raw(as("bob"), id)), r.do(raw(as("bob"), "Mcp-Session-Id: none"))
		if foreign.StatusCode != 404 || foreign.body != unknown.body || fmt.Sprint(foreign.Header) != fmt.Sprint(unknown.Header) {
			t.Errorf("%s: %s %v %q, and of none %s %v %q", raw(), foreign.Status, foreign.Header, foreign.body, unknown.Status, unknown.Header, unknown.body)
		}
	}
	r.do(post1(ping, id)).want(t, 401, "bearer")
	r.do(post1(ping, id, as("ann"))).want(t, 200, "result")
}

// One principal has half of the sessions at most, from wherever it asks.
func TestSessionsOfOnePrincipal(t *testing.T) {
	r := newRig(t, ServerConfig{Sessions: 4, Authenticate: bearers("ann", "bob")}, nil)
	var id string
	for range 2 {
		id = r.do(post1(initialize(), as("ann"))).want(t, 200, "result").Header.Get(headerSession)
	}
	r.do(post1(initialize(), as("ann"))).want(t, 503, "too many sessions")
	r.do(post1(initialize(), as("bob"))).want(t, 200, "result")
	r.do(request("DELETE", "/mcp", "", as("ann"), "Mcp-Session-Id: "+id)).want(t, 204, "")
	r.do(post1(initialize(), as("ann"))).want(t, 200, "result")
	r.do(post1(initialize(), as("ann"))).want(t, 503, "too many sessions")
}

func TestSharesOfPrincipals(t *testing.T) {
	ann, bob := party{who: wire.Principal{Subject: "ann"}}, party{who: wire.Principal{Subject: "bob"}}
	q := newQuota(3, 3, 2)
	for i, step := range []struct {
		by   party
		want bool
	}{{ann, true}, {ann, true}, {ann, false}, {bob, true}, {bob, false}} {
		if got := q.take(step.by); got != step.want {
			t.Errorf("step %d: %v", i, got)
		}
	}
	q.giveBack(ann)
	if !q.take(party{}) {
		t.Error("nobody in particular finds no room")
	}
	q.giveBack(party{})
	q.giveBack(ann)
	q.giveBack(bob)
	if q.count != 0 || len(q.owners) != 0 || q.takeRefused() != 2 {
		t.Errorf("left: %+v", q)
	}
	for share, want := range map[int]int{5: 5, 10: 10, 11: 10} {
		cfg := ServerConfig{Sessions: 10, PrincipalShare: share, Requests: 10}
		cfg.fill()
		if got := cfg.ofPrincipal(cfg.Requests); got != want {
			t.Errorf("of 10 requests, with %d of 10 sessions: %d", share, got)
		}
	}
}

// What anybody may ask stands behind the check of Host and Origin, and before
// authentication.
func TestPublic(t *testing.T) {
	public := func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/public" {
			refuse(w, http.StatusOK, "for all")
		}
		return r.URL.Path == "/public"
	}
	r := newRig(t, ServerConfig{Loopback: true, Public: public, Authenticate: bearers("secret")}, nil)
	r.do(request("GET", "/public", "")).want(t, 200, "for all")
	r.do(request("GET", "/public", "", "Origin: http://localhost:1")).want(t, 200, "for all").wantHeader(t, "Access-Control-Allow-Origin", "http://localhost:1")
	r.do(request("GET", "/public", "", "Origin: https://evil.example")).want(t, 403, "Origin")
	r.do(request("GET", "/public", "", "Host: evil.example")).want(t, 403, "Host")
	r.do(request("GET", "/other", "")).want(t, 401, "bearer")
}
