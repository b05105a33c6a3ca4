// Package flight is where a call stands between its arrival and its answer, and how it is called
// off.
package flight

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

// Flight is where a call stands. Everything that more than one goroutine writes of a call is in
// it. It is safe for concurrent use.
type Flight struct {
	Deadline deadline.Deadline // of the upstream's answer
	Asks     atomic.Int32      // requests to the client that are open for this call
	Grace    time.Duration     // from a cancel to giving the call up; set before the call can be found
	wait     deadline.Life     // ends when the upstream's answer is given up

	mu    sync.Mutex // guards state
	state State
}

// State is what [Flight.Update] looks at and changes.
type State struct {
	Stage     Stage
	Cancelled bool
	Awaited   bool          // all the same: see [Flight.CallOff]
	GaveUp    error         // why the answer is given up; nil: it is not
	Params    []byte        // of the cancellation, by the client or by the proxy
	Origin    *Flight       // the call whose answer this one waits for; nil: its own
	Asking    *bridge.Input // where its client is asked in the middle of it; nil: nowhere

	up         wire.Call     // the request upstream; nil: it was not sent
	stop       func()        // gives up an answer that nobody waits for
	after      func()        // is called when the answer was given
	cancelled  chan struct{} // closed by Cancel; made on demand
	done       chan struct{} // closed when answered; made on demand
	graceTimer *time.Timer
}

// Update has do look at the state and change it, while nobody else does.
func (f *Flight) Update(do func(*State)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do(&f.state)
}

// Stage is how far a call has come.
type Stage uint8

// The stages.
const (
	UnderWay Stage = iota
	Ended          // out of those under way: nothing is asked for it any more
	Answered       // and its answer was given
)

// Cancel cancels the call: one not yet sent never is, one that was is cancelled
// upstream and given up after the grace. No answer is due.
func (f *Flight) Cancel(params []byte) { f.callOff(params, false) }

// CallOff cancels a call since its session has ended. If its client has not done that, nobody has cancelled the call: who
// waits for it is answered, or it is served where the run goes on.
func (f *Flight) CallOff(awaited bool) { f.callOff(nil, awaited) }

func (f *Flight) callOff(params []byte, awaited bool) {
	f.mu.Lock()
	if f.state.Cancelled || f.state.Stage != UnderWay {
		f.mu.Unlock()
		return
	}
	f.state.Cancelled, f.state.Awaited, f.state.Params = true, awaited, params
	if f.state.cancelled != nil {
		close(f.state.cancelled)
	}
	up, origin := f.state.up, f.state.Origin
	if up != nil {
		f.graceLocked()
	}
	f.mu.Unlock()
	switch {
	case up != nil:
		up.Cancel(params)
	case origin != nil:
		origin.callOff(params, awaited)
	}
}

func (f *Flight) graceLocked() {
	why := refusal.ErrGivenUp
	if f.state.Awaited {
		why = refusal.ErrOver
	}
	f.state.graceTimer = time.AfterFunc(f.Grace, func() { f.giveUp(why) })
}

// giveUp ends the wait for the upstream's answer.
func (f *Flight) giveUp(why error) {
	f.mu.Lock()
	if f.state.GaveUp == nil {
		f.state.GaveUp = why
	}
	stop := f.state.stop
	f.mu.Unlock()
	f.wait.End()
	if stop != nil {
		stop()
	}
}

// stopBy sets how a call that goes on by itself is given up, and does it if that
// was asked already.
func (f *Flight) stopBy(stop func()) {
	f.mu.Lock()
	f.state.stop = stop
	gaveUp := f.state.GaveUp
	f.mu.Unlock()
	if gaveUp != nil {
		stop()
	}
}

