package runs

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// Under principal another's session is not there, and another's run is another.
func TestSessionStolen(t *testing.T) {
	t.Parallel()
	k := key{"legacy", "principal"}
	h := counted(t, k, steps)
	c := h.enter(k, "")
	thief := h.who(k, "bob")
	thief.web.SetID(c.web.ID())
	for _, body := range []string{mcptest.Request(1, "tools/call", mcptest.ToolParams("once", "")), mcptest.Notification("notifications/cancelled", `{"requestId":1}`)} {
		if r := thief.web.Post(t.Context(), body); r.Status != http.StatusNotFound {
			t.Errorf("%s in another's session is answered %d %s", body, r.Status, r.Body)
		}
	}
	if status := thief.web.Delete(); status != http.StatusNotFound {
		t.Errorf("ending another's session is answered %d", status)
	}
	own := h.who(k, "bob")
	own.Initialize()
	h.taken(c)
	if r := own.call("ok", ""); r.verdict != "success" {
		t.Errorf("bob's own run: %s", r.raw)
	}
	if r := own.call("elsewhere", ""); r.state != "start" {
		t.Errorf("bob's run has moved with ann's: %s", r.raw)
	}
	h.once(c)
}

// owned are keys whose runs can be told of, in front of clients who are told apart.
func owned(t *testing.T, k key, flags ...string) *house {
	t.Helper()
	return counted(t, k, steps, append(flags, "--tokens", tokens(t))...)
}

// A handle is good in its owner's hands alone. To all others it is one that was never given out.
func TestHandleStolen(t *testing.T) {
	t.Parallel()
	k := key{"modern", "handle"}
	h := owned(t, k)
	ann, bob := h.who(k, "ann"), h.who(k, "bob")
	ann.handle = ann.start(t)
	h.taken(ann)
	for _, request := range []string{"once", "elsewhere", "ok", "fsm_end_run"} {
		bob.handle = ann.handle
		stolen := bob.call(request, "")
		bob.handle = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
		unknown := bob.call(request, "")
		if stolen.verdict != "run_not_found" || stolen.text != unknown.text || stolen.state != unknown.state {
			t.Errorf("%s with another's handle is answered %s, with one that is none %s", request, stolen.raw, unknown.raw)
		}
	}
	bob.handle = ""
	if listed := bob.call("fsm_list_runs", ""); strings.Contains(listed.raw, ann.handle) {
		t.Errorf("bob is told of ann's handle: %s", listed.raw)
	}
	h.once(ann)
}

// Handles are guessed in vain, and what is nearly one is none.
func TestHandleGuessed(t *testing.T) {
	t.Parallel()
	k := key{"modern", "handle"}
	h := counted(t, k, steps)
	c := h.enter(k, "")
	own, other := c.handle, h.enter(k, "").handle
	if len(own) < 26 || own == other {
		t.Errorf("handles are %q and %q", own, other)
	}
	guesser := h.who(k, "")
	for _, handle := range []string{"1", "null", own[:25], own + "A", strings.ToLower(own), " " + own, own + "\\n", own[:13] + other[13:], strings.Repeat("A", 26), strings.Repeat("x", 5000)} {
		guesser.handle = handle
		if r := guesser.call("once", ""); r.verdict != "run_not_found" {
			t.Errorf("the handle %.40q is answered %s", handle, r.raw)
		}
	}
	if n := h.upstream.Count("tools/call"); n != 0 {
		t.Errorf("%d calls have reached the upstream", n)
	}
	h.taken(c)
}

// What an operator has handed out belongs to nobody yet; with --path-create a run is its first client's.
func TestPathStolen(t *testing.T) {
	each(t, those("path"), func(t *testing.T, k key) {
		h := owned(t, k, "--path-create")
		url := h.url + "/runs/" + "a-long-word-Nobody-guesses-42"
		ann, bob := h.who(k, "ann"), h.who(k, "bob")
		ann.web.URL, bob.web.URL = url, url
		if !k.modern() {
			ann.Initialize()
		}
		h.taken(ann)
		h.refused("another's path", bob)
		guess := h.who(k, "bob")
		guess.web.URL = h.url + "/runs/short"
		h.refused("a path that can be guessed", guess)
		guess.web.URL = h.url + "/runs/" + strings.Repeat("a", 40)
		h.refused("a long path that can be guessed", guess)
		h.once(ann)
	})
}

