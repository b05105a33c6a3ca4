// Package register holds the values that a run remembers beside its state, and the room that calls under way keep in
// them: what fits when a call is decided fits when it ends. It is pure: it holds no lock, does no I/O and reads no clock.
package register

import (
	"slices"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/policy/guard"
)

// What registers may hold.
const (
	MaxText    = 4 << 10   // bytes of one text
	MaxTexts   = 10_000    // texts of one set
	MaxCounter = 1<<53 - 1 // how far counters may go from 0, so that all who read JSON read them alike
)

// What values cost of a run's budget. Numbers, booleans and counters cost nothing: there are as many as are declared.
const (
	textCost = 48 // of a text register, beside its bytes
	itemCost = 96 // of a text in a set, beside its bytes: its places in the order and in the index
)

// Declaration is what a policy says of a register.
type Declaration struct {
	Name string
	Kind guard.Kind
	Max  int // how many texts a set may hold; 0 is MaxTexts
}

// Schema is the registers of a policy. It is immutable, and of all the policy's runs. A nil Schema has none.
type Schema struct {
	declared []Declaration
	index    map[string]int
}

// NewSchema returns the schema of these registers, whose names differ; nil without any.
func NewSchema(declared []Declaration) *Schema {
	if len(declared) == 0 {
		return nil
	}
	s := &Schema{declared: slices.Clone(declared), index: make(map[string]int, len(declared))}
	for i, d := range declared {
		s.index[d.Name] = i
		if d.Max == 0 {
			s.declared[i].Max = MaxTexts
		}
	}
	return s
}

// Fits reports whether a change is one of the kind of its register.
func (s *Schema) Fits(x Change) bool {
	if s == nil {
		return false
	}
	i := s.find(x.Register)
	if i < 0 {
		return false
	}
	_, err := (&cell{Declaration: s.declared[i]}).read(x)
	return err == nil
}

// find returns where a register stands, -1 if there is none.
func (s *Schema) find(name string) int {
	if i, ok := s.index[name]; ok {
		return i
	}
	return -1
}

// Registers is the values of a run's registers. A nil Registers has none, and costs nothing. It is not safe for
// concurrent use, and nor are its views beside it: one lock is for all.
type Registers struct {
	schema *Schema
	budget int
	life   *life
	view   *View // of the values as they are; nil: not made yet
}

// A life is from where a run begins to where it begins anew.
type life struct {
	cells    []*cell // by the schema's index
	bytes    int     // what the cells cost
	reserved int     // what calls under way keep beside that
}

// A cell is one register.
type cell struct {
	Declaration
	life    *life    // nil: a reload has taken the register
	value   any      // as guards see it; nil is unset, 0 or the empty set
	set     *texts   // of a set; nil is the empty one
	bytes   int      // what it costs: its value, and what is promised by name
	pending *pending // what calls under way keep in it; nil is nothing
}

// New returns the registers of a run that begins, which may cost budget bytes; nil where none are declared.
func New(s *Schema, budget int) *Registers {
	if s == nil {
		return nil
	}
	r := &Registers{schema: s, budget: budget}
	r.Begin()
	return r
}

// Begin empties all registers. What calls of before have reserved is gone, and changes nothing any more.
func (r *Registers) Begin() {
	if r == nil {
		return
	}
	l := &life{cells: make([]*cell, len(r.schema.declared))}
	for i, d := range r.schema.declared {
		l.cells[i] = &cell{Declaration: d, life: l}
	}
	r.life, r.view = l, nil
}

// Adopt returns the registers under the schema of another policy: one that it lacks goes, one of another type is
// emptied, a new one begins. A smaller max takes nothing away. Calls under way keep what they have reserved; what
// they would do to a register that is gone or emptied is not done.
func (r *Registers) Adopt(s *Schema, budget int) *Registers {
	if r == nil || s == nil {
		return New(s, budget)
	}
	old := r.life.cells
	cells := make([]*cell, len(s.declared))
	for i, d := range s.declared {
		if at := r.schema.find(d.Name); at >= 0 && old[at].Kind == d.Kind {
			cells[i], old[at] = old[at], nil
			cells[i].Declaration = d
			continue
		}
		cells[i] = &cell{Declaration: d, life: r.life}
	}
	for _, c := range old {
		if c != nil {
			c.account(-c.bytes)
			c.life = nil
		}
	}
	r.life.cells = cells
	r.schema, r.budget, r.view = s, budget, nil
	return r
}

// Clone returns registers with the same values, and none that calls under way have reserved.
func (r *Registers) Clone(budget int) *Registers {
	if r == nil {
		return nil
	}
	next := New(r.schema, budget)
	for i, c := range r.life.cells {
		switch value := c.value.(type) {
		case nil:
		case seen:
			x := Change{Operation: Add, Values: make([]any, value.n)}
			for n, text := range value.Values() {
				x.Values[n] = text
			}
			next.life.cells[i].apply(x)
		default:
			next.life.cells[i].apply(Change{Operation: Assign, Values: []any{value}})
		}
	}
	return next
}

// Bytes returns what the registers cost of the budget, with what calls under way have reserved.
func (r *Registers) Bytes() int {
	if r == nil {
		return 0
	}
	return r.life.bytes + r.life.reserved
}

// account adds to what a register costs.
func (c *cell) account(bytes int) {
	c.bytes += bytes
	if c.life != nil {
		c.life.bytes += bytes
	}
}

