package syntax

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"go.yaml.in/yaml/v4"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
)

type (
	reader = strictyaml.Reader
	entry  = strictyaml.Entry
)

// language is the policy language, in messages.
var language = strictyaml.Language{
	Name:  "a policy",
	Begin: `"version: 1", "initial: STATE" and "states:"`,
	Typed: func(key string) bool { return key == "cases" },

	Expression: isExpression,

	Mistaken: func(has func(string) bool) string {
		switch {
		case has("states"), has("initial"):
			return ""
		case has("mcpServers"), has("servers"):
			return `a client's configuration, and no policy; give the file that stands in it behind "--policy"`
		case has("upstream") && has("tools"):
			return "a lock file, and no policy; give the policy beside it, whose lock is read with it"
		case has("policy"), has("upstream"), has("listen"):
			return "a configuration file, and no policy; give it with --config FILE"
		}
		return ""
	},
}

// isExpression reports whether a text is meant as an expression: by its key, else, as registers and outcomes have
// names of the author's, by what it reads or calls.
func isExpression(key, text string) bool {
	switch key {
	case "when", "add", "remove":
		return true
	case "because", "description", "instructions", "message", "name":
		return false
	}
	return !strings.HasPrefix(strings.TrimLeft(text, "[ "), "{") && expressionWords().MatchString(text)
}

