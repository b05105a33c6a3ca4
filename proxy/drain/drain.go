// Package drain is how a proxy ends without losing a call.
package drain

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/fsm-proxy/fsm-proxy/proxy/refusal"
)

// Drain is how a proxy ends without losing a call: first it takes and sends
// nothing new any more, then it waits no longer.
type Drain struct {
	Begun atomic.Bool  // nothing new is taken any more
	Late  atomic.Int64 // requests that came too late

	Taking, Lasting         context.Context // end as Begun is set, and when the waiting is over
	reading                 context.Context // ends when no list is read any more that was asked for before the waiting was over
	StopTaking, StopLasting context.CancelFunc
	StopReading             context.CancelFunc
}

// Init prepares a Drain that has not begun.
func (d *Drain) Init() {
	d.Taking, d.StopTaking = context.WithCancel(context.Background())
	d.Lasting, d.StopLasting = context.WithCancel(context.Background())
	d.reading, d.StopReading = context.WithCancel(context.Background())
}

// Begin has nothing new taken. Who asks Begun after having
// entered a request among those under way either sees it, or is waited for.
func (d *Drain) Begin() {
	d.Begun.Store(true)
	d.StopTaking()
}

// BreakTime bounds the wait for the answers of calls that were broken off: none
// of them waits for anybody.
const BreakTime = time.Second

// ListContext bounds the reading of a list from the upstream: by limit, and by the end of
// a drain that has run out of time. A list that is asked for after the drain, while clients read
// their last answers, has BreakTime.
func (d *Drain) ListContext(limit time.Duration) (context.Context, context.CancelFunc) {
	if d.Lasting.Err() != nil {
		return context.WithTimeout(context.Background(), min(limit, BreakTime))
	}
	return context.WithTimeout(d.reading, limit)
}

// EndedBy returns the drain's end in place of an error that it has caused.
func (d *Drain) EndedBy(err error) error {
	if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if d.Lasting.Err() != nil {
		return refusal.ErrBrokenOff
	}
	return err
}
