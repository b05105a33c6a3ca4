// Package refusal is what a client is told whose call is refused, or has no answer: why, and
// what it can do now. It is pure.
package refusal

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"strings"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/handle"
	"github.com/fsm-proxy/fsm-proxy/internal/lock"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
	"github.com/fsm-proxy/fsm-proxy/proxy/surface"
)

// Refusal is the object that says why something was refused: in
// _meta["fsm-proxy/refusal"] of a result, in data of an error.
type Refusal struct {
	Error            string           `json:"error"`         // the code, of a closed set
	Requested        string           `json:"requested"`     // the name the client sent
	Kind             string           `json:"kind,omitzero"` // of that name; "": the request is of none, as a list is
	State            string           `json:"state,omitzero"`
	ValidNextActions []string         `json:"valid_next_actions,omitzero"`
	ValidNext        *surface.Allowed `json:"valid_next,omitzero"`
	DidYouMean       string           `json:"did_you_mean,omitzero"`
	Message          string           `json:"message"`
	URI              string           `json:"uri,omitzero"` // of a stateless read: what was requested
}

// Asked is what was asked for and refused, and what there is to say of that.
type Asked struct {
	Code    policy.Code
	Kind    policy.Kind
	Name    string           // as the client sent it
	Reason  string           // a sentence in place of the usual one; "": that
	At      run.Snapshot     // where the run stands
	Allowed *surface.Allowed // there; nil: nothing is told of what the policy binds
	Renews  string           // how the run is followed by another
	Because []string         // what the policy says of conditions that do not hold
	Free    time.Duration    // until a limit is free again; 0: not by itself

	Lost     bool          // it was to be sent, and has come to nothing since
	Outlived bool          // the run began anew while it waited
	Misfit   handle.Reason // why calls of the tool cannot say which run they belong to
	Changes  lock.Changes  // of the tool, since it was locked
	Task     string        // that has the run's turn; "": it has ended
	TaskOf   string        // the tool that began it
}

// Refusal returns what the client is told.
func (a *Asked) Refusal() *Refusal {
	r := &Refusal{Error: a.Code.String(), Requested: wire.Clip(a.Name), Kind: a.Kind.String(), Message: a.Reason}
	if a.Allowed == nil {
		a.opaque(r)
		return r
	}
	r.State, r.ValidNextActions, r.ValidNext = a.At.State(), a.Allowed.Of(a.Kind), a.Allowed
	if a.Code == policy.InvalidTransition || a.Code == policy.UnknownAction {
		r.DidYouMean = nearest(a.Name, r.ValidNextActions)
	}
	if a.Reason == "" {
		r.Message = a.reason()
	} else if a.Lost {
		r.Message += " State is now '" + r.State + "'."
	}
	r.Message += a.wayOn(r)
	return r
}

// opaque has a refusal tell nothing of what the policy binds.
func (a *Asked) opaque(r *Refusal) {
	switch a.Code {
	case policy.InvalidTransition, policy.UnknownAction, policy.UnknownCase, policy.RunComplete, policy.DefinitionChanged,
		policy.GuardFailed, policy.LimitReached, policy.ApprovalDenied:
		r.Error = policy.NotAvailable.String()
	}
	if r.Message == "" {
		r.Message = Called(a.Kind, a.Name) + " is not available."
	}
}

// CannotAsk is said of a call that its client's user has to approve.
const CannotAsk = " was not sent: the user has to approve it, and this client cannot ask them: it has not declared elicitation, as capability with forms."

// Called is what a name that a client sent is called at the beginning of a sentence.
func Called(k policy.Kind, name string) string {
	kind := k.String()
	return strings.ToUpper(kind[:1]) + kind[1:] + " '" + wire.Clip(name) + "'"
}

// TooManyAsk is what is said in place of the usual reason where too many approvals are wanted already.
const TooManyAsk = "This was not sent: too many calls wait for an approval. Try again when one of them is decided."

