//go:build unix

package upstream

import (
	"context"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// suspecting is a server whose children are asked whether they live.
func suspecting(t *testing.T, role string, patience time.Duration) (*Server, *syncBuffer) {
	t.Helper()
	log := new(syncBuffer)
	cfg := child(role)
	cfg.Ping, cfg.Grace = patience, 100*time.Millisecond
	cfg.Log = hclog.New(&hclog.LoggerOptions{Output: log})
	return newServer(t, cfg), log
}

// A child that says nothing more is ended, the calls under way with it, and the next
// connection has another.
func TestSuspectEndsAChildThatIsSilent(t *testing.T) {
	s, log := suspecting(t, "server", 200*time.Millisecond)
	c := dial(t, s, newRecorder())
	own := pidOf(t, c, "pid")
	c.Start(request(t, "hang"), nil)
	waiting := c.Start(request(t, "echo"), nil)
	c.Suspect()
	c.Suspect()
	_, err := waiting.Wait(t.Context())
	if e := callError(t, err); !e.Sent {
		t.Error("it was sent:", e)
	}
	contains(t, err.Error(), "said nothing for 200ms", "--upstream-ping")
	awaitGone(t, own)
	if n := s.Stats().Silent; n != 1 {
		t.Error("counted:", n)
	}
	<-c.gone
	contains(t, log.String(), "the upstream process is ended", "said nothing for 200ms", "waiting for the lock")
	mustCall(t, dial(t, s, newRecorder()), "echo")
}

// While a child is being ended it makes no room yet, but will: who asks waits, and one who can't may come again.
func TestRoomOfAChildThatEnds(t *testing.T) {
	cfg := child("stubborn")
	cfg.MaxProcesses, cfg.Grace = 1, 200*time.Millisecond
	s := newServer(t, cfg)
	c := dial(t, s, newRecorder())
	_, err := s.Dial(t.Context(), opening(t), newRecorder())
	if e := callError(t, err); e.RetryAfter != 0 {
		t.Error("nobody ends, and to wait is of no use:", e.RetryAfter)
	}
	c.Close()
	hurried, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Dial(hurried, opening(t), newRecorder())
	if e := callError(t, err); e.RetryAfter == 0 {
		t.Error(e)
	}
	dial(t, s, newRecorder())
	select {
	case <-c.gone:
	default:
		t.Error("there are two")
	}
}

// A child that answers, or says anything else, lives, in either era.
func TestSuspectSparesAChildThatLives(t *testing.T) {
	for name, c := range map[string]struct {
		role, tool string
		patience   time.Duration
	}{
		"by the answer to ping":            {"server", "silent", time.Hour},
		"by the answer to server/discover": {"modern-only", "silent", time.Hour},
		"by what else it says":             {"server", "hang-aloud", 300 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			s, log := suspecting(t, c.role, c.patience)
			with := opening(t)
			if c.role != "server" {
				with = eras(t, wire.Modern)
			}
			conn, err := s.Dial(t.Context(), with, newRecorder())
			if err != nil {
				t.Fatal(err)
			}
			conn.Start(request(t, c.tool), nil)
			conn.Suspect()
			eventually(t, func() bool { return !conn.link.(*stdioLink).pinging.Load() })
			contains(t, log.String(), "and lives: it goes on")
			if conn.Err() != nil || s.Stats().Silent != 0 {
				t.Error(conn.Err(), s.Stats().Silent)
			}
		})
	}
}

// With a patience of 0 nobody is asked.
func TestSuspectCanBeOff(t *testing.T) {
	s, _ := suspecting(t, "server", 0)
	c := dial(t, s, newRecorder())
	before := c.last.Load()
	c.Suspect()
	if c.last.Load() != before || c.link.(*stdioLink).pinging.Load() {
		t.Error("it was asked")
	}
}
