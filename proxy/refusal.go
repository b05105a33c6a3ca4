package proxy

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/link"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
	"github.com/fsm-proxy/fsm-proxy/proxy/surface"
)

// Refusal is the object that says why something was refused: in
// _meta["fsm-proxy/refusal"] of a result, in data of an error.
type Refusal struct {
	Error            string   `json:"error"`         // the code, of a closed set
	Requested        string   `json:"requested"`     // the name the client sent
	Kind             string   `json:"kind,omitzero"` // of that name; "": the request is of none, as a list is
	State            string   `json:"state,omitzero"`
	ValidNextActions []string `json:"valid_next_actions,omitzero"`
	ValidNext        *Allowed `json:"valid_next,omitzero"`
	DidYouMean       string   `json:"did_you_mean,omitzero"`
	Message          string   `json:"message"`
	URI              string   `json:"uri,omitzero"` // of a stateless read: what was requested
}

// Allowed are the names that are listed and allowed, by kind.
type Allowed struct {
	Tools     []string `json:"tools"`
	Resources []string `json:"resources"`
	Prompts   []string `json:"prompts"`
}

func (a *Allowed) of(k policy.Kind) []string {
	switch k {
	case policy.Resource:
		return a.Resources
	case policy.Prompt:
		return a.Prompts
	}
	return a.Tools
}

// maxNamed is how many allowed names a refusal's text has.
const maxNamed = 20

