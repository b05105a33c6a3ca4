package explain

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/asker"
	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// Asked is what a command line says of a call, each "" where it says nothing.
type Asked struct {
	State     string // the initial one
	Kind      string // the first that binds the name
	From      string // the agent
	Registers string // as they begin
	Who       string // nobody
	Now       string // this moment
}

// Kinds are the words of kinds.
var Kinds = []string{policy.Tool.String(), policy.Resource.String(), policy.Prompt.String(), policy.Signal.String()}

// Senders are the words of senders.
var Senders = []string{policy.Agent.String(), policy.Operator.String()}

// Question reads what is asked of a policy. Its errors name flags.
func (a *Asked) Question(p *policy.Policy, name, arguments string) (*Question, error) {
	q := &Question{State: p.Initial().State, Name: name, Registers: []byte(a.Registers), Now: time.Now()}
	if arguments != "" {
		q.Args = []byte(arguments)
	}
	if err := a.enterState(p, q); err != nil {
		return nil, err
	}
	switch i := slices.Index(Senders, a.From); {
	case a.From != "" && i < 0:
		return nil, fmt.Errorf("--from %q is none of %s", a.From, strings.Join(Senders, ", "))
	case a.From != "":
		q.From = policy.Sender(i)
	}
	switch i := slices.Index(Kinds, a.Kind); {
	case a.Kind == "":
		q.Kind = kindOf(p, q)
	case i < 0:
		return nil, fmt.Errorf("--kind %q is none of %s", a.Kind, strings.Join(Kinds, ", "))
	default:
		q.Kind = policy.Kind(i)
	}
	switch {
	case a.From != "" && q.Kind != policy.Signal:
		return nil, fmt.Errorf("--from: only a signal has a sender, and %s is a %s", strictyaml.Quote(name), q.Kind)
	case q.Args != nil && (q.Kind == policy.Signal || q.Kind == policy.Resource):
		return nil, fmt.Errorf("a %s has no arguments; leave them out", q.Kind)
	case q.Args != nil && !isObject(q.Args):
		return nil, fmt.Errorf("the arguments are no JSON object: %s", strictyaml.Quote(arguments))
	case a.Registers != "" && !isObject(q.Registers):
		return nil, fmt.Errorf("--registers is no JSON object: %s", strictyaml.Quote(a.Registers))
	}
	if a.Now != "" {
		at, err := time.Parse(time.RFC3339, a.Now)
		if err != nil {
			return nil, fmt.Errorf("--now %q is no time; write it like 2025-01-31T12:00:00Z", a.Now)
		}
		q.Now = at
	}
	return q, a.enterWho(q)
}

func (a *Asked) enterState(p *policy.Policy, q *Question) error {
	if a.State == "" {
		return nil
	}
	s, ok := p.StateByName(a.State)
	if !ok {
		var known []string
		for _, info := range p.States() {
			known = append(known, info.Name)
		}
		return fmt.Errorf("--state %q is no state of the policy; the states are %s", a.State, strictyaml.Listed(known))
	}
	q.State = s
	return nil
}

func (a *Asked) enterWho(q *Question) error {
	if a.Who == "" {
		return nil
	}
	var w struct {
		Subject, Issuer string
		Scopes          []string
		Claims          json.RawMessage
	}
	d := json.NewDecoder(strings.NewReader(a.Who))
	d.DisallowUnknownFields()
	switch err := d.Decode(&w); {
	case err != nil || !isObject([]byte(a.Who)):
		return fmt.Errorf("--who %s is no JSON object with subject, issuer, scopes (a list) and claims (an object)", strictyaml.Quote(a.Who))
	case w.Claims != nil && !isObject(w.Claims):
		return fmt.Errorf("--who: claims is no JSON object: %s", strictyaml.Quote(string(w.Claims)))
	}
	q.Who = &asker.Who{Subject: w.Subject, Issuer: w.Issuer, Scopes: w.Scopes, Claims: w.Claims}
	return nil
}

// kindOf is the first kind of which some state binds the name, by itself rather than by a glob; a tool where none does,
// a signal where somebody sends it.
func kindOf(p *policy.Policy, q *Question) policy.Kind {
	if q.From != policy.Agent {
		return policy.Signal
	}
	for _, listed := range []bool{false, true} {
		for _, k := range policy.SymbolKinds {
			for s := range p.States() {
				if p.Binding(policy.Configuration{State: policy.State(s)}, k, q.Name, listed) != nil {
					return k
				}
			}
		}
	}
	return policy.Tool
}

// isObject reports whether a text is a JSON object.
func isObject(text []byte) bool {
	var members map[string]json.RawMessage
	return json.Unmarshal(text, &members) == nil && members != nil
}
