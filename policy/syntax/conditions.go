package syntax

import (
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
)

// readAlternatives reads a list of mappings: the first that applies decides.
func readAlternatives(r *reader, e entry) []Value {
	if len(e.Value.Content) == 0 {
		r.Errorf(strictyaml.PlaceOf(e.Value), "value", "%s: a list of no alternatives, so every call would be refused; write none, or an alternative", e.Name())
	}
	var out []Value
	for _, c := range e.Value.Content {
		n := strictyaml.Resolve(c)
		item := entry{Key: e.Key, Value: n}
		if n.Kind != yaml.MappingNode || len(n.Content) == 0 {
			r.WrongType(item, "alternatives that are mappings, such as {when: CONDITION, on_success: STATE}")
			continue
		}
		v := Value{Place: strictyaml.PlaceOf(c)}
		strictyaml.ReadFields(r, n, "an alternative", caseKeys(), &v)
		out = append(out, v)
	}
	return out
}

// readExpression reads a text that is not empty.
func readExpression[T any](field func(*T) *Text) func(*reader, entry, *T) {
	return func(r *reader, e entry, into *T) { *field(into) = expression(r, e) }
}

// expression reads one expression.
func expression(r *reader, e entry) Text {
	t, ok := name(r, e, "a text")
	if ok && strings.TrimSpace(t.Value) == "" {
		r.Errorf(t.Place, "value", "%s: an empty text says nothing; remove it, or write what it is to say", e.Name())
		t.Given = false
	}
	return t
}

// wordsOf are the names that outcomes may not have: they are those without a name.
var wordsOf = append(slices.Clone(Outcomes[:]), "any")

func isNamedEdge(key string) bool {
	name, ok := strings.CutPrefix(key, "on_")
	return ok && isSymbol(name)
}

