package runs

import (
	"time"

	"github.com/fsm-proxy/fsm-proxy/proxy/approval"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// Hold is how a call is held until it is approved.
type Hold struct {
	For       time.Duration
	MaxQueue  int                                    // of those who wait for the turn, where it is to be entered
	Question  approval.Question                      // to be asked, as far as the caller knows it
	Ready     func() bool                            // has the call decided by what there is now; false: it cannot be
	Asked     func(q *approval.Question, fresh bool) // is told of each question that the call waits for; fresh: nobody has asked it before
	Beat      func(left float64)                     // is told now and then that the call still waits, for so many seconds more
	Cancelled <-chan struct{}
	Ending    <-chan struct{}
}

// Held is why a call is held no longer. The zero value is Decided.
type Held uint8

// The reasons.
const (
	Decided    Held = iota // the admission says how
	Unanswered             // nobody has answered for so long
	Unready
	Cancelled
	Ending
)

// holdBeat is how often a client is told that its call still waits.
const holdBeat = 10 * time.Second

// Hold holds a call until it is approved or refused, or for long enough. It has no turn and keeps no room meanwhile,
// and when there is an answer it is decided anew: one that is Queued is to wait for the turn then.
func (r *Run) Hold(c Call, h *Hold) (a run.Admission, why Held) {
	ends := time.Now().Add(h.For)
	hold, beat, late := time.NewTimer(h.For), time.NewTicker(holdBeat), time.NewTimer(h.For)
	defer hold.Stop()
	defer beat.Stop()
	defer late.Stop()
	for held := (*approval.Question)(nil); ; {
		if !h.Ready() {
			return a, Unready
		}
		q := h.Question
		q.ID = NewID()
		a, asked, fresh := r.ask(c, &q, held, h.MaxQueue)
		if asked == nil {
			return a, Decided
		}
		if held == nil {
			h.Beat(h.For.Seconds())
		}
		if asked != held {
			h.Asked(asked, fresh)
		}
		held = asked
		late.Reset(time.Until(asked.Expires))
		select {
		case <-asked.Done:
		case <-late.C:
		case <-beat.C:
			h.Beat(time.Until(ends).Seconds())
		case <-hold.C:
			return a, Unanswered
		case <-h.Cancelled:
			return a, Cancelled
		case <-h.Ending:
			return a, Ending
		}
	}
}
