package main

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

// tellWait tells of a wait for the server on a line, until told is called.
func (t *target) tellWait(line *statusLine, server *upstream.Server, what string) (told func()) {
	name := server.String() // a URL without what may be secret
	if len(t.command) > 0 {
		name, _ = fitting(t.String(), 60)
	}
	stop := whileWaiting(func(waited time.Duration) {
		text := fmt.Sprintf("waiting for %s %s: %d s (of %s)", name, what, waited/time.Second, brief(t.patience()))
		if said := server.Said(); said != "" {
			text += `; it said: "` + said + `"`
		}
		line.show(waited, text)
	})
	return func() {
		stop()
		line.clear()
	}
}

// unconnected is why there is no connection to the server, and what can be done.
func (t *target) unconnected(ctx context.Context, err error) error {
	late, slow := errors.AsType[*upstream.TimeoutError](err)
	_, other := errors.AsType[*upstream.EraError](err)
	failed, _ := errors.AsType[*wire.CallError](err)
	switch {
	case other, failed != nil && (failed.Status == http.StatusNotFound || failed.Status == http.StatusMethodNotAllowed): // it says what to do
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
		return fmt.Errorf("%s; give it longer with --connect-timeout %s%s", text, longer(late.Waited), t.beforehand())
	case slow:
		return fmt.Errorf("%w; see that the server runs, or give it longer with --connect-timeout %s", err, longer(late.Waited))
	}
	return fmt.Errorf("%w; see that the server runs by itself, or what it says with --log-level info", err)
}

// longer is a timeout that may do where another was too short.
func longer(than time.Duration) string { return brief(max(10*time.Minute, 2*than)) }

// beforehand is how what a command fetches can be had before it is wrapped.
func (t *target) beforehand() string {
	program := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(t.command[0]), ".exe"), ".cmd")
	if program != "npx" && program != "bunx" && program != "uvx" {
		return ", or run it once by itself, if it first fetches what it needs"
	}
	valued := []string{"-p", "--package", "--from", "--with", "--python", "-c", "--call", "--index-url"}
	for i := 1; i < len(t.command); i++ {
		switch arg := t.command[i]; {
		case slices.Contains(valued, arg):
			i++
		case !strings.HasPrefix(arg, "-"):
			return ", or have it installed beforehand: " + shellLine(append(slices.Clone(t.command[:i+1]), "--help"))
		}
	}
	return ", or have it installed beforehand"
}