// gone waits until no run is left that is found by the key.
func (h *house) gone(k key) {
	h.t.Helper()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	timeout := time.After(mcptest.Patience)
	for len(h.runs(k)) > 0 {
		select {
		case <-again.C:
		case <-timeout:
			h.t.Fatalf("runs that nobody uses do not expire: %v", h.runs(k))
		}
	}
}

// An expired run is gone: its owner is told so, everybody else that there is none.
func TestExpired(t *testing.T) {
	each(t, []key{{"modern", "handle"}, {"modern", "path"}, {"legacy", "path"}}, func(t *testing.T, k key) {
		flags := []string{"--run-idle", "3s"}
		if k.kind == "path" {
			flags = append(flags, "--path-create")
		}
		h := owned(t, k, flags...)
		ann, bob := h.who(k, "ann"), h.who(k, "bob")
		if k.kind == "path" {
			ann.web.URL = h.url + "/runs/a-long-word-Nobody-guesses-42"
			bob.web.URL = ann.web.URL
		} else {
			ann.handle = ann.start(t)
		}
		if !k.modern() {
			ann.Initialize()
		}
		h.taken(ann)
		if !k.modern() {
			ann.web.Delete()
		}
		h.gone(k)
		if k.kind == "path" {
			h.refused("another's expired path", bob)
			return
		}
		bob.handle = ann.handle
		if r := ann.call("once", ""); r.verdict != "run_expired" {
			t.Errorf("an expired handle is answered %s", r.raw)
		}
		if r := bob.call("once", ""); r.verdict != "run_not_found" {
			t.Errorf("another's expired handle is answered %s", r.raw)
		}
		if n := h.upstream.Count("tools/call", "once"); n != 1 {
			t.Errorf("once has reached the upstream %d times", n)
		}
	})
}

// A flood of runs locks out itself: neither anybody else, nor the runs that there are.
func TestFloodOfRuns(t *testing.T) {
	t.Parallel()
	k := key{"modern", "handle"}
	health := mcptest.FreeAddress(t)
	h := owned(t, k, "--max-runs", "30", "--max-runs-per-principal", "20", "--health", health)
	bob := h.who(k, "bob")
	bob.handle = bob.start(t)
	ann := h.who(k, "ann")
	handles := map[string]bool{}
	for range 20 {
		handles[ann.start(t)] = true
	}
	for range 200 {
		if r := ann.call("fsm_start_run", ""); r.verdict != "busy" || !strings.Contains(r.text, "too many runs") {
			t.Fatalf("a run too many is answered %s", r.raw)
		}
	}
	h.taken(bob)
	h.enterAs(bob)
	for handle := range handles {
		ann.handle = handle
		if r := ann.call("ok", ""); r.verdict != "success" {
			t.Fatalf("a run was ended for room: %s", r.raw)
		}
	}
	if n := len(h.runs(k)); n != 22 || len(handles) != 20 {
		t.Errorf("there are %d runs, ann has %d", n, len(handles))
	}
	if r := ann.call("fsm_end_run", ""); r.verdict != "success" {
		t.Errorf("ending a run: %s", r.raw)
	}
	ann.handle = ""
	ann.start(t)
	answer, err := http.Get("http://" + health + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if text := body(t, answer); !strings.Contains(text, `fsm_proxy_runs_refused_total{reason="principal"} 200`) {
		t.Errorf("the refused runs are not counted:\n%s", text)
	}
}

// enterAs starts another run of a client's.
func (h *house) enterAs(c *client) {
	h.t.Helper()
	other := *c
	other.handle = ""
	other.handle = other.start(h.t)
	if r := other.call("once", ""); r.verdict != "success" {
		h.t.Errorf("once in another run: %s", r.raw)
	}
}

// A new run for each header value is refused when there are too many; those that there are go on.
func TestFloodOfHeaders(t *testing.T) {
	each(t, those(byHeader), func(t *testing.T, k key) {
		h := counted(t, k, steps, "--max-runs", "10")
		first := h.taken(h.enter(k, ""))
		for i := range 30 {
			c := h.who(k, "")
			c.web.Header.Set(gatewayHeader, fmt.Sprint("run ", i))
			if r := h.asked(c); (i < 9) != (r.Status == http.StatusOK && !strings.Contains(string(r.Body), "busy")) {
				t.Fatalf("run %d is answered %d %s", i+2, r.Status, r.Body)
			}
		}
		if k.modern() {
			if n := h.upstream.Count("tools/call", "once"); n != 10 {
				t.Errorf("once has reached the upstream %d times in ten runs", n)
			}
		}
		if r := first.call("once", ""); r.state != "after" {
			t.Errorf("the first run: %s", r.raw)
		}
	})
}
