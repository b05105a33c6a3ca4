// Package drain is how a proxy ends without losing a call.
package drain

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fsm-proxy/fsm-proxy/proxy/flight"
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

// Drained says what became of the requests that were under way when a drain
// began.
type Drained struct {
	Finished  int   // came to their own end in time; those not yet sent were told so
	BrokenOff int   // had no answer in time: outcome_unknown, and cancelled upstream
	Refused   int64 // came later, and were told so
}

// Run begins, lets what is under way come to its end until ctx ends, and then breaks it off.
func (d *Drain) Run(ctx context.Context, underWay func() []*flight.Flight) Drained {
	before := underWay() // what was not sent yet may be over by the time that the drain has begun
	d.Begin()
	calls := either(before, underWay())
	left := slices.DeleteFunc(slices.Clone(calls), func(f *flight.Flight) bool { return f.Over(ctx) })
	d.StopLasting()
	if ctx.Err() != nil {
		d.StopReading()
	}
	for _, f := range left {
		f.Abandon(`{"requestId":0,"reason":"the proxy is ending"}`, refusal.ErrBrokenOff)
	}
	last, stop := context.WithTimeout(context.Background(), breakTime)
	defer stop()
	for _, f := range left {
		f.Over(last)
	}
	return Drained{Finished: len(calls) - len(left), BrokenOff: len(left), Refused: d.Late.Load()}
}

// either are the calls that are in one list or the other, each once.
func either(a, b []*flight.Flight) []*flight.Flight {
	all := make(map[*flight.Flight]struct{}, len(a)+len(b))
	for _, f := range slices.Concat(a, b) {
		all[f] = struct{}{}
	}
	return slices.Collect(maps.Keys(all))
}

// breakTime bounds the wait for the answers of calls that were broken off: none
// of them waits for anybody.
const breakTime = time.Second

// ListContext bounds the reading of a list from the upstream: by limit, and by the end of
// a drain that has run out of time. A list that is asked for after the drain, while clients read
// their last answers, has breakTime.
func (d *Drain) ListContext(limit time.Duration) (context.Context, context.CancelFunc) {
	if d.Lasting.Err() != nil {
		return context.WithTimeout(context.Background(), min(limit, breakTime))
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
