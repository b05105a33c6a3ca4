package register

import (
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/fsm-proxy/fsm-proxy/policy/guard"
)

// A Reason says why a change cannot be made.
type Reason uint8

const (
	Unfit  Reason = iota // another type, no finite number, too long: the call's guard has failed
	NoRoom               // the set, the counter or the run's budget is full: a limit is reached
)

// String returns the reason as a log shows it.
func (r Reason) String() string {
	switch r {
	case Unfit:
		return "unfit"
	case NoRoom:
		return "no room"
	}
	return fmt.Sprintf("Reason(%d)", uint8(r))
}

// An Error says why a change cannot be made. Its message quotes no value.
type Error struct {
	Reason   Reason
	Register string
	message  string
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("register %q: %s", e.Register, e.message) }

func (c *cell) unfit(format string, args ...any) *Error {
	return &Error{Unfit, c.Name, fmt.Sprintf(format, args...)}
}

func (c *cell) noRoom(format string, args ...any) *Error {
	return &Error{NoRoom, c.Name, fmt.Sprintf(format, args...)}
}

// pending is what calls under way keep in one register.
type pending struct {
	calls    int                // that do something to it
	promised map[string]promise // texts that they may add, and count on
	covered  int                // promised texts that are not in the set, and have a place of their own
	places   int                // that they keep beside that
	up, down int64              // how far they may move a counter

	assigned    bool // a counter
	top, bottom int64
}

// A promise is a text that calls under way may add to a set, and for which they keep no other room.
type promise struct {
	calls   int
	covered bool // it is not in the set, and its room is kept
}

// cover keeps the room of a text that is removed from a set, if a call under way adds it; otherwise it says no.
func (c *cell) cover(text string) bool {
	if c.pending == nil {
		return false
	}
	p, ok := c.pending.promised[text]
	if ok {
		c.pending.covered++
		p.covered = true
		c.pending.promised[text] = p
	}
	return ok
}

// uncover gives a text that is added to a set the room that is kept for it, if any; otherwise it says no.
func (c *cell) uncover(text string) bool {
	if c.pending == nil {
		return false
	}
	p := c.pending.promised[text]
	if !p.covered {
		return false
	}
	c.pending.covered--
	p.covered = false
	c.pending.promised[text] = p
	return true
}

// takes returns how many places of a set are taken or kept.
func (c *cell) takes() int {
	if c.pending == nil {
		return c.len()
	}
	return c.len() + c.pending.covered + c.pending.places
}

// A Reservation is the room that a call under way keeps for what it may do. A nil one is of a call that does nothing but
// what comes of its result.
type Reservation struct {
	life  *life
	edges [][]Change
	texts []mention
	cells []share
	bytes int // beside the texts that are kept by name
}

// A mention is a text that some edge of a call adds to a set.
type mention struct {
	*cell
	text  string
	edges int  // how many have it
	last  int  // of them
	named bool // it is kept by name
}

// A share is what a call keeps in one register.
type share struct {
	*cell
	places   int
	up, down int64
}

// A step is a change whose values are of the register's type.
type step struct {
	*cell
	Change
	delta int64 // of a counter
}

// read checks that a change's values are of the register's type, and small enough for it.
func (c *cell) read(x Change) (step, *Error) {
	s := step{cell: c, Change: x}
	switch adds := c.Kind == guard.TextSet || c.Kind == guard.Counter; {
	case x.Operation == Empty && len(x.Values) == 0:
		return s, nil
	case x.Operation == Assign && len(x.Values) == 1 && c.Kind != guard.TextSet,
		x.Operation == Add && adds, x.Operation == Remove && c.Kind == guard.TextSet:
	default:
		return s, c.unfit("a %s is not changed like this", c.Kind)
	}
	for _, v := range x.Values {
		switch v := v.(type) {
		case string:
			switch {
			case c.Kind != guard.Text && c.Kind != guard.TextSet:
				return s, c.unfit("a text is no %s", c.Kind)
			case len(v) > MaxText:
				return s, c.unfit("a text has at most %d bytes", MaxText)
			case !utf8.ValidString(v):
				return s, c.unfit("the text is no UTF-8")
			}
		case float64:
			if c.Kind != guard.Number || math.IsNaN(v) || math.IsInf(v, 0) {
				return s, c.unfit("a %s is needed, and finite", c.Kind)
			}
		case bool:
			if c.Kind != guard.Boolean {
				return s, c.unfit("a boolean is no %s", c.Kind)
			}
		case int64:
			if c.Kind != guard.Counter {
				return s, c.unfit("an int is no %s", c.Kind)
			}
			if v > MaxCounter || v < -MaxCounter {
				return s, c.noRoom("a counter goes to %d", int64(MaxCounter))
			}
			if s.delta += v; s.delta > MaxCounter || s.delta < -MaxCounter {
				return s, c.noRoom("a counter goes to %d", int64(MaxCounter))
			}
		default:
			return s, c.unfit("a %T is no %s", v, c.Kind)
		}
	}
	return s, nil
}

