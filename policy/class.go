package policy

import (
	"slices"
	"strings"
)

// enterClasses gives states that bind the same names of a kind the same class.
// States that bind nothing have class 0.
func (p *Policy) enterClasses(k Kind) {
	classes := map[string]int32{"": 0}
	for s := range p.states {
		key := p.shown(&p.states[s], k)
		class, known := classes[key]
		if !known {
			class = int32(len(classes))
			classes[key] = class
		}
		p.states[s].class[k] = class
	}
}

// shown is a text that is equal for states that bind the same patterns: what a
// state gives itself and everywhere does not, and whether it takes everywhere's.
func (p *Policy) shown(st *stateEntry, k Kind) string {
	all := &p.everywhere[k]
	var parts []string
	if st.inherits && binds(all) {
		parts = append(parts, "everywhere")
	}
	for _, b := range st.own[k].order {
		var same *binding
		if st.inherits {
			same = all.find(b.rule.Pattern)
		}
		switch {
		case same != nil && same.none == b.none:
		case b.none && !coversAny(b, &st.own[k], all, st.inherits):
		case b.none:
			parts = append(parts, "-"+b.rule.Pattern)
		default:
			parts = append(parts, "+"+b.rule.Pattern)
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, "\x00")
}

// binds reports whether a layer binds anything.
func binds(l *layer) bool {
	return slices.ContainsFunc(l.order, func(b *binding) bool { return !b.none })
}

// coversAny reports whether a none takes something away that another pattern
// would bind.
func coversAny(none *binding, own, all *layer, inherits bool) bool {
	return none.coversIn(own) || inherits && none.coversIn(all)
}

func (b *binding) coversIn(l *layer) bool {
	meets := func(other *binding) bool {
		return !other.none && intersects(other.rule.Pattern, b.rule.Pattern)
	}
	if b.glob {
		return slices.ContainsFunc(l.order, meets)
	}
	same := l.exact[b.rule.Pattern]
	return same != nil && !same.none || slices.ContainsFunc(l.globs, meets)
}
