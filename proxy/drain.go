package proxy

import (
	"context"
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
	stopTaking, stopLasting context.CancelFunc
}

func (d *drain) init() {
	d.taking, d.stopTaking = context.WithCancel(context.Background())
	d.lasting, d.stopLasting = context.WithCancel(context.Background())
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
// the drain. A list that is asked for after that, while clients read their last answers,
// has breakTime.
func (d *drain) listContext(limit time.Duration) (context.Context, context.CancelFunc) {
	if d.lasting.Err() != nil {
		return context.WithTimeout(context.Background(), min(limit, breakTime))
	}
	return context.WithTimeout(d.lasting, limit)
}

// endedBy is the drain's end in place of an error that it has caused.
func (d *drain) endedBy(err error) error {
	if d.lasting.Err() != nil {
		return refusal.ErrBrokenOff
	}
	return err
}
