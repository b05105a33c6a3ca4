package proxy

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/link"
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

// listContext bounds the reading of a list from the upstream: by limit, and by the end of
// the drain. A list that is asked for after that, while clients read their last answers,
// has breakTime.
func (d *drain) listContext(limit time.Duration) (context.Context, context.CancelFunc) {
	if d.lasting.Err() != nil {
		return context.WithTimeout(context.Background(), min(limit, breakTime))
	}
	return context.WithTimeout(d.lasting, limit)
}

// Drained says what became of the requests that were under way when a drain
// began.
type Drained struct {
	Finished  int   // came to their own end in time; those not yet sent were told so
	BrokenOff int   // had no answer in time: outcome_unknown, and cancelled upstream
	Refused   int64 // came later, and were told so
}

// Refuse begins a drain: nothing new is taken any more.
func (p *Proxy) Refuse() { p.drain.begin() }

// Draining reports whether a drain has begun, by [Proxy.Refuse], [Proxy.Drain]
// or [Proxy.Close].
func (p *Proxy) Draining() bool { return p.drain.begun.Load() }

// breakTime bounds the wait for the answers of calls that were broken off: none
// of them waits for anybody.
const breakTime = time.Second

// Drain lets what is under way come to its end. From now on a request is
// refused, pings and lists excepted; what was not sent yet, because it waits for the
// run's turn or for a connection, is answered so. What the upstream has got it
// may answer until ctx ends; then it is cancelled there, and its client told
// that the outcome is unknown. Cancellations, and answers to what the upstream
// asks, pass all the while. Sessions stay open: [Proxy.Close] ends them.
func (p *Proxy) Drain(ctx context.Context) Drained {
	before := p.underWay() // what was not sent yet may be over by the time that the drain has begun
	p.drain.begin()
	calls := either(before, p.underWay())
	left := slices.DeleteFunc(slices.Clone(calls), func(c *call) bool { return c.over(ctx) })
	p.drain.stopLasting()
	for _, c := range left {
		c.breakOff()
	}
	last, stop := context.WithTimeout(context.Background(), breakTime)
	defer stop()
	for _, c := range left {
		c.over(last)
	}
	return Drained{Finished: len(calls) - len(left), BrokenOff: len(left), Refused: p.drain.late.Load()}
}

// either are the calls that are in one list or the other, each once.
func either(a, b []*call) []*call {
	all := make(map[*call]struct{}, len(a)+len(b))
	for _, c := range slices.Concat(a, b) {
		all[c] = struct{}{}
	}
	return slices.Collect(maps.Keys(all))
}

// underWay returns the requests under way in all sessions.
func (p *Proxy) underWay() (all []*call) {
	for _, s := range p.open() {
		all = append(all, s.underWay()...)
	}
	return all
}

// errBrokenOff is why an answer is not waited for.
var errBrokenOff = errors.New("the proxy had to end before an answer came")

const tooLate = "fsm-proxy is ending and takes no more calls: this one was not sent. Try again, with a new session"

// servedInDrain reports whether a request is answered while a drain refuses others. Lists are:
// after the result of a tool that it has not listed the Python SDK lists the tools, and its
// caller never sees that result where the list is refused.
func (c *call) servedInDrain() bool {
	switch c.m.Method {
	case "ping", "tools/list", "resources/list", "resources/templates/list", "prompts/list":
		return true
	}
	return false
}

// tooLate refuses a request that has come during the drain, so that its client
// can try elsewhere.
func (c *call) tooLate() wire.Pending {
	c.s.p.drain.late.Add(1)
	c.s.log.Info("refused: the proxy is ending", c.about("method", wire.Clip(c.m.Method))...)
	c.fault(Fault{Code: policy.UpstreamUnavailable})
	raw := wire.ErrorAnswer(c.id(), wire.CodeInternal, tooLate, nil)
	out, ok := c.out.(wire.DecliningStream)
	if !ok {
		return c.answer(raw)
	}
	return c.answerBy(func() { out.Decline(raw) })
}

// unsent answers a call that start has not sent.
func (c *call) unsent() wire.Pending {
	if c.isCancelled() {
		return c.answer(nil)
	}
	c.unavailable(link.ErrEnding)
	return nil
}

// breakOff gives up a call that has no answer at the drain's end.
func (c *call) breakOff() { c.abandon(`{"requestId":0,"reason":"the proxy is ending"}`, errBrokenOff) }

// endedBy is the drain's end in place of an error that it has caused.
func (p *Proxy) endedBy(err error) error {
	if p.drain.lasting.Err() != nil {
		return errBrokenOff
	}
	return err
}
