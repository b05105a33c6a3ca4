package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/httpserver"
)

// ask sends one request to a handler, as JSON if it changes something.
func ask(h http.Handler, method, target, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Host = "localhost:1"
	if method == "POST" || method == "PUT" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		switch header[i] {
		case "Host":
			r.Host = header[i+1]
		case "Content-Type":
			r.Header.Set(header[i], header[i+1])
		default:
			r.Header.Add(header[i], header[i+1])
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestProbes(t *testing.T) {
	var gone error
	h := (&Health{
		Ready:   []Check{{"policy", func() error { return nil }}, {"upstream", func() error { return gone }}},
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "a_metric 1\n") }),
	}).Handler()
	for _, probe := range []string{"/livez", "/readyz", "/startupz", "/metrics"} {
		if w := ask(h, "GET", probe, "", "Host", "10.1.2.3:9090"); w.Code != http.StatusOK {
			t.Errorf("%s: %d %s", probe, w.Code, w.Body)
		}
	}
	gone = errors.New("connecting:\nrefused")
	if w := ask(h, "GET", "/readyz", ""); w.Code != http.StatusServiceUnavailable || w.Body.String() != "[+] policy\n[-] upstream: connecting: refused\n" {
		t.Errorf("not ready: %d %q", w.Code, w.Body)
	}
	if w := ask(h, "GET", "/livez", ""); w.Code != http.StatusOK {
		t.Errorf("alive all the same: %d", w.Code)
	}
	for method, status := range map[string]int{"HEAD": 200, "POST": 405, "PUT": 405, "DELETE": 405} {
		if w := ask(h, method, "/livez", ""); w.Code != status {
			t.Errorf("%s: %d", method, w.Code)
		}
	}
	if w := ask(h, "GET", "/v1/policy", ""); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "/readyz") {
		t.Errorf("health answers what it should not: %d %s", w.Code, w.Body)
	}
}

// Who names JSON gets it, with the part that is not ready; probes and browsers, which take anything, get lines.
func TestProbesInJSON(t *testing.T) {
	h := (&Health{Ready: []Check{{"policy", func() error { return nil }}, {"upstream", func() error { return errors.New("gone") }}}}).Handler()
	for _, accept := range []string{"application/json", "text/html, application/json;q=0.5"} {
		w := ask(h, "GET", "/readyz", "", "Accept", accept)
		var got Probe
		err := json.Unmarshal(w.Body.Bytes(), &got)
		want := Probe{Checks: []Checked{{Name: "policy", OK: true}, {Name: "upstream", Error: "gone"}}}
		if err != nil || w.Code != http.StatusServiceUnavailable || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is answered %d %s", accept, w.Code, w.Body)
		}
	}
	for _, accept := range []string{"*/*", "text/plain", "application/json;q=0"} {
		if w := ask(h, "GET", "/readyz", "", "Accept", accept); w.Body.String() != "[+] policy\n[-] upstream: gone\n" {
			t.Errorf("%s is answered %s", accept, w.Body)
		}
	}
}

// On a loopback address only its own names are a Host.
func TestProbesOnLoopback(t *testing.T) {
	h := (&Health{Local: true}).Handler()
	for host, status := range map[string]int{"localhost:9090": 200, "127.0.0.1": 200, "[::1]:9090": 200, "10.1.2.3:9090": 403, "evil.example": 403} {
		if w := ask(h, "GET", "/livez", "", "Host", host); w.Code != status {
			t.Errorf("%s is answered %d %s", host, w.Code, w.Body)
		}
	}
}

// byToken lets in who sends this token.
func byToken(token string) func(r *http.Request) (string, bool) {
	return func(r *http.Request) (string, bool) { return "ann", httpserver.Authorized(r, token) }
}

func nobody(Verb) (Stands, error) { return Stands{}, errors.New("nobody expects it") }

