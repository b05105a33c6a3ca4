package proxy

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/fsm-proxy/fsm-proxy/proxy/refusal"
)

// drain is how a Proxy ends without losing a call: first it takes and sends
// nothing new any more, then it waits no longer.
type drain struct {
	begun atomic.Bool
	late  atomic.Int64 // requests that came too late

	taking, lasting         context.Context // end as begun is set, and when the waiting is over
	reading                 context.Context // ends when no list is read any more that was asked for before the waiting was over
	stopTaking, stopLasting context.CancelFunc
	stopReading             context.CancelFunc
}

func (d *drain) init() {
	d.taking, d.stopTaking = context.WithCancel(context.Background())
	d.lasting, d.stopLasting = context.WithCancel(context.Background())
	d.reading, d.stopReading = context.WithCancel(context.Background())
}

// begin has nothing new taken. Who asks begun after having
// entered a request among those under way either sees it, or is waited for.
func (d *drain) begin() {
	d.begun.Store(true)
	d.stopTaking()
}

// breakTime bounds the wait for the answers of calls that were broken off: none
// of them waits for anybody.
const breakTime = time.Second

// listContext bounds the reading of a list from the upstream: by limit, and by the end of
// a drain that has run out of time. A list that is asked for after the drain, while clients read
// their last answers, has breakTime.
func (d *drain) listContext(limit time.Duration) (context.Context, context.CancelFunc) {
	if d.lasting.Err() != nil {
		return context.WithTimeout(context.Background(), min(limit, breakTime))
	}
	return context.WithTimeout(d.reading, limit)
}

// endedBy returns the drain's end in place of an error that it has caused.
func (d *drain) endedBy(err error) error {
	if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if d.lasting.Err() != nil {
		return refusal.ErrBrokenOff
	}
	return err
}
