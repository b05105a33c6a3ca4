package hostile

import (
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// N parallel calls of an edge that can be taken once: exactly one reaches the upstream.
func TestParallelCallsOfAOnceOnlyEdge(t *testing.T) {
	framings(t, func(t *testing.T, r *rig) {
		const callers = 20
		for range callers {
			r.Request("tools/call", mcptest.ToolParams("once", ""))
		}
		passed, answered := 0, 0
		for answered < callers {
			m := r.Next()
			if !m.IsResponse() {
				continue
			}
			answered++
			if !refused(m) {
				passed++
			}
		}
		if n := r.upstream.Count("tools/call", "once"); n != 1 || passed != 1 {
			t.Errorf("%d calls reached the upstream, %d were answered as allowed", n, passed)
		}
	})
}

// The side effect has happened when the cancellation comes: what the upstream still answers within the grace
// decides the step.
func TestCancelAfterTheSideEffect(t *testing.T) {
	framings(t, func(t *testing.T, r *rig) {
		id := r.Request("tools/call", mcptest.ToolParams("late", ""))
		r.upstream.Await(t, 1, "tools/call", "late")
		r.Notify("notifications/cancelled", `{"requestId":`+string(mcptest.ID(id))+`,"reason":"changed my mind"}`)
		r.upstream.Await(t, 1, "notifications/cancelled")
		next := r.Request("tools/call", mcptest.ToolParams("once", "")) // takes the turn, and so waits for the step
		r.upstream.Open("late")
		if answer, _ := r.Answer(next); !strings.Contains(answer.String(), "invalid_transition") || !strings.Contains(answer.String(), "'after'") {
			t.Errorf("the late success did not lead to after: %s", answer)
		}
		if n := r.upstream.Count("tools/call", "once"); n != 0 {
			t.Errorf("%d calls of the next edge reached the upstream", n)
		}
		r.lives(t)
	})
}

// The upstream's cancellation names the upstream's id, not the client's.
func TestCancellationIsMapped(t *testing.T) {
	r := onStdio(t, "wrong")
	id := r.Request("tools/call", mcptest.ToolParams("late", ""))
	r.upstream.Await(t, 1, "tools/call", "late")
	r.Notify("notifications/cancelled", `{"requestId":`+string(mcptest.ID(id))+`}`)
	r.upstream.Await(t, 1, "notifications/cancelled")
	r.upstream.Open("late")
	var called, cancelled string
	for _, m := range r.upstream.Received() {
		if m.Name == "late" {
			called = string(m.ID)
		}
		if m.Method == "notifications/cancelled" {
			cancelled = string(m.Params)
		}
	}
	if !strings.Contains(cancelled, `"requestId":`+called) {
		t.Errorf("the call had the id %s upstream, and cancelled was %s", called, cancelled)
	}
}

// A second answer to the same request changes nothing and reaches nobody.
func TestDoubleAnswer(t *testing.T) {
	framings(t, func(t *testing.T, r *rig) {
		answer := r.Tool("twice", "")
		if string(answer.Result) != mcptest.Text("first") {
			t.Errorf("answered %s", answer)
		}
		r.lives(t)
		for _, m := range r.Received() {
			if strings.Contains(m.String(), "second") {
				t.Errorf("the client got %s", m)
			}
		}
	})
}

// A name that the state does not bind is not reached by another method either.
func TestHiddenNameByASiblingMethod(t *testing.T) {
	attempts := map[string][2]string{
		"tools/call":          {"tools/call", `{"name":"hidden","arguments":{}}`},
		"tool on page two":    {"tools/call", `{"name":"page_two","arguments":{}}`},
		"prompts/get":         {"prompts/get", `{"name":"hidden"}`},
		"resources/read":      {"resources/read", `{"uri":"w://hidden"}`},
		"resources/subscribe": {"resources/subscribe", `{"uri":"w://hidden"}`},
		"complete a prompt":   {"completion/complete", `{"ref":{"type":"ref/prompt","name":"hidden"},"argument":{"name":"a","value":""}}`},
		"complete a resource": {"completion/complete", `{"ref":{"type":"ref/resource","uri":"w://hidden"},"argument":{"name":"a","value":""}}`},
		"templates":           {"resources/templates/list", ""},
		"unknown method":      {"tools/run", `{"name":"hidden"}`},
		"tasks":               {"tasks/list", ""},
		"call as a task":      {"tools/call", `{"name":"ok","task":{"ttl":1000}}`},
		"other case":          {"Tools/Call", `{"name":"hidden"}`},
	}
	framings(t, func(t *testing.T, r *rig) {
		for name, attempt := range attempts {
			if answer := r.Call(attempt[0], attempt[1]); !refused(answer) {
				t.Errorf("%s: answered %s", name, answer)
			}
		}
		for _, m := range r.upstream.Received() {
			if m.Name == "hidden" || m.Name == "w://hidden" || m.Name == "page_two" || strings.Contains(string(m.Params), "hidden") ||
				strings.HasPrefix(m.Method, "tasks/") || strings.EqualFold(m.Method, "tools/call") || m.Method == "tools/run" {
				t.Errorf("the upstream got %s", m)
			}
		}
		r.lives(t)
	})
}

// What the state hides is in no list, whichever of the upstream's pages it stands on.
func TestHiddenToolOnPageTwo(t *testing.T) {
	framings(t, func(t *testing.T, r *rig) {
		for method, shown := range map[string]string{"tools/list": `"ok"`, "resources/list": `"w://shown"`, "prompts/list": `"shown"`} {
			list := r.Call(method, "")
			if !strings.Contains(list.String(), shown) || strings.Contains(list.String(), "hidden") || strings.Contains(list.String(), "page_two") {
				t.Errorf("%s shows %s", method, list)
			}
			if strings.Contains(list.String(), "nextCursor") {
				t.Errorf("%s passes the upstream's cursor on: %s", method, list)
			}
		}
	})
}