// What is said of a request that brings a requestState to which there is no call.
const (
	// AskedElsewhere follows the name of a call that may be under way, or was, and that nobody here knows of.
	AskedElsewhere = " does not go on: its requestState is from before fsm-proxy was restarted, or of another process. " +
		"It may have happened: look at what has become of it before you call it again, without requestState."
	NotAsked = "requestState is none that this request can bring: it was used already, has expired, or is another request's. " +
		"What that asked for may have happened: look at what has become of it before you send the request again, without requestState"
)

// AskedFor is what a request asks for, and of what kind that is; ok is false where it asks
// for nothing that has one, as a list does.
func AskedFor(m *wire.Message) (k policy.Kind, name string, ok bool) {
	p := &m.P
	switch {
	case m.Method == "tools/call":
		return policy.Tool, p.Name, true
	case m.Method == "resources/read":
		return policy.Resource, p.URI, true
	case m.Method == "prompts/get":
		return policy.Prompt, p.Name, true
	case m.Method == "completion/complete" && p.Ref != nil && p.Ref.Type == "ref/resource":
		return policy.Resource, p.Ref.URI, true
	case m.Method == "completion/complete" && p.Ref != nil:
		return policy.Prompt, p.Ref.Name, true
	}
	return 0, "", false
}

// reason says why, as a sentence.
func (a *Asked) reason() string {
	what := Called(a.Kind, a.Name)
	switch {
	case a.Misfit != handle.Fits:
		return what + " is out of reach here: a call of it cannot say which run it belongs to, because " +
			a.Misfit.Text() + ". An operator can choose another run key, principal or path."
	case a.Outlived:
		return what + " was not sent: the run began anew while it waited."
	}
	switch a.Code {
	case policy.RunComplete:
		return what + " is not allowed: the run is complete (state '" + a.At.State() + "')."
	case policy.UnknownCase:
		return what + " is not allowed in " + a.At.String() + " unless '" + a.At.Policy.By(a.At.At, a.Kind, a.Name) + "' is one of these" +
			named(a.At.Cases(a.Kind, a.Name)) + "."
	case policy.GuardFailed:
		return what + " is not allowed like this in " + a.At.String() + ": " + a.because("a condition of the policy does not hold.")
	case policy.LimitReached:
		said := what + " is not allowed any more in " + a.At.String() + ": " + a.because("a limit of the policy is used up.")
		if a.Free > 0 {
			said += " Try again in " + a.Free.Round(time.Second).String() + "."
		}
		return said
	case policy.ApprovalPending:
		return what + " was not sent yet: it waits for an approval that nobody has given yet. Call it again, with the same arguments, to wait on."
	case policy.ApprovalDenied:
		return what + " was not sent: " + a.because("it was not approved.")
	case policy.StoreUnavailable:
		if a.At.Lapsed {
			return what + " was not sent: another process has this run now, or may have it soon. Nothing was done; try again."
		}
		if a.At.Shut {
			return what + " was not sent: what is kept of this run is not what was written, and nothing is allowed in it. An operator has to look at it."
		}
		return what + " was not sent: what becomes of it cannot be kept now. Nothing was done; try again later."
	case policy.Busy:
		return what + " was not sent: another call that moves the state is under way. Try again when it has ended."
	case policy.TaskRunning:
		if a.Task == "" {
			return what + " was not sent: a task was still running. It has ended now: look again at what is allowed."
		}
		return what + " was not sent: the task '" + wire.Clip(a.Task) + "' of '" + wire.Clip(a.TaskOf) +
			"' is still running, and its end decides what comes next. Ask tasks/get about it, or wait."
	case policy.DefinitionChanged:
		return what + " is held back: " + a.Changes.Sentence() + ". An operator must look at it and run 'fsm-proxy lock'."
	case policy.UnknownAction:
		return what + " is unknown here, in " + a.At.String() + " and everywhere else."
	}
	return what + " is not allowed in " + a.At.String() + "."
}

// because is what the policy says, or something in its place.
func (a *Asked) because(otherwise string) string {
	if len(a.Because) == 0 {
		return otherwise
	}
	return strings.Join(a.Because, " Or: ")
}

