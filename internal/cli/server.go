package cli

import (
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fsm-proxy/fsm-proxy/internal/cli/screen"
	"github.com/fsm-proxy/fsm-proxy/internal/config"
	"github.com/fsm-proxy/fsm-proxy/internal/excerpt"
	"github.com/fsm-proxy/fsm-proxy/internal/exit"
	"github.com/fsm-proxy/fsm-proxy/internal/host"
	"github.com/fsm-proxy/fsm-proxy/internal/inventory"
	"github.com/fsm-proxy/fsm-proxy/internal/wait"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/upstream"
)

// serverFlags are what a command is told of the server that it asks, and of the log.
type serverFlags struct{ config.Run }

// register adds the flags, those of the server under a title, and those of further
// settings. Less is logged than by run.
func (t *serverFlags) register(flags *pflag.FlagSet, title string, further ...string) {
	config.Register(flags, &t.Run, title, slices.Concat(config.ServerFlags, []string{"log-level", "log-format"}, further)...)
	registerDefault(flags, "log-level", "warn")
}

// registerDefault has a flag of a setting begin with another value than run's.
func registerDefault(flags *pflag.FlagSet, name, text string) {
	flag := flags.Lookup(name)
	_ = flag.Value.Set(text)
	flag.DefValue = text
}

// take takes the command from behind the --, checks the whole, and returns the
// arguments in front of the --.
func (t *serverFlags) take(c *console, cmd *cobra.Command, args []string) (front []string, err error) {
	front = args
	if at := commandAt(cmd, c.args); at >= 0 && isURL(c.args[at]) {
		return nil, exit.Usagef("unexpected argument: a URL; write --upstream in front of it")
	} else if at >= 0 && (cmd.Name() != "check" || isProgram(c.args[at])) {
		return nil, exit.Usagef("unexpected argument %q; put -- in front of the server's command: %s", c.args[at], withDash(cmd, c.args))
	}
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		front, t.Server.Command = args[:dash], args[dash:]
		if len(t.Server.Command) == 0 {
			return nil, exit.Usagef("there is no command after --; write '-- COMMAND ARG...'")
		}
		if isURL(t.Server.Command[0]) {
			return nil, exit.Usagef("after -- stands a URL, and no command; write '--upstream URL' instead")
		}
		if program := quotedCommand(t.Server.Command); program != "" {
			return nil, exit.Usagef("the command after -- is one argument, \"%s …\"; take the quotes around it away", program)
		}
	}
	if err := config.Check(cmd.Flags(), len(t.Server.Command) > 0); err != nil {
		return nil, err
	}
	return front, t.Server.Check()
}

// need is the error for a command line that names no server. front are the
// arguments in front of the --, where a command does not belong.
func (t *serverFlags) need(front []string) error {
	switch {
	case len(front) > 0 && len(t.Server.Command) > 0:
		return exit.Usagef("unexpected argument %q in front of --; remove it", front[0])
	case len(front) > 0:
		return exit.Usagef("unexpected argument %q; remove it", front[0])
	case !t.Server.Given():
		return exit.Usagef("no server to wrap; give '--upstream URL', or '-- COMMAND ARG...' at the end")
	}
	return nil
}

