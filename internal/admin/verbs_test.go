package admin

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// operated is an Admin with a token, which writes down what is done to runs.
func operated() (a *Admin, done func() string) {
	a = fixture(2)
	a.Who = byToken("secret")
	var all []string
	by := func(verb string) func(Verb) (Stands, error) {
		return func(v Verb) (Stands, error) {
			if v.Run != "00000001" {
				return Stands{}, &Refusal{Status: http.StatusNotFound, Text: "there is no such run", Code: "run_not_found"}
			}
			all = append(all, fmt.Sprintf("%s %s %q by %s", verb, v.Run, v.Text, v.From))
			return Stands{ID: v.Run, State: "s", Seq: 9}, nil
		}
	}
	a.Reset, a.End, a.Annotate, a.Accept, a.Release = by("reset"), by("end"), by("annotate"), by("accept"), by("release")
	a.Fork = func(f Fork) (Forked, error) {
		at, err := by("fork")(f.Verb)
		if f.At != nil {
			all = append(all, fmt.Sprintf("at %d", *f.At))
		}
		return Forked{Started: Started{Run: at.ID, State: at.State}, Seq: at.Seq}, err
	}
	return a, func() string { out := strings.Join(all, "; "); all = nil; return out }
}

// bodies are what each verb takes, with what it says.
var bodies = map[string]string{"reset": `{"reason":"why"}`, "end": `{"reason":"why"}`, "annotate": `{"text":"why"}`, "accept": `{"reason":"why"}`, "release": `{"reason":"why"}`, "fork": `{"reason":"why"}`}

// What is done to runs is done by somebody who is known, from no web page, and to a run that there is.
func TestVerbs(t *testing.T) {
	for verb, body := range bodies {
		path := "/v1/runs/00000001/" + verb
		a, done := operated()
		h := a.Handler()
		if w := ask(h, "POST", path, body, bearer...); w.Code != http.StatusOK || done() != verb+` 00000001 "why" by ann` || !strings.Contains(w.Body.String(), `"seq": 9`) {
			t.Errorf("%s: %d %s", verb, w.Code, w.Body)
		}
		for what, header := range map[string][]string{
			"no token": {}, "a wrong token": {"Authorization", "Bearer wrong"}, "a page": append([]string{"Origin", "http://evil.example"}, bearer...),
			"another Host": append([]string{"Host", "evil.example"}, bearer...), "a form": append([]string{"Content-Type", "text/plain"}, bearer...),
		} {
			if w := ask(h, "POST", path, body, header...); w.Code < 400 || done() != "" {
				t.Errorf("%s by %s: %d %s", verb, what, w.Code, w.Body)
			}
		}
		if w := ask(h, "POST", "/v1/runs/2/"+verb, body, bearer...); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "run_not_found") {
			t.Errorf("%s of no run: %d %s", verb, w.Code, w.Body)
		}
		if w := ask(h, "POST", path+"?reason=x", body, bearer...); w.Code != http.StatusBadRequest || done() != "" {
			t.Errorf("%s by the query: %d %s", verb, w.Code, w.Body)
		}
		a.Who = nil
		if w := ask(a.Handler(), "POST", path, body, bearer...); w.Code != http.StatusForbidden || done() != "" || !strings.Contains(w.Body.String(), "--admin-tokens FILE") {
			t.Errorf("%s where nobody is known: %d %s", verb, w.Code, w.Body)
		}
	}
}

// What is said is bounded, and is what people see of it.
func TestWhatComesWithAVerb(t *testing.T) {
	a, done := operated()
	h := a.Handler()
	for verb, body := range bodies {
		key := strings.Split(body, `"`)[1]
		for given, ok := range map[string]bool{
			``:                          verb != "annotate",
			` {}`:                       verb != "annotate",
			fmt.Sprintf(`{%q:""}`, key): verb != "annotate",
			fmt.Sprintf(`{%q:"grün, „gut“"}`, key):                   true,
			fmt.Sprintf(`{%q:%q}`, key, strings.Repeat("n", 1024)):   true,
			fmt.Sprintf(`{%q:%q}`, key, strings.Repeat("n", 1025)):   false,
			fmt.Sprintf(`{%q:%q}`, key, strings.Repeat("ö", 513)):    false,
			fmt.Sprintf(`{%q:%q}`, key, strings.Repeat(" ", 17<<10)): false,
			fmt.Sprintf(`{%q:"a\nb"}`, key):                          false,
			fmt.Sprintf(`{%q:"a\u001b[2Jb"}`, key):                   false,
			fmt.Sprintf(`{%q:"a\u202eb"}`, key):                      false,
			fmt.Sprintf(`{%q:"\ud800"}`, key):                        false,
			fmt.Sprintf(`{%q:null}`, key):                            verb != "annotate",
			fmt.Sprintf(`{%q:7}`, key):                               false,
			fmt.Sprintf(`{%q:"a","more":"b"}`, key):                  false,
			fmt.Sprintf(`{%q:"a",%q:"b"}`, key, key):                 false,
			fmt.Sprintf(`{%q:"a"} {}`, key):                          false,
			`{"note":"a"}`:                                           false, `null`: false, `[]`: false, `{`: false,
		} {
			w := ask(h, "POST", "/v1/runs/00000001/"+verb, given, bearer...)
			if got := done(); ok != (w.Code == http.StatusOK) || ok != (got != "") || !ok && w.Code != http.StatusBadRequest {
				t.Errorf("%s with %.40s: %d %s, done %q", verb, given, w.Code, w.Body, got)
			}
		}
	}
}