// named names cases as the policy writes them, and says what signs in them mean.
func named(cases []policy.Case) string {
	texts, globs := true, false
	var allowed, refused []string
	for _, c := range cases {
		texts, globs = texts && c.Value.Kind() == policy.TextValue, globs || c.Glob
		if c.None {
			refused = append(refused, c.Name)
		} else {
			allowed = append(allowed, c.Name)
		}
	}
	said := ""
	if texts {
		said = " texts"
	}
	if globs {
		said += ", where * is any text"
	}
	said += ": " + strings.Join(allowed, ", ")
	if len(refused) > 0 {
		said += "; and none of these: " + strings.Join(refused, ", ")
	}
	return said
}

// wayOn says what the model can do next.
func (a *Asked) wayOn(r *Refusal) string {
	switch {
	case a.Code == policy.RunComplete:
		return " " + a.Renews
	case a.Code == policy.NotAvailable && a.Misfit == handle.Fits && !a.Outlived:
		return " The policy was changed and has this run's state no more. " + a.Renews
	}
	var meant string
	if r.DidYouMean != "" {
		meant = " Did you mean '" + r.DidYouMean + "'?"
	}
	return meant + " Allowed now: " + a.allowedNow(r)
}

// allowedNow names what is allowed of the kind that was asked for; where that is
// nothing the tools, since a model can always call those.
func (a *Asked) allowedNow(r *Refusal) string {
	switch {
	case len(r.ValidNextActions) > 0:
		return surface.Some(r.ValidNextActions) + ". Use " + surface.ListOf(a.Kind).Method() + " to see them."
	case len(a.Allowed.Tools) > 0:
		return "no " + a.Kind.Plural() + ", but these tools: " + surface.Some(a.Allowed.Tools) + ". Use tools/list to see them."
	}
	return "nothing."
}

// Request is whose answer a refusal is.
type Request struct {
	ID     []byte
	Client bridge.Client
	Form   Form
	Kind   policy.Kind // of what is asked for
	// Result tells that a model reads the answer as a tool's result; else it is an error.
	Result bool
	// Schema tells that the tool has an outputSchema: a widely used SDK validates
	// structuredContent even in errors, and throws the refusal away.
	Schema bool
	Lost   bool // as of [Asked]
}

// Answer puts a refusal into the form that the request has.
func (r *Refusal) Answer(q Request) []byte {
	if q.Client.Stateless() && q.Kind == policy.Resource {
		r.URI = r.Requested
	}
	object, err := json.Marshal(r, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		object = []byte(`{}`)
	}
	code := wire.CodeInvalidParams
	switch {
	case q.Result:
		return wire.ResultAnswer(q.ID, r.result(q, object))
	case q.Lost:
		code = wire.CodeInternal
	case q.Kind == policy.Resource:
		code = q.Client.Code(wire.CodeResourceNotFound, bridge.Server{}, true)
	}
	return wire.ErrorAnswer(q.ID, code, r.Message, object)
}

// result is a refused tools/call as the result that a model reads. In an opaque
// refusal the object is never in structuredContent: that would tell whether there is
// such a tool.
func (r *Refusal) result(q Request, object []byte) []byte {
	out := []byte{'{'}
	if q.Client.Stateless() {
		out = append(out, `"resultType":"complete",`...)
	}
	out = append(out, `"content":[{"type":"text","text":`...)
	out = wire.AppendString(out, r.Message)
	out = append(out, `}],`...)
	if q.Form != Plain {
		out = append(out, `"isError":true,`...)
	}
	if q.Form != Opaque && !q.Schema {
		out = append(append(append(out, `"structuredContent":`...), object...), ',')
	}
	out = append(append(out, `"_meta":{"fsm-proxy/refusal":`...), object...)
	return append(out, "}}"...)
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

// NameKey is what the member of a request's params is called that names what it asks for.
func NameKey(k policy.Kind) string {
	if k == policy.Resource {
		return "uri"
	}
	return "name"
}
