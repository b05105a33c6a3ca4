package guard

import "strconv"

// ReadsArgument reports whether an expression reads what stands at a place in the arguments, or something in it or
// around it. The place is named by the tokens of a JSON pointer. Whether it is there may be asked.
func (p *Program) ReadsArgument(tokens []string) bool {
	at := p.documents[fromArgs]
	for _, token := range tokens {
		if at == nil || len(at.values) > 0 {
			break
		}
		at = at.child(token)
	}
	return at.reads()
}

// child is the place in this one that a token of a JSON pointer names, nil for one where nothing is read. What may be a
// member or an element is both.
func (n *node) child(token string) *node {
	both := &node{}
	for _, m := range n.members {
		if m.name == token {
			both = m.at
		}
	}
	for _, e := range n.elements {
		if strconv.FormatInt(e.index, 10) == token {
			both = &node{values: append(both.values[:len(both.values):len(both.values)], e.at.values...), members: append(both.members[:len(both.members):len(both.members)], e.at.members...),
				elements: append(both.elements[:len(both.elements):len(both.elements)], e.at.elements...)}
		}
	}
	return both
}

// reads reports whether a value is read here, or in what is here.
func (n *node) reads() bool {
	if n == nil {
		return false
	}
	if len(n.values) > 0 {
		return true
	}
	for _, m := range n.members {
		if m.at.reads() {
			return true
		}
	}
	for _, e := range n.elements {
		if e.at.reads() {
			return true
		}
	}
	return false
}
