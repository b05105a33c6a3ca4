package policy

import (
	"strings"
	"unicode"

	"go.yaml.in/yaml/v4"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
)

func readText[T any](field func(*T) *string) func(reader, entry, *T) {
	return func(r reader, e entry, into *T) {
		if t, ok := r.scalar(e, "a text"); ok {
			*field(into) = t.value
		}
	}
}

// readBool reads true or false, unquoted.
func readBool[T any](field func(*T) *bool) func(reader, entry, *T) {
	return func(r reader, e entry, into *T) {
		if b, ok := r.Boolean(e); ok {
			*field(into) = b
		}
	}
}

// readWord reads one of a closed set.
func readWord[T any, W ~uint8](words []string, field func(*T) *W) func(reader, entry, *T) {
	return func(r reader, e entry, into *T) {
		if i, ok := r.Choice(e, words); ok {
			*field(into) = W(i)
		}
	}
}

func readCompletion(r reader, e entry, into *source) {
	into.completionSaid = true
	readWord(completions, func(s *source) *Completion { return &s.onComplete })(r, e, into)
}

func readPin(r reader, e entry, into *source) {
	into.pinAt = e.Place()
	readWord(pins, func(s *source) *Pin { return &s.pin })(r, e, into)
}

func readVersion(r reader, e entry, into *source) {
	into.version = true
	r.Version(e)
}

func readInitial(r reader, e entry, into *source) {
	into.initial, into.hasInitial = text{}, true
	if t, ok := r.scalar(e, "the name of a state"); ok {
		into.initial = t
	}
}

func readUpstreamMay(r reader, e entry, into *source) {
	into.upstreamMay = UpstreamMay{}
	for _, t := range r.Items(e, "a list of "+strictyaml.Listed(upstreamAsks)) {
		switch t.Value {
		case "sampling":
			into.upstreamMay.Sampling = true
		case "elicitation":
			into.upstreamMay.Elicitation = true
		case "roots":
			into.upstreamMay.Roots = true
		default:
			r.NoWord(e, t, upstreamAsks)
		}
	}
}

// carried are the methods, notifications and capabilities of MCP, of both eras, of which
// the proxy knows what becomes of them, by what decides that.
var carried = map[string]string{
	"tools/call": byStates, "tools/list": byStates, "resources/read": byStates, "resources/list": byStates, "resources/templates/list": byStates,
	"resources/subscribe": byStates, "resources/unsubscribe": byStates, "prompts/get": byStates, "prompts/list": byStates,
	"completion/complete": byStates, "initialize": byStates, "server/discover": byStates, "subscriptions/listen": byStates,
	"tools": byStates, "resources": byStates, "prompts": byStates,
	"notifications/tools/list_changed": byStates, "notifications/resources/list_changed": byStates, "notifications/prompts/list_changed": byStates,
	"notifications/resources/updated": byStates,

	"sampling/createMessage": byUpstreamMay, "elicitation/create": byUpstreamMay, "roots/list": byUpstreamMay,
	"notifications/roots/list_changed": byUpstreamMay, "notifications/elicitation/complete": byUpstreamMay,
	"sampling": byUpstreamMay, "elicitation": byUpstreamMay, "roots": byUpstreamMay,

	"tasks/get": byProxy, "tasks/result": byProxy, "tasks/list": byProxy, "tasks/cancel": byProxy, "tasks/update": byProxy,
	"notifications/tasks": byProxy, "notifications/tasks/status": byProxy, "tasks": byProxy, "io.modelcontextprotocol/tasks": byProxy,
	"ping": byProxy, "logging/setLevel": byProxy, "logging": byProxy, "completions": byProxy,
	"notifications/initialized": byProxy, "notifications/cancelled": byProxy, "notifications/progress": byProxy, "notifications/message": byProxy,
	"notifications/subscriptions/acknowledged": byProxy,
}

// What decides on what the proxy carries.
const (
	byStates      = "the states"
	byUpstreamMay = "upstream_may"
	byProxy       = "the proxy"
)