// View returns the values as they are now. What is changed later does not change it, and it copies no set.
func (r *Registers) View() *View {
	if r == nil {
		return nil
	}
	if r.view == nil {
		v := &View{schema: r.schema, values: make([]any, len(r.life.cells))}
		for i, c := range r.life.cells {
			v.values[i] = c.value
		}
		r.view = v
	}
	return r.view
}

// View is the values of registers at one time. A nil View has none.
type View struct {
	schema *Schema
	values []any
}

// Register implements [guard.Registers].
func (v *View) Register(name string) any {
	if v == nil {
		return nil
	}
	if i := v.schema.find(name); i >= 0 {
		return v.values[i]
	}
	return nil
}

// texts is a set that grows and never shrinks, so that what it was is told by how long it was.
type texts struct {
	order []string
	at    map[string]int32
}

// seen is a set as it was when it had n texts. It implements [guard.Set].
type seen struct {
	*texts
	n int
}

// Contains reports whether the set has a text.
func (s seen) Contains(text string) bool {
	i, ok := s.at[text]
	return ok && int(i) < s.n
}

// Len returns how many texts the set has.
func (s seen) Len() int { return s.n }

// Values returns the texts in the order in which they were added.
func (s seen) Values() []string { return s.order[:s.n:s.n] }

// has reports whether a set's register has a text.
func (c *cell) has(text string) bool {
	if c.set == nil {
		return false
	}
	_, ok := c.set.at[text]
	return ok
}

// len returns how many texts a set's register has.
func (c *cell) len() int {
	if c.set == nil {
		return 0
	}
	return len(c.set.order)
}

// Operation is what is done to a register.
type Operation uint8

// The operations, in the order of the policy's.
const (
	Assign Operation = iota
	Empty            // to nothing: unset, 0, or no texts
	Add              // texts to a set, or numbers to a counter
	Remove           // texts of a set
)

// A Change is what is done to one register. Its values are as [guard.Program.Value] returns them: one for Assign,
// none for Empty.
type Change struct {
	Register string
	Operation
	Values []any
}

// Apply makes changes, whether or not there is room for them: [Registers.Settle] has looked. One of a register that
// is not there, or of another type, is left out. It returns the names of the registers that have other values now.
func (r *Registers) Apply(changes []Change) (changed []string) {
	if r == nil {
		return nil
	}
	for _, x := range changes {
		i := r.schema.find(x.Register)
		if i < 0 {
			continue
		}
		c := r.life.cells[i]
		if _, err := c.read(x); err != nil || !c.apply(x) {
			continue
		}
		r.view = nil
		if !slices.Contains(changed, x.Register) {
			changed = append(changed, x.Register)
		}
	}
	return changed
}

// apply makes a change, and says whether anything is other than before.
func (c *cell) apply(x Change) bool {
	if c.Kind == guard.TextSet {
		was := c.set
		before := c.len()
		switch x.Operation {
		case Add:
			c.add(x.Values)
		default:
			c.remove(x)
		}
		c.value = nil
		if c.set != nil {
			c.value = seen{c.set, len(c.set.order)}
		}
		return c.set != was || c.len() != before
	}
	was := c.value
	switch {
	case x.Operation == Add:
		sum, _ := c.value.(int64)
		for _, v := range x.Values {
			sum += v.(int64)
		}
		c.value = sum
	case x.Operation == Empty:
		c.value = nil
	default:
		c.value = x.Values[0]
	}
	if text, ok := c.value.(string); ok {
		c.value = strings.Clone(text) // it may be a part of much more
	}
	if c.value == any(int64(0)) {
		c.value = nil
	}
	c.settleText()
	return c.value != was
}

// settleText has a text cost what it does; while calls under way assign it, no less than before.
func (c *cell) settleText() {
	if c.Kind != guard.Text {
		return
	}
	if cost := costOf(c.value); cost > c.bytes || c.pending == nil {
		c.account(cost - c.bytes)
	}
}

// costOf returns what the value of a text register costs.
func costOf(value any) int {
	text, ok := value.(string)
	if !ok {
		return 0
	}
	return textCost + len(text)
}

// add adds texts to a set. What is promised is accounted for already.
func (c *cell) add(values []any) {
	for _, v := range values {
		text := v.(string)
		if c.has(text) {
			continue
		}
		if c.set == nil {
			c.set = &texts{at: map[string]int32{}}
		}
		text = strings.Clone(text) // it may be a part of much more
		c.set.at[text] = int32(len(c.set.order))
		c.set.order = append(c.set.order, text)
		if !c.uncover(text) {
			c.account(itemCost + len(text))
		}
	}
}

// remove makes a set without what is removed of it. What calls under way add again keeps its room.
func (c *cell) remove(x Change) {
	if x.Operation == Remove && !slices.ContainsFunc(x.Values, func(v any) bool { return c.has(v.(string)) }) {
		return
	}
	was := c.set
	if c.set = nil; was == nil {
		return
	}
	gone := make(map[string]bool, len(x.Values))
	for _, v := range x.Values {
		gone[v.(string)] = true
	}
	rest := &texts{}
	if x.Operation == Remove {
		rest = &texts{order: make([]string, 0, len(was.order)), at: make(map[string]int32, len(was.order))}
	}
	for _, text := range was.order {
		switch {
		case x.Operation == Remove && !gone[text]:
			rest.at[text] = int32(len(rest.order))
			rest.order = append(rest.order, text)
		case !c.cover(text):
			c.account(-itemCost - len(text))
		}
	}
	if len(rest.order) > 0 {
		c.set = rest
	}
}
