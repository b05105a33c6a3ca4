package upstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/process"
	"github.com/fsm-proxy/fsm-proxy/internal/stdio"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// stdioLink is a connection to a child process over its standard input and output. It is the process's handler.
type stdioLink struct {
	conn    *Conn
	process *process.Process
	lines   atomic.Uint64 // that were read
	pinging atomic.Bool   // it is being found out whether the child lives
}

func newStdioLink(c *Conn) *stdioLink {
	s, l := c.srv, &stdioLink{conn: c}
	l.process = process.New(process.Config{
		Command: s.cfg.Command, Env: s.cfg.Env, Dir: s.cfg.Dir, MaxLine: s.cfg.MaxMessage, Cork: s.cfg.Cork,
		Log: s.cfg.Log.Named("upstream"), Unlogged: &s.stats.stderr, Running: &s.children,
	}, l)
	return l
}

// open starts the child.
func (l *stdioLink) open(context.Context) error {
	if err := l.process.Start(); err != nil {
		return fmt.Errorf("starting the process: %w", err)
	}
	return nil
}

// Line implements process.Handler: it is the connection's read loop.
func (l *stdioLink) Line(line []byte) {
	l.lines.Add(1)
	l.conn.receive(line, nil)
}

// TooLong implements process.Handler.
func (l *stdioLink) TooLong(err error) { l.conn.noise(err) }

// errOutputClosed is a child that lives on without a standard output.
var errOutputClosed = errors.New("the upstream process closed its output")

// OutputClosed implements process.Handler.
func (l *stdioLink) OutputClosed() { l.conn.end(errOutputClosed) }

// Exited implements process.Handler.
func (l *stdioLink) Exited(err error) {
	e := &exitError{status: "the upstream process ended", said: l.quote()}
	if err != nil {
		e.status += " with " + err.Error()
	}
	l.conn.end(e)
}

// quote is what the child wrote last to its standard error, "" where clients must not know.
func (l *stdioLink) quote() string {
	if !l.conn.srv.cfg.Quote {
		return ""
	}
	return l.process.LastError()
}

// exitError is the error of a child that ended by itself.
type exitError struct {
	status string
	said   string // last; "": nothing, or not for clients
}

// Error says how the child ended, and what it said.
func (e *exitError) Error() string {
	if e.said == "" {
		return e.status
	}
	return e.status + "; it said: " + e.said
}

// start queues a request. A child that is busy may leave its input unread for
// long: what finds no room is not sent, and nothing else comes of it.
func (l *stdioLink) start(k *call) {
	if l.process.Input.Offer(k.raw) {
		return
	}
	err := l.process.Input.Err()
	if err == nil {
		err = stdio.ErrQueueFull
	}
	k.finish(outcome{err: &wire.CallError{Err: fmt.Errorf("writing to the upstream process: %w", err)}})
}

func (l *stdioLink) wait(ctx context.Context, k *call) outcome { return k.await(ctx) }

// notify queues a message. A child that leaves its input unread until the queue
// is full is beyond help: the connection ends.
func (l *stdioLink) notify(raw []byte) error {
	if l.process.Input.Write(raw) {
		return nil
	}
	err := fmt.Errorf("writing to the upstream process: %w", l.process.Input.Err())
	if errors.Is(err, stdio.ErrQueueFull) {
		l.conn.end(err)
	}
	return err
}

func (l *stdioLink) negotiated(wire.Era, string) {}

func (l *stdioLink) listening() bool { return true }

func (l *stdioLink) streams() bool { return false }

// unansweredGrace is how long a child that has not answered yet, or answers no more, may take
// to end with its input.
const unansweredGrace = 250 * time.Millisecond

