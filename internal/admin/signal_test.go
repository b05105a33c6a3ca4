package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
)

// signalled is an Admin with a token, which writes down the signals that it is sent.
func signalled() (a *Admin, sent func() string) {
	a = fixture(1)
	a.Who = byToken("secret")
	var all []string
	a.Signal = func(_ context.Context, s Signal) (Signalled, error) {
		seq := "-"
		if s.Seq != nil {
			seq = fmt.Sprint(*s.Seq)
		}
		all = append(all, fmt.Sprintf("%s %s %q %s by %s", s.Run, s.Name, s.Note, seq, s.From))
		return Signalled{ID: s.Run, State: "t", Seq: 8}, nil
	}
	return a, func() string { out := strings.Join(all, "; "); all = nil; return out }
}

var bearer = []string{"Authorization", "Bearer secret"}

// Who has no token sends no signal, at whatever address, and a token is one in its header alone.
func TestSignalsNeedAToken(t *testing.T) {
	const path = "/v1/runs/r/signals/go"
	for _, local := range []bool{true, false} {
		open := fixture(1)
		open.Local = local
		if w := ask(open.Handler(), "POST", path, "{}", bearer...); w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "--admin-tokens FILE") {
			t.Errorf("where there is none: %d %s", w.Code, w.Body)
		}
		a, sent := signalled()
		a.Local = local
		for name, c := range map[string][]string{
			"none":             {path},
			"in the query":     {path + "?access_token=secret&token=secret&authorization=Bearer+secret"},
			"in the body":      {path, "X-Token", "secret"},
			"wrong":            {path, "Authorization", "Bearer wrong"},
			"empty":            {path, "Authorization", "Bearer "},
			"a part":           {path, "Authorization", "Bearer secre"},
			"longer":           {path, "Authorization", "Bearer secret1"},
			"another scheme":   {path, "Authorization", "Basic secret"},
			"two":              {path, "Authorization", "Bearer secret", "Authorization", "Bearer wrong"},
			"of another's Web": {path, "Cookie", "Authorization=Bearer secret"},
		} {
			w := ask(a.Handler(), "POST", c[0], `{"token":"secret"}`, c[1:]...)
			if got := sent(); w.Code != http.StatusUnauthorized || got != "" || w.Header().Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("%s: %d %s, sent %q", name, w.Code, w.Body, got)
			}
		}
		if w := ask(a.Handler(), "POST", path, "{}", bearer...); w.Code != http.StatusOK || sent() != `r go "" - by ann` {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
}

// Web pages send none either, with the token of somebody's browser.
func TestSignalsOfWebPages(t *testing.T) {
	a, sent := signalled()
	for _, header := range [][]string{
		{"Origin", "http://evil.example"}, {"Sec-Fetch-Site", "cross-site"}, {"Host", "evil.example"}, {"Content-Type", "text/plain"},
	} {
		if w := ask(a.Handler(), "POST", "/v1/runs/r/signals/go", "{}", append(header, bearer...)...); w.Code < 400 || sent() != "" {
			t.Errorf("%q: %d %s", header, w.Code, w.Body)
		}
	}
}

// What comes with a signal is read strictly: what could mean a seq is never taken for none.
func TestWhatComesWithASignal(t *testing.T) {
	a, sent := signalled()
	for body, want := range map[string]string{
		``:                             `r go "" - by ann`,
		` {} `:                         `r go "" - by ann`,
		`{"note":"why","seq":7}`:       `r go "why" 7 by ann`,
		`{"seq":0}`:                    `r go "" 0 by ann`,
		`{"seq":18446744073709551615}`: `r go "" 18446744073709551615 by ann`,
		`{"note":"` + strings.Repeat("n", 1024) + `"}`: `r go "` + strings.Repeat("n", 1024) + `" - by ann`,
		`{"note":"a\u001b\nb"}`:                        `r go "a\x1b\nb" - by ann`,
		`{"note":"` + strings.Repeat("n", 1025) + `"}`: "note is longer than 1024 bytes",
		`{"note":"` + strings.Repeat("ö", 513) + `"}`:  "note is longer than 1024 bytes",
		`{"note":null}`:                "note is no text",
		`{"note":7}`:                   "note is no text",
		`{"note":"\ud800"}`:            "send {",
		"{\"note\":\"\xff\"}":          "send {",
		`{"seq":null}`:                 "seq is no whole number",
		`{"seq":"7"}`:                  "seq is no whole number",
		`{"seq":7.0}`:                  "seq is no whole number",
		`{"seq":7e0}`:                  "seq is no whole number",
		`{"seq":-0}`:                   "seq is no whole number",
		`{"seq":-1}`:                   "seq is no whole number",
		`{"seq":18446744073709551616}`: "seq is no whole number",
		`{"seq":[7]}`:                  "seq is no whole number",
		`{"seq":7,"seq":8}`:            "send {",
		`{"Seq":7}`:                    "send {",
		`{"seq":7,"more":1}`:           "send {",
		`{"seq":7} {}`:                 "send {",
		`[]`:                           "send {",
		`null`:                         "send {",
		`7`:                            "send {",
		`{`:                            "send {",
		`{"note":"` + strings.Repeat(" ", 17<<10) + `"}`: "cannot be read",
	} {
		w := ask(a.Handler(), "POST", "/v1/runs/r/signals/go", body, bearer...)
		got := sent()
		if w.Code != http.StatusOK {
			got = w.Body.String()
		}
		if !strings.Contains(got, want) || (w.Code != http.StatusOK) != (w.Code == http.StatusBadRequest) || strings.HasPrefix(want, "r go") != (w.Code == http.StatusOK) {
			t.Errorf("%.60s: %d %s", body, w.Code, got)
		}
	}
	for _, query := range []string{"?seq=7", "?x"} {
		if w := ask(a.Handler(), "POST", "/v1/runs/r/signals/go"+query, "", bearer...); w.Code != http.StatusBadRequest || sent() != "" {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
		}
	}
}