// carriedBy is what decides on a method, notification or capability that the proxy carries, in
// whatever case it is written, since servers may read names so; "" for others.
func carriedBy(name string) string {
	for known, by := range carried {
		if strings.EqualFold(known, name) {
			return by
		}
	}
	return ""
}

func readPassthrough(r reader, e entry, into *source) {
	for _, t := range r.Items(e, "a list of methods") {
		if t.Value == "" || strings.ContainsFunc(t.Value, func(c rune) bool { return c == '*' || unicode.IsSpace(c) || unicode.IsControl(c) }) {
			r.Errorf(t.Place, "value", "%s: %s is no method; name each method whole", e.Name(), strictyaml.Quote(t.Value))
			continue
		}
		if by := carriedBy(t.Value); by != "" {
			past := "it"
			if by == byStates {
				past = "them"
			}
			r.Errorf(t.Place, "value", "%s: %s is decided by %s and cannot be let past %s; remove it", e.Name(), strictyaml.Quote(t.Value), by, past)
			continue
		}
		into.passthrough = append(into.passthrough, t.Value)
	}
}

func readRenamed(r reader, e entry, into *source) {
	if e.Value.Kind != yaml.MappingNode {
		r.WrongType(e, "a mapping of old names to new ones")
		return
	}
	for _, x := range r.Entries(e.Value) {
		if t, ok := r.scalar(x, "the new name of a state"); ok {
			into.renames = append(into.renames, renameSource{keyText(x), t})
		}
	}
}

func readEverywhere(r reader, e entry, into *source) {
	into.everywhere.at = e.Place()
	switch {
	case strictyaml.IsNothing(e.Value):
	case e.Value.Kind != yaml.MappingNode:
		r.WrongType(e, "a mapping of tools, resources, prompts")
	default:
		strictyaml.ReadFields(r, e.Value, "everywhere", placeFields(), &into.everywhere)
	}
}

func readInherits(r reader, e entry, into *stateSource) {
	if b, ok := r.Boolean(e); ok {
		into.without = !b
	}
}

func readStates(r reader, e entry, into *source) {
	into.hasStates = true
	if e.Value.Kind != yaml.MappingNode {
		r.WrongType(e, "a mapping of states by name")
		return
	}
	for _, x := range r.Entries(e.Value) {
		if r.checkStateName(x) {
			into.states = append(into.states, r.state(x))
		}
	}
}

func (r reader) checkStateName(e entry) bool {
	if !r.checkName(e.Key, "a state") {
		return false
	}
	if e.Name() == "stay" || e.Name() == "none" {
		r.Errorf(e.Place(), "state-name", "%s is no name for a state: it is a word of the language; call it something else", strictyaml.Quote(e.Name()))
		return false
	}
	return true
}

func (r reader) state(e entry) stateSource {
	s := stateSource{name: keyText(e)}
	s.at = e.Place()
	switch {
	case strictyaml.IsNothing(e.Value):
	case e.Value.Kind != yaml.MappingNode:
		r.WrongType(e, "a mapping, such as {tools: {…}}, or nothing")
	default:
		strictyaml.ReadFields(r, e.Value, "a state", stateFields(), &s)
	}
	return s
}

// checkName checks what every name must be: a text with no control character,
// and, unquoted, with no colon at its end.
func (r reader) checkName(n *yaml.Node, what string) bool {
	switch {
	case n.Value == "":
		r.Errorf(strictyaml.PlaceOf(n), "name", "%s with an empty name; give it one", what)
	case strings.ContainsFunc(n.Value, isControl):
		r.Errorf(strictyaml.PlaceOf(n), "name", "%s is no name for %s: it holds control characters", strictyaml.Quote(n.Value), what)
	case strings.HasSuffix(n.Value, ":") && strictyaml.IsPlain(n):
		r.Errorf(strictyaml.PlaceOf(n), "colon", "%s ends in a colon; put a space after the colon, or quote the name if it ends so", strictyaml.Quote(n.Value))
	default:
		return true
	}
	return false
}

func isControl(c rune) bool {
	return c < ' ' || c >= 0x7f && c < 0xa0 || c == '\u2028' || c == '\u2029'
}
