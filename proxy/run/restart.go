package run

import "time"

// SetShadow has calls decided in shadow from now on, or by the policy. In shadow nothing
// waits for the turn.
func (r *Run) SetShadow(shadow bool, now time.Time) (e Effects) {
	e.From = r.Snapshot(now)
	if r.Shadow = shadow; shadow {
		e.Ready, r.queue = r.queue, nil
	}
	r.endVisit()
	e.To = r.Snapshot(now)
	return e
}

// Restart puts the run back to its beginning. A call that has the turn keeps it until it
// ends, but steps no more: it belongs to the old run.
func (r *Run) Restart(now time.Time) Effects { return r.restarted(Remark{}, now, false) }

// RestartBy is Restart by somebody who has said so.
func (r *Run) RestartBy(by Remark, now time.Time) Effects { return r.restarted(by, now, false) }

// RestartUnasked is Restart where nobody has asked for it: what waits for the turn was
// asked of the old run, in which the call before it may have done it already.
func (r *Run) RestartUnasked(now time.Time) Effects { return r.restarted(Remark{}, now, true) }

func (r *Run) restarted(by Remark, now time.Time, unasked bool) (e Effects) {
	if r.ahead != nil {
		return r.restartAhead(by, now, unasked)
	}
	e.From = r.Snapshot(now)
	r.restart(now)
	if unasked {
		e.Ready = r.refuseQueue()
	}
	e.Entries = r.use(now)
	for i := range e.Entries {
		e.Entries[i].Remark = by
	}
	e.To = r.Snapshot(now)
	return e
}

func (r *Run) restart(now time.Time) {
	r.refused = false
	r.place(r.beginning())
	r.forget(now)
	r.reset = true
	r.moves++
	switch {
	case r.task: // it belongs to the old run
		r.holder, r.task = nil, false
	case r.holder != nil:
		r.holder.orphaned = true
	}
}

// beginning is where the run stands that begins now.
func (r *Run) beginning() Standing {
	r.between = nil
	return Standing{Policy: r.Policy, At: r.Policy.Initial()}
}

// refuseQueue has what waits for the turn decided anew, and find that its run is over.
func (r *Run) refuseQueue() (ready []*Call) {
	r.life++
	ready, r.queue = r.queue, nil
	return ready
}

// Finish makes the entry that the run has ended: nobody finds it any more. A call that has the turn comes to its end, and
// steps no more; what waits for the turn is decided anew, and finds that its run is over.
func (r *Run) Finish(by Remark, now time.Time) (e Effects) {
	if r.finished {
		return e
	}
	e.Entries = append(r.use(now), r.record(Entry{Type: Finished, Time: now, Details: Details{Remark: by}}))
	if r.holder != nil {
		r.holder.orphaned = true
	}
	e.Ready = r.refuseQueue()
	return e
}

// Annotate makes an entry of what somebody says of the run, which changes nothing in it.
func (r *Run) Annotate(by Remark, now time.Time) Effects {
	return Effects{Entries: append(r.use(now), r.record(Entry{Type: Annotated, Time: now, Details: Details{Remark: by}}))}
}

// Accept makes an entry that the run goes on as it was read, though more of it was confirmed.
func (r *Run) Accept(by Remark, now time.Time) Effects {
	return Effects{Entries: append(r.use(now), r.record(Entry{Type: Accepted, Time: now, Details: Details{Remark: by}}))}
}
