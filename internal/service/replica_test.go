package service

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/streamhttp"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// Each request that nobody serves has its answer, also each of a batch; what waits for none has a status.
func TestRefuses(t *testing.T) {
	t.Parallel()
	call := `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"x"}}`
	ping, note := `{"jsonrpc":"2.0","id":2,"method":"ping"}`, `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	modern := `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"` + wire.ModernRevision + `"}}}`
	lost, ends := (&errand{at: &journal.Elsewhere{}}).unknown(), endsBefore()
	for name, x := range map[string]struct {
		body   string
		no     *unserved
		status int
		ids    string // of the answers
		code   string // in each of them, or in the text
	}{
		"a call, lost":                       {fmt.Sprintf(call, 1), lost, 200, "1", "outcome_unknown"},
		"a call, at the end":                 {fmt.Sprintf(call, 1), ends, 200, "1", "store_unavailable"},
		"initialize, at the end":             {`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`, ends, 503, "1", "store_unavailable"},
		"outside of a session, at the end":   {modern, ends, 503, "1", "store_unavailable"},
		"outside of a session, lost":         {modern, lost, 200, "1", "outcome_unknown"},
		"a call whose client waits no more":  {fmt.Sprintf(call, 1), waitsNot(), 503, "", "try again"},
		"a notification, lost":               {note, lost, 502, "", "may have happened"},
		"a notification, at the end":         {note, ends, 503, "", "try again"},
		"a batch, lost":                      {"[" + fmt.Sprintf(call, 1) + "," + note + "," + ping + "," + fmt.Sprintf(call, 3) + "]", lost, 200, "1 2 3", "outcome_unknown"},
		"a batch, at the end":                {"[" + fmt.Sprintf(call, 1) + "," + ping + "]", ends, 200, "1 2", "store_unavailable"},
		"a batch whose client waits no more": {"[" + ping + "]", waitsNot(), 503, "", "try again"},
		"a batch without a request":          {"[" + note + "]", lost, 502, "", "may have happened"},
	} {
		p := streamhttp.Passed{Body: []byte(x.body)}
		if !wire.IsBatch(p.Body) {
			m, err := wire.Read(p.Body, wire.FromClient)
			if err != nil {
				t.Fatal(err)
			}
			p.Message = m
		}
		w := httptest.NewRecorder()
		(&service{cfg: &Config{}}).refuses(w, p, x.no)
		var ids []string
		for id := range 9 {
			for range strings.Count(w.Body.String(), fmt.Sprintf(`"id":%d,`, id)) {
				ids = append(ids, fmt.Sprint(id))
			}
		}
		if w.Code != x.status || strings.Join(ids, " ") != x.ids || strings.HasPrefix(w.Body.String(), "[") != (p.Message == nil && x.ids != "") {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
		if n := strings.Count(w.Body.String(), x.code); n < max(1, len(ids)) || (w.Header().Get("Retry-After") != "") != (w.Code == 503) {
			t.Errorf("%s: %v %s", name, w.Header(), w.Body)
		}
	}
}