var expressionWords = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\b(?:args|result|registers|who|run)\s*[.\[]|\b(?:has|size|words|path_under|host|json|texts|digest)\(`)
})

// Read reads a policy file as far as single keys go; file is its name in findings. The
// tree is nil if nothing can be made of the source; the reader has what was found, and
// takes what more is found about the file.
func Read(file string, src []byte) (*File, *strictyaml.Reader) {
	r := strictyaml.NewReader(file, language)
	root := r.Tree(src)
	if root == nil {
		return nil, r
	}
	f := &File{Settings: Settings{UpstreamMay: [len(Asks)]bool{true, true, true}}}
	strictyaml.ReadFields(r, root, language.Name, fileKeys(), f)
	f.Settable = settings(r.Entries(root))
	top := Place{Line: 1, Column: 1}
	if !f.HasVersion {
		r.Errorf(top, "version", "no version; begin the file with \"version: 1\"")
	}
	if !f.HasStates {
		r.Errorf(top, "states", "no states; write \"states:\" and below it the states by name")
	}
	if !f.HasInitial {
		r.Errorf(top, "initial", "no initial; write \"initial: STATE\", the state in which a run begins")
	}
	return f, r
}

// Readers of values that several keys have.

// readText reads a text.
func readText[T any](field func(*T) *string) func(*reader, entry, *T) {
	return func(r *reader, e entry, into *T) {
		if t, ok := r.Scalar(e, "a text"); ok {
			*field(into) = t.Value
		}
	}
}

// readBool reads true or false, unquoted.
func readBool[T any](field func(*T) *bool) func(*reader, entry, *T) {
	return func(r *reader, e entry, into *T) {
		if b, ok := r.Boolean(e); ok {
			*field(into) = b
		}
	}
}

// readChoice reads one of a closed set.
func readChoice[T any](words []string, field func(*T) *Choice) func(*reader, entry, *T) {
	return func(r *reader, e entry, into *T) {
		i, _ := r.Choice(e, words)
		*field(into) = Choice{Place: e.Place(), Index: i, Given: true}
	}
}

// name reads the scalar that an entry has for its value.
func name(r *reader, e entry, want string) (Text, bool) {
	t, ok := r.Scalar(e, want)
	return Text{Place: t.Place, Value: t.Value, Given: ok}, ok
}

// keyText is the text of a key.
func keyText(e entry) Text { return nodeText(e.Key) }

func nodeText(n *yaml.Node) Text {
	return Text{Place: strictyaml.PlaceOf(n), Value: n.Value, Given: true}
}

// The top level.

func readVersion(r *reader, e entry, into *File) {
	into.HasVersion = true
	r.Version(e)
}

func readInitial(r *reader, e entry, into *File) {
	into.HasInitial = true
	into.Initial, _ = name(r, e, "the name of a state")
}

func readUpstreamMay(r *reader, e entry, into *File) {
	into.UpstreamMay = [len(Asks)]bool{}
	for _, t := range readAsking(r, e).Words {
		into.UpstreamMay[slices.Index(Asks[:], t.Value)] = true
	}
}

// readAsking reads a list of what the upstream may ask.
func readAsking(r *reader, e entry) Asking {
	out := Asking{Given: true}
	for _, t := range r.Items(e, "a list of "+strictyaml.Listed(Asks[:])) {
		if slices.Contains(Asks[:], t.Value) {
			out.Words = append(out.Words, Text{Place: t.Place, Value: t.Value, Given: true})
		} else {
			r.NoWord(e, t, Asks[:])
		}
	}
	return out
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

// carriedBy returns what decides on a method, notification or capability that the proxy
// carries, in whatever case it is written, since servers may read names so; "" for others.
func carriedBy(name string) string {
	for known, by := range carried {
		if strings.EqualFold(known, name) {
			return by
		}
	}
	return ""
}

func readPassthrough(r *reader, e entry, into *File) {
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
		into.Passthrough = append(into.Passthrough, t.Value)
	}
}

func readRenamed(r *reader, e entry, into *File) {
	if !r.Mapping(e, "a mapping of old names to new ones") {
		return
	}
	for _, x := range r.Entries(e.Value) {
		if t, ok := name(r, x, "the new name of a state"); ok {
			into.Renamed = append(into.Renamed, Rename{keyText(x), t})
		}
	}
}

// States.

func readEverywhere(r *reader, e entry, into *File) {
	into.Everywhere.Place = e.Place()
	if !strictyaml.IsNothing(e.Value) && r.Mapping(e, "a mapping of tools, resources, prompts, signals") {
		strictyaml.ReadFields(r, e.Value, "everywhere", scopeKeys(), &into.Everywhere)
	}
}

func readStates(r *reader, e entry, into *File) {
	into.HasStates = true
	if !r.Mapping(e, "a mapping of states by name") {
		return
	}
	for _, x := range r.Entries(e.Value) {
		if checkStateName(r, x) {
			into.States = append(into.States, readState(r, x))
		}
	}
}

func checkStateName(r *reader, e entry) bool {
	if !checkName(r, e.Key, "a state") {
		return false
	}
	if e.Name() == "stay" || e.Name() == "none" {
		r.Errorf(e.Place(), "state-name", "%s is no name for a state: it is a word of the language; call it something else", strictyaml.Quote(e.Name()))
		return false
	}
	return true
}

func readState(r *reader, e entry) State {
	s := State{Scope: Scope{Place: e.Place()}, Name: keyText(e)}
	if !strictyaml.IsNothing(e.Value) && r.Mapping(e, "a mapping, such as {tools: {…}}, or nothing") {
		strictyaml.ReadFields(r, e.Value, "a state", stateKeys(), &s)
		checkPart(r, &s, r.Entries(e.Value))
	}
	return s
}

func readInherits(r *reader, e entry, into *State) {
	if b, ok := r.Boolean(e); ok {
		into.Without = !b
	}
}

// checkName checks what every name must be: a text with no control character,
// and, unquoted, with no colon at its end.
func checkName(r *reader, n *yaml.Node, what string) bool {
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

// Bindings.

// readBindings reads what one place binds of one kind: a mapping of names to values,
// or a list of names that all stay.
func readBindings(r *reader, kind int, e entry) []Entry {
	switch {
	case strictyaml.IsNothing(e.Value):
		return nil
	case e.Value.Kind == yaml.MappingNode:
		return readBindingMap(r, kind, e.Value)
	case e.Value.Kind == yaml.SequenceNode:
		return readBindingList(r, kind, e)
	}
	r.WrongType(e, "a mapping of names, or a list of names that stay")
	return nil
}

func readBindingMap(r *reader, kind int, n *yaml.Node) []Entry {
	var out []Entry
	for _, e := range r.Entries(n) {
		if !checkPattern(r, kind, e.Key) {
			continue
		}
		b := Entry{Name: keyText(e), Value: readBinding(r, e)}
		b.Name.Joined = strictyaml.IsPlain(e.Key) && strictyaml.IsNothing(e.Value)
		if kind == resource && b.Value.By.Given {
			r.Errorf(b.Value.By.Place, "by", "by: a resource has no arguments to split it; remove \"by\" and \"cases\"")
			continue
		}
		out = append(out, b)
	}
	return out
}

func readBindingList(r *reader, kind int, e entry) []Entry {
	var out []Entry
	seen := map[string]bool{}
	for _, c := range e.Value.Content {
		n := strictyaml.Resolve(c)
		switch {
		case n.Kind != yaml.ScalarNode || strictyaml.IsNothing(n) && n.Value == "":
			r.Errorf(strictyaml.PlaceOf(c), "type", "%s: a list holds only names, which all stay, not %s; for values write a mapping, without the dashes", e.Name(), strictyaml.NodeText(n))
		case !checkPattern(r, kind, n):
		case seen[n.Value]:
			r.Errorf(strictyaml.PlaceOf(c), "duplicate", "%s stands in %s a second time; keep one", strictyaml.Quote(n.Value), e.Name())
		default:
			seen[n.Value] = true
			b := Entry{Name: nodeText(n), Value: Value{Place: strictyaml.PlaceOf(n)}}
			b.Name.Joined = strictyaml.IsPlain(n)
			out = append(out, b)
		}
	}
	return out
}

// doubleStar is what is said of a glob with two stars in a row.
const doubleStar = "%s: \"**\" means no more than \"*\", which stands for any text; write one star"

// maxPath is how many names the path of by may have.
const maxPath = 32

// checkPattern checks a name or glob.
func checkPattern(r *reader, kind int, n *yaml.Node) bool {
	if !checkName(r, n, "a "+Kinds[kind]) {
		return false
	}
	switch {
	case strings.Contains(n.Value, "**"):
		r.Errorf(strictyaml.PlaceOf(n), "glob", doubleStar, strictyaml.Quote(n.Value))
	case kind == resource && strings.ContainsAny(n.Value, "{}"):
		r.Errorf(strictyaml.PlaceOf(n), "template", "%s is a URI template; a policy names concrete URIs, or globs over those that the upstream lists (\"*\")", strictyaml.Quote(n.Value))
	default:
		return true
	}
	return false
}

// readBinding reads the value of a binding.
func readBinding(r *reader, e entry) Value {
	v := Value{Place: strictyaml.PlaceOf(e.Value)}
	if isNone(e.Value) {
		v.None = true
		return v
	}
	if e.Value.Kind == yaml.SequenceNode {
		v.Alternatives = readAlternatives(r, e)
		return v
	}
	readValue(r, e, "a binding's value", bindingKeys(), &v)
	switch {
	case e.Value.Kind != yaml.MappingNode:
	case v.By.Given && !v.HasCases:
		r.Errorf(v.By.Place, "by", "by: %s without \"cases\"; list the texts that it may have", strictyaml.Quote(v.By.Value))
	case v.HasCases && !v.By.Given:
		r.Errorf(e.Place(), "by", "%s: \"cases\" without \"by\"; name the argument that selects the case", strictyaml.Quote(e.Name()))
	case v.HasCases && v.follows():
		r.Errorf(v.By.Place, "by", "%s: edges, outcomes or set beside \"by\"; give each case its own", strictyaml.Quote(e.Name()))
	}
	return v
}

func isNone(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && !strictyaml.IsNothing(n) && n.Value == "none"
}

// readCase reads the value of a case: a binding's, but for by.
func readCase(r *reader, e entry) Value {
	v := Value{Place: strictyaml.PlaceOf(e.Value)}
	if isNone(e.Value) {
		v.None = true
		return v
	}
	if e.Value.Kind == yaml.SequenceNode {
		v.Alternatives = readAlternatives(r, e)
		return v
	}
	readValue(r, e, "a case's value", caseKeys(), &v)
	return v
}

// readValue reads what the values of bindings and of cases have in common: nothing,
// stay, a state, or a mapping.
func readValue(r *reader, e entry, what string, keys []field[Value], v *Value) {
	n := e.Value
	switch {
	case strictyaml.IsNothing(n):
		v.Bare = true
		v.Null = Text{Place: strictyaml.PlaceOf(n), Value: n.Value, Given: n.Value != ""}
	case n.Kind == yaml.ScalarNode:
		v.Short = true
		v.Edges[0] = targetOf(nodeText(n))
	case n.Kind == yaml.MappingNode:
		strictyaml.ReadFields(r, n, what, keys, v)
		if len(n.Content) == 0 {
			r.Errorf(strictyaml.PlaceOf(n), "value", "%s: an empty mapping says nothing; write stay, a state, or %s", e.Name(), strictyaml.Listed(EdgeKeys[:]))
		}
	default:
		r.WrongType(e, "a state, stay, none, a mapping of "+strictyaml.Listed(EdgeKeys[:])+", or a list of such mappings")
	}
}

// readSignals reads the signals of one place. A signal has one outcome, so that its edge
// is every outcome's.
func readSignals(r *reader, e entry, into *Scope) {
	if strictyaml.IsNothing(e.Value) || !r.Mapping(e, "a mapping of signals by name, such as {give_up: STATE}") {
		return
	}
	for _, x := range r.Entries(e.Value) {
		if !isSignalName(x.Name()) {
			r.Errorf(x.Place(), "name", "%s is no name for a signal: write 1 to 64 of A-Z, a-z, 0-9, \"_\", \".\" and \"-\"", strictyaml.Quote(x.Name()))
			continue
		}
		into.Signals = append(into.Signals, Entry{keyText(x), readSignal(r, x)})
	}
}

func isSignalName(name string) bool {
	return len(name) > 0 && len(name) <= 64 && !strings.ContainsFunc(name, func(c rune) bool {
		return !(c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || strings.ContainsRune("_.-", c))
	})
}

func readSignal(r *reader, e entry) Value {
	v := Value{Place: strictyaml.PlaceOf(e.Value), Short: true}
	if isNone(e.Value) {
		v.None = true
		return v
	}
	if e.Value.Kind != yaml.MappingNode {
		t, ok := name(r, e, "a state, stay, none, or a mapping such as {to: STATE, description: TEXT}")
		if v.Edges[onAny].Given = true; ok {
			v.Edges[onAny] = targetOf(t)
		}
		return v
	}
	v.Edges[onAny].Given = true
	strictyaml.ReadFields(r, e.Value, "a signal", signalKeys(), &v)
	checkReturn(r, e.Value, &v.Edges[onAny])
	if len(e.Value.Content) == 0 {
		r.Errorf(v.Place, "value", "%s: an empty mapping says nothing; write stay, a state, or {to: STATE, description: TEXT}", e.Name())
	}
	return v
}

func readBy(r *reader, e entry, into *Value) {
	t, ok := name(r, e, "the name of an argument")
	switch names := strings.Split(t.Value, "."); {
	case ok && t.Value == "":
		r.Errorf(t.Place, "by", "by: an empty name; name the argument that selects the case")
	case ok && slices.Contains(names, ""):
		r.Errorf(t.Place, "by", "by: %s is no path: a name is missing at a dot; write the names with one dot between two of them", strictyaml.Quote(t.Value))
	case len(names) > maxPath:
		r.Errorf(t.Place, "by", "by: a path of %d names; at most %d", len(names), maxPath)
	}
	if !ok {
		t = Text{Place: e.Place(), Given: true}
	}
	into.By = t
}

func readCases(r *reader, e entry, into *Value) {
	into.HasCases = true
	if !r.Mapping(e, "a mapping of texts to values, such as {plan: stay}") {
		return
	}
	entries, allowed := r.TypedEntries(e.Value), false
	for _, x := range entries {
		t, v := keyText(x), readCase(r, x)
		if strings.Contains(t.Value, "**") {
			r.Errorf(t.Place, "glob", doubleStar, strictyaml.Quote(t.Value))
			continue
		}
		t.Resolved = strictyaml.IsResolved(x.Key)
		into.Cases = append(into.Cases, Entry{t, v})
		allowed = allowed || !v.None
	}
	switch {
	case len(entries) == 0:
		r.Errorf(strictyaml.PlaceOf(e.Value), "by", "cases: no case, so every call would be refused; write none, or list the texts")
	case !allowed && len(into.Cases) == len(entries):
		r.Errorf(strictyaml.PlaceOf(e.Value), "by", "cases: every case is none, so every call would be refused; write none for the name, or list what is allowed")
	}
}

// readTarget reads an edge's target: a state, stay, or {to, terminal}.
func readTarget(r *reader, e entry) (t Target) {
	n := e.Value
	defer func() { t.At = e.Place() }()
	if n.Kind != yaml.MappingNode {
		t, ok := name(r, e, "a state, stay, or {to: STATE, terminal: true}")
		if !ok {
			return Target{Given: true}
		}
		return targetOf(t)
	}
	t = Target{Given: true}
	strictyaml.ReadFields(r, n, "a target", targetKeys(), &t)
	if len(n.Content) == 0 {
		r.Errorf(strictyaml.PlaceOf(n), "value", "%s: an empty target; write stay, a state, or {to: STATE, terminal: true}", e.Name())
	}
	checkReturn(r, n, &t)
	return t
}

func readReturn(r *reader, e entry, into *Target) {
	b, ok := r.Boolean(e)
	if ok && !b {
		r.Errorf(strictyaml.PlaceOf(e.Value), "return", "return: write true, or leave it out")
	}
	into.Return = b
}

// checkReturn reports a target that returns and says besides where it leads.
func checkReturn(r *reader, n *yaml.Node, t *Target) {
	if t.Return && (t.To.Given || t.Terminal) {
		r.Errorf(strictyaml.PlaceOf(n), "return", "return: beside \"to\" or \"terminal\"; an edge that returns leads to where the state was entered from, and nowhere else")
	}
}

// targetOf is the target that one word names.
func targetOf(t Text) Target {
	if t.Value == "stay" {
		return Target{Given: true}
	}
	return Target{Given: true, To: t}
}

func readTo(r *reader, e entry, into *Target) {
	if t, ok := name(r, e, "a state or stay"); ok {
		into.To = targetOf(t).To
	}
}