// fixture is an Admin with n sessions.
func fixture(n int) *Admin {
	level := "info"
	a := &Admin{
		Local: true,
		Policy: func() Policy {
			return Policy{Source: Source{File: "p.yaml", LastReload: &Reload{Errors: []string{"p.yaml:1:2: error: x"}}}}
		},
		Sessions: func() (all []Session) {
			for i := range n {
				id := fmt.Sprintf("%08d", i)
				all = append(all, Session{ID: id, State: "s", Run: id})
			}
			return all
		},
		Runs: func(context.Context, RunsQuery) (all []Run, whole bool, err error) {
			for i := range n {
				all = append(all, Run{ID: fmt.Sprintf("%08d", i), State: "s"})
			}
			return all, true, nil
		},
		Approvals: func() []Approval { return nil },
		Acts:      Acts{Reset: nobody, End: nobody, Annotate: nobody, Accept: nobody, Release: nobody},
		Start: func(Start) (Started, error) {
			return Started{}, &Refusal{Status: http.StatusConflict, Text: "no run has a URL here", Code: "not_available"}
		},
		Run: func(id string) (RunDetail, error) {
			if id != "00000001" {
				return RunDetail{}, &Refusal{Status: http.StatusNotFound, Text: "there is no such run", Code: "run_not_found"}
			}
			return RunDetail{Run: Run{ID: id, State: "s"}, Seq: 7, Registers: []byte("{}"), Counts: []byte("{}")}, nil
		},
		Signal:  func(context.Context, Signal) (Signalled, error) { return Signalled{}, errors.New("nobody expects it") },
		Migrate: func() Migrated { return Migrated{Runs: n, Restarted: 1, Unwritten: 2} },
		Level:   func() string { return level },
	}
	a.SetLevel = func(text string) error {
		if text != "debug" {
			return errors.New("no such level")
		}
		level = text
		return nil
	}
	return a
}

func TestAdmin(t *testing.T) {
	h := fixture(2).Handler()
	for _, c := range []struct {
		method, path, body string
		status             int
		says               string
	}{
		{"GET", "/v1/policy", "", 200, `"p.yaml:1:2: error: x"`},
		{"GET", "/v1/sessions", "", 200, `"count": 2`},
		{"GET", "/v1/runs", "", 200, `"turn_held": false`},
		{"POST", "/v1/runs/migrate", "", 200, `"restarted": 1`},
		{"POST", "/v1/runs/migrate", "", 200, `"unwritten": 2`},
		{"GET", "/v1/runs/migrate", "", 405, "POST only"},
		{"POST", "/v1/runs", "", 409, "no run has a URL here"},
		{"GET", "/v1/runs/1/reset", "", 405, "POST only"},
		{"POST", "/v1/runs/a/b/reset", "", 404, "/v1/runs"},
		{"POST", "/v1/runs/1/restart", "", 404, "/v1/runs/{id}/reset"},
		{"GET", "/v1/runs/00000001", "", 200, `"seq": 7`},
		{"GET", "/v1/runs/1", "", 404, `"code": "run_not_found"`},
		{"GET", "/v1/approvals/none", "", 404, `"code": "approval_not_found"`},
		{"DELETE", "/v1/runs/00000001", "", 405, "GET, HEAD only"},
		{"GET", "/v1/runs/", "", 404, "/v1/runs"},
		{"GET", "/v1/runs/1/signals", "", 404, "/v1/runs/{id}/signals/{name}"},
		{"GET", "/v1/runs/1/signals/go", "", 405, "POST only"},
		{"POST", "/v1/runs/1/signals/", "", 404, "/v1/runs"},
		{"POST", "/v1/runs//signals/go", "", 404, "/v1/runs"},
		{"POST", "/v1/runs/1/signals/go/on", "", 404, "/v1/runs"},
		{"POST", "/v1/runs//end", "", 404, "/v1/runs"},
		{"POST", "/v1/policy", "", 405, "GET, HEAD only"},
		{"PUT", "/v1/log-level", `{"level": "loud"}`, 400, "no such level"},
		{"PUT", "/v1/log-level", `{"level":`, 400, "send {"},
		{"PUT", "/v1/log-level", "debug", 400, "send {"},
		{"PUT", "/v1/log-level", `{"level": "debug"} {}`, 400, "send {"},
		{"PUT", "/v1/log-level", `{"Level": "debug"}`, 400, "send {"},
		{"PUT", "/v1/log-level", `{"level": "debug", "level": "off"}`, 400, "send {"},
		{"PUT", "/v1/log-level", strings.Repeat("x", 2000), 400, "cannot be read"},
		{"GET", "/v1/log-level", "", 200, `"level": "info"`},
		{"PUT", "/v1/log-level", `{"level": "debug"}`, 200, `"level": "debug"`},
		{"GET", "/v1/log-level", "", 200, `"level": "debug"`},
		{"DELETE", "/v1/log-level", "", 405, "GET, HEAD, PUT only"},
		{"OPTIONS", "/v1/runs/migrate", "", 405, "POST only"},
		{"GET", "/", "", 404, "/debug/pprof/"},
		{"GET", "/debug/pprof", "", 404, "/debug/pprof/"},
		{"GET", "/debug/pprof/none", "", 404, ""},
		{"POST", "/debug/pprof/heap", "", 405, "GET, HEAD only"},
		{"GET", "/v1/nothing\u2028", "", 404, "/v1/sessions"},
		{"GET", "/debug/pprof/goroutine?debug=1", "", 200, "goroutine profile"},
		{"GET", "/debug/pprof/cmdline", "", 404, "secrets"},
		{"GET", "/v1/sessions?limit=0", "", 400, "from 1 to 1000"},
	} {
		w := ask(h, c.method, c.path, c.body)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s %s: %d %s", c.method, c.path, w.Code, w.Body)
		}
	}
}

