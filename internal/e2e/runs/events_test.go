package runs

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// An event id from before a restart finds nothing of now, neither at once nor when there are as many streams and events. Who asks
// for the answer to a request of before hears that it is unknown.
func TestEventsOfBeforeARestart(t *testing.T) {
	t.Parallel()
	k := key{"legacy", "session"}
	h := counted(t, k, "version: 1\nname: events\ninitial: a\nstates:\n  a: {tools: {once: b, ok: }}\n  b: {tools: {elsewhere: a, ok: }}\n",
		"--annotate", "meta", "--store", store(t))
	c := h.enter(k, "")
	move := func(id int, tool string) []string { // whose answer comes behind that the lists have changed
		t.Helper()
		answer := c.web.Post(t.Context(), mcptest.Request(id, "tools/call", mcptest.ToolParams(tool, "{}")))
		var ids []string
		for line := range strings.Lines(string(answer.Body)) {
			if event, ok := strings.CutPrefix(line, "id: "); ok {
				ids = append(ids, strings.TrimSpace(event))
			}
		}
		if answer.Status != http.StatusOK || len(ids) < 2 {
			t.Fatalf("%d %s", answer.Status, answer.Body)
		}
		return ids
	}
	behind := func(event string) mcptest.Response {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Accept", "text/event-stream")
		request.Header.Set("Last-Event-ID", event)
		return c.web.Do(request)
	}
	old := move(102, "once")
	if r := behind(old[0]); r.Status != http.StatusOK || !strings.Contains(string(r.Body), `"id":102`) {
		t.Fatalf("%d %s", r.Status, r.Body)
	}
	h.again(os.Kill)
	refused := func(when string) {
		t.Helper()
		for _, event := range old {
			r := behind(event)
			if strings.Count(event, ".") == 3 { // the request's answer was still to come
				if text := string(r.Body); r.Status != http.StatusOK || strings.Count(text, "data: ") != 1 || !strings.Contains(text, `"id":102`) || !strings.Contains(text, `"outcome_unknown"`) {
					t.Errorf("%s: %s: %d %s", when, event, r.Status, text)
				}
				continue
			}
			if text := string(r.Body); r.Status != http.StatusBadRequest || !strings.Contains(text, "restarted") || !strings.Contains(text, "a GET without it") {
				t.Errorf("%s: %s: %d %s", when, event, r.Status, text)
			}
		}
	}
	refused("nothing has happened yet")
	now := move(103, "elsewhere")
	refused("a stream with as many events is there")
	if r := behind(now[0]); r.Status != http.StatusOK || !strings.Contains(string(r.Body), `"id":103`) {
		t.Errorf("%d %s", r.Status, r.Body)
	}
}
