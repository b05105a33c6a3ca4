package proxy

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/deadline"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/proxy/refusal"
)

// flight is where a call stands between its arrival and its answer, and how it is called off.
// Everything that more than one goroutine writes of a call is in it.
type flight struct {
	deadline deadline.Deadline // of the upstream's answer
	asks     atomic.Int32      // requests to the client open for this call
	wait     deadline.Life     // ends when the upstream's answer is given up
	grace    time.Duration     // from a cancel to giving the call up; set before the call can be found

	mu         sync.Mutex // guards what follows
	stage      stage
	canceled   bool
	gaveUp     error               // why the answer is given up; nil: it is not
	params     []byte              // of the cancellation, by the client or by the proxy
	up         wire.Call           // the request upstream; nil: it was not sent
	stop       func()              // gives up an answer that nobody waits for
	toOrigin   func(params []byte) // cancels the call whose answer this one waits for; nil: its own
	asking     *bridge.Input       // where its client is asked in the middle of it; nil: nowhere
	after      func()              // is called when the answer was given
	cancelled  chan struct{}       // closed by cancel; made on demand
	done       chan struct{}       // closed when answered; made on demand
	graceTimer *time.Timer
}

// stage is how far a call has come.
type stage uint8

const (
	stageUnderWay stage = iota
	stageEnded          // out of those under way: nothing is asked for it any more
	stageAnswered       // and its answer was given
)

// cancel cancels the call: one not yet sent never is, one that was is cancelled
// upstream and given up after the grace.
func (f *flight) cancel(params []byte) {
	f.mu.Lock()
	if f.canceled || f.stage != stageUnderWay {
		f.mu.Unlock()
		return
	}
	f.canceled, f.params = true, params
	if f.cancelled != nil {
		close(f.cancelled)
	}
	up, toOrigin := f.up, f.toOrigin
	if up != nil {
		f.graceLocked()
	}
	f.mu.Unlock()
	switch {
	case up != nil:
		up.Cancel(params)
	case toOrigin != nil:
		toOrigin(params)
	}
}

func (f *flight) graceLocked() {
	f.graceTimer = time.AfterFunc(f.grace, func() { f.giveUp(refusal.ErrGivenUp) })
}

// giveUp ends the wait for the upstream's answer.
func (f *flight) giveUp(why error) {
	f.mu.Lock()
	if f.gaveUp == nil {
		f.gaveUp = why
	}
	stop := f.stop
	f.mu.Unlock()
	f.wait.End()
	if stop != nil {
		stop()
	}
}

// stopBy sets how a call that goes on by itself is given up, and does it if that
// was asked already.
func (f *flight) stopBy(stop func()) {
	f.mu.Lock()
	f.stop = stop
	gaveUp := f.gaveUp
	f.mu.Unlock()
	if gaveUp != nil {
		stop()
	}
}

// abandon gives up a call and tells the upstream, unless it was told: now, or
// when the request has been sent.
func (f *flight) abandon(params string, why error) {
	f.mu.Lock()
	up := f.up
	if f.canceled || f.params != nil {
		up = nil
	} else {
		f.params = []byte(params)
	}
	f.mu.Unlock()
	if up != nil {
		up.Cancel([]byte(params))
	}
	f.giveUp(why)
}

// sent takes the request upstream. One that was called off meanwhile is cancelled there.
func (f *flight) sent(up wire.Call) {
	f.mu.Lock()
	f.up = up
	told, params := f.canceled || f.params != nil, f.params
	if f.canceled {
		f.graceLocked()
	}
	f.mu.Unlock()
	if told {
		up.Cancel(params)
	}
}

// await waits for the upstream's answer.
func (f *flight) await() (*wire.Message, error) {
	m, err := f.up.Wait(&f.wait)
	return m, f.why(err)
}

// why is the reason of a lost answer: that it was given up, if it was, and then
// whether the request had been sent by then.
func (f *flight) why(err error) error {
	if err == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gaveUp != nil {
		lost, known := errorAs(err)
		return &wire.CallError{Sent: !known || lost.Sent, Err: f.gaveUp}
	}
	return err
}

// afterwards sets what is to be called when the answer was given, and returns what
// was to be.
func (f *flight) afterwards(do func()) func() {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.after
	f.after = do
	return before
}

// released calls it, once.
func (f *flight) released() {
	if after := f.afterwards(nil); after != nil {
		after()
	}
}

// finish takes the flight out of those under way: nothing is asked for it from here on.
func (f *flight) finish() {
	f.deadline.Stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stage = max(f.stage, stageEnded)
	if f.graceTimer != nil {
		f.graceTimer.Stop()
	}
}

// settled lets go on what waits for the call's answer to be given.
func (f *flight) settled() {
	f.mu.Lock()
	f.stage = stageAnswered
	if f.done != nil {
		close(f.done)
	}
	after := f.after
	f.after = nil
	f.mu.Unlock()
	if after != nil {
		after()
	}
}

// over waits until the call's answer was given or ctx has ended, and reports
// which.
func (f *flight) over(ctx context.Context) bool {
	f.mu.Lock()
	if f.done == nil && f.stage != stageAnswered {
		f.done = make(chan struct{})
	}
	done, given := f.done, f.stage == stageAnswered
	f.mu.Unlock()
	if given {
		return true
	}
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// isAnswered reports whether the call has its answer.
func (f *flight) isAnswered() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stage != stageUnderWay
}

// isCancelled reports whether the client has cancelled the call.
func (f *flight) isCancelled() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.canceled
}

// cancellation returns a channel that closes when the call is cancelled.
func (f *flight) cancellation() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cancelled == nil {
		f.cancelled = make(chan struct{})
		if f.canceled {
			close(f.cancelled)
		}
	}
	return f.cancelled
}

func errorAs(err error) (*wire.CallError, bool) { return errors.AsType[*wire.CallError](err) }
