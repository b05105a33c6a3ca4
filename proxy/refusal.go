package proxy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/link"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/refusal"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

// refuse answers a call that the automaton does not allow. What the text needs
// and is not at hand is fetched in Wait.
func (c *call) refuse(code policy.Code) wire.Pending {
	switch {
	case code == policy.RunNotFound:
		return c.refuseRunless(&runs.Missing{Code: code, Text: c.s.p.handles.NeedsRun})
	case c.unfit() && !c.opaquely():
		return c.refuseText(code, refusal.Called(c.Kind, c.Name)+" is out of reach here: a call of it cannot say which run it belongs to, because "+
			c.misfit.Text()+". An operator can choose another run key, principal or path.")
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
	c.s.log.Info("refused", c.aboutTarget([]any{"code", code.String()},
		"state", c.s.run.Where().State(), "rule", c.Verdict.Rule.String(), "why", code.Text())...)
	return c.answer(c.refusalAnswer(c.refusal(code, reason)))
}

// aboutTarget returns about's fields: those before, then the name or method that the call
// asks for, then those behind.
func (c *call) aboutTarget(before []any, behind ...any) []any {
	target := []any{"method", wire.Clip(c.m.Method)}
	if c.named() {
		target = []any{c.Kind.String(), wire.Clip(c.Name)}
	}
	return c.about(slices.Concat(before, target, behind)...)
}

// refusal says why, what was found, and what is allowed now.
func (c *call) refusal(code policy.Code, reason string) *refusal.Refusal {
	c.deny(code)
	r := refusal.Call{Kind: c.Kind, Name: c.Name, Code: code, At: c.s.run.Where(), Outlived: c.Outlived, Unfit: c.unfit(), Changes: c.changes, Renews: c.s.run.Key.Renews()}
	if c.opaquely() || c.Snapshot.Shadow {
		return r.Opaque(reason)
	}
	if _, running := c.s.run.Holder(); running != nil {
		r.Running, r.Tool = running, running.Call.(*call).Name
	}
	return r.Refusal(reason, c.s.allowed(r.At))
}

// refusalAnswer puts a refusal into the form that the request has.
func (c *call) refusalAnswer(r *refusal.Refusal) []byte {
	if c.client.Stateless() && c.Kind == policy.Resource {
		r.URI = r.Requested
	}
	switch {
	case c.Kind == policy.Resource:
		return wire.ErrorAnswer(c.id(), c.code(wire.CodeResourceNotFound), r.Message, r.Object())
	case c.Kind == policy.Prompt || c.wantsTask():
		return wire.ErrorAnswer(c.id(), wire.CodeInvalidParams, r.Message, r.Object())
	}
	return wire.ResultAnswer(c.id(), c.toolRefusal(r))
}

// toolRefusal is a refused tools/call as a result. An opaque one never has the object where it
// would tell whether there is such a tool.
func (c *call) toolRefusal(r *refusal.Refusal) []byte {
	members := ""
	if c.client.Stateless() {
		members = `"resultType":"complete",`
	}
	return r.Result(c.s.p.cfg.Refusals, members, !c.opaquely() && !c.s.shown.HasOutputSchema(c.Name))
}

// unavailable answers a request that the upstream did not take.
func (c *call) unavailable(err error) {
	c.seen.Failed(observe.Fault{Code: policy.UpstreamUnavailable})
	switch lost, _ := errorAs(err); {
	case err == link.ErrEnding:
		c.s.log.Info("not sent: the proxy is ending", c.aboutTarget(nil)...)
	case lost != nil && lost.Err == errGivenUp:
		c.s.log.Warn("a request has no answer: it is given up", c.aboutTarget(nil, "reason", "no answer came in "+brevity(c.patience())+" (--call-timeout)")...)
	default:
		c.s.log.Warn("the upstream did not take a request", c.aboutTarget(nil, "reason", err)...)
	}
	text := "The upstream server is not available: " + err.Error() + ". Nothing was done; try again later."
	if err == link.ErrEnding {
		text = "This was not sent: fsm-proxy is ending. Nothing was done; try again, with a new session."
	}
	if !c.gated {
		c.fail(wire.CodeInternal, text)
		return
	}
	c.interrupted(policy.UpstreamUnavailable, text)
}

// unknown answers a call that was sent and has no answer.
func (c *call) unknown(err error) {
	why, flag := "no readable answer came ("+err.Error()+")", ""
	switch lost, _ := errorAs(err); {
	case lost == nil:
	case lost.Err == errGivenUp:
		why, flag = "no answer came in "+brevity(c.s.p.cfg.CallTimeout), " (--call-timeout)"
	case lost.Err == errBrokenOff:
		why = "no answer came before the proxy had to end"
	}
	c.s.log.Warn("a call was sent and may have happened: its outcome is unknown",
		c.aboutTarget(nil, "reason", why+flag, "state", c.s.run.Where().State(), "rule", c.Verdict.Rule.String())...)
	c.interrupted(policy.OutcomeUnknown, fmt.Sprintf("%s was sent, and %s; it may have happened.", refusal.Called(c.Kind, c.Name), why))
}

// brevity is a duration without what is zero in it: 5m, not 5m0s.
func brevity(d time.Duration) string {
	text := d.Round(time.Millisecond).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// interrupted answers a call that failed between the proxy and the upstream.
func (c *call) interrupted(code policy.Code, text string) {
	if !c.opaquely() && !c.Snapshot.Shadow {
		text += " State is now '" + c.s.run.Where().State() + "'."
	}
	r := c.refusal(code, text)
	raw := c.refusalAnswer(r)
	if c.Kind != policy.Tool || c.wantsTask() {
		raw = wire.ErrorAnswer(c.id(), wire.CodeInternal, r.Message, r.Object())
	}
	c.answer(raw)
}

// opaquely reports whether refusals say nothing of what the policy allows.
func (c *call) opaquely() bool { return c.s.p.cfg.Refusals == refusal.Opaque }

// unknownMethod says that a method is not carried, and how it could be.
func (c *call) unknownMethod() string {
	text := "Method not found: " + wire.Clip(c.m.Method)
	if c.opaquely() {
		return text
	}
	return text + " (fsm-proxy carries it only if the policy's passthrough names it)"
}

// allowed returns what is listed and allowed in a place, in the
// upstream's order.
func (s *session) allowed(at run.Snapshot) *refusal.Allowed {
	a := &refusal.Allowed{Tools: s.shown.Names(at, policy.Tool), Resources: s.shown.Names(at, policy.Resource), Prompts: s.shown.Names(at, policy.Prompt)}
	for _, names := range []*[]string{&a.Tools, &a.Resources, &a.Prompts} {
		if *names = slices.Clip(*names); *names == nil {
			*names = []string{}
		}
	}
	return a
}

// refuseRunless answers a request that has no run. Whose run it is not, and whose run
// there is none, read the same.
func (c *call) refuseRunless(why *runs.Missing) wire.Pending {
	c.deny(why.Code)
	named := c.names()
	r := &refusal.Refusal{Error: why.Code.String(), Requested: wire.Clip(c.Name), Message: why.Text + c.s.p.Runs.WayOn(why, bridge.Stateless)}
	c.s.log.Info("refused", c.about("code", r.Error, "method", wire.Clip(c.m.Method), "reason", r.Message)...)
	if named {
		r.Kind = c.Kind.String()
	}
	if c.Kind == policy.Resource {
		r.URI = r.Requested
	}
	if c.m.Method == "tools/call" {
		return c.answer(wire.ResultAnswer(c.id(), c.toolRefusal(r)))
	}
	return c.answerFailure(wire.CodeInvalidParams, wire.ErrorAnswer(c.id(), wire.CodeInvalidParams, r.Message, r.Object()))
}

// names notes of what kind, and which, the request asks for, and reports whether it
// asks for anything that has a kind: a list has none.
func (c *call) names() bool {
	p := &c.m.P
	switch {
	case c.m.Method == "tools/call":
		c.Kind, c.Name = policy.Tool, p.Name
	case c.m.Method == "resources/read":
		c.Kind, c.Name = policy.Resource, p.URI
	case c.m.Method == "prompts/get":
		c.Kind, c.Name = policy.Prompt, p.Name
	case c.m.Method == "completion/complete" && p.Ref != nil && p.Ref.Type == "ref/resource":
		c.Kind, c.Name = policy.Resource, p.Ref.URI
	case c.m.Method == "completion/complete" && p.Ref != nil:
		c.Kind, c.Name = policy.Prompt, p.Ref.Name
	default:
		return false
	}
	return true
}