func TestPages(t *testing.T) {
	h := fixture(250).Handler()
	seen, next := 0, ""
	for range 10 {
		var page struct {
			Count int
			Next  string
			Items []Session
		}
		if err := json.Unmarshal(ask(h, "GET", "/v1/sessions?after="+next, "").Body.Bytes(), &page); err != nil || page.Count != 250 {
			t.Fatal(err, page.Count)
		}
		for _, s := range page.Items {
			if s.ID != fmt.Sprintf("%08d", seen) {
				t.Fatalf("%s as number %d", s.ID, seen)
			}
			seen++
		}
		if next = page.Next; next == "" {
			break
		}
	}
	if seen != 250 {
		t.Errorf("%d sessions", seen)
	}
}

// Hashes of ids are short: two sessions may have the same. Pages of any size show
// each once, and come to an end.
func TestPagesOfSameIDs(t *testing.T) {
	a := fixture(0)
	a.Sessions = func() []Session {
		return []Session{{ID: "a"}, {ID: "b", State: "1"}, {ID: "b", State: "2"}, {ID: "b", State: "3"}, {ID: "c"}}
	}
	for limit := range 6 {
		var seen []string
		for next, pages := "", 0; pages == 0 || next != ""; pages++ {
			var page list[Session]
			if err := json.Unmarshal(ask(a.Handler(), "GET", fmt.Sprintf("/v1/sessions?limit=%d&after=%s", limit+1, next), "").Body.Bytes(), &page); err != nil || pages > 5 {
				t.Fatalf("limit %d: %v after %d pages", limit+1, err, pages)
			}
			for _, s := range page.Items {
				seen = append(seen, s.ID+s.State)
			}
			next = page.Next
		}
		if got := strings.Join(seen, " "); got != "a b1 b2 b3 c" {
			t.Errorf("limit %d: %s", limit+1, got)
		}
	}
}

