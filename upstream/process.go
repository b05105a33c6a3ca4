package upstream

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/stdio"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

const (
	// maxInput bounds what waits for a child that does not read its input:
	// requests as long as half of it is free, all else up to the whole.
	maxInput = 32 << 20
	// drainTime is how long the pipes of a dead child are read on, where a
	// process that left its group still holds them.
	drainTime = time.Second
	// reapTime bounds the wait for a child that was killed.
	reapTime = 5 * time.Second
)

// process is a connection to a child over its standard input and output.
type process struct {
	conn   *Conn
	cmd    *exec.Cmd
	pipes  [3]*os.File // the proxy's ends of stdin, stdout, stderr
	out    *stdio.Writer
	stderr *stderrLog
	read   chan struct{} // closes when stdout was read to its end
	exited chan struct{} // closes when the child was reaped, its group killed
	lines  atomic.Uint64 // that were read from its standard output
}

func newProcess(c *Conn) *process {
	stderr := &stderrLog{log: c.log().Named("upstream"), dropped: &c.srv.stats.stderr, done: make(chan struct{})}
	return &process{conn: c, stderr: stderr, read: make(chan struct{}), exited: make(chan struct{})}
}

// open starts the child.
func (p *process) open(context.Context) error {
	cfg := &p.conn.srv.cfg
	p.cmd = &exec.Cmd{Path: cfg.Command[0], Args: cfg.Command, Dir: cfg.Dir, Env: append([]string{}, cfg.Env...)}
	p.cmd.SysProcAttr = groupAttr()
	theirs, err := p.plumb()
	if err != nil {
		return fmt.Errorf("starting %s: %w", cfg.String(), err)
	}
	started := make(chan error)
	go p.supervise(started)
	err = <-started
	closeAll(theirs[:])
	if err != nil {
		closeAll(p.pipes[:])
		return fmt.Errorf("starting the process: %w", err)
	}
	p.attach()
	return nil
}

// attach reads and writes the pipes.
func (p *process) attach() {
	p.out = stdio.NewWriter(p.pipes[0], maxInput)
	p.out.Join(p.conn.srv.cfg.Cork)
	go p.readOutput()
	go p.stderr.run(p.pipes[2])
}

// plumb makes the child's standard files. They are plain files, so that nothing
// but the child itself holds up [exec.Cmd.Wait].
func (p *process) plumb() (theirs [3]*os.File, err error) {
	for i := range theirs {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(theirs[:])
			closeAll(p.pipes[:])
			return theirs, err
		}
		theirs[i], p.pipes[i] = w, r
		if i == 0 {
			theirs[i], p.pipes[i] = r, w
		}
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = theirs[0], theirs[1], theirs[2]
	return theirs, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}

// supervise starts the child, waits for its death, kills what is left of its
// group, and ends the connection when all that the child has said was read. It
// keeps its thread: on Linux the child is killed when the thread that started
// it ends, which without the lock could be before the proxy does.
func (p *process) supervise(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	if err == nil {
		p.conn.srv.begun(p)
	}
	started <- err
	if err != nil {
		return
	}
	awaitExit(p.cmd.Process.Pid)
	err = p.cmd.Wait()
	p.conn.srv.over(p)
	killRest(p.cmd.Process.Pid)
	close(p.exited)
	p.drain()
	p.conn.end(p.exitError(err))
}

// drain waits until the dead child's output was read.
func (p *process) drain() {
	timer := time.AfterFunc(drainTime, func() { closeAll(p.pipes[1:]) })
	defer timer.Stop()
	<-p.read
	<-p.stderr.done
}

func (p *process) exitError(err error) error {
	e := &exitError{status: "the upstream process ended", said: p.quote()}
	if err != nil {
		e.status += " with " + err.Error()
	}
	return e
}