// close ends the child, and logs why where nobody asked for that.
func (l *stdioLink) close() {
	if l.process.Input == nil {
		return // it never ran
	}
	l.report()
	grace := l.conn.srv.cfg.Grace
	first := grace
	if _, silent := errors.AsType[*silentError](l.conn.Err()); silent || l.conn.opened != answered { // it has nothing to bring to an end
		first = min(grace, unansweredGrace)
	}
	if !l.process.Close(first, grace) {
		l.conn.log().Error("the upstream process cannot be killed", "pid", l.process.Pid())
	}
}

// report logs why the child has ended, or is ended, where nobody asked for that.
func (l *stdioLink) report() {
	c := l.conn
	why, log := c.Err(), c.log()
	fields := []any{"why", publicCause(why), "said", l.process.LastError(), "pid", l.process.Pid()}
	_, ended := errors.AsType[*exitError](why)
	logUnstarted := log.Warn
	if c.srv.cfg.Quote { // its client, which asked for the start, gets the error
		logUnstarted = log.Info
	}
	switch {
	case why == ErrClosed && c.opened == answered:
	case why == ErrClosed, errors.Is(why, context.Canceled):
		log.Info("the upstream process had not answered yet, and is ended: nobody waits for it any more", fields...)
	case c.opened == diedOfDiscovery:
		log.Info("the upstream process ended when it was asked for its revisions: it is started again, and not asked", fields...)
	case ended && c.opened == answered:
		log.Warn("the upstream process ended: the next call starts it again", fields...)
	case c.opened == answered:
		log.Warn("the upstream process is ended: the next call starts it again", fields...)
	case ended:
		text := "the upstream process ended before it answered"
		if hidden := c.srv.cfg.Withheld; len(hidden) > 0 {
			text += "; its environment is reduced, and --pass-env names what it gets besides"
			fields = append(fields, "withheld", strings.Join(hidden, ", "))
		}
		logUnstarted(text, fields...)
	default:
		logUnstarted("the upstream process did not answer, and is ended", fields...)
	}
}

// Suspect finds out whether a child that has left a request unanswered still answers
// anything: it sends a ping, or in the modern era, which has none, server/discover. If the
// child writes nothing at all for [Config.Ping], the connection ends, and the child with
// it. Suspect does not wait for that. For a server with a URL it does nothing.
func (c *Conn) Suspect() {
	l, child := c.link.(*stdioLink)
	if !child || c.srv.cfg.Ping == 0 || !l.pinging.CompareAndSwap(false, true) {
		return
	}
	c.spawn(func() {
		defer l.pinging.Store(false)
		l.ping(c.srv.cfg.Ping)
	})
}

// ping pings the child, and ends the connection if it writes nothing for so long.
func (l *stdioLink) ping(patience time.Duration) {
	c, before := l.conn, l.lines.Load()
	ctx, stop := context.WithTimeout(c.ctx, patience)
	defer stop()
	answer, _ := c.Start(c.pingRequest(), nil).Wait(ctx)
	if answer == nil {
		<-ctx.Done() // a child that could not even take the ping has the whole time, too
	}
	switch {
	case c.ctx.Err() != nil:
	case answer != nil || l.lines.Load() != before:
		c.log().Info("the upstream process left a request unanswered, and lives: it goes on", "pid", l.process.Pid())
	default:
		c.srv.stats.silent.Add(1)
		c.end(&silentError{patience})
	}
}

// silentError is the error of a child that was pinged and wrote nothing.
type silentError struct{ lasted time.Duration }

// Error says for how long.
func (e *silentError) Error() string {
	return "the upstream process left a request unanswered and then said nothing for " + e.lasted.String() + " (--upstream-ping)"
}

// pingRequest is a request that every server answers at once.
func (c *Conn) pingRequest() *wire.Message {
	method := "ping"
	if c.Era() == wire.Modern {
		method = "server/discover"
	}
	m, err := wire.Read(wire.RequestMessage(0, method, c.ownParams(nil)), wire.FromUpstream)
	if err != nil {
		panic(err) // it holds nothing but the connection's own parameters, which were sent before
	}
	return m
}
