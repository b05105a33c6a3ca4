package hostile

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// An id that was guessed, forged, or deleted opens nothing.
func TestGuessedForgedAndDeletedSessionIDs(t *testing.T) {
	r := onHTTP(t)
	own := r.web.ID()
	if len(own) < 22 {
		t.Errorf("a session id of %d characters holds no 128 bits", len(own))
	}
	_, stranger := mcptest.DialWeb(t, r.url)
	for name, id := range map[string]string{"guessed": "1", "forged": own[:len(own)-1] + "_", "longer": own + "x", "path": "../" + own} {
		stranger.SetID(id)
		if answer := stranger.Post(t.Context(), mcptest.Request(1, "tools/call", mcptest.ToolParams("ok", ""))); answer.Status != http.StatusNotFound {
			t.Errorf("%s: answered %d %s", name, answer.Status, answer.Body)
		}
	}
	stranger.SetID(own)
	if status := r.web.Delete(); status/100 != 2 {
		t.Errorf("DELETE was answered %d", status)
	}
	if answer := stranger.Post(t.Context(), mcptest.Request(1, "tools/call", mcptest.ToolParams("ok", ""))); answer.Status != http.StatusNotFound {
		t.Errorf("deleted: answered %d %s", answer.Status, answer.Body)
	}
	if n := r.calls(); n != 0 {
		t.Errorf("%d calls reached the upstream", n)
	}
}

// Without a session nothing but initialize is answered.
func TestNoSession(t *testing.T) {
	r := onHTTP(t)
	_, stranger := mcptest.DialWeb(t, r.url)
	if answer := stranger.Post(t.Context(), mcptest.Request(1, "tools/call", mcptest.ToolParams("ok", ""))); answer.Status != http.StatusBadRequest {
		t.Errorf("answered %d %s", answer.Status, answer.Body)
	}
	if n := r.calls(); n != 0 {
		t.Errorf("%d calls reached the upstream", n)
	}
}

// Two sessions are two runs; a new session starts at initial.
func TestResetByReconnecting(t *testing.T) {
	r := onHTTP(t)
	r.Tool("once", "")
	if again := r.Tool("once", ""); !refused(again) {
		t.Errorf("the edge was taken twice: %s", again)
	}
	s, _ := mcptest.DialWeb(t, r.url)
	s.Initialize()
	if fresh := s.Tool("once", ""); refused(fresh) {
		t.Errorf("another session is not at its own initial: %s", fresh)
	}
}

// Origin and Host of elsewhere are refused on every method.
func TestOriginAndHostRebinding(t *testing.T) {
	r := onHTTP(t)
	for name, value := range map[string]string{"Origin": "https://evil.example", "Host": "evil.example"} {
		_, web := mcptest.DialWeb(t, r.url)
		web.SetID(r.web.ID())
		web.Header[name] = []string{value}
		if answer := web.Post(context.Background(), mcptest.Request(1, "tools/call", mcptest.ToolParams("ok", ""))); answer.Status != http.StatusForbidden {
			t.Errorf("%s %s: answered %d %s", name, value, answer.Status, answer.Body)
		}
		if status := web.Delete(); status != http.StatusForbidden {
			t.Errorf("DELETE with %s %s: answered %d", name, value, status)
		}
	}
	r.lives(t)
}

// Bearer tokens, session ids and arguments are not in the log, at its most talkative either.
func TestNoSecretsInTheLog(t *testing.T) {
	const token = "the-token-of-this-test-1234567890"
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	u := mcptest.Stdio(t, "wrong")
	url, process := mcptest.Listen(t, append([]string{"--policy", mcptest.WritePolicy(t, policy), "--bearer-file", file,
		"--log-level", "trace", "--"}, u.Command()...)...)
	s, web := mcptest.DialWeb(t, url)
	if answer := web.Post(t.Context(), mcptest.Request(1, "initialize", "")); answer.Status != http.StatusUnauthorized {
		t.Errorf("without a token: answered %d", answer.Status)
	}
	web.Header["Authorization"] = []string{"Bearer " + token}
	s.Initialize()
	s.Tool("ok", `{"password":"the-secret-argument"}`)
	s.Tool("hidden", `{"password":"the-secret-argument"}`)
	s.Close()
	for _, secret := range []string{token, web.ID(), "the-secret-argument"} {
		if strings.Contains(process.Log().String(), secret) {
			t.Errorf("the log contains %q", secret)
		}
	}
}
