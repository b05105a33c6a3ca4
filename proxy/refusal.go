package proxy

import (
	"errors"
	"slices"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/link"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/refusal"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

// refuse answers a call that the automaton does not allow. What the text needs and is not at hand is fetched in Wait.
func (c *call) refuse(code policy.Code) wire.Pending {
	if code == policy.RunNotFound {
		return c.refuseRunless(&runs.Missing{Code: code, Text: c.s.p.handles.NeedsRun})
	}
	return c.refuseText(code, "")
}

// refuseText is refuse with a reason of the caller's in place of the usual one.
func (c *call) refuseText(code policy.Code, reason string) wire.Pending {
	if conn := c.s.link.Live(); conn != nil && !c.s.shown.AllAtHand(conn) {
		return c.later(func() {
			c.fetchAll(conn)
			c.refused(code, reason)
		})
	}
	return c.refused(code, reason)
}

func (c *call) refused(code policy.Code, reason string) wire.Pending {
	if c.s.moves(c.out) {
		return c.answer(nil)
	}
	behind := []any{"state", c.where().State(), "rule", c.Verdict.Rule.String(), "why", code.Text()}
	if c.Verdict.Fault() != nil {
		behind = append(behind, "fault", c.s.p.cfg.Fault(c.Verdict.Fault()))
	}
	c.s.log.Info("refused", c.aboutTarget([]any{"code", code.String()}, behind...)...)
	return c.answerRefusal(&refusal.Asked{Code: code, Reason: reason})
}

// interrupted answers a call that failed between the proxy and the upstream.
func (c *call) interrupted(code policy.Code, text string) {
	c.answerRefusal(&refusal.Asked{Code: code, Reason: text, Lost: true})
}

// answerRefusal adds to what was asked for how it is with its run, and answers with what there is to say of that.
func (c *call) answerRefusal(a *refusal.Asked) wire.Pending {
	c.deny(a.Code)
	a.Kind, a.Name, a.Outlived, a.Changes = c.Kind, c.Name, c.Outlived, c.changes
	a.At, a.Renews, a.Because = c.where(), c.s.run.Renews(), c.Verdict.Because()
	if free := c.Free(); !free.IsZero() {
		a.Free = max(time.Until(free), time.Second)
	}
	if c.unfit() {
		a.Misfit = c.misfit
	}
	if a.Code == policy.TaskRunning {
		if _, running := c.s.run.Holder(); running != nil {
			a.Task, a.TaskOf = running.ID, running.Tool
		}
	}
	if !c.opaquely() && !c.Snapshot.Shadow {
		a.Allowed = c.s.shown.Allowed(a.At)
	}
	return c.answer(a.Refusal().Answer(c.refusedRequest(a.Lost)))
}

// refusedRequest is the request as far as the form of its refusal hangs on it.
func (c *call) refusedRequest(lost bool) refusal.Request {
	result := c.m.Method == "tools/call" && !c.wantsTask()
	return refusal.Request{ID: c.id(), Client: c.client, Form: c.s.p.cfg.Refusals, Kind: c.Kind, Result: result, Lost: lost,
		Schema: result && c.Kind != policy.Signal && (c.s.shown.HasOutputSchema(c.Name) || c.offer.Member(c.Name, "outputSchema") != nil)}
}

// opaquely reports whether refusals say nothing of what the policy allows.
func (c *call) opaquely() bool { return c.s.p.cfg.Refusals == refusal.Opaque }

// aboutTarget returns about's fields: those before, then the name or method that the call asks for, then those behind.
func (c *call) aboutTarget(before []any, behind ...any) []any {
	target := []any{"method", wire.Clip(c.m.Method)}
	if c.named() {
		target = []any{c.Kind.String(), wire.Clip(c.Name)}
	}
	return c.about(slices.Concat(before, target, behind)...)
}

// unavailable answers a request that the upstream did not take, or that may be served once more where it was lost.
func (c *call) unavailable(err error) {
	lost, _ := errors.AsType[*wire.CallError](err)
	if (lost == nil || !lost.Sent || c.m.Repeats()) && c.s.moves(c.out) {
		c.answer(nil)
		return
	}
	c.seen.Failed(observe.Fault{Code: policy.UpstreamUnavailable})
	text := "The upstream server is not available: " + err.Error() + ". Nothing was done; try again later."
	switch {
	case err == link.ErrEnding && (c.s.Over() || !c.s.run.Acts()):
		text = "This was not sent: its run was ended, or another process has it, or may have it soon. Nothing was done; try again."
	case err == link.ErrEnding:
		c.s.log.Info("not sent: the proxy is ending", c.aboutTarget(nil)...)
		text = "This was not sent: fsm-proxy is ending. Nothing was done; try again, with a new session if this one is unknown by then."
	case lost != nil && lost.Err == refusal.ErrGivenUp:
		why, flag := refusal.Unanswered(err, refusal.PatienceFor(c.patience(), c.Timeout()))
		c.s.log.Warn("a request has no answer: it is given up", c.aboutTarget(nil, "reason", why+flag)...)
	default:
		c.s.log.Warn("the upstream did not take a request", c.aboutTarget(nil, "reason", err)...)
	}
	if !c.gated {
		c.fail(wire.CodeInternal, text)
		return
	}
	c.interrupted(policy.UpstreamUnavailable, text)
}

// unknown answers a call that was sent and has no answer.
func (c *call) unknown(err error) {
	why, flag := refusal.Unanswered(err, refusal.PatienceFor(c.patience(), c.Timeout()))
	c.s.log.Warn("a call was sent and may have happened: its outcome is unknown",
		c.aboutTarget(nil, "reason", why+flag, "state", c.where().State(), "rule", c.Verdict.Rule.String())...)
	c.interrupted(policy.OutcomeUnknown, refusal.Called(c.Kind, c.Name)+" was sent, and "+why+"; it may have happened.")
}

// unknownMethod says that a method is not carried, and how it could be.
func (c *call) unknownMethod() string {
	text := "Method not found: " + wire.Clip(c.m.Method)
	if c.opaquely() {
		return text
	}
	return text + " (fsm-proxy carries it only if the policy's passthrough names it)"
}

// refuseRunless answers a request that has no run. Whose run it is not, and whose run there is none, read the same.
func (c *call) refuseRunless(why *runs.Missing) wire.Pending {
	if why.At != nil && wire.MoveOn(c.out, why.At) {
		return c.answer(nil)
	}
	c.deny(why.Code)
	r := &refusal.Refusal{Error: why.Code.String(), Message: why.Text + c.s.p.Runs.WayOn(why, bridge.Stateless)}
	c.s.log.Info("refused", c.about("code", r.Error, "method", wire.Clip(c.m.Method), "reason", r.Message)...)
	if k, name, ok := refusal.AskedFor(c.m); ok {
		c.Kind, c.Name, r.Kind = k, name, k.String()
	}
	r.Requested = wire.Clip(c.Name)
	q := c.refusedRequest(false)
	if q.Result {
		return c.answer(r.Answer(q))
	}
	return c.answerFailure(wire.CodeInvalidParams, r.Answer(q))
}
