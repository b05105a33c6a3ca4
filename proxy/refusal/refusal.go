// Package refusal is what a client is told whose call is refused, or has no answer: why, and
// what it can do now. It is pure.
package refusal

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"strconv"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/lock"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/internal/words"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
	"github.com/fsm-proxy/fsm-proxy/proxy/tasks"
)

// Form is the form in which a call is refused. The zero value is an error
// result with all that helps to go on.
type Form uint8

// The forms.
const (
	Error  Form = iota
	Plain       // without isError, for frameworks that abort on it
	Opaque      // says only that it is not available
)

var forms = []string{"error", "plain", "opaque"}

// String is the word of the command line.
func (f Form) String() string { return forms[f] }

// UnmarshalText reads the word of the command line.
func (f *Form) UnmarshalText(text []byte) error { return words.Read(f, text, forms) }

// MarshalText returns the word of the command line.
func (f Form) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

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

// Of are those of a kind.
func (a *Allowed) Of(k policy.Kind) []string {
	switch k {
	case policy.Resource:
		return a.Resources
	case policy.Prompt:
		return a.Prompts
	}
	return a.Tools
}

// Call is what is known of a call that is refused.
type Call struct {
	Kind     policy.Kind
	Name     string
	Code     policy.Code
	At       run.Snapshot // where its run stands now
	Outlived bool         // the run began anew while it waited
	Unfit    bool         // its tool cannot say which run it belongs to
	Changes  lock.Changes // of its tool's definition since that was locked
	Running  *tasks.Task  // the task that has the turn; nil: none
	Tool     string       // that began it
	Renews   string       // how a run that is over is followed by another
}

// Refusal says why, what was found, and what is allowed now; reason is in place of the usual one,
// "" for that.
func (c *Call) Refusal(reason string, allowed *Allowed) *Refusal {
	r := &Refusal{Error: c.Code.String(), Requested: wire.Clip(c.Name), Kind: c.Kind.String(), State: c.At.State(),
		ValidNextActions: allowed.Of(c.Kind), ValidNext: allowed}
	if c.Code == policy.InvalidTransition || c.Code == policy.UnknownAction {
		r.DidYouMean = nearest(c.Name, r.ValidNextActions)
	}
	if reason == "" {
		reason = c.reason()
	}
	r.Message = reason + c.wayOn(r)
	return r
}

// Opaque is a refusal that tells nothing of what the policy binds.
func (c *Call) Opaque(reason string) *Refusal {
	requested := wire.Clip(c.Name)
	r := &Refusal{Error: c.Code.String(), Requested: requested, Kind: c.Kind.String(), Message: reason}
	switch c.Code {
	case policy.InvalidTransition, policy.UnknownAction, policy.UnknownCase, policy.RunComplete, policy.DefinitionChanged:
		r.Error = policy.NotAvailable.String()
	}
	if r.Message == "" {
		r.Message = fmt.Sprintf("%s is not available.", Called(c.Kind, c.Name))
	}
	return r
}

// Called names what was asked for, for people.
func Called(kind policy.Kind, name string) string {
	k := kind.String()
	return strings.ToUpper(k[:1]) + k[1:] + " '" + wire.Clip(name) + "'"
}

// reason says why, as a sentence.
func (c *Call) reason() string {
	what, at := Called(c.Kind, c.Name), c.At
	if c.Outlived {
		return what + " was not sent: the run began anew while it waited."
	}
	switch c.Code {
	case policy.RunComplete:
		return fmt.Sprintf("%s is not allowed: the run is complete (state '%s').", what, at.State())
	case policy.UnknownCase:
		by := at.Policy.By(at.At, c.Kind, c.Name)
		return fmt.Sprintf("%s is not allowed in %s unless '%s' is one of these texts: %s.",
			what, at, by, strings.Join(at.Policy.Cases(at.At, c.Kind, c.Name), ", "))
	case policy.Busy:
		return fmt.Sprintf("%s was not sent: another call that moves the state is under way. Try again when it has ended.", what)
	case policy.TaskRunning:
		if c.Running == nil {
			return fmt.Sprintf("%s was not sent: a task was still running. It has ended now: look again at what is allowed.", what)
		}
		return fmt.Sprintf("%s was not sent: the task '%s' of '%s' is still running, and its end decides what comes next. Ask tasks/get about it, or wait.", what, wire.Clip(c.Running.ID), wire.Clip(c.Tool))
	case policy.DefinitionChanged:
		return fmt.Sprintf("%s is held back: %s. An operator must look at it and run 'fsm-proxy lock'.", what, c.Changes.Sentence())
	case policy.UnknownAction:
		return fmt.Sprintf("%s is unknown here, in %s and everywhere else.", what, at)
	}
	return fmt.Sprintf("%s is not allowed in %s.", what, at)
}

// wayOn says what the model can do next.
func (c *Call) wayOn(r *Refusal) string {
	switch {
	case c.Code == policy.RunComplete:
		return " " + c.Renews
	case c.Code == policy.NotAvailable && !c.Unfit && !c.Outlived:
		return " The policy was changed and has this run's state no more. " + c.Renews
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
func (c *Call) allowedNow(r *Refusal) string {
	switch {
	case len(r.ValidNextActions) > 0:
		return Some(r.ValidNextActions) + ". Use " + method(c.Kind) + " to see them."
	case len(r.ValidNext.Tools) > 0:
		return "no " + c.Kind.Plural() + ", but these tools: " + Some(r.ValidNext.Tools) + ". Use tools/list to see them."
	}
	return "nothing."
}

func method(k policy.Kind) string {
	switch k {
	case policy.Resource:
		return wire.Resources.Method()
	case policy.Prompt:
		return wire.Prompts.Method()
	}
	return wire.Tools.Method()
}

// maxNamed is how many allowed names a refusal's text has.
const maxNamed = 20

// Some names at most maxNamed names.
func Some(names []string) string {
	switch {
	case len(names) == 0:
		return "nothing"
	case len(names) > maxNamed:
		return strings.Join(names[:maxNamed], ", ") + ", and " + strconv.Itoa(len(names)-maxNamed) + " more"
	}
	return strings.Join(names, ", ")
}

// Object is the refusal as it stands in a message.
func (r *Refusal) Object() []byte {
	object, err := json.Marshal(r, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return []byte(`{}`)
	}
	return object
}

// Result is a refused tools/call as the result that a model reads. members are what else a
// result for the call's client has. The object stands in structuredContent only where
// structured: a widely used SDK validates it by the tool's outputSchema even in errors, and throws
// the refusal away.
func (r *Refusal) Result(f Form, members string, structured bool) []byte {
	object := r.Object()
	out := append([]byte{'{'}, members...)
	out = append(out, `"content":[{"type":"text","text":`...)
	out = wire.AppendString(out, r.Message)
	out = append(out, `}],`...)
	if f != Plain {
		out = append(out, `"isError":true,`...)
	}
	if structured {
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
