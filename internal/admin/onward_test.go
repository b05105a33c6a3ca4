package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

var errElsewhere = errors.New("another process has it")

// away is an Admin of which another process has all runs and calls; onward is told of each request that is passed on.
func away(onward func(w http.ResponseWriter, r *http.Request, on Onward) (bool, error)) *Admin {
	a := fixture(0)
	a.Who = byToken("secret")
	no := func() *Refusal {
		return &Refusal{Status: http.StatusConflict, Code: "store_unavailable", Text: "not here", Why: errElsewhere}
	}
	not := func(Verb) (Stands, error) { return Stands{}, no() }
	a.Reset, a.End, a.Annotate, a.Accept, a.Release = not, not, not, not, not
	a.Fork = func(Fork) (Forked, error) { return Forked{}, no() }
	a.Run = func(string) (RunDetail, error) { return RunDetail{}, no() }
	a.Signal = func(context.Context, Signal) (Signalled, error) { return Signalled{}, no() }
	a.Approve = func(context.Context, ApprovalAnswer) (Approved, error) {
		return Approved{}, &Refusal{Status: http.StatusNotFound, Code: NoApproval, Text: "no call waits"}
	}
	a.PassOn, a.Asked = onward, func(string) bool { return false }
	return a
}

// elsewhere are the paths that another process may answer, with what belongs to them.
func elsewhere() map[string]string {
	all := map[string]string{"GET /v1/runs/7": "", "POST /v1/runs/7/signals/go": `{"note":"why"}`,
		"GET /v1/approvals/x": "", "POST /v1/approvals/x/allow": `{"note":"why"}`, "POST /v1/approvals/x/deny": ""}
	for verb, body := range bodies {
		all["POST /v1/runs/7/"+verb] = body
	}
	return all
}

// What another process has is passed on as it came, with who sends it, again as often as it is to be, and what comes of that is
// the answer.
func TestPassedOn(t *testing.T) {
	for path, body := range elsewhere() {
		var seen []string
		a := away(func(w http.ResponseWriter, _ *http.Request, on Onward) (bool, error) {
			no, _ := errors.AsType[*Refusal](on.Why)
			if no == nil || no.Code != NoApproval && !errors.Is(on.Why, errElsewhere) || on.Passed || on.Since.IsZero() {
				t.Errorf("%s: %+v", path, on)
			}
			if seen = append(seen, on.From+" "+string(on.Body)); len(seen) < 3 {
				return true, nil
			}
			w.WriteHeader(http.StatusAccepted)
			return false, nil
		})
		method, target, _ := strings.Cut(path, " ")
		if w := ask(a.Handler(), method, target, body, bearer...); w.Code != http.StatusAccepted || !slices.Equal(seen, slices.Repeat([]string{"ann " + body}, 3)) {
			t.Errorf("%s: %d %s, passed on %q", path, w.Code, w.Body, seen)
		}
		seen = nil
		for what, header := range map[string][]string{
			"no token": nil, "a wrong token": {"Authorization", "Bearer wrong"}, "another Host": append([]string{"Host", "evil.example"}, bearer...),
			"a page":  append([]string{"Origin", "http://evil.example"}, bearer...),
			"headers": {"Fsm-Proxy-Door", "operators", "Fsm-Proxy-Who", "ann", "Fsm-Proxy-Lease", "1"},
		} {
			if w := ask(a.Handler(), method, target, body, header...); w.Code < 400 || seen != nil {
				t.Errorf("%s by %s: %d %s", path, what, w.Code, w.Body)
			}
		}
		if method == http.MethodPost {
			if w := ask(a.Handler(), method, target, strings.Repeat(" ", 17<<10), bearer...); w.Code != http.StatusBadRequest || seen != nil {
				t.Errorf("%s with too much: %d %s", path, w.Code, w.Body)
			}
		}
		a.PassOn = func(http.ResponseWriter, *http.Request, Onward) (bool, error) {
			return false, &Refusal{Status: http.StatusBadGateway, Code: "outcome_unknown", Text: "it may have happened"}
		}
		if w := ask(a.Handler(), method, target, body, bearer...); w.Code != http.StatusBadGateway || !strings.Contains(w.Body.String(), "outcome_unknown") {
			t.Errorf("%s of which nothing is known: %d %s", path, w.Code, w.Body)
		}
	}
}