// What changes something must come as JSON: a web page cannot send that to another
// origin without asking, and a form not at all.
func TestSimpleRequestsChangeNothing(t *testing.T) {
	a := fixture(1)
	a.Migrate = func() Migrated { t.Error("migrated"); return Migrated{} }
	for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonp", "text/plain; application/json", "application/json, text/plain"} {
		w := ask(a.Handler(), "POST", "/v1/runs/migrate", "", "Content-Type", kind)
		if w.Code != http.StatusUnsupportedMediaType || !strings.Contains(w.Body.String(), "Content-Type: application/json") {
			t.Errorf("%q: %d %s", kind, w.Code, w.Body)
		}
		if w := ask(a.Handler(), "PUT", "/v1/log-level", `{"level": "debug"}`, "Content-Type", kind); w.Code != http.StatusUnsupportedMediaType || a.Level() != "info" {
			t.Errorf("%q: %d %s", kind, w.Code, w.Body)
		}
	}
	if w := ask(a.Handler(), "POST", "/v1/policy", "", "Content-Type", ""); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("another path: %d %s", w.Code, w.Body)
	}
	for _, kind := range []string{"application/json", "Application/JSON; charset=utf-8"} {
		if w := ask(fixture(1).Handler(), "POST", "/v1/runs/migrate", "{}", "Content-Type", kind); w.Code != http.StatusOK {
			t.Errorf("%q: %d %s", kind, w.Code, w.Body)
		}
	}
}

// A page can have a browser fetch an image from here, with no Origin: a profile of
// an hour, say.
func TestImagesOfWebPagesAreKeptOut(t *testing.T) {
	for site, status := range map[string]int{"cross-site": 403, "same-site": 403, "": 403, "same-origin": 200, "none": 200} {
		if w := ask(fixture(1).Handler(), "GET", "/v1/policy", "", "Sec-Fetch-Site", site); w.Code != status {
			t.Errorf("%q: %d %s", site, w.Code, w.Body)
		}
	}
}

// Rebinding, web pages and wrong tokens: nobody gets in by them.
func TestAdminKeepsOut(t *testing.T) {
	open, guarded := fixture(1), fixture(1)
	guarded.Local, guarded.Who = false, byToken("secret")
	for _, c := range []struct {
		admin  *Admin
		header []string
		status int
	}{
		{open, nil, 200},
		{open, []string{"Host", "[::1]:9"}, 200},
		{open, []string{"Host", "evil.example"}, 403},
		{open, []string{"Host", "localhost.evil.example"}, 403},
		{open, []string{"Host", ""}, 403},
		{open, []string{"Origin", "http://localhost:3000"}, 403},
		{open, []string{"Origin", "null"}, 403},
		{open, []string{"Origin", "http://localhost:1", "Origin", "http://evil.example"}, 403},
		{open, []string{"Origin", "http://localhost:1"}, 200},
		{guarded, nil, 401},
		{guarded, []string{"Authorization", "Bearer wrong"}, 401},
		{guarded, []string{"Authorization", "Bearer "}, 401},
		{guarded, []string{"Authorization", "Bearer secret", "Authorization", "Bearer wrong"}, 401},
		{guarded, []string{"Authorization", "Bearer secret", "Host", "10.0.0.1"}, 200},
		{guarded, []string{"Authorization", "Bearer secret", "Host", "a.example", "Origin", "http://b.example"}, 403},
	} {
		for _, path := range []string{"/v1/policy", "/debug/pprof/heap"} {
			if w := ask(c.admin.Handler(), "GET", path, "", c.header...); w.Code != c.status {
				t.Errorf("%q: %d %s", c.header, w.Code, w.Body)
			}
		}
		if w := ask(c.admin.Handler(), "POST", "/v1/runs/migrate", "", c.header...); w.Code != c.status {
			t.Errorf("migrate with %q: %d", c.header, w.Code)
		}
	}
}

// Many profiles at once are refused, and what has ended makes room again.
func TestFloodOfProfiles(t *testing.T) {
	h := fixture(1).Handler()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	answers := make(chan int)
	for range maxProfiles + 3 {
		go func() {
			r := httptest.NewRequestWithContext(ctx, "GET", "http://localhost/debug/pprof/mutex?seconds=3600", nil)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			answers <- w.Code
		}()
	}
	for range 3 {
		if code := <-answers; code != http.StatusServiceUnavailable {
			t.Errorf("one too many: %d", code)
		}
	}
	stop()
	for range maxProfiles {
		if code := <-answers; code == http.StatusServiceUnavailable {
			t.Error("one that had room was refused")
		}
	}
	if w := ask(h, "GET", "/debug/pprof/heap", ""); w.Code != http.StatusOK {
		t.Errorf("after the flood: %d %s", w.Code, w.Body)
	}
}
