package service

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/asker"
	"github.com/fsm-proxy/fsm-proxy/internal/peers"
	"github.com/fsm-proxy/fsm-proxy/internal/streamhttp"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// What another process passes on is served by what it has come to there: no client gets to where operators are served, whoever
// they are and whatever they say in headers, and no operator is one for whom another issuer vouches.
func TestDoors(t *testing.T) {
	olga, ann := &asker.Who{Issuer: "admin", Subject: "olga"}, &asker.Who{Issuer: "tokens", Subject: "olga"}
	for _, x := range []struct {
		door   string
		who    *asker.Who
		want   string // by whom it is served
		status int
	}{
		{"operators", olga, `the desk for "olga"`, 200},
		{"operators", ann, `the desk for ""`, 200},
		{"operators", nil, `the desk for ""`, 200},
		{"clients", olga, "no MCP", 404},
		{"clients", nil, "no MCP", 404},
		{"", olga, "not here", 421},
		{"Operators", olga, "not here", 421},
		{"another", olga, "not here", 421},
	} {
		var r replica
		request := func() *http.Request {
			req := httptest.NewRequest(http.MethodPost, "/v1/runs/7/end", strings.NewReader("{}"))
			req.Header.Set("Fsm-Proxy-Door", "operators")
			return req
		}
		w := httptest.NewRecorder()
		if r.serve(w, request(), peers.Passenger{Door: x.door, Who: x.who}); w.Code != http.StatusMisdirectedRequest {
			t.Errorf("by %q before there is anybody: %d %s", x.door, w.Code, w.Body)
		}
		front := streamhttp.NewServer(streamhttp.ServerConfig{Path: "/mcp"})
		r.front.Store(front)
		r.desk.Store(&desk{func(w http.ResponseWriter, _ *http.Request, from string) {
			_, _ = w.Write([]byte(`the desk for "` + from + `"`))
		}})
		w = httptest.NewRecorder()
		r.serve(w, request(), peers.Passenger{Door: x.door, Who: x.who})
		if w.Code != x.status || x.status != http.StatusNotFound && !strings.Contains(w.Body.String(), x.want) || x.status == http.StatusNotFound && strings.Contains(w.Body.String(), "desk") {
			t.Errorf("by %q for %+v: %d %s", x.door, x.who, w.Code, w.Body)
		}
		if err := front.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// What may have happened is told apart from what has not: it is not to be sent again by itself.
func TestWhatOperatorsAreToldOfWhatNobodyServes(t *testing.T) {
	if no := waitsNot().refusal(); no.Status != http.StatusServiceUnavailable || no.Code != "store_unavailable" {
		t.Errorf("%+v", no)
	}
	if no := (&unserved{code: policy.OutcomeUnknown, text: "perhaps"}).refusal(); no.Status != http.StatusBadGateway || no.Code != "outcome_unknown" {
		t.Errorf("%+v", no)
	}
}