// What another process has passed on is answered for the operator that it names, without a token, and is passed on no
// further. Nothing else is answered, nor what is switched off.
func TestWhatAnotherProcessHasPassedOn(t *testing.T) {
	passed := func(a *Admin, method, target, body, from string) *httptest.ResponseRecorder {
		serve := a.Passed()
		return ask(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.RemoteAddr = "192.0.2.1:7"
			serve(w, r, from)
		}), method, target, body, "Host", "gateway.example")
	}
	a, done := operated()
	a.Self = "process 7 on gateway-0"
	for verb, body := range bodies {
		target := "/v1/runs/00000001/" + verb
		if w := passed(a, "POST", target, body, "olga"); w.Code != http.StatusOK || done() != verb+` 00000001 "why" by olga` {
			t.Errorf("%s: %d %s", verb, w.Code, w.Body)
		}
		if w := passed(a, "POST", target, body, ""); w.Code != http.StatusForbidden || done() != "" {
			t.Errorf("%s by nobody: %d %s", verb, w.Code, w.Body)
		}
		a.Verbs = []string{}
		if w := passed(a, "POST", target, body, "olga"); w.Code != http.StatusForbidden || done() != "" || !strings.Contains(w.Body.String(), verb+" is switched off in process 7 on gateway-0, ") {
			t.Errorf("%s, which is switched off: %d %s", verb, w.Code, w.Body)
		}
		a.Verbs = nil
	}
	if w := passed(a, "GET", "/v1/runs/00000001", "", ""); w.Code != http.StatusOK {
		t.Errorf("a look: %d %s", w.Code, w.Body)
	}
	for path, status := range map[string]int{"GET /v1/policy": 404, "GET /v1/sessions": 404, "GET /v1/runs": 404, "POST /v1/runs": 404, "POST /v1/runs/migrate": 404, "POST /v1/runs/release": 404,
		"PUT /v1/log-level": 404, "GET /debug/pprof/": 404, "GET /v1/journal/runs": 404} {
		method, target, _ := strings.Cut(path, " ")
		if w := passed(a, method, target, "", "olga"); w.Code != status && w.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	for path, body := range elsewhere() {
		n := 0
		a := away(func(w http.ResponseWriter, _ *http.Request, on Onward) (bool, error) {
			if n++; !on.Passed || on.From != "olga" {
				t.Errorf("%s: %+v", path, on)
			}
			w.WriteHeader(http.StatusMisdirectedRequest)
			return false, nil
		})
		method, target, _ := strings.Cut(path, " ")
		if w := passed(a, method, target, body, "olga"); w.Code != http.StatusMisdirectedRequest || n != 1 {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	a = away(func(_ http.ResponseWriter, _ *http.Request, on Onward) (bool, error) { return false, on.Why })
	a.Asked = func(id string) bool { return id == "x" }
	a.Approve = func(context.Context, ApprovalAnswer) (Approved, error) {
		return Approved{}, &Refusal{Status: http.StatusConflict, Code: "approval_answered", Text: "it was answered before"}
	}
	if w := passed(a, "POST", "/v1/approvals/x/allow", "", "olga"); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "approval_answered") {
		t.Errorf("an approval that was answered: %d %s", w.Code, w.Body)
	}
}

// Calls that wait are listed of all processes, in one order, with those processes that do not say theirs; to another process
// each lists its own.
func TestApprovalsOfAllProcesses(t *testing.T) {
	a := fixture(0)
	a.Who = byToken("secret")
	of := func(ids ...string) (all []Approval) {
		for _, id := range ids {
			all = append(all, Approval{ID: id, Arguments: []byte("{}"), Registers: []byte("{}")})
		}
		return all
	}
	a.Approvals = func() []Approval { return of("b", "d") }
	a.Elsewhere = func(_ context.Context, from string) ([]Approval, []string) {
		if from != "ann" {
			t.Errorf("asked for %q", from)
		}
		return of("e", "a", "c"), []string{"process 7 on h"}
	}
	said := func(w *httptest.ResponseRecorder) string {
		var page list[Approval]
		if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil {
			t.Fatal(err)
		}
		out := ""
		for _, x := range page.Items {
			out += x.ID
		}
		return fmt.Sprint(out, " ", page.Next, " ", page.Absent, " ", page.Count != nil)
	}
	if got := said(ask(a.Handler(), "GET", "/v1/approvals", "", bearer...)); got != "abcde  [process 7 on h] false" {
		t.Error(got)
	}
	if got := said(ask(a.Handler(), "GET", "/v1/approvals?limit=2&after=a", "", bearer...)); got != "bc c [process 7 on h] false" {
		t.Error(got)
	}
	serve := a.Passed()
	if got := said(ask(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { serve(w, r, "") }), "GET", "/v1/approvals", "")); got != "bd  [] true" {
		t.Error(got)
	}
}

// All runs of a process are given away by an operator with a token.
func TestReleaseOfAll(t *testing.T) {
	a, _ := operated()
	var by []string
	a.ReleaseAll = func(v Verb) (Released, error) {
		by = append(by, v.From+" "+v.Text+v.Run)
		return Released{Runs: 2, Stay: 1}, nil
	}
	if w := ask(a.Handler(), "POST", "/v1/runs/release", `{"reason":"why"}`); w.Code != http.StatusUnauthorized || by != nil {
		t.Errorf("without a token: %d %s", w.Code, w.Body)
	}
	w := ask(a.Handler(), "POST", "/v1/runs/release", `{"reason":"why"}`, bearer...)
	if w.Code != http.StatusOK || !slices.Equal(by, []string{"ann why"}) || !strings.Contains(w.Body.String(), `"runs": 2`) || !strings.Contains(w.Body.String(), `"stay": 1`) {
		t.Errorf("%d %s %q", w.Code, w.Body, by)
	}
	a.Who = nil
	if w := ask(a.Handler(), "POST", "/v1/runs/release", ""); w.Code != http.StatusForbidden {
		t.Errorf("where nobody is known: %d %s", w.Code, w.Body)
	}
}