// showWait shows a wait for the server on a line, until stop is called. what is what the
// server is to do.
func (t *serverFlags) showWait(line *statusLine, server *upstream.Server, what string) (stop func()) {
	name := server.String() // a URL without what may be secret
	if len(t.Server.Command) > 0 {
		name, _ = excerpt.Fit(t.Server.String(), 60)
	}
	ended := wait.While(func(waited time.Duration) {
		text := fmt.Sprintf("waiting for %s %s: %d s (of %s)", name, what, waited/time.Second, wait.Brief(t.Server.Patience()))
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
func (t *serverFlags) connectError(ctx context.Context, err error) error {
	late, slow := errors.AsType[*upstream.TimeoutError](err)
	_, otherEra := errors.AsType[*upstream.EraError](err)
	failed, _ := errors.AsType[*wire.CallError](err)
	switch {
	case otherEra, failed != nil && (failed.Status == http.StatusNotFound || failed.Status == http.StatusMethodNotAllowed): // err says what to do
		return err
	case ctx.Err() != nil && t.Server.URL != "":
		return errors.New("interrupted while waiting for the server to answer")
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted while waiting for %s to start; it was ended", &t.Server)
	case slow && late.Process && t.Server.Protocol != upstream.ProtocolModern:
		text := fmt.Sprintf("%s did not answer within %s, and was ended while it still ran", &t.Server, wait.Brief(late.Waited))
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
func longer(than time.Duration) string { return wait.Brief(max(10*time.Minute, 2*than)) }

// prefetchHint says how to fetch what a command needs before it is wrapped.
func (t *serverFlags) prefetchHint() string {
	program := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(t.Server.Command[0]), ".exe"), ".cmd")
	if program != "npx" && program != "bunx" && program != "uvx" {
		return ", or run it once by itself, if it first fetches what it needs"
	}
	withValue := []string{"-p", "--package", "--from", "--with", "--python", "-c", "--call", "--index-url"}
	for i := 1; i < len(t.Server.Command); i++ {
		switch arg := t.Server.Command[i]; {
		case slices.Contains(withValue, arg):
			i++
		case !strings.HasPrefix(arg, "-"):
			return ", or have it installed beforehand: " + host.ShellLine(append(slices.Clone(t.Server.Command[:i+1]), "--help"))
		}
	}
	return ", or have it installed beforehand"
}

// takeInventory connects to the server as a client and returns what it lists. Either
// may take as long as --connect-timeout says; line shows what is waited for.
func (t *serverFlags) takeInventory(ctx context.Context, c *console, line *statusLine) (*inventory.Inventory, error) {
	t.Log, t.Version = newLogger(&t.Run, line), c.version
	server, err := t.OpenServer(nil)
	if err != nil {
		return nil, err
	}
	defer server.Close()
	host.InEmergency(ctx, server.Kill)
	l := inventory.New(c.version)
	verb := "to start"
	if t.Server.URL != "" {
		verb = "to answer"
	}
	stop := t.showWait(line, server, verb)
	conn, err := server.Dial(ctx, l.Opening(), l)
	stop()
	if err != nil {
		return nil, t.connectError(ctx, err)
	}
	defer conn.Close()
	defer t.showWait(line, server, "to list what it offers")()
	listing, cancel := context.WithTimeout(ctx, t.Server.Patience())
	defer cancel()
	inv, err := l.Take(listing, conn)
	switch {
	case err == nil:
		return &inv, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("interrupted while %s listed what it offers", &t.Server)
	case listing.Err() != nil:
		return nil, fmt.Errorf("%s has not listed what it offers within %s; give it longer with --connect-timeout", &t.Server, wait.Brief(t.Server.Patience()))
	}
	if refused, ok := errors.AsType[*upstream.ListError](err); ok {
		err = fmt.Errorf("%w%s", err, messageOf(refused.Answer))
	}
	return nil, fmt.Errorf("listing what %s offers: %w", &t.Server, err)
}

// mostOfMessage is how much of a server's error message is shown, in characters.
const mostOfMessage = 300

// messageOf is the message of a server's error, for who started the server; "" where
// there is none.
func messageOf(failure *wire.Message) string {
	var body struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if err := json.Unmarshal(failure.Raw, &body); err != nil || body.Error.Message == "" {
		return ""
	}
	text, _ := excerpt.Fit(body.Error.Message, mostOfMessage)
	return fmt.Sprintf(": %q", text)
}

// statusLine is a line that shows how far something is. On a terminal it stands below
// the log and changes in place; elsewhere it is a new line now and then. The log is
// written through it.
type statusLine struct {
	out     io.Writer
	columns func() int // of the terminal; nil: it is none

	mu    sync.Mutex // guards what follows, and orders the writes to out
	pace  wait.Pace
	width int // of what stands there
}

func newStatusLine(out io.Writer) *statusLine {
	l := &statusLine{out: out}
	if host.IsTerminal(out) {
		l.columns = func() int { return screen.Columns(out.(*os.File)) }
	}
	return l
}

// show shows a text after so long a wait.
func (l *statusLine) show(waited time.Duration, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.columns == nil {
		if l.pace.Due(waited) {
			fmt.Fprintln(l.out, text)
		}
		return
	}
	text, width := excerpt.Fit(text, l.columns()-1)
	fmt.Fprint(l.out, "\r", text, strings.Repeat(" ", max(l.width-width, 0)))
	l.width = width
}

// clear takes the line away.
func (l *statusLine) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clearLocked()
}

func (l *statusLine) clearLocked() {
	if l.width > 0 {
		fmt.Fprint(l.out, "\r", strings.Repeat(" ", l.width), "\r")
		l.width = 0
	}
}

// Write writes above the line.
func (l *statusLine) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clearLocked()
	return l.out.Write(p)
}