// isSymbol reports whether a name is one for an outcome or a register: CEL reads it behind a dot.
func isSymbol(name string) bool {
	return len(name) > 0 && len(name) <= 64 && !(name[0] >= '0' && name[0] <= '9') && !strings.ContainsFunc(name, func(c rune) bool {
		return !(c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_')
	})
}

func readNamedEdge(r *reader, e entry, into *Value) {
	t := keyText(e)
	t.Value = strings.TrimPrefix(t.Value, "on_")
	into.Named = append(into.Named, NamedTarget{t, readTarget(r, e)})
}

func readOutcomes(r *reader, e entry, into *Value) {
	if !r.Mapping(e, "a mapping of outcomes by name, such as {empty: result.structuredContent.count == 0}") {
		return
	}
	for _, x := range r.Entries(e.Value) {
		switch {
		case slices.Contains(wordsOf, x.Name()):
			r.Errorf(x.Place(), "outcome", "%s is what an outcome is called that needs no condition; give yours another name", strictyaml.Quote(x.Name()))
		case !isSymbol(x.Name()):
			r.Errorf(x.Place(), "outcome", "%s is no name for an outcome: write letters, digits and \"_\", first no digit, 64 at most", strictyaml.Quote(x.Name()))
		default:
			into.Outcomes = append(into.Outcomes, Named{keyText(x), expression(r, x)})
		}
	}
	if len(e.Value.Content) == 0 {
		r.Errorf(strictyaml.PlaceOf(e.Value), "outcome", "outcomes: none is given; remove it, or name one")
	}
}

// Registers.

// maxSet is how many texts a set may hold at most, and does where the file gives no max.
const maxSet = 10_000

// registerKeys are the keys of a register that is a set.
func registerKeys() []field[Register] {
	return []field[Register]{
		key("set", "What the set holds: text.", strictyaml.Enum([]string{"text"}), func(r *reader, e entry, into *Register) {
			_, into.Type.Given = r.Choice(e, []string{"text"})
		}),
		key("max", "How many texts it may hold: 1 to 10000, which is also the default.",
			func() *schema { return &schema{Type: "integer", Minimum: 1, Maximum: maxSet} },
			func(r *reader, e entry, into *Register) { into.Max = readCount(r, e, 1, maxSet) }),
	}
}

// readCount reads a whole number between two others, and returns 0 where there is none.
func readCount(r *reader, e entry, least, most int) int {
	want := "a whole number from " + strconv.Itoa(least) + " to " + strconv.Itoa(most)
	n, err := strconv.Atoi(e.Value.Value)
	if e.Value.Kind != yaml.ScalarNode || e.Value.Tag != "!!int" || err != nil || n < least || n > most {
		r.WrongType(e, want)
		return 0
	}
	return n
}

func readRegisters(r *reader, e entry, into *File) {
	if !r.Mapping(e, "a mapping of registers by name, such as {plan: text, reads: {set: text}}") {
		return
	}
	for _, x := range r.Entries(e.Value) {
		if !isSymbol(x.Name()) {
			r.Errorf(x.Place(), "register", "%s is no name for a register: write letters, digits and \"_\", first no digit, 64 at most", strictyaml.Quote(x.Name()))
			continue
		}
		into.Registers = append(into.Registers, readRegister(r, x))
	}
}

func readRegister(r *reader, e entry) Register {
	out := Register{Name: keyText(e), Type: Choice{Place: strictyaml.PlaceOf(e.Value)}}
	if e.Value.Kind != yaml.MappingNode {
		simple := RegisterTypes[:RegisterSet]
		if e.Value.Kind == yaml.ScalarNode && e.Value.Value == "set" {
			r.Errorf(out.Type.Place, "register", "%s: write {set: text}, or {set: text, max: 100}", e.Name())
			return out
		}
		out.Type.Index, out.Type.Given = r.Choice(e, simple)
		return out
	}
	out.Type.Index, out.Max = RegisterSet, maxSet
	strictyaml.ReadFields(r, e.Value, "a register", registerKeys(), &out)
	if !out.Type.Given && r.OK() {
		r.Errorf(out.Type.Place, "register", "%s: write what it holds: {set: text}", e.Name())
	}
	return out
}

// Limits.

// How large limits may be: those of windows have to remember as many times.
const (
	maxCount  = 1_000_000
	maxWindow = 1_000
)

// spanKeys are the keys of a limit that says more than a number.
func spanKeys() []field[AtMost] {
	var fields []field[AtMost]
	for i, span := range Spans {
		fields = append(fields, spanKey(i, span, func(a *AtMost) *int { return &a.Own[i] }))
	}
	return append(fields, key("principal", "How often one principal may, in all of its runs: {minute, hour, day}.",
		func() *schema {
			s := strictyaml.ObjectOf(principalKeys())
			s.MinProperties = 1
			return s
		},
		func(r *reader, e entry, into *AtMost) {
			if r.Mapping(e, "a mapping, such as {hour: 100}") {
				strictyaml.ReadFields(r, e.Value, "principal", principalKeys(), into)
			}
		}))
}

func principalKeys() (fields []field[AtMost]) {
	for i := 2; i < len(Spans); i++ {
		fields = append(fields, spanKey(i, Spans[i], func(a *AtMost) *int { return &a.Principal[i] }))
	}
	return fields
}

var spanDocs = [len(Spans)]string{"In a run.", "In a visit of a state.", "In any 60 seconds.", "In any hour.", "In any 24 hours."}

func spanKey(i int, span string, of func(*AtMost) *int) field[AtMost] {
	most := maxCount
	if i >= 2 {
		most = maxWindow
	}
	return key(span, spanDocs[i], func() *schema { return countSchema(most) },
		func(r *reader, e entry, into *AtMost) { *of(into) = readCount(r, e, 1, most) })
}

// readAtMost reads limits. A number alone is of one span.
func readAtMost[T any](span int, of func(*T) *AtMost) func(*reader, entry, *T) {
	return func(r *reader, e entry, into *T) {
		a := of(into)
		a.Place = strictyaml.PlaceOf(e.Value)
		if e.Value.Kind != yaml.MappingNode {
			a.Own[span] = readCount(r, e, 1, maxCount)
			return
		}
		strictyaml.ReadFields(r, e.Value, "at_most", spanKeys(), a)
		if len(e.Value.Content) == 0 {
			r.Errorf(a.Place, "value", "at_most: an empty mapping limits nothing; remove it, or write a number")
		}
	}
}

// Clocks.

// maxAfter is how long a clock may run, in seconds: a year.
const maxAfter = 8760 * 60 * 60

func readAfter(r *reader, e entry, into *State) {
	into.After.Place = e.Place()
	if !r.Mapping(e, "a mapping of a duration to an edge, such as {30m: idle}") {
		return
	}
	all := r.Entries(e.Value)
	if len(all) != 1 {
		r.Errorf(strictyaml.PlaceOf(e.Value), "value", "after: a state has one clock; write one duration with its edge, such as {30m: idle}")
		return
	}
	into.After.Seconds = r.Duration(entry{Key: e.Key, Value: all[0].Key}, 1, maxAfter)
	into.After.Target = readTarget(r, all[0])
}

// changeKeys are the keys of a change to a register that is no new value.
func changeKeys() []field[Assignment] {
	change := func(o Operation) func(*reader, entry, *Assignment) {
		return func(r *reader, e entry, into *Assignment) { into.Operation, into.Values = o, readExpressions(r, e) }
	}
	return []field[Assignment]{
		key("add", "One text, or a list, that a set is to hold as well; or what a counter is raised by.", expressionsSchema, change(Add)),
		key("remove", "One text, or a list, that a set is to hold no more.", expressionsSchema, change(Remove)),
	}
}

// readExpressions reads one expression, or a list.
func readExpressions(r *reader, e entry) (out []Text) {
	if e.Value.Kind != yaml.SequenceNode {
		return []Text{expression(r, e)}
	}
	for _, c := range e.Value.Content {
		out = append(out, expression(r, entry{Key: e.Key, Value: strictyaml.Resolve(c)}))
	}
	if len(out) == 0 {
		r.Errorf(strictyaml.PlaceOf(e.Value), "value", "%s: an empty list changes nothing; remove it", e.Name())
	}
	return out
}

// readSet reads what becomes of registers.
func readSet(r *reader, e entry) (out []Assignment) {
	if !r.Mapping(e, "a mapping of registers, such as {plan: args.plan} or {reads: {add: args.path}}") {
		return nil
	}
	for _, x := range r.Entries(e.Value) {
		a := Assignment{Register: keyText(x)}
		switch {
		case isNone(x.Value):
			a.Operation = Empty
		case x.Value.Kind != yaml.MappingNode:
			a.Values = []Text{expression(r, x)}
		default:
			strictyaml.ReadFields(r, x.Value, "a change of a register", changeKeys(), &a)
			if len(strictyaml.Resolve(x.Value).Content) != 2 {
				r.Errorf(strictyaml.PlaceOf(x.Value), "value", "set: %s: write {add: …} or {remove: …}, and no more: one edge changes a register once", strictyaml.Quote(x.Name()))
			}
		}
		out = append(out, a)
	}
	if len(e.Value.Content) == 0 {
		r.Errorf(strictyaml.PlaceOf(e.Value), "value", "set: no register is given; remove it, or name one")
	}
	return out
}
