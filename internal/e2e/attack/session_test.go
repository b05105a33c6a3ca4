package attack

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// stranger is a client that has a session id, and never began a session.
func (r *rig) stranger(id string) *mcptest.Web {
	_, web := mcptest.DialWeb(r.t, r.url)
	web.SetID(id)
	return web
}

// notFound fails the test unless every way to use the session id is answered 404.
func (r *rig) notFound(name, id string) {
	r.t.Helper()
	for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
		if status := r.stranger(id).Do(request(r, method, call("1", `{"name":"ok"}`))).Status; status != http.StatusNotFound {
			r.t.Errorf("%s with a session id that is %s is answered %d", method, name, status)
		}
	}
}

// request is an HTTP request to the proxy; only a POST has the body.
func request(r *rig, method, body string) *http.Request {
	r.t.Helper()
	if method != http.MethodPost {
		body = ""
	}
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Accept", "application/json, text/event-stream")
	if method == http.MethodGet {
		req.Header.Set("Accept", "text/event-stream")
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	return req
}

func TestSessionIDGuessed(t *testing.T) {
	fronts(t, func(t *testing.T, front way) {
		r := front.open(t)
		for _, id := range []string{"1", "0", "null", "undefined", "raw-session-1", strings.Repeat("A", 26), strings.Repeat("x", 8000)} {
			r.notFound("guessed", id)
		}
		r.untouched()
	})
}

func TestSessionIDForged(t *testing.T) {
	fronts(t, func(t *testing.T, front way) {
		r := front.open(t)
		own := r.web.ID()
		if len(own) < 22 {
			t.Errorf("a session id of %d characters holds no 128 bits", len(own))
		}
		for _, id := range []string{own[:len(own)-1], own + "A", strings.ToLower(own), own[:len(own)-1] + "_", own + "," + own, "../" + own, own + "%00"} {
			r.notFound("forged", id)
		}
		r.untouched()
	})
}

// Without a session nothing but initialize is answered, by whatever method.
func TestSessionIDMissing(t *testing.T) {
	t.Parallel()
	r := web.open(t)
	for _, body := range []string{
		call("1", `{"name":"once"}`), mcptest.Request(1, "ping", ""), mcptest.Request(1, "tools/list", ""),
		mcptest.Notification("notifications/initialized", ""), mcptest.Result([]byte("1"), "{}"),
	} {
		if answer := r.stranger("").Post(t.Context(), body); answer.Status != http.StatusBadRequest {
			t.Errorf("%s is answered %d %s", body, answer.Status, answer.Body)
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		if answer := r.stranger("").Do(request(r, method, "")); answer.Status != http.StatusBadRequest {
			t.Errorf("%s is answered %d %s", method, answer.Status, answer.Body)
		}
	}
	r.in("start")
	r.untouched()
}

// Two sessions of one server know nothing of each other: neither id opens the other's run.
func TestSessionIDForeign(t *testing.T) {
	fronts(t, func(t *testing.T, front way) {
		r, elsewhere := front.open(t), front.open(t)
		r.notFound("another proxy's", elsewhere.web.ID())
		other := r.join()
		if other.web.ID() == r.web.ID() {
			t.Error("two sessions have one id")
		}
		other.Tool("once", "")
		r.in("start")
		r.lives()
		r.reached("tools/call once")
	})
}

func TestSessionIDDeleted(t *testing.T) {
	t.Parallel()
	r := webPipe.open(t)
	own := r.web.ID()
	if status := r.web.Delete(); status != http.StatusNoContent {
		t.Errorf("DELETE is answered %d", status)
	}
	r.notFound("deleted", own)
	r.upstream.AwaitLive(t, 0)
	r.reached()
}

// A client cannot choose its session's id, nor use two at once.
func TestSessionFixation(t *testing.T) {
	t.Parallel()
	r := web.open(t)
	hello := mcptest.Request(1, "initialize", oldHello)
	if answer := r.stranger("chosen-by-the-client").Post(t.Context(), hello); answer.Status != http.StatusNotFound {
		t.Errorf("initialize with an id is answered %d %s", answer.Status, answer.Body)
	}
	victim := r.join()
	both := r.stranger("")
	both.Header["Mcp-Session-Id"] = []string{r.web.ID(), victim.web.ID()}
	if answer := both.Post(t.Context(), call("1", `{"name":"once"}`)); answer.Status != http.StatusBadRequest {
		t.Errorf("two session ids are answered %d %s", answer.Status, answer.Body)
	}
	r.notFound("chosen by the client", "chosen-by-the-client")
	r.untouched()
}

// Sessions that share an upstream cannot cancel each other's calls, though their ids are the same.
func TestForeignCancel(t *testing.T) {
	each(t, []way{web.with("--share-upstream"), webTLS.with("--share-upstream"), webPipe.with("--share-upstream")}, func(r *rig) {
		other := r.join()
		r.Send(call("77", `{"name":"hold_open","_meta":{"progressToken":1}}`))
		r.upstream.Await(r.t, 1, "tools/call", "hold_open")
		other.Notify("notifications/cancelled", `{"requestId":77}`)
		other.Notify("notifications/cancelled", `{"requestId":1}`)
		other.Notify("notifications/cancelled", `{"requestId":3}`)
		other.Send(call("77", `{"name":"ok","_meta":{"progressToken":1}}`))
		if answer := other.Next(); string(answer.ID) != "77" || string(answer.Result) != mcptest.Text("ok") {
			r.t.Errorf("the same id in another session is answered %s", answer)
		}
		r.upstream.Open("hold_open")
		if answer, _ := r.Answer(77); string(answer.Result) != mcptest.Text("the true answer") {
			r.t.Errorf("answered %s", answer)
		}
		r.reached("tools/call hold_open", "tools/call ok")
	})
}

// The upstream's question to one client is answered by nobody else.
func TestForeignAnswer(t *testing.T) {
	each(t, []way{web, webPipe, web.with("--share-upstream")}, func(r *rig) {
		other := r.join()
		id := r.Request("tools/call", mcptest.ToolParams("elicit", ""))
		question := r.Next()
		if question.Method != "elicitation/create" {
			r.t.Fatalf("the client got %s", question)
		}
		other.Send(mcptest.Result(question.ID, `{"action":"accept","content":{"yes":"forged"}}`))
		other.lives()
		r.Send(mcptest.Result(question.ID, `{"action":"decline"}`))
		if answer, _ := r.Answer(id); !strings.Contains(answer.String(), "decline") || strings.Contains(answer.String(), "forged") {
			r.t.Errorf("answered %s", answer)
		}
		r.Send(mcptest.Result(question.ID, `{"action":"accept"}`)) // a second answer, to nothing that is open
		r.lives()
		r.reached("tools/call elicit", "answer")
	})
}

// The events of one session are not to be had by another, with the event's id or without.
func TestForeignLastEventID(t *testing.T) {
	fronts(t, func(t *testing.T, front way) {
		r := front.open(t)
		answer := r.web.Post(t.Context(), call("40", `{"name":"once"}`)) // an event stream: the lists have changed
		ids := eventIDs(string(answer.Body))
		if len(ids) == 0 {
			t.Fatalf("no event ids in %s", answer.Body)
		}
		other := r.join()
		for _, id := range append(ids, "0", "1", "-1", "..", strings.Repeat("9", 400)) {
			req := request(r, http.MethodGet, "")
			req.Header.Set("Last-Event-ID", id)
			ctx, cancel := context.WithCancel(t.Context())
			seen := other.web.Do(req.WithContext(ctx))
			cancel()
			if seen.Status == http.StatusOK || strings.Contains(string(seen.Body), `"once"`) {
				t.Errorf("another session's event %s is answered %d %s", id, seen.Status, seen.Body)
			}
		}
		r.reached("tools/call once")
	})
}

// eventIDs are the ids of a stream's events.
func eventIDs(stream string) (ids []string) {
	for line := range strings.Lines(stream) {
		if id, ok := strings.CutPrefix(line, "id:"); ok {
			ids = append(ids, strings.TrimSpace(id))
		}
	}
	return ids
}

// A flood of sessions is turned away beyond the limit; those that live go on, and room that is given up is used.
func TestFloodOfSessions(t *testing.T) {
	fronts(t, func(t *testing.T, front way) {
		r := front.with("--max-sessions", "3").open(t)
		second := r.join()
		r.join()
		hello := mcptest.Request(1, "initialize", oldHello)
		for range 20 {
			if answer := r.stranger("").Post(t.Context(), hello); answer.Status != http.StatusServiceUnavailable {
				t.Errorf("one session more is answered %d %s", answer.Status, answer.Body)
			}
		}
		r.lives()
		second.web.Delete()
		if answer := r.stranger("").Post(t.Context(), hello); answer.Status != http.StatusOK {
			t.Errorf("with room again a session is answered %d %s", answer.Status, answer.Body)
		}
		r.untouched()
		if n := r.upstream.Count("initialize"); n != 4 {
			t.Errorf("%d sessions reached the upstream", n)
		}
	})
}

// Failed handshakes leave nothing behind that would fill the room.
func TestFloodOfFailedSessions(t *testing.T) {
	t.Parallel()
	r := web.with("--max-sessions", "2").open(t)
	for range 10 {
		bad := r.stranger("").Post(t.Context(), mcptest.Request(1, "initialize", `{"protocolVersion":7,"protocolversion":8}`))
		if bad.Status != http.StatusBadRequest {
			t.Errorf("answered %d %s", bad.Status, bad.Body)
		}
	}
	r.join()
	r.untouched()
}

// Where each session has a process there are as many as processes may be.
func TestFloodOfProcesses(t *testing.T) {
	t.Parallel()
	r := webPipe.with("--max-upstreams", "2").open(t)
	r.join()
	for range 5 {
		answer := r.stranger("").Post(t.Context(), mcptest.Request(1, "initialize", oldHello))
		if answer.Status == http.StatusOK && !denied(string(answer.Body)) {
			t.Errorf("a third is answered %d %s", answer.Status, answer.Body)
		}
	}
	r.untouched()
	if n := r.upstream.Started(); n != 2 {
		t.Errorf("%d processes were started", n)
	}
}

// Too many requests at a time are refused one by one; those under way are answered.
func TestFloodOfRequests(t *testing.T) {
	each(t, []way{pipes.with("--max-in-flight", "4"), web.with("--max-in-flight", "4"), webTLS.with("--max-in-flight", "4")}, func(r *rig) {
		for i := range 4 {
			r.Request("tools/call", mcptest.ToolParams("hold_open", ""))
			r.upstream.Await(r.t, i+1, "tools/call", "hold_open")
		}
		if answer := r.Tool("ok", ""); !strings.Contains(string(answer.Error), invalidRequest) {
			r.t.Errorf("a fifth is answered %s", answer)
		}
		r.upstream.Open("hold_open")
		for range 4 {
			if answer := r.nextAnswer(); string(answer.Result) != mcptest.Text("the true answer") {
				r.t.Errorf("answered %s", answer)
			}
		}
		r.lives()
		r.reached("tools/call hold_open", "tools/call hold_open", "tools/call hold_open", "tools/call hold_open")
	})
}
