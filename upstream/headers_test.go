//go:build unix

package upstream

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

const headed = `{"name":"query","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},` +
	`"deep":{"type":"object","properties":{"n":{"type":"integer","x-mcp-header":"N"}}},"sure":{"type":"boolean","x-mcp-header":"Sure"}}}}`

func modernTools(tools ...string) string {
	return `{"resultType":"complete","tools":[` + strings.Join(tools, ",") + `],"ttlMs":0,"cacheScope":"private"}`
}

// paramsOf are the headers that repeated arguments in each call, in order.
func (w *modernWeb) paramsOf() (calls []string) {
	for _, line := range w.requests() {
		if fields := strings.Fields(line); fields[1] == "tools/call" {
			fields = slices.DeleteFunc(fields, func(f string) bool { return !strings.HasPrefix(f, wire.HeaderParam) })
			calls = append(calls, strings.Join(fields, " "))
		}
	}
	return calls
}

// TestArgumentsInHeaders are as the tool's definition says, though nobody has listed
// the tools before.
func TestArgumentsInHeaders(t *testing.T) {
	w := newModernWeb(t)
	w.results("tools/list", modernTools(headed, `{"name":"echo"}`))
	c := dialEra(t, newServer(t, Config{URL: w.URL}), eras(t, wire.Modern), newRecorder(), wire.Modern)
	for _, params := range []string{
		`"name":"query","arguments":{"region":"Zürich","deep":{"n":-7},"sure":true}`,
		`"name":"query","arguments":{"region":null,"deep":{"n":1.5},"sure":false}`,
		`"name":"query"`,
		`"name":"echo","arguments":{"region":"eu"}`,
	} {
		if _, err := c.Start(modernRequest(t, "tools/call", params), nil).Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"Mcp-Param-N=-7 Mcp-Param-Region==?base64?WsO8cmljaA==?= Mcp-Param-Sure=true",
		"Mcp-Param-Sure=false", "", "",
	}
	if got := w.paramsOf(); !slices.Equal(got, want) || w.count("tools/list") != 1 {
		t.Errorf("got %q, want %q; listed %d times", got, want, w.count("tools/list"))
	}
}

// TestToolsWithInvalidHeadersAreLeftOut of the list, and no others with them.
func TestToolsWithInvalidHeadersAreLeftOut(t *testing.T) {
	w := newModernWeb(t)
	w.results("tools/list", modernTools(`{"name":"bad","inputSchema":{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}}`, headed))
	c := dialEra(t, newServer(t, Config{URL: w.URL}), eras(t, wire.Modern), newRecorder(), wire.Modern)
	l, err := c.List(t.Context(), wire.Tools)
	if err != nil || len(l.Items) != 1 || !l.Has("query") || l.Has("bad") {
		t.Error(l, err)
	}
}

// TestHeadersAreMadeAnew where the definition has changed: the call that was refused
// for them is sent once more, and no other is.
func TestHeadersAreMadeAnew(t *testing.T) {
	w := newModernWeb(t)
	w.results("tools/list", modernTools(`{"name":"query"}`))
	answered := w.answer["tools/call"]
	w.on("tools/call", func(rw http.ResponseWriter, r *http.Request, m *wire.Message) {
		if m.P.Name == "query" && r.Header.Get("Mcp-Param-Region") == "" {
			answerJSON(rw, 400, string(wire.ErrorAnswer(m.Bytes(m.ID), wire.CodeHeaderMismatch, "no", nil)))
			return
		}
		answered(rw, r, m)
	})
	c := dialEra(t, newServer(t, Config{URL: w.URL}), eras(t, wire.Modern), newRecorder(), wire.Modern)
	if _, err := c.List(t.Context(), wire.Tools); err != nil {
		t.Fatal(err)
	}
	call := func() *wire.Message {
		m, err := c.Start(modernRequest(t, "tools/call", `"name":"query","arguments":{"region":"eu"}`), nil).Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	if m := call(); m.ErrorCode != wire.CodeHeaderMismatch {
		t.Error("nothing has changed, and yet:", string(m.Raw))
	}
	w.results("tools/list", modernTools(headed))
	if m := call(); m.Kind != wire.Result {
		t.Error(string(m.Raw))
	}
	if got, want := w.paramsOf(), []string{"", "", "Mcp-Param-Region=eu"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