// quote is what the child wrote last to its standard error, "" where clients must not know.
func (p *process) quote() string {
	if !p.conn.srv.cfg.Quote {
		return ""
	}
	return p.stderr.last()
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

// TimeoutError is the error of a connection that was given up since its opening was not
// answered.
type TimeoutError struct {
	// Asked is the request, initialize or server/discover; Waited is how long its
	// answer was waited for.
	Asked  string
	Waited time.Duration
	// Process is whether a child ran until then, and was ended.
	Process bool
	// Said is what that said last; "": nothing, or not for clients.
	Said string
}

// Error says how long it was, and what became of the child.
func (e *TimeoutError) Error() string {
	text := "no answer to " + e.Asked + " in " + e.Waited.String()
	if e.Asked == ProtocolModern.opening() {
		text += ", which a server with sessions may leave unanswered: if it is one, leave --upstream-protocol modern out"
	}
	if e.Process {
		text += "; its process still ran, and was ended (--connect-timeout)"
	}
	if e.Said != "" {
		text += "; it said: " + e.Said
	}
	return text
}

// unanswered is the error of an opening that was not answered.
func (c *Conn) unanswered(waited time.Duration) error {
	e := &TimeoutError{Asked: c.srv.cfg.Protocol.opening(), Waited: waited.Round(time.Millisecond)}
	if waited > time.Second {
		e.Waited = waited.Round(time.Second)
	}
	if p, ok := c.link.(*process); ok && c.Err() == nil {
		e.Process, e.Said = true, p.quote()
	}
	return e
}

// errOutputClosed is a child that lives on without a standard output.
var errOutputClosed = errors.New("the upstream process closed its output")

// readOutput is the connection's read loop.
func (p *process) readOutput() {
	defer close(p.read)
	lines := stdio.NewReader(p.pipes[1], p.conn.srv.cfg.MaxMessage)
	lines.Join(p.conn.srv.cfg.Cork)
	defer lines.Release()
	for {
		line, err := lines.Next()
		switch {
		case errors.Is(err, stdio.ErrTooLong):
			p.conn.noise(err)
		case err != nil:
			p.outputEnded()
			return
		default:
			p.lines.Add(1)
			p.conn.receive(line, nil)
		}
	}
}

// outputEnded ends the connection, unless the child is about to die, which
// says more.
func (p *process) outputEnded() {
	timer := time.NewTimer(drainTime)
	defer timer.Stop()
	select {
	case <-p.exited:
	case <-timer.C:
		p.conn.end(errOutputClosed)
	}
}

// start queues a request. A child that is busy may leave its input unread for
// long: what finds no room is not sent, and nothing else comes of it.
func (p *process) start(k *call) {
	if p.out.Offer(k.raw) {
		return
	}
	err := p.out.Err()
	if err == nil {
		err = stdio.ErrQueueFull
	}
	k.finish(outcome{err: &wire.CallError{Err: fmt.Errorf("writing to the upstream process: %w", err)}})
}

func (p *process) wait(ctx context.Context, k *call) outcome { return k.await(ctx) }

// notify queues a message. A child that leaves its input unread until the queue
// is full is beyond help: the connection ends.
func (p *process) notify(raw []byte) error {
	if p.out.Write(raw) {
		return nil
	}
	err := fmt.Errorf("writing to the upstream process: %w", p.out.Err())
	if errors.Is(err, stdio.ErrQueueFull) {
		p.conn.end(err)
	}
	return err
}

func (p *process) greeted(wire.Era, string) {}

func (p *process) hears() bool { return true }

func (p *process) streams() bool { return false }

// close ends the child: its input ends, then its group is asked to terminate,
// then killed.
func (p *process) close() {
	if p.out == nil {
		return // it never ran
	}
	p.report()
	input := make(chan struct{})
	go func() {
		defer close(input)
		p.out.Close()
		_ = p.pipes[0].Close()
	}()
	p.endChild()
	<-input
	_ = p.pipes[0].Close()
	<-p.read
	<-p.stderr.done
	closeAll(p.pipes[1:])
}

// report logs why the child has ended, or is ended, where nobody asked for that.
func (p *process) report() {
	why, log := p.conn.Err(), p.conn.log()
	fields := []any{"why", publicCause(why), "said", p.stderr.last(), "pid", p.cmd.Process.Pid}
	_, ended := errors.AsType[*exitError](why)
	logUnstarted := log.Warn
	if p.conn.srv.cfg.Quote { // its client, which asked for the start, gets the error
		logUnstarted = log.Info
	}
	switch {
	case why == ErrClosed && p.conn.live:
	case why == ErrClosed, errors.Is(why, context.Canceled):
		log.Info("the upstream process had not answered yet, and is ended: nobody waits for it any more", fields...)
	case p.conn.diedAsked:
		log.Info("the upstream process ended when it was asked for its revisions: it is started again, and not asked", fields...)
	case ended && p.conn.live:
		log.Warn("the upstream process ended: the next call starts it again", fields...)
	case p.conn.live:
		log.Warn("the upstream process is ended: the next call starts it again", fields...)
	case ended:
		text := "the upstream process ended before it answered"
		if hidden := p.conn.srv.cfg.Withheld; len(hidden) > 0 {
			text += "; its environment is reduced, and --pass-env names what it gets besides"
			fields = append(fields, "withheld", strings.Join(hidden, ", "))
		}
		logUnstarted(text, fields...)
	default:
		logUnstarted("the upstream process did not answer, and is ended", fields...)
	}
}

// unansweredGrace is how long a child that has not answered yet, or answers no more, may take
// to end with its input.
const unansweredGrace = 250 * time.Millisecond

func (p *process) endChild() {
	grace := p.conn.srv.cfg.Grace
	first := grace
	if _, silent := errors.AsType[*silentError](p.conn.Err()); silent || !p.conn.live { // it has nothing to bring to an end
		first = min(grace, unansweredGrace)
	}
	if p.gone(first) {
		return
	}
	terminate(p.cmd.Process.Pid)
	if p.gone(grace) {
		return
	}
	kill(p.cmd.Process)
	if !p.gone(reapTime) {
		p.conn.log().Error("the upstream process cannot be killed", "pid", p.cmd.Process.Pid)
		closeAll(p.pipes[1:]) // who reads them would go on, and close waits for that
	}
}

// gone waits for the child's end for d at most.
func (p *process) gone(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.exited:
		return true
	case <-timer.C:
		return false
	}
}
