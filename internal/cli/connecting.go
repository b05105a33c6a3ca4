package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/upstream"
)

// showWait shows a wait for the server on a line, until stop is called. what is what the
// server is to do.
func (t *target) showWait(line *statusLine, server *upstream.Server, what string) (stop func()) {
	name := server.String() // a URL without what may be secret
	if len(t.command) > 0 {
		name, _ = fitting(t.String(), 60)
	}
	ended := whileWaiting(func(waited time.Duration) {
		text := fmt.Sprintf("waiting for %s %s: %d s (of %s)", name, what, waited/time.Second, brief(t.patience()))
		if said := server.LastStderr(); said != "" {
			text += `; it said: "` + said + `"`
		}
		line.show(waited, text)
	})
	return func() {
		ended()
		line.clear()
	}
}

// connectError says why there is no connection to the server, and what to do.
func (t *target) connectError(ctx context.Context, err error) error {
	late, slow := errors.AsType[*upstream.TimeoutError](err)
	_, otherEra := errors.AsType[*upstream.EraError](err)
	failed, _ := errors.AsType[*wire.CallError](err)
	switch {
	case otherEra, failed != nil && (failed.Status == http.StatusNotFound || failed.Status == http.StatusMethodNotAllowed): // err says what to do
		return err
	case ctx.Err() != nil && t.url != "":
		return errors.New("interrupted while waiting for the server to answer")
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted while waiting for %s to start; it was ended", t)
	case slow && late.Process && t.speaks != upstream.ProtocolModern:
		text := fmt.Sprintf("%s did not answer within %s, and was ended while it still ran", t, brief(late.Waited))
		if late.Said != "" {
			text += `; it said: "` + late.Said + `"`
		}
		return fmt.Errorf("%s; give it longer with --connect-timeout %s%s", text, longer(late.Waited), t.prefetchHint())
	case slow:
		return fmt.Errorf("%w; see that the server runs, or give it longer with --connect-timeout %s", err, longer(late.Waited))
	}
	return fmt.Errorf("%w; see that the server runs by itself, or what it says with --log-level info", err)
}

// longer is a timeout that may do where another was too short.
func longer(than time.Duration) string { return brief(max(10*time.Minute, 2*than)) }

// prefetchHint says how to fetch what a command needs before it is wrapped.
func (t *target) prefetchHint() string {
	program := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(t.command[0]), ".exe"), ".cmd")
	if program != "npx" && program != "bunx" && program != "uvx" {
		return ", or run it once by itself, if it first fetches what it needs"
	}
	withValue := []string{"-p", "--package", "--from", "--with", "--python", "-c", "--call", "--index-url"}
	for i := 1; i < len(t.command); i++ {
		switch arg := t.command[i]; {
		case slices.Contains(withValue, arg):
			i++
		case !strings.HasPrefix(arg, "-"):
			return ", or have it installed beforehand: " + shellLine(append(slices.Clone(t.command[:i+1]), "--help"))
		}
	}
	return ", or have it installed beforehand"
}