// refuse answers a call that the automaton does not allow. What the text needs
// and is not at hand is fetched in Wait.
func (c *call) refuse(code policy.Code) wire.Pending {
	switch {
	case code == policy.RunNotFound:
		return c.refuseRunless(&runs.Missing{Code: code, Text: c.s.p.handles.NeedsRun})
	case c.unfit() && !c.opaquely():
		return c.refuseText(code, c.called(wire.Clip(c.Name))+" is out of reach here: a call of it cannot say which run it belongs to, because "+
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
func (c *call) refusal(code policy.Code, reason string) *Refusal {
	c.deny(code)
	at := c.s.run.Where()
	requested := wire.Clip(c.Name)
	if c.opaquely() || c.Snapshot.Shadow {
		return c.opaque(code, requested, reason)
	}
	allowed := c.s.allowed(at)
	r := &Refusal{Error: code.String(), Requested: requested, Kind: c.Kind.String(), State: at.State(),
		ValidNextActions: allowed.of(c.Kind), ValidNext: allowed}
	if code == policy.InvalidTransition || code == policy.UnknownAction {
		r.DidYouMean = nearest(c.Name, r.ValidNextActions)
	}
	if reason == "" {
		reason = c.reason(code, requested, at)
	}
	r.Message = reason + c.wayOn(code, r)
	return r
}

// opaque is a refusal that tells nothing of what the policy binds.
func (c *call) opaque(code policy.Code, requested, reason string) *Refusal {
	r := &Refusal{Error: code.String(), Requested: requested, Kind: c.Kind.String(), Message: reason}
	switch code {
	case policy.InvalidTransition, policy.UnknownAction, policy.UnknownCase, policy.RunComplete, policy.DefinitionChanged:
		r.Error = policy.NotAvailable.String()
	}
	if r.Message == "" {
		r.Message = fmt.Sprintf("%s is not available.", c.called(requested))
	}
	return r
}

func (c *call) called(requested string) string {
	kind := c.Kind.String()
	return strings.ToUpper(kind[:1]) + kind[1:] + " '" + requested + "'"
}

// reason says why, as a sentence.
func (c *call) reason(code policy.Code, requested string, at run.Snapshot) string {
	what := c.called(requested)
	if c.Outlived {
		return what + " was not sent: the run began anew while it waited."
	}
	switch code {
	case policy.RunComplete:
		return fmt.Sprintf("%s is not allowed: the run is complete (state '%s').", what, at.State())
	case policy.UnknownCase:
		by := at.Policy.By(at.At, c.Kind, c.Name)
		return fmt.Sprintf("%s is not allowed in %s unless '%s' is one of these texts: %s.",
			what, at, by, strings.Join(at.Policy.Cases(at.At, c.Kind, c.Name), ", "))
	case policy.Busy:
		return fmt.Sprintf("%s was not sent: another call that moves the state is under way. Try again when it has ended.", what)
	case policy.TaskRunning:
		_, running := c.s.run.Holder()
		if running == nil {
			return fmt.Sprintf("%s was not sent: a task was still running. It has ended now: look again at what is allowed.", what)
		}
		return fmt.Sprintf("%s was not sent: the task '%s' of '%s' is still running, and its end decides what comes next. Ask tasks/get about it, or wait.", what, wire.Clip(running.ID), wire.Clip(running.Call.(*call).Name))
	case policy.DefinitionChanged:
		return fmt.Sprintf("%s is held back: %s. An operator must look at it and run 'fsm-proxy lock'.", what, c.changes.Sentence())
	case policy.UnknownAction:
		return fmt.Sprintf("%s is unknown here, in %s and everywhere else.", what, at)
	}
	return fmt.Sprintf("%s is not allowed in %s.", what, at)
}

// wayOn says what the model can do next.
func (c *call) wayOn(code policy.Code, r *Refusal) string {
	switch {
	case code == policy.RunComplete:
		return " " + c.s.run.Key.Renews()
	case code == policy.NotAvailable && !c.unfit() && !c.Outlived:
		return " The policy was changed and has this run's state no more. " + c.s.run.Key.Renews()
	}
	var b strings.Builder
	if r.DidYouMean != "" {
		b.WriteString(" Did you mean '" + r.DidYouMean + "'?")
	}
	b.WriteString(" Allowed now: " + c.allowedNow(r))
	return b.String()
}

// allowedNow names what is allowed of the kind that was asked for; where that is
// nothing the tools, since a model can always call those.
func (c *call) allowedNow(r *Refusal) string {
	switch {
	case len(r.ValidNextActions) > 0:
		return some(r.ValidNextActions) + ". Use " + surface.ListOf(c.Kind).Method() + " to see them."
	case len(r.ValidNext.Tools) > 0:
		return "no " + c.Kind.Plural() + ", but these tools: " + some(r.ValidNext.Tools) + ". Use tools/list to see them."
	}
	return "nothing."
}

// some names at most maxNamed names.
func some(names []string) string {
	switch {
	case len(names) == 0:
		return "nothing"
	case len(names) > maxNamed:
		return strings.Join(names[:maxNamed], ", ") + ", and " + strconv.Itoa(len(names)-maxNamed) + " more"
	}
	return strings.Join(names, ", ")
}

// refusalAnswer puts a refusal into the form that the request has.
func (c *call) refusalAnswer(r *Refusal) []byte {
	if c.client.Stateless() && c.Kind == policy.Resource {
		r.URI = r.Requested
	}
	object, err := json.Marshal(r, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		object = []byte(`{}`)
	}
	switch {
	case c.Kind == policy.Resource:
		return wire.ErrorAnswer(c.id(), c.code(wire.CodeResourceNotFound), r.Message, object)
	case c.Kind == policy.Prompt || c.wantsTask():
		return wire.ErrorAnswer(c.id(), wire.CodeInvalidParams, r.Message, object)
	}
	return wire.ResultAnswer(c.id(), c.toolRefusal(r, object))
}

// toolRefusal is a refused tools/call as the result that a model reads. The
// object stands in structuredContent only where the tool has no outputSchema: a
// widely used SDK validates it even in errors, and throws the refusal away. In
// an opaque refusal it never does: that would tell whether there is such a tool.
func (c *call) toolRefusal(r *Refusal, object []byte) []byte {
	out := []byte{'{'}
	if c.client.Stateless() {
		out = append(out, `"resultType":"complete",`...)
	}
	out = append(out, `"content":[{"type":"text","text":`...)
	out = wire.AppendString(out, r.Message)
	out = append(out, `}],`...)
	if c.s.p.cfg.Refusals != RefusalsPlain {
		out = append(out, `"isError":true,`...)
	}
	if !c.opaquely() && !c.s.shown.HasOutputSchema(c.Name) {
		out = append(append(append(out, `"structuredContent":`...), object...), ',')
	}
	out = append(append(out, `"_meta":{"fsm-proxy/refusal":`...), object...)
	return append(out, "}}"...)
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
	c.interrupted(policy.OutcomeUnknown, fmt.Sprintf("%s was sent, and %s; it may have happened.", c.called(wire.Clip(c.Name)), why))
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
		object, _ := json.Marshal(r, jsontext.AllowInvalidUTF8(true))
		raw = wire.ErrorAnswer(c.id(), wire.CodeInternal, r.Message, object)
	}
	c.answer(raw)
}

// nearest returns the name closest to one that was asked for, if it is close.
func nearest(name string, names []string) string {
	best, at := "", 3
	for _, n := range names {
		if len(n) > 256 || len(name) > 256 {
			continue
		}
		if d := distance(name, n); d < at && d < max(len(n), 2)/2+1 {
			best, at = n, d
		}
	}
	return best
}

// distance is the Levenshtein distance of two strings, in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := i
		row[0] = i + 1
		for j := range len(b) {
			cost := last
			if a[i] != b[j] {
				cost = 1 + min(last, row[j], row[j+1])
			}
			last, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}

// opaquely reports whether refusals say nothing of what the policy allows.
func (c *call) opaquely() bool { return c.s.p.cfg.Refusals == RefusalsOpaque }

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
func (s *session) allowed(at run.Snapshot) *Allowed {
	a := &Allowed{Tools: s.shown.Names(at, policy.Tool), Resources: s.shown.Names(at, policy.Resource), Prompts: s.shown.Names(at, policy.Prompt)}
	for _, names := range []*[]string{&a.Tools, &a.Resources, &a.Prompts} {
		if *names = slices.Clip(*names); *names == nil {
			*names = []string{}
		}
	}
	return a
}
