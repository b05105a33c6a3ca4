package policy

import "github.com/fsm-proxy/fsm-proxy/policy/guard"

// Way is an alternative, as a decision has looked at it.
type Way struct {
	*Alternative
	Looks  Look
	Fault  error  // why it cannot be said: see LookFault
	Guards []Look // of each guard; LookedPast behind the first that does not hold
}

// Look is what became of something that a decision may have looked at. The zero value is LookedPast.
type Look uint8

// What became of it.
const (
	LookedPast Look = iota // something before it has decided
	ForOthers              // it is not for who asks
	Holds
	HoldsNot
	LookFault // nobody can say, which permits neither it nor what is behind it
)

// Ways says of each alternative of a case what became of it, when [Policy.Decide] decided a request that had selected
// the case: at most one holds, the first that is for who asks, and then the call may go by it.
func (c *Case) Ways(q *Request) []Way {
	ways, decided := make([]Way, len(c.Alternatives)), false
	for i := range c.Alternatives {
		w := &ways[i]
		w.Alternative, w.Guards = &c.Alternatives[i], make([]Look, len(c.Alternatives[i].Guards))
		switch {
		case decided:
			continue
		case !fits(q.who(), w.For...):
			w.Looks = ForOthers
			continue
		}
		w.Looks = Holds
		for j, g := range w.Alternative.Guards {
			if w.Guards[j], w.Fault = look(g, q.Facts); w.Guards[j] != Holds {
				w.Looks = w.Guards[j]
				break
			}
		}
		decided = w.Looks != HoldsNot
	}
	return ways
}

// look evaluates a guard.
func look(g Guard, facts *guard.Call) (Look, error) {
	if facts == nil {
		return LookFault, errNoFacts
	}
	switch holds, err := g.Holds(facts); {
	case err != nil:
		return LookFault, err
	case holds:
		return Holds, nil
	}
	return HoldsNot, nil
}

// LeadsAt returns where the file says where an outcome leads; the zero Place where it does not, and so the state stays.
func (a *Alternative) LeadsAt(o Outcome) Place { return a.edges[o.Index()].place }

// LeavesBy returns where the exits stand by which an outcome leads out of parts, the innermost first.
func (a *Alternative) LeavesBy(o Outcome) []Place { return a.edges[o.Index()].exits }
