// Package operator is what operators do in runs: they look where one stands, and send it signals. A signal of
// theirs goes the way of an agent's, without a client: it waits for the turn, is decided when that has come,
// settles, is recorded, has lists told as changed, and then the operator is answered.
package operator

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

// MaxNote is how long the note of a signal may be, in bytes.
const MaxNote = 1024

// Desk is where operators ask. It is safe for concurrent use.
type Desk struct {
	Runs        *runs.Registry
	TurnTimeout time.Duration   // waiting for the run's turn
	MaxQueue    int             // of those who wait for it
	Ending      context.Context // ends when nothing new is taken any more
	Log         hclog.Logger
	Telemetry   *observe.Telemetry
	Journal     observe.Journal // nil: nowhere
}

// Standing is where a run stands, for an operator.
type Standing struct {
	runs.Inspected
	Approvals []runs.Asked // the calls that wait for one
}

func standing(r *runs.Run) Standing { return Standing{r.Inspect(), r.Questions()} }

// Look says where the run of this name stands. The error is a [*Refused].
func (d *Desk) Look(name string) (Standing, error) {
	r, no := d.find(name)
	if no != nil {
		return Standing{}, no
	}
	return standing(r), nil
}

// find returns the one run of a name, or whose name begins so.
func (d *Desk) find(name string) (*runs.Run, *Refused) {
	r, err := d.Runs.Like(name)
	switch {
	case err != nil:
		return nil, refusal(err, Standing{})
	case r == nil:
		return nil, &Refused{Why: NoRun}
	}
	return r, nil
}

// Signal is what an operator says to a run.
type Signal struct {
	Run, Name string // the run's name, and the signal's
	Note      string
	Seq       *uint64      // of the last entry of the run that the operator knows; nil: whatever there is
	From      observe.Peer // the operator
}

// Done is what a signal has come to.
type Done struct {
	Standing       // where it has led, before anything else has moved the run
	Restarted bool // it has completed the run, which began anew
}

// Send sends a signal, which waits for the run's turn while ctx lasts. The error is a [*Refused].
func (d *Desk) Send(ctx context.Context, s Signal) (Done, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(d.Ending, stop)()
	r, no := d.find(s.Run)
	if no != nil {
		return Done{}, no
	}
	if a := d.Telemetry.Auditor; a != nil {
		a.Await(ctx) // until it can be recorded
	}
	c := &call{sent: s, d: d, run: r, begun: time.Now()}
	c.Request = run.Request{Kind: policy.Signal, Name: s.Name, From: policy.Operator, Known: true, Listed: true}
	c.SentBy(s.From.Principal.Issuer, s.From.Principal.Subject)
	if no = c.enter(ctx); no != nil {
		return Done{}, c.refused(no)
	}
	done, no := c.step()
	if no != nil {
		return Done{}, c.refused(no)
	}
	return done, nil
}

// call is a signal of an operator's under way.
type call struct {
	run.Call
	sent   Signal
	d      *Desk
	run    *runs.Run
	begun  time.Time
	waited time.Duration // for the turn
}

// Decided implements runs.Call.
func (c *call) Decided() *run.Call { return &c.Call }

// Refresh implements runs.Call: no signal is locked.
func (c *call) Refresh() {}

// AsksClient implements runs.Call.
func (c *call) AsksClient() bool { return false }

// enter waits until the signal has the turn, and is allowed; else it has none, and the answer says why.
func (c *call) enter(ctx context.Context) *Refused {
	if no := c.overtaken(); no != nil {
		return no
	}
	timeout := time.NewTimer(c.d.TurnTimeout)
	defer timeout.Stop()
	e := c.run.Enter(c, c.d.MaxQueue)
	for came := false; e == run.Queued && !came; { // a change of mode may take it out of the queue
		if no := c.await(ctx, timeout.C); no != nil {
			c.leave()
			return no
		}
		if e, came = c.run.Granted(c); !came {
			e = c.run.Enter(c, c.d.MaxQueue)
		}
	}
	no := c.decided(e)
	if no == nil && (c.d.Ending.Err() != nil || ctx.Err() != nil) { // of which the one hears of the other a moment later
		no = c.over()
	}
	if no != nil {
		c.leave()
	}
	return no
}

// await waits for the turn.
func (c *call) await(ctx context.Context, timeout <-chan time.Time) *Refused {
	since := time.Now()
	defer func() { c.waited += time.Since(since) }()
	select {
	case <-c.Turn:
		return nil
	case <-timeout:
		return &Refused{Why: Denied, Code: policy.Busy}
	case <-ctx.Done():
		return c.over()
	}
}

// over is why nobody waits any longer.
func (c *call) over() *Refused {
	if c.d.Ending.Err() != nil {
		return &Refused{Why: Ending}
	}
	return &Refused{Why: Cancelled}
}

