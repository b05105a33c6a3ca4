package mcptest

import (
	"net/http"
	"strings"
	"testing"
)

// bothModern runs a test with the raw client on the raw upstream of the modern era, over stdio and over HTTP.
func bothModern(t *testing.T, run func(t *testing.T, s *Session, u *Upstream)) {
	t.Run("stdio", func(t *testing.T) {
		u := Stdio(t, "modern")
		s, _ := Dial(t, u.Command()...)
		s.Modern(Modern{})
		run(t, s, u)
	})
	t.Run("http", func(t *testing.T) {
		u, url := HTTP(t, Server{Handle: Failing().Handle, Modern: true})
		s, _ := DialWeb(t, url)
		s.Modern(Modern{})
		run(t, s, u)
	})
}

func TestModernParams(t *testing.T) {
	for params, want := range map[string]string{
		"":                          `{"_meta":{META}}`,
		"{}":                        `{"_meta":{META}}`,
		`{"a":1}`:                   `{"a":1,"_meta":{META}}`,
		`{"_meta":{"p":{}},"a":{}}`: `{"_meta":{META,"p":{}},"a":{}}`,
		`{"a":{"_meta":{"p":1}}}`:   `{"a":{"_meta":{"p":1}},"_meta":{META}}`,
	} {
		got := strings.Replace(Modern{Meta: `"x":1`}.Params(params), Modern{Meta: `"x":1`}.members(), "META", 1)
		if got != want {
			t.Errorf("%s became %s, want %s", params, got, want)
		}
	}
}

func TestModernDiscoverAndCall(t *testing.T) {
	bothModern(t, func(t *testing.T, s *Session, u *Upstream) {
		if answer := s.Call("server/discover", ""); !strings.Contains(string(answer.Result), `"supportedVersions":["2026-07-28"]`) {
			t.Errorf("discover is answered %s", answer)
		}
		if answer := s.Tool("ok", `{"a":1}`); string(answer.Result) != `{"resultType":"complete",`+Text("ok")[1:] {
			t.Errorf("the call is answered %s", answer)
		}
		if n := u.Count("tools/call", "ok"); n != 1 {
			t.Errorf("%d calls were counted", n)
		}
	})
}

func TestModernSubscription(t *testing.T) {
	bothModern(t, func(t *testing.T, s *Session, u *Upstream) {
		id, leave := s.Subscribe(`{"toolsListChanged":true}`)
		answer, before := s.Answer(s.Request("tools/call", ToolParams("changed", "")))
		if answer.Result == nil {
			t.Errorf("answered %s", answer)
		}
		if len(before) == 0 {
			before = append(before, s.Next()) // over HTTP it comes on a connection of its own
		}
		if m := before[0]; m.Method != "notifications/tools/list_changed" || m.Subscription() != string(ID(id)) {
			t.Errorf("got %s", m)
		}
		leave()
		u.Await(t, 1, "notifications/cancelled")
	})
}

func TestModernInputRequired(t *testing.T) {
	bothModern(t, func(t *testing.T, s *Session, _ *Upstream) {
		if answer := s.Tool("elicit", ""); !strings.Contains(answer.String(), `"resultType":"input_required"`) {
			t.Errorf("the call is answered %s", answer)
		}
		retry := `{"name":"elicit","inputResponses":{"question":{"action":"decline"}},"requestState":"state of elicit"}`
		if answer := s.Call("tools/call", retry); !strings.Contains(answer.String(), "decline") {
			t.Errorf("the retry is answered %s", answer)
		}
	})
}

func TestModernCancel(t *testing.T) {
	bothModern(t, func(t *testing.T, s *Session, u *Upstream) {
		for n, tool := range []string{"late", "silent"} {
			_, leave := s.Open("tools/call", ToolParams(tool, ""))
			u.Await(t, 1, "tools/call", tool)
			leave()
			u.Await(t, n+1, "notifications/cancelled")
		}
	})
}

// The raw upstream is strict: it refuses what a server of the modern era must refuse.
func TestModernUpstreamIsStrict(t *testing.T) {
	_, url := HTTP(t, Server{Handle: Failing().Handle, Modern: true})
	s, web := DialWeb(t, url)
	s.Modern(Modern{})
	good := Request(1, "tools/call", Modern{}.Params(ToolParams("ok", "")))
	for name, value := range map[string]string{"Mcp-Name": "silent", "Mcp-Method": "tools/list", "Mcp-Protocol-Version": "2025-11-25"} {
		web.Header = http.Header{name: {value}}
		if answer := web.Post(t.Context(), good); answer.Status != http.StatusBadRequest || !strings.Contains(string(answer.Body), "-32020") {
			t.Errorf("%s: %s is answered %d %s", name, value, answer.Status, answer.Body)
		}
	}
	web.Header = nil
	for text, want := range map[string]int{
		Request(1, "initialize", "{}"):                  http.StatusBadRequest,
		Request(1, "tools/list", "{}"):                  http.StatusBadRequest,
		Request(1, "no/such", Modern{}.Params("")):      http.StatusNotFound,
		Request(1, "ping", Modern{}.Params("")):         http.StatusNotFound,
		Request(1, "tools/list", Modern{}.Params("{}")): http.StatusOK,
		good: http.StatusOK,
	} {
		if answer := web.Post(t.Context(), text); answer.Status != want {
			t.Errorf("%s is answered %d %s", text, answer.Status, answer.Body)
		}
	}
}
