package runs

import (
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// The audit tells of what the entries of runs tell. Of most of those the lines of calls do, and name them: see
// [run.Call.Line]. What follows is about the others, each of which has a line of its own. A run that is not kept has no
// numbers there, and nothing tells that it began.

// audited returns what has the audit tell of entries; nil: there is nothing to tell.
func (r *Run) audited(entries []run.Entry) (tell func()) {
	auditor := r.of.cfg.Telemetry.Auditor
	if auditor == nil || r.ForRunless {
		return nil
	}
	var all []observe.Entry
	for i := range entries {
		e := &entries[i]
		if e.Type == run.Unsent && !e.Decided { // nor will a decision tell that it had begun
			begun := r.audit(e)
			begun.Type, begun.Seq, begun.Begun = run.Begun.String(), e.Begun, 0
			all = append(all, begun)
		}
		if isApart(e) {
			all = append(all, r.audit(e))
		}
	}
	if all == nil {
		return nil
	}
	return func() {
		for i := range all {
			auditor.Entered(all[i])
		}
	}
}

// isApart reports whether no line of a call tells of an entry, and it is a fact: a checkpoint is none.
func isApart(e *run.Entry) bool {
	switch e.Type {
	case run.Began, run.Forked, run.Moved, run.Stranded, run.Reset, run.Expired, run.Unsent, run.Finished, run.Annotated, run.Accepted:
		return true
	case run.Begun:
		return e.Decided
	case run.Ended:
		return e.Resumed || e.Call.Again()
	case run.Stayed, run.Declined, run.Answered, run.Checkpoint:
	}
	return false
}

// verbs are what operators call what they have be done, by the type of the entry.
var verbs = map[run.Type]string{run.Began: "start", run.Forked: "fork", run.Reset: "reset", run.Finished: "end", run.Annotated: "annotate", run.Accepted: "accept"}

// audit is an entry as the audit has it.
func (r *Run) audit(e *run.Entry) observe.Entry {
	out := observe.Entry{Type: e.Type.String(), Run: r.Name, Begun: e.Begun, From: e.From.State(), Policy: e.To.Policy}
	if r.kept != nil {
		out.Seq = e.Seq
	}
	if to := e.To.State(); to != out.From {
		out.To = to
	}
	if of := e.Origin; of != nil {
		out.Parent, out.Fork = of.Run, of.Seq
	}
	if e.Type == run.Expired {
		out.Rule = e.By.After(e.Step.From.State).Rule
	}
	if c := e.Call; c != nil {
		out.Named, out.Kind, out.Name, out.Rule = true, c.Kind, c.Name, c.Verdict.Rule
	}
	if e.Type == run.Ended {
		out.Outcome = e.OutcomeName()
	}
	if by := e.Remark; by != (run.Remark{}) {
		out.Verb, out.Note, out.Peer.Remote = verbs[e.Type], by.Text, by.Remote
		issuer, subject, _ := strings.Cut(by.Who, "|")
		out.Peer.Principal = wire.Principal{Issuer: issuer, Subject: subject}
	}
	return out
}

// tell has the log and the meter have what clocks have done, and the audit what has become of a run that is not kept: of one
// that is it hears when that is durable.
func (r *Run) tell(entries []run.Entry) {
	if r.kept == nil {
		if tell := r.audited(entries); tell != nil {
			tell()
		}
	}
	r.tellExpired(entries)
}
