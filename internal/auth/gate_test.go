package auth

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/streamhttp"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// refusals gathers why requests were refused.
type refusals struct{ reasons []streamhttp.Reason }

func (x *refusals) add(why streamhttp.Reason, _ int, _ *http.Request) {
	x.reasons = append(x.reasons, why)
}

// ask has a request with these Authorization headers authenticated.
func ask(g *Gate, authorization ...string) (wire.Principal, *httptest.ResponseRecorder) {
	r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:8080/mcp", nil)
	r.Header["Authorization"] = authorization
	w := httptest.NewRecorder()
	who, ok := g.Authenticate(w, r)
	if ok {
		w.Code = 0
	}
	return wire.PrincipalOf(who), w
}

func TestBearerFile(t *testing.T) {
	token, told := "secret", &refusals{}
	g := New(Config{Bearer: func() string { return token }, Refused: told.add})
	for auth, want := range map[string]int{
		"Bearer secret": 0, "bearer secret": 0, "BEARER secret": 0, "Bearer secret ": 0,
		"Bearer Secret": 401, "Bearer ": 401, "Bearer": 401, "secret": 401, "Basic secret": 401, "Bearer secre": 401, "": 401,
		"Bearer " + strings.Repeat("secret", 4000): 401,
	} {
		who, w := ask(g, auth)
		if w.Code != want || (want == 0) != (who == wire.Principal{Issuer: "bearer-file", Subject: "bearer"}) {
			t.Errorf("%.40q: %d, %v", auth, w.Code, who)
		}
		if shown := w.Body.String() + w.Header().Get("WWW-Authenticate"); strings.Contains(shown, "ecret") || want == 401 && !strings.HasPrefix(w.Header().Get("WWW-Authenticate"), "Bearer") {
			t.Errorf("%.40q is answered %s", auth, shown)
		}
	}
	if who, w := ask(g, "Bearer secret", "Bearer secret"); w.Code != 400 || who.Known() || !strings.Contains(w.Header().Get("WWW-Authenticate"), `error="invalid_request"`) {
		t.Errorf("twice: %d, %v", w.Code, who)
	}
	told.reasons = nil
	_, w := ask(g)
	if got := w.Header().Get("WWW-Authenticate"); w.Code != 401 || got != "Bearer" {
		t.Errorf("without a token: %d %s", w.Code, got)
	}
	ask(g, "Bearer other")
	if len(told.reasons) != 2 || told.reasons[0] != streamhttp.ReasonBearerMissing || told.reasons[1] != streamhttp.ReasonBearerWrong {
		t.Errorf("the reasons are %v", told.reasons)
	}
	token = ""
	for _, auth := range []string{"Bearer ", "Bearer secret"} {
		if _, w := ask(g, auth); w.Code != 401 {
			t.Errorf("%q without a token to have: %d", auth, w.Code)
		}
	}
}

func TestNothingLetsNobodyIn(t *testing.T) {
	g := New(Config{})
	for _, auth := range [][]string{nil, {"Bearer x"}, {"Bearer "}} {
		if who, w := ask(g, auth...); w.Code != 401 || who.Known() {
			t.Errorf("%q: %d, %v", auth, w.Code, who)
		}
	}
}