// Reserve keeps room for a call that will take one of these edges, and do what stands there; an edge may be empty.
// Of several edges it keeps the most that one of them needs. A text that is in the set, or that another call under
// way is sure to add, takes no room, and keeps the one that it has if it is removed meanwhile; what an edge removes
// makes room only once it is removed. The error is an *Error.
func (r *Registers) Reserve(edges [][]Change) (*Reservation, error) {
	if !slices.ContainsFunc(edges, func(e []Change) bool { return len(e) > 0 }) {
		return nil, nil
	}
	if r == nil {
		return nil, &Error{Unfit, "", "there are no registers"}
	}
	res := &Reservation{life: r.life, edges: edges}
	steps, err := r.steps(edges)
	if err != nil {
		return nil, err
	}
	if err := r.hold(res, steps); err != nil {
		res.drop()
		return nil, err
	}
	return res, nil
}

// steps reads what stands on edges.
func (r *Registers) steps(edges [][]Change) ([][]step, *Error) {
	out := make([][]step, 0, len(edges))
	for _, changes := range edges {
		if len(changes) == 0 {
			continue
		}
		steps := make([]step, len(changes))
		for i, x := range changes {
			at := r.schema.find(x.Register)
			if at < 0 {
				return nil, &Error{Unfit, x.Register, "there is no such register"}
			}
			s, err := r.life.cells[at].read(x)
			if err != nil {
				return nil, err
			}
			steps[i] = s
		}
		out = append(out, steps)
	}
	return out, nil
}

// hold keeps room for what stands on edges, none of them empty, and says whether there is as much. It is kept either
// way.
func (r *Registers) hold(res *Reservation, edges [][]step) *Error {
	before := r.Bytes()
	for i, steps := range edges {
		for _, s := range steps {
			res.mention(s, i)
		}
	}
	takes := make([]int, len(res.cells))
	for i, x := range res.cells {
		takes[i] = x.takes()
	}
	res.promise(len(edges))
	res.keep(edges)
	r.life.reserved += res.bytes
	for i, x := range res.cells {
		if x.Kind == guard.TextSet && x.takes() > takes[i] && x.takes() > x.Max {
			return x.noRoom("the set has room for %d texts", x.Max)
		}
		if x.Kind == guard.Counter && !x.inRange() {
			return x.noRoom("a counter goes to %d", int64(MaxCounter))
		}
	}
	if now := r.Bytes(); now > before && now > r.budget {
		return edges[0][0].noRoom("the run's registers have room for %d bytes (--max-registers)", r.budget)
	}
	return nil
}

// inRange reports whether a counter stays in its range, whatever calls under way do to it.
func (c *cell) inRange() bool {
	value, _ := c.value.(int64)
	top, bottom := value, value
	if c.pending.assigned {
		top, bottom = max(top, c.pending.top), min(bottom, c.pending.bottom)
	}
	return top+c.pending.up <= MaxCounter && bottom-c.pending.down >= -MaxCounter
}

// assigns notes a value that a counter may be set to.
func (p *pending) assigns(value int64) {
	if !p.assigned {
		p.assigned, p.top, p.bottom = true, value, value
	}
	p.top, p.bottom = max(p.top, value), min(p.bottom, value)
}

// mention notes what an edge does to a register.
func (res *Reservation) mention(s step, edge int) {
	if !slices.ContainsFunc(res.cells, func(x share) bool { return x.cell == s.cell }) {
		res.cells = append(res.cells, share{cell: s.cell})
		if s.pending == nil {
			s.pending = &pending{}
		}
		s.pending.calls++
	}
	if s.Kind == guard.Counter && s.Operation != Add {
		s.pending.assigns(s.delta) // of Empty 0
	}
	if s.Kind != guard.TextSet || s.Operation != Add {
		return
	}
	for _, v := range s.Values {
		text := v.(string)
		i := slices.IndexFunc(res.texts, func(m mention) bool { return m.cell == s.cell && m.text == text })
		switch {
		case i < 0:
			res.texts = append(res.texts, mention{cell: s.cell, text: text, edges: 1, last: edge})
		case res.texts[i].last != edge:
			res.texts[i].edges++
			res.texts[i].last = edge
		}
	}
}

// promise keeps texts by name: those that all edges add, and those that are in their sets, or are kept, already.
func (res *Reservation) promise(edges int) {
	for i := range res.texts {
		m := &res.texts[i]
		p := m.pending.promised[m.text]
		has := m.has(m.text)
		if m.named = has || p.covered || m.edges == edges; !m.named {
			continue
		}
		if !has && !p.covered {
			p.covered = true
			m.pending.covered++
			m.account(itemCost + len(m.text))
		}
		p.calls++
		if m.pending.promised == nil {
			m.pending.promised = map[string]promise{}
		}
		m.pending.promised[m.text] = p
	}
}