// Abandon gives up a call and tells the upstream, unless it was told: now, or
// when the request has been sent.
func (f *Flight) Abandon(params string, why error) {
	f.mu.Lock()
	up := f.state.up
	if f.state.Cancelled || f.state.Params != nil {
		up = nil
	} else {
		f.state.Params = []byte(params)
	}
	f.mu.Unlock()
	if up != nil {
		up.Cancel([]byte(params))
	}
	f.giveUp(why)
}

// Sent takes the request upstream. One that was called off meanwhile is cancelled there.
func (f *Flight) Sent(up wire.Call) {
	f.mu.Lock()
	f.state.up = up
	told, params := f.state.Cancelled || f.state.Params != nil, f.state.Params
	if f.state.Cancelled {
		f.graceLocked()
	}
	f.mu.Unlock()
	if told {
		up.Cancel(params)
	}
}

// Await waits for the upstream's answer.
func (f *Flight) Await() (*wire.Message, error) {
	m, err := f.state.up.Wait(&f.wait)
	return m, f.why(err)
}

// why is the reason of a lost answer: that it was given up, if it was, and then
// whether the request had been sent by then.
func (f *Flight) why(err error) error {
	if err == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state.GaveUp != nil {
		lost, known := errors.AsType[*wire.CallError](err)
		return &wire.CallError{Sent: !known || lost.Sent, Err: f.state.GaveUp}
	}
	return err
}

// Afterwards sets what is to be called when the answer was given, and returns what
// was to be.
func (f *Flight) Afterwards(do func()) func() {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.state.after
	f.state.after = do
	return before
}

// Released calls it, once.
func (f *Flight) Released() {
	if after := f.Afterwards(nil); after != nil {
		after()
	}
}

// Finish takes the flight out of those under way: nothing is asked for it from here on.
func (f *Flight) Finish() {
	f.Deadline.Stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.Stage = max(f.state.Stage, Ended)
	if f.state.graceTimer != nil {
		f.state.graceTimer.Stop()
	}
}

// Settled lets go on what waits for the call's answer to be given.
func (f *Flight) Settled() {
	f.mu.Lock()
	f.state.Stage = Answered
	if f.state.done != nil {
		close(f.state.done)
	}
	after := f.state.after
	f.state.after = nil
	f.mu.Unlock()
	if after != nil {
		after()
	}
}

// Over waits until the call's answer was given or ctx has ended, and reports
// which.
func (f *Flight) Over(ctx context.Context) bool {
	f.mu.Lock()
	if f.state.done == nil && f.state.Stage != Answered {
		f.state.done = make(chan struct{})
	}
	done, given := f.state.done, f.state.Stage == Answered
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

// IsAnswered reports whether the call has its answer.
func (f *Flight) IsAnswered() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.Stage != UnderWay
}

// IsCancelled reports whether the client has cancelled the call, so that no answer is due.
func (f *Flight) IsCancelled() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.Cancelled && !f.state.Awaited
}

// IsOff reports whether the call is not to be sent any more: it was cancelled, or called off.
func (f *Flight) IsOff() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.Cancelled
}

// Cancellation returns a channel that closes when the call is not to be sent any more.
func (f *Flight) Cancellation() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state.cancelled == nil {
		f.state.cancelled = make(chan struct{})
		if f.state.Cancelled {
			close(f.state.cancelled)
		}
	}
	return f.state.cancelled
}

// Input is where the client is asked in the middle of the call, nil: nowhere.
func (f *Flight) Input() *bridge.Input {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.Asking
}

// Up is the request upstream, nil where it was not sent.
func (f *Flight) Up() wire.Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.up
}

// GaveUp is why the answer is given up, nil where it is not.
func (f *Flight) GaveUp() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.GaveUp
}

// Then has do take the upstream's answer when that comes, or why there is none, and reports false
// where it has to be awaited.
func (f *Flight) Then(do func(*wire.Message, error)) bool {
	giveUp, ok := f.state.up.Then(func(m *wire.Message, err error) { do(m, f.why(err)) })
	if ok {
		f.stopBy(giveUp)
	}
	return ok
}
