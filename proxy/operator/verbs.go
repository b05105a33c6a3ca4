package operator

import (
	"context"
	"errors"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

// Verb is what an operator has be done to a run, whatever its policy says.
type Verb struct {
	Run  string       // its name
	Text string       // why; of an annotation, what
	From observe.Peer // the operator
}

// said is what the run's journal has of it.
func (v *Verb) said() run.Remark {
	who := v.From.Principal
	return run.Remark{Who: who.Issuer + "|" + who.Subject, Text: v.Text, Remote: v.From.Remote}
}

// Started is a run that was begun for an operator.
type Started struct {
	Standing
	Secret string // that finds it: a handle, or the end of its URL; "": none does
}

// Start begins a run before its first client comes. The error is a [*runs.Missing].
func (d *Desk) Start(b runs.Beginning, from observe.Peer) (s Started, err error) {
	if from.Principal.Known() {
		b.By.Who = from.Principal.Issuer + "|" + from.Principal.Subject
	}
	b.By.Remote = from.Remote
	if d.Ending.Err() != nil {
		return s, &Refused{Why: Ending}
	}
	d.awaitRoom()
	r, secret, err := d.Runs.StartBy(b)
	if err != nil {
		return s, err
	}
	d.tell("start", r.Name, "", r.Where().State(), b.By.Text, from)
	return Started{standing(r), secret}, nil
}

// Forked is a run that was forked of another for an operator.
type Forked struct {
	Standing
	Secret string // that finds it: a handle, or the end of its URL
	Of     run.Origin
	Sent   []run.Sent // what the other one has sent that it does not know of
	More   int        // how many there are beside those
}

// Fork begins a run that is what another one was after one of its entries, 0 for the last one. The error is a [*Refused], or
// a [*runs.Missing].
func (d *Desk) Fork(v Verb, at uint64) (f Forked, err error) {
	if d.Ending.Err() != nil {
		return f, &Refused{Why: Ending}
	}
	d.awaitRoom()
	done, err := d.Runs.Fork(runs.Forking{Run: v.Run, At: at, By: v.said()})
	final, crossed := errors.AsType[*run.Irreversible](err)
	switch {
	case crossed:
		err = &Refused{Why: Irreversible, Because: []string{final.Error()}}
	case errors.Is(err, runs.ErrDamaged), errors.Is(err, runs.ErrAmbiguous), errors.Is(err, runs.ErrShut):
		err = refusal(err, Standing{})
	case err == nil && done == nil:
		err = &Refused{Why: NoRun}
	}
	if err != nil {
		d.Log.Warn("an operator's verb came to nothing", v.From.About([]any{"verb", "fork", "run", v.Run, "at", at, "error", err})...)
		return f, err
	}
	f = Forked{standing(done.Run), done.Secret, done.Of, done.Sent, done.More}
	d.told("fork", v.Text, v.From, "run", f.Name, "parent", f.Of.Run, "at", f.Of.Seq, "state", f.State)
	return f, nil
}

// Reset has a run begin anew. The error is a [*Refused].
func (d *Desk) Reset(v Verb) (at Standing, err error) {
	return d.do("reset", &v, (*runs.Run).Restart)
}

// End ends a run for good: nobody finds it any more. The error is a [*Refused].
func (d *Desk) End(v Verb) (at Standing, err error) { return d.do("end", &v, d.Runs.EndBy) }

// Annotate keeps what is said of a run. The error is a [*Refused].
func (d *Desk) Annotate(v Verb) (at Standing, err error) {
	return d.do("annotate", &v, func(r *runs.Run, by run.Remark) (state string, err error) {
		_, err = r.Annotate(by)
		return r.Where().State(), err
	})
}

// Accept has a run that is shut go on as the store has it. The error is a [*Refused].
func (d *Desk) Accept(v Verb) (at Standing, err error) {
	at, err = d.do("accept", &v, d.Runs.Accept)
	if err != nil {
		return at, err
	}
	if now, no := d.Look(v.Run); no == nil { // which is another one in memory
		at = now
	}
	return at, nil
}

const (
	releaseTime    = 5 * time.Second  // how long giving a run away may take
	releaseAllTime = 20 * time.Second // and all of them
)

// Release gives a run away, if nothing is under way in it, for another process to go on with. The error is a [*Refused].
func (d *Desk) Release(v Verb) (at Standing, err error) {
	ctx, stop := context.WithTimeout(d.Ending, releaseTime)
	defer stop()
	return d.do("release", &v, func(r *runs.Run, _ run.Remark) (state string, err error) { return d.release(ctx, r, &v) })
}

func (d *Desk) release(ctx context.Context, r *runs.Run, v *Verb) (state string, err error) {
	at := r.Where()
	switch now := standing(r); {
	case !r.Lasts():
		return "", &Refused{Why: Unshared}
	case now.Shut: // which somebody has to look at first
		return "", &Refused{Why: Unwritable, At: now}
	case len(now.Approvals) > 0: // who goes on with it asks anew
		return "", runs.ErrBusy
	}
	if err := d.Runs.Release(ctx, r); err != nil {
		return "", err
	}
	if auditor := d.Telemetry.Auditor; auditor != nil { // no entry of the run tells of it
		auditor.Entered(observe.Entry{Verb: "release", Peer: v.From, Note: v.Text, Run: r.Name, From: at.State(), Policy: at.Policy})
	}
	return at.State(), nil
}

// ReleaseAll gives away all runs that [Desk.Release] would, and says how many those are, and how many stay. The error is a [*Refused].
func (d *Desk) ReleaseAll(v Verb) (released, stay int, err error) {
	if d.Ending.Err() != nil {
		return 0, 0, &Refused{Why: Ending}
	}
	ctx, stop := context.WithTimeout(d.Ending, releaseAllTime)
	defer stop()
	for _, r := range d.Runs.All() {
		if !r.Lasts() || r.Lost() || r.Ended() {
			continue
		}
		d.awaitRoom()
		if _, err := d.release(ctx, r, &v); err != nil {
			stay++
		} else {
			released++
		}
	}
	d.told("release", v.Text, v.From, "runs", released, "stay", stay)
	return released, stay, nil
}

// auditTime is how long a verb waits for room in the audit.
const auditTime = time.Second

// do has something be done to a run, tells of it, and returns where the run stands since.
func (d *Desk) do(verb string, v *Verb, do func(*runs.Run, run.Remark) (state string, err error)) (at Standing, err error) {
	r, no := d.find(v.Run)
	if no != nil {
		return at, no
	}
	if d.Ending.Err() != nil {
		return at, &Refused{Why: Ending, At: standing(r)}
	}
	d.awaitRoom()
	if r.Lost() {
		return at, lost()
	}
	was, err := do(r, v.said())
	at = standing(r)
	if errors.Is(err, runs.ErrEnded) && r.Lost() { // it has not: it goes on elsewhere
		return at, lost()
	}
	if err != nil {
		d.Log.Warn("an operator's verb came to nothing", v.From.About([]any{"verb", verb, "run", r.Name, "error", err})...)
		return at, refusal(err, at)
	}
	d.tell(verb, r.Name, was, at.State, v.Text, v.From)
	return at, nil
}

// awaitRoom waits until the audit has room for a verb, which the run tells it of with the entry.
func (d *Desk) awaitRoom() {
	if d.Telemetry.Auditor == nil {
		return
	}
	ctx, stop := context.WithTimeout(d.Ending, auditTime)
	defer stop()
	d.Telemetry.Auditor.Await(ctx)
}

// tell has the log have what was done to a run, which stood in a state and stands in another since.
func (d *Desk) tell(verb, name, was, state, why string, from observe.Peer) {
	d.told(verb, why, from, "run", name, "was", was, "state", state)
}

func (d *Desk) told(verb, why string, from observe.Peer, pairs ...any) {
	d.Log.Info(verb, from.About(append(pairs, "reason", observe.Escaped(why)))...)
}

// lost is for a run that another process has since it was found, or may have soon: nothing was done.
func lost() *Refused {
	return &Refused{Why: Denied, Code: policy.StoreUnavailable, Missing: runs.LookAgain(false)}
}

// refusal is why a verb came to nothing.
func refusal(err error, at Standing) *Refused {
	if no, ok := errors.AsType[*Refused](err); ok {
		return no
	}
	switch {
	case errors.Is(err, runs.ErrAmbiguous):
		return &Refused{Why: Ambiguous}
	case errors.Is(err, runs.ErrEnded):
		return &Refused{Why: Ended}
	case errors.Is(err, runs.ErrDamaged):
		return &Refused{Why: Damaged, Because: []string{err.Error(), "'fsm-proxy verify' says where; restore the store from a backup, or end the proxy and remove the run"}, At: at}
	case errors.Is(err, runs.ErrBusy):
		return &Refused{Why: Busy, At: at}
	case errors.Is(err, runs.ErrUnwritten):
		return &Refused{Why: Denied, Code: policy.StoreUnavailable, At: at}
	}
	if why, ok := errors.AsType[*runs.Missing](err); ok {
		return &Refused{Why: Denied, Code: policy.StoreUnavailable, Missing: why}
	}
	if errors.Is(err, runs.ErrOpen) || errors.Is(err, runs.ErrSession) {
		return &Refused{Why: Unacceptable, Because: []string{err.Error()}, At: at}
	}
	return &Refused{Why: Unwritable, At: at}
}
