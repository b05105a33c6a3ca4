package policy

import (
	"slices"

	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
)

// Argument is what an offered item says of one argument, as far as that is sure.
// The zero value says nothing.
type Argument struct {
	// Undeclared is whether the item declares no such argument; Refused is whether it
	// also takes no call that has it. Others are the arguments that it declares.
	Undeclared, Refused bool
	Others              []string
	// Mixed is whether it can be a boolean or a number as well as a text.
	Mixed bool
	// Closed is whether Texts are all texts that the argument can be.
	Closed bool
	Texts  []string
}

// checkArguments compares the arguments that split bindings with those that the
// items have.
func (m *matcher) checkArguments(k Kind) {
	listed := map[string]int{}
	for _, o := range m.offers[k] {
		listed[o.Name]++
	}
	held := map[*binding][]Offer{}
	for _, o := range m.offers[k] {
		if o.Argument == nil || listed[o.Name] > 1 {
			continue
		}
		for _, b := range m.p.holding(k, o.Name) {
			held[b] = append(held[b], o)
		}
	}
	for _, b := range m.p.bindings(k) {
		if b.by != "" {
			m.checkArgument(b, held[b])
		}
	}
}

// split is what the items that a binding holds say of the argument by which it is split.
type split struct {
	refusing []string // items that take no call with the argument
	lacking  []string // items that do not declare it
	textless []string // items in which it cannot be a string
	choosing []string // items that list its strings
	mixed    []string // items in which it may be a string, and a boolean or a number
	others   []string // the arguments that refusing and lacking declare
	texts    []string // the strings that choosing list
	never    []int    // by case, how many of choosing do not list it
}

// splitBy sorts items by what they say of the argument of a split binding.
func splitBy(b *binding, items []Offer) split {
	s := split{never: make([]int, len(b.cases))}
	for _, o := range items {
		a := o.Argument(b.by)
		if a.Mixed {
			s.mixed = append(s.mixed, o.Name)
		}
		switch {
		case a.Refused:
			s.refusing, s.others = append(s.refusing, o.Name), append(s.others, a.Others...)
		case a.Undeclared:
			s.lacking, s.others = append(s.lacking, o.Name), append(s.others, a.Others...)
		case a.Closed && len(a.Texts) == 0:
			s.textless = append(s.textless, o.Name)
		case a.Closed:
			s.choosing, s.texts = append(s.choosing, o.Name), append(s.texts, a.Texts...)
			for i, c := range b.cases {
				if !slices.Contains(a.Texts, c.text) {
					s.never[i]++
				}
			}
		}
	}
	return s
}

// checkArgument says which of the items that a binding holds lack its argument, and
// which cases none of them can be. What a glob's other items take is no error.
func (m *matcher) checkArgument(b *binding, items []Offer) {
	s, level, by := splitBy(b, items), LevelWarning, strictyaml.Quote(b.by)
	useless := len(s.refusing) + len(s.textless)
	if useless == len(items) {
		level = LevelError
	}
	if len(s.refusing) > 0 {
		m.r.Add(level, b.byAt, "unknown-argument", "by: no argument %s is taken by %s, so no call can be both allowed and valid%s",
			by, upstreams(b.kind, s.refusing), m.suggest(b.by, s.others))
	}
	if len(s.lacking) > 0 {
		m.r.Add(LevelWarning, b.byAt, "unknown-argument", "by: no argument %s is declared by %s, and a call without it is refused%s",
			by, upstreams(b.kind, s.lacking), m.suggest(b.by, s.others))
	}
	if len(s.textless) > 0 {
		m.r.Add(level, b.byAt, "unknown-argument", "by: argument %s is no text in %s, so no call can be both allowed and valid; name an argument that is a string",
			by, upstreams(b.kind, s.textless))
	}
	if len(s.mixed) > 0 {
		m.r.Add(LevelWarning, b.byAt, "unknown-argument", "by: argument %s may be a boolean or a number in %s; no case is that, so such a call is refused",
			by, upstreams(b.kind, s.mixed))
	}
	for i, c := range b.cases {
		if s.never[i] > 0 && s.never[i]+useless == len(items) {
			m.r.Errorf(c.at, "unknown-case", "argument %s cannot be %s in %s%s", by, strictyaml.Quote(c.text), upstreams(b.kind, s.choosing), m.suggest(c.text, s.texts))
		}
	}
}

// upstreams names items that the upstream lists.
func upstreams(k Kind, names []string) string {
	if len(names) == 1 {
		return "the upstream's " + k.String() + " " + strictyaml.Quote(names[0])
	}
	return "the upstream's " + k.Plural() + " " + strictyaml.And(names)
}

// suggest returns a hint at what was perhaps meant, else at all there is.
func (m *matcher) suggest(text string, there []string) string {
	slices.Sort(there)
	there = slices.Compact(there)
	if hint := m.r.DidYouMean(text, there); hint != "" || len(there) == 0 {
		return hint
	}
	return "; there is " + strictyaml.And(there)
}