// A run is forked at the entry of a number, from 1 on, or at its last one.
func TestForkAt(t *testing.T) {
	a, done := operated()
	h := a.Handler()
	for body, want := range map[string]string{
		`{"at":7,"reason":"why"}`: `fork 00000001 "why" by ann; at 7`, `{"at":18446744073709551615}`: `fork 00000001 "" by ann; at 18446744073709551615`, `{"at":null}`: `fork 00000001 "" by ann`, ``: `fork 00000001 "" by ann`,
		`{"at":0}`: "", `{"at":-1}`: "", `{"at":1.5}`: "", `{"at":"7"}`: "", `{"at":18446744073709551616}`: "", `{"at":7,"run":"x"}`: "", `{"Run":"x"}`: "", `{"Text":"x"}`: "", `{"From":"eve"}`: "", `{"at":7,"at":8}`: "",
	} {
		w := ask(h, "POST", "/v1/runs/00000001/fork", body, bearer...)
		if got := done(); got != want || (want == "") != (w.Code == http.StatusBadRequest) {
			t.Errorf("%s: %d %s, done %q", body, w.Code, w.Body, got)
		}
	}
}

// Each verb can be switched off, and says by which flag it is; what only looks stays.
func TestVerbsThatAreSwitchedOff(t *testing.T) {
	paths := map[string]string{"start": "/v1/runs", "migrate": "/v1/runs/migrate", "signal": "/v1/runs/00000001/signals/go", "approve": "/v1/approvals/a/allow"}
	for verb := range bodies {
		paths[verb] = "/v1/runs/00000001/" + verb
	}
	if len(paths) != len(Verbs) {
		t.Errorf("%d verbs have paths, of %v", len(paths), Verbs)
	}
	for _, off := range Verbs {
		a, done := operated()
		a.Verbs = []string{}
		for _, verb := range Verbs {
			if verb != off {
				a.Verbs = append(a.Verbs, verb)
			}
		}
		if w := ask(a.Handler(), "POST", paths[off], bodies[off], bearer...); w.Code != http.StatusForbidden || done() != "" || !strings.Contains(w.Body.String(), "--admin-verbs") {
			t.Errorf("%s: %d %s", off, w.Code, w.Body)
		}
		for verb, body := range bodies {
			if w := ask(a.Handler(), "POST", paths[verb], body, bearer...); verb != off && (w.Code != http.StatusOK || done() == "") {
				t.Errorf("without %s, %s: %d %s", off, verb, w.Code, w.Body)
			}
		}
		if w := ask(a.Handler(), "GET", "/v1/runs", "", bearer...); w.Code != http.StatusOK {
			t.Errorf("without %s a look: %d %s", off, w.Code, w.Body)
		}
	}
}

// A run is begun as somebody says, strictly read, and by who is known where that is asked.
func TestStart(t *testing.T) {
	a := fixture(0)
	var began []Start
	a.Start = func(s Start) (Started, error) {
		began = append(began, s)
		return Started{Key: s.Key, Run: "r", State: "s"}, nil
	}
	for body, want := range map[string]*Start{
		``:               {},
		`{}`:             {},
		`{"key":"path"}`: {Key: "path"},
		`{"key":"principal","issuer":"i","subject":"s","reason":"why"}`: {Key: "principal", Issuer: "i", Subject: "s", Reason: "why"},
		`{"key":"header","value":"x"}`:                                  {Key: "header", Value: "x"},
		`{"From":"eve"}`:                                                nil, `{"from":"eve"}`: nil, `null`: nil, `[]`: nil, `{"key":7}`: nil, `{"key":"path"} {}`: nil,
		`{"reason":"` + strings.Repeat("n", 1025) + `"}`: nil, `{"value":"a\nb"}`: nil, `{"subject":"\u202e"}`: nil,
	} {
		began = nil
		w := ask(a.Handler(), "POST", "/v1/runs", body)
		if want == nil && (w.Code != http.StatusBadRequest || began != nil) || want != nil && (w.Code != http.StatusOK || len(began) != 1 || began[0] != *want) {
			t.Errorf("%.40s: %d %s, %+v", body, w.Code, w.Body, began)
		}
	}
	a.Who, began = byToken("secret"), nil
	if w := ask(a.Handler(), "POST", "/v1/runs", "{}"); w.Code != http.StatusUnauthorized || began != nil {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := ask(a.Handler(), "POST", "/v1/runs", "{}", bearer...); w.Code != http.StatusOK || len(began) != 1 || began[0].From != "ann" {
		t.Errorf("%d %s, %+v", w.Code, w.Body, began)
	}
}