// FuzzSignalBody has whatever is read as what comes with a signal mean the same to a reader of the standard library's.
func FuzzSignalBody(f *testing.F) {
	for _, seed := range []string{"", "{}", `{"note":"why","seq":7}`, `{"seq":7,"seq":8}`, `{"Seq":7}`, `{"seq":1e2}`, `{"note":"\ud800"}`, ` {"seq" : 0 } `} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		var s Signal
		r := httptest.NewRequest("POST", "/v1/runs/r/signals/go", strings.NewReader(body))
		if s.read(httptest.NewRecorder(), r) != "" || body == "" {
			return
		}
		var plain map[string]any
		decoder := json.NewDecoder(strings.NewReader(body))
		decoder.UseNumber()
		if err := decoder.Decode(&plain); err != nil {
			t.Fatalf("%q is read as %+v: %v", body, s, err)
		}
		note, _ := plain["note"].(string)
		seq, numbered := plain["seq"].(json.Number)
		if note != s.Note || numbered != (s.Seq != nil) || numbered && seq.String() != fmt.Sprint(*s.Seq) || len(s.Note) > maxNote {
			t.Errorf("%q is read as %+v", body, s)
		}
	})
}

// What is refused has its status, and says where the run stands.
func TestRefusedSignal(t *testing.T) {
	a, _ := signalled()
	seq := uint64(9)
	for _, status := range []int{404, 409, 503} {
		a.Signal = func(context.Context, Signal) (Signalled, error) {
			return Signalled{}, &Refusal{Status: status, Text: "no", Code: "run_moved", Kind: "signal", State: "s", Seq: &seq, Next: &ValidNext{Signals: []string{"go"}}}
		}
		w := ask(a.Handler(), "POST", "/v1/runs/r/signals/go", "", bearer...)
		var got Refusal
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != status || got.Code != "run_moved" || *got.Seq != 9 || got.Next.Signals[0] != "go" {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
}

// Signals that wait leave room for other requests.
func TestFloodOfSignals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := signalled()
		release := make(chan struct{})
		a.Signal = func(ctx context.Context, _ Signal) (Signalled, error) {
			select {
			case <-release:
			case <-ctx.Done():
			}
			return Signalled{}, nil
		}
		h := a.Handler()
		answers := make(chan int)
		for range maxSignals {
			go func() { answers <- ask(h, "POST", "/v1/runs/r/signals/go", "", bearer...).Code }()
		}
		synctest.Wait()
		w := ask(h, "POST", "/v1/runs/r/signals/go", "", bearer...)
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
			t.Errorf("one too many: %d %s", w.Code, w.Body)
		}
		if w := ask(h, "GET", "/v1/runs", "", bearer...); w.Code != http.StatusOK {
			t.Errorf("another request: %d %s", w.Code, w.Body)
		}
		close(release)
		for range maxSignals {
			if code := <-answers; code != http.StatusOK {
				t.Errorf("one that had room: %d", code)
			}
		}
		if w := ask(h, "POST", "/v1/runs/r/signals/go", "", bearer...); w.Code != http.StatusOK {
			t.Errorf("after the flood: %d", w.Code)
		}
	})
}
