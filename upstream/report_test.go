//go:build unix

package upstream

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// logged is a server of children that play a part, and its log.
func logged(t *testing.T, role string, with func(*Config)) (*Server, *syncBuffer) {
	t.Helper()
	log := new(syncBuffer)
	cfg := child(role)
	cfg.Log = hclog.New(&hclog.LoggerOptions{Output: log})
	if with != nil {
		with(&cfg)
	}
	return newServer(t, cfg), log
}

// The log tells why a child ended, and what it said last.
func TestDeathIsLogged(t *testing.T) {
	s, log := logged(t, "server", func(cfg *Config) { cfg.Quote = false })
	c := dial(t, s, newRecorder())
	_, _ = callTool(t, c, "die")
	<-c.gone
	contains(t, log.String(), "[WARN]  the upstream process ended", `why="the upstream process ended with exit status 7"`, `said="out of memory"`)
	if strings.Contains(log.String(), "--pass-env") {
		t.Error("it had started, so that it lacked nothing")
	}
}

// What a child may lack that ends before it has answered is named in the log.
func TestDeathAtTheStartIsLogged(t *testing.T) {
	s, log := logged(t, "die", func(cfg *Config) { cfg.Quote, cfg.Withheld = false, []string{"DB_PASSWORD", "EDITOR"} })
	if _, err := s.Dial(t.Context(), opening(t), newRecorder()); strings.Contains(err.Error(), "DB_PASSWORD") {
		t.Error("clients are told names:", err)
	}
	s.Close()
	contains(t, log.String(), "the upstream process ended before it answered", "exit status 3", `said="cannot open the database"`, "--pass-env", "DB_PASSWORD, EDITOR")
}

// A child that has not answered yet is ended at once when nobody waits for it any
// more, and the log says so.
func TestStartGivenUp(t *testing.T) {
	s, log := logged(t, "starting", func(cfg *Config) { cfg.Grace = time.Hour })
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() {
		_, err := s.Dial(ctx, opening(t), newRecorder())
		failed <- err
	}()
	eventually(t, func() bool { return s.LastStderr() != "" })
	if got := s.LastStderr(); got != "fetching a package" {
		t.Errorf("it said %q", got)
	}
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	s.Close()
	contains(t, log.String(), "had not answered yet, and is ended")
}

// Who may read what a child says is told of one that did not answer in time.
func TestStartTooSlow(t *testing.T) {
	s, log := logged(t, "starting", func(cfg *Config) { cfg.DialTimeout = 1200 * time.Millisecond })
	_, err := s.Dial(t.Context(), opening(t), newRecorder())
	late, ok := errors.AsType[*TimeoutError](err)
	if !ok || late.Waited != time.Second || !late.Process || late.Said != "fetching a package" {
		t.Errorf("%+v", err)
	}
	s.Close()
	contains(t, log.String(), "did not answer, and is ended", "no answer to initialize in 1s")
}
