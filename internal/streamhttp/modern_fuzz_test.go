package streamhttp

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// What is handed on is what the headers say, whatever they and the body are.
func FuzzHeaderAndBody(f *testing.F) {
	srv := NewServer(ServerConfig{Modern: func(m *wire.Message, out wire.Stream, from PeerInfo) wire.Pending {
		if m.Kind == wire.Request {
			from.Header["Handed-On"] = []string{m.Method}
			from.Header["Handed-Name"] = []string{m.P.Name + m.P.URI}
			out.Answer(result(m, "{}"))
		}
		return nil
	}})
	f.Cleanup(func() { _ = srv.Close(context.Background()) })
	f.Add("2026-07-28", "tools/call", "a", alone("tools/call", `"name":"a"`))
	f.Add("2026-07-28", "tools/call", "=?base64?YQ==?=", alone("tools/call", `"name":"a"`))
	f.Add("2026-07-28", "resources/read", "a://b", alone("resources/read", `"uri":"a://b"`))
	f.Add("2026-07-28\n2025-06-18", "tools/call\ntools/list", "a\nb", alone("tools/call", `"name":"a","name":"b"`))
	f.Add("2026-07-28", "tools/call", "=?base64?=", alone("tools/call", `"name":"=?base64?="`))
	f.Fuzz(func(t *testing.T, version, method, name, body string) {
		r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(body))
		r.Header = http.Header{"Content-Type": {typeJSON}, headerVersion: lines(version), wire.HeaderMethod: lines(method), wire.HeaderName: lines(name)}
		w := httptest.NewRecorder()
		srv.ServeHTTP(w, r)
		handed := r.Header["Handed-On"]
		if handed == nil {
			return
		}
		switch said, ok := wire.DecodeHeader(name); {
		case version != wire.ModernRevision, method != handed[0]:
			t.Errorf("%s was handed on, of %q %q", handed[0], method, version)
		case handed[0] != "tools/call" && handed[0] != "resources/read":
		case (!ok || said != r.Header["Handed-Name"][0]) && (name != "" || r.Header["Handed-Name"][0] != ""):
			t.Errorf("%q was handed on under the name %q", r.Header["Handed-Name"][0], name)
		}
		if w.Code != http.StatusOK {
			t.Errorf("handed on, and answered %d", w.Code)
		}
	})
}

// lines are the values of a header; none of the empty text.
func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}