// decided says why a signal that the run has admitted or turned away is not to be taken; nil: it is.
func (c *call) decided(e run.Admission) *Refused {
	switch {
	case !c.run.Acts():
		return lost()
	case c.Snapshot.Shadow:
		return &Refused{Why: Shadow}
	case !c.d.Runs.Has(c.run):
		return &Refused{Why: Ended}
	case c.Snapshot.Shut:
		return &Refused{Why: Denied, Code: policy.StoreUnavailable}
	case c.Snapshot.Refused:
		return &Refused{Why: Stranded}
	case c.Outlived:
		return &Refused{Why: Moved}
	case e == run.Crowded:
		return &Refused{Why: Denied, Code: policy.Busy}
	case e == run.TaskRunning:
		return &Refused{Why: Denied, Code: policy.TaskRunning}
	}
	if no := c.overtaken(); no != nil {
		return no
	}
	if e == run.Admitted && c.run.Lasts() {
		switch _, again, err := c.run.Begin(&c.Call); {
		case again:
			return &Refused{Why: Moved}
		case err != nil:
			return &Refused{Why: Denied, Code: policy.StoreUnavailable}
		}
	}
	if e == run.Admitted {
		return nil
	}
	no := &Refused{Why: Denied, Code: c.Verdict.Code, Because: c.Verdict.Because()}
	if no.Code == policy.UnknownAction {
		no.Why = NoSignal
	}
	return no
}

// overtaken says so where the run has moved since the operator looked; nil: it has not.
func (c *call) overtaken() *Refused {
	if c.sent.Seq != nil && c.run.MovedSince(*c.sent.Seq) {
		return &Refused{Why: Moved}
	}
	return nil
}

func (c *call) leave() { c.run.Tell(nil, run.Shifts{c.run.Leave(&c.Call)}) }

// step takes a signal that has the turn through the automaton, and passes the turn on.
func (c *call) step() (Done, *Refused) {
	d, o := c.d, policy.Success.String()
	if d.Log.IsInfo() {
		d.Log.Info("signal", c.about("signal", c.Name, "note", observe.Escaped(c.sent.Note), "rule", c.Verdict.Rule.String())...)
	}
	var number uint64
	if d.Journal != nil {
		number = d.Journal.Begin(c.decision(observe.Fault{}))
	}
	op := observe.Operation{Message: &wire.Message{}, Named: true, Kind: c.Kind, Name: c.Name, Outcome: o, Waited: c.waited}
	ended, moved, err := c.run.Settle(&c.Call, run.End{Outcome: policy.Success})
	if errors.Is(err, runs.ErrUnwritten) {
		op.Outcome, op.Fault = policy.Unknown.String(), observe.Fault{Code: policy.OutcomeUnknown}
		c.record(number, &op)
		c.leave()
		return Done{}, &Refused{Why: Denied, Code: policy.OutcomeUnknown}
	}
	if err != nil {
		d.Log.Error("stepping the run: it stays where it is", "error", err)
	}
	if ended.Type != 0 {
		o = c.Verdict.Alternative.OutcomeName(ended.Outcome)
		op.Outcome = o
	}
	if ended.Step.Changed {
		op.From, op.To = ended.By.StateName(ended.Step.From.State), ended.By.StateName(ended.Step.Entered)
		d.Telemetry.Stepped(op.From, op.To, o)
		if d.Log.IsInfo() {
			d.Log.Info("transition", c.about("from", op.From, "to", op.To, c.Kind.String(), c.Name, "outcome", o,
				"complete", ended.Step.Terminal, "rule", c.Verdict.Rule.String())...)
		}
	}
	done := Done{standing(c.run), ended.Step.Restarted}
	c.record(number, &op)
	c.run.Use()
	c.run.Tell(nil, run.Join(moved, c.run.Pass(&c.Call)))
	return done, nil
}

// record records what became of a signal of which the decision has a number.
func (c *call) record(number uint64, op *observe.Operation) {
	if c.d.Journal != nil {
		op.Total = time.Since(c.begun)
		op.Run, op.Seq = c.run.EntryOf(&c.Call)
		c.d.Journal.End(number, c.sent.From, op)
	}
}

// refused records that the signal is not taken, and completes why.
func (c *call) refused(no *Refused) *Refused {
	if no.Signal, no.At = c.Name, standing(c.run); no.Why == Ended {
		no.At.Signals = nil
	}
	if no.Missing != nil { // who has the run hears of the signal next
		return no
	}
	about := []any{"code", no.String(), "signal", wire.Clip(c.Name), "state", no.At.State, "rule", c.Verdict.Rule.String(), "why", no.reason()}
	if c.Verdict.Fault() != nil {
		about = append(about, "fault", c.Verdict.Fault())
	}
	c.d.Log.Info("refused", c.about(about...)...)
	if no.Code != policy.CodeNone && no.Code != policy.OutcomeUnknown { // else its entry is on its way
		c.run.Decline(&c.Call, no.Code)
	}
	if a := c.d.Telemetry.Auditor; a != nil && no.Code != policy.OutcomeUnknown { // of which the decision is recorded
		a.Decided(c.decision(observe.Fault{Untaken: no.String()}))
	}
	return no
}

// about says in the log who sends the signal, and to which run.
func (c *call) about(pairs ...any) []any {
	return c.sent.From.About(append([]any{"run", c.run.Name}, pairs...))
}

func (c *call) decision(why observe.Fault) observe.Decision {
	at := c.Snapshot
	if at.Policy == nil { // it did not come to a decision
		at = c.run.Where()
	}
	id, seq := c.run.EntryOf(&c.Call)
	return observe.Decision{Peer: c.sent.From, Message: &wire.Message{}, Named: true, Kind: c.Kind, Name: c.Name,
		State: at.State(), Policy: at.Policy, Rule: c.Verdict.Rule, Note: c.sent.Note, Fault: why, Run: cmp.Or(id, c.run.Name), Seq: seq}
}
