package runs

import (
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/approval"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// ending is why a run is found no more.
type ending uint8

const (
	asked    ending = iota // its client has ended it
	expired                // its time has run out, of which its owner is told
	unloaded               // it is in the store alone from now on
	revoked                // somebody else has ended it, of which its owner is told
)

// endLocked takes a run out of those that are found, and returns the sessions on it, which are to be closed, and what
// is to be kept of that. Whoever asks for a run of its key waits until that is written.
func (g *Registry) endLocked(r *Run, why ending, by run.Remark) (on []Member, w written) {
	if r.ended.Load() || !g.leaveLocked(r) {
		return nil, w
	}
	r.ended.Store(true)
	r.unwind()
	r.endQuestions(func(*approval.Question) bool { return true })
	switch {
	case why != unloaded:
		w = r.finish(by)
		g.settleLocked(r.at, w)
	case r.kept != nil:
		g.settleLocked(r.at, r.handedOver())
	}
	if r.Lost() { // its tasks go on elsewhere, and are found here until they can be had there
		r.Tasks.Leave()
	} else if r.Key.Kind != Session { // of which it has none
		g.ByTask.Forget(r)
	}
	if r.Key.Kind != Session && (why == expired || why == revoked) {
		g.rememberLocked(r.at, r.Owner)
	}
	if on = r.on(); len(on) == 0 {
		delete(g.all, r)
	}
	return on, w
}

// leaveLocked has a run be found no more. It reports false where it was not.
func (g *Registry) leaveLocked(r *Run) bool {
	switch {
	case g.found[r.at] == r:
		delete(g.found, r.at)
		if r.Owner.Known() {
			if g.owned[r.Owner]--; g.owned[r.Owner] == 0 {
				delete(g.owned, r.Owner)
			}
		}
		return true
	case g.process.CompareAndSwap(r, nil):
		return true
	case g.apart[r.at] == r:
		delete(g.apart, r.at)
		return true
	}
	_, there := g.all[r]
	return there && r.Key.Kind == Session
}

// settleLocked has whoever asks for the run of a key wait until it is known what became of what was handed over, before it
// is read: the store must not tell of one that has ended just now, nor of less than was made of one that goes on.
func (g *Registry) settleLocked(at runID, w written) {
	if w.ticket == nil || w.ticket.IsDone() {
		return
	}
	l := &loading{done: make(chan struct{}), settled: true}
	g.loading[at] = l
	go func() {
		<-w.ticket.Done()
		g.mu.Lock()
		if g.loading[at] == l {
			delete(g.loading, at)
		}
		g.mu.Unlock()
		close(l.done)
	}()
}

func closeAll(sessions []Member) {
	for _, s := range sessions {
		s.Close()
	}
}

// close closes the sessions that were on a run that is found no more, and ends its tasks, also those that no session has begun:
// but of a run that goes on elsewhere not those that go on there.
func (r *Run) close(on []Member) {
	closeAll(on)
	r.Tasks.End(r.Lost())
}

// ErrEnded is for a run that has ended before.
var ErrEnded = &Missing{Code: policy.RunExpired, Text: "The run has ended."}

// EndBy ends a run for good, as somebody has said: nobody finds it any more, a call under way comes to its end and steps
// nothing, and the sessions on it are closed. Where its key begins runs, the next request begins another. The error is an
// [ErrEnded], or an [ErrUnwritten].
func (g *Registry) EndBy(r *Run, by run.Remark) (state string, err error) {
	return g.end(r, revoked, by)
}

var errEndUnconfirmed = &Missing{Code: policy.StoreUnavailable, Text: "The run has ended, but whether that is kept is not known: the store is too slow, or cannot be written. After a restart it may be there again; then end it once more."}

// End ends a run, as the client has asked that has found it. It returns why the run has not ended, or not for certain; nil: it
// has.
func (g *Registry) End(r *Run) *Missing {
	_, err := g.end(r, asked, run.Remark{})
	switch {
	case err == nil:
		return nil
	case !r.ended.Load():
		return errStore
	case err == ErrEnded:
		return r.over()
	default:
		return errEndUnconfirmed
	}
}

// end ends a run. Nothing has happened where an error comes and it has not ended.
func (g *Registry) end(r *Run, why ending, by run.Remark) (state string, err error) {
	if r.kept != nil && g.cfg.Store.Down() != nil {
		return "", ErrUnwritten
	}
	if r.isShut() { // which somebody has to look at first
		return "", journal.ErrConflict
	}
	state = r.Where().State()
	g.mu.Lock()
	if r.ended.Load() || g.closed {
		g.mu.Unlock()
		return "", ErrEnded
	}
	on, w := g.endLocked(r, why, by)
	g.mu.Unlock()
	r.close(on)
	if !g.awaits(w) {
		return state, ErrUnwritten
	}
	if w.ticket != nil {
		err = w.ticket.Err()
	}
	return state, err
}

// Annotate keeps what somebody says of the run, which changes nothing in it, and returns the number of its entry. The
// error is an [ErrUnwritten].
func (r *Run) Annotate(by run.Remark) (seq uint64, err error) {
	_, moved, _, err := r.durably(func(core *run.Run, now time.Time) (e run.Effects, _ bool) {
		e = core.Annotate(by, now)
		seq = e.Entries[len(e.Entries)-1].Seq
		return e, true
	})
	r.Tell(nil, run.Shifts{moved})
	return seq, err
}