// keep keeps the most that an edge needs beside what is kept by name.
func (res *Reservation) keep(edges [][]step) {
	places := make([]int, len(res.cells))
	sums := make([]int64, len(res.cells))
	for _, steps := range edges {
		bytes := 0
		clear(places)
		clear(sums)
		for _, s := range steps {
			at := slices.IndexFunc(res.cells, func(x share) bool { return x.cell == s.cell })
			switch {
			case s.Kind == guard.Counter && s.Operation == Add:
				sums[at] += s.delta
				res.cells[at].up, res.cells[at].down = max(res.cells[at].up, sums[at]), max(res.cells[at].down, -sums[at])
			case s.Kind == guard.Text && s.Operation == Assign:
				bytes += max(0, costOf(s.Values[0])-s.bytes)
			case s.Kind == guard.TextSet && s.Operation == Add:
				for n, v := range s.Values {
					text := v.(string)
					if s.has(text) || s.pending.promised[text].covered || slices.Contains(s.Values[:n], v) {
						continue
					}
					places[at]++
					bytes += itemCost + len(text)
				}
			}
			res.cells[at].places = max(res.cells[at].places, places[at])
		}
		res.bytes = max(res.bytes, bytes)
	}
	for _, x := range res.cells {
		x.pending.places += x.places
		x.pending.up += x.up
		x.pending.down += x.down
	}
}

// drop gives back what is kept.
func (res *Reservation) drop() {
	if res.life == nil {
		return
	}
	res.life.reserved -= res.bytes
	for _, m := range res.texts {
		if !m.named {
			continue
		}
		p := m.pending.promised[m.text]
		if p.calls--; p.calls > 0 {
			m.pending.promised[m.text] = p
			continue
		}
		delete(m.pending.promised, m.text)
		if p.covered {
			m.pending.covered--
			m.account(-itemCost - len(m.text))
		}
	}
	for _, x := range res.cells {
		x.pending.places -= x.places
		x.pending.up -= x.up
		x.pending.down -= x.down
		if x.pending.calls--; x.pending.calls == 0 {
			x.pending = nil
			x.settleText()
		}
	}
	res.texts, res.cells, res.bytes, res.life = nil, nil, 0, nil
}

// GiveBack gives back what a call has reserved that comes to nothing. A reservation is given back once, and a second
// time is nothing.
func (res *Reservation) GiveBack() {
	if res != nil {
		res.drop()
	}
}

// Changes returns what an edge does, as far as that does not hang on the result. Nobody may alter it.
func (res *Reservation) Changes(edge int) []Change {
	if res == nil || edge >= len(res.edges) {
		return nil
	}
	return res.edges[edge]
}

// Settle ends a reservation by an edge that the call has taken, and returns what is to be done: what stands there,
// and what came of the result. It is to be applied before anything else is reserved. If there is an error, late does
// not fit, and the reservation is as it was, for another edge. A reservation of before the run began anew does nothing,
// and nothing is done to registers that a reload has taken.
func (r *Registers) Settle(res *Reservation, edge int, late []Change) ([]Change, error) {
	if r == nil || res != nil && res.life != r.life {
		res.GiveBack()
		return nil, nil
	}
	var changes []Change
	if res != nil && edge >= 0 && edge < len(res.edges) {
		changes = slices.Clip(res.edges[edge])
	}
	late = slices.DeleteFunc(slices.Clone(late), func(x Change) bool { return r.schema.find(x.Register) < 0 })
	if len(late) == 0 {
		res.GiveBack()
		return changes, nil
	}
	read, err := r.steps([][]Change{late})
	if err != nil {
		return nil, err
	}
	all := [][]step{append(r.readable(changes), read[0]...)}
	res.GiveBack()
	tried := &Reservation{life: r.life}
	err = r.hold(tried, all)
	tried.drop()
	if err == nil {
		return append(changes, late...), nil
	}
	if res != nil {
		r.restore(res)
	}
	return nil, err
}

// restore keeps again what a reservation has given back, for which there is room.
func (r *Registers) restore(res *Reservation) {
	var edges [][]step
	for _, changes := range res.edges {
		if steps := r.readable(changes); len(steps) > 0 {
			edges = append(edges, steps)
		}
	}
	res.life = r.life
	if len(edges) > 0 {
		_ = r.hold(res, edges) // there was room for it a moment ago
	}
}

// readable reads what fits the registers as they are declared now.
func (r *Registers) readable(changes []Change) (out []step) {
	for _, x := range changes {
		if at := r.schema.find(x.Register); at >= 0 {
			if s, err := r.life.cells[at].read(x); err == nil {
				out = append(out, s)
			}
		}
	}
	return out
}
