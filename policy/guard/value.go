package guard

import (
	"encoding/json/jsontext"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/fsm-proxy/fsm-proxy/internal/lookalike"
)

// An object is a JSON object: its members stand in the order in which they came, so that all that walks over
// them ends alike each time. To look up a name that has a lookalike beside it is an error.
type object struct {
	names    []ref.Val
	values   map[string]ref.Val
	folded   map[string]int // how many names fold to one text; made by the first look-up
	unclear  func(*Error)   // told of a lookalike, if not nil
	weighing int            // what it is worth to go over it
}

// fail returns the error of a look-up by a name that has a lookalike.
func (o *object) fail(name string) ref.Val {
	err := notEvaluable("%q is looked up, and a name beside it looks like it", name)
	if o.unclear != nil {
		o.unclear(err)
	}
	return types.WrapErr(err)
}

// Find implements traits.Mapper.
func (o *object) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return types.WrapErr(notEvaluable("the names of an object are texts, not %s", key.Type().TypeName())), false
	}
	if o.folded == nil {
		o.folded = make(map[string]int, len(o.values))
		for other := range o.values {
			o.folded[lookalike.Fold(other)]++
		}
	}
	value, ok := o.values[string(name)]
	alike := o.folded[lookalike.Fold(string(name))]
	if alike > 1 || alike == 1 && !ok {
		return o.fail(string(name)), false
	}
	return value, ok
}

// Get implements traits.Indexer.
func (o *object) Get(key ref.Val) ref.Val {
	value, ok := o.Find(key)
	if !ok && value == nil {
		return types.WrapErr(notEvaluable("no such key"))
	}
	return value
}

// Contains implements traits.Container.
func (o *object) Contains(key ref.Val) ref.Val {
	value, ok := o.Find(key)
	if !ok && value != nil {
		return value
	}
	return types.Bool(ok)
}

// Equal implements ref.Val.
func (o *object) Equal(other ref.Val) ref.Val {
	m, ok := other.(traits.Mapper)
	if !ok || m.Size() != o.Size() {
		return types.False
	}
	for _, name := range o.names {
		value, ok := m.Find(name)
		if !ok {
			if value != nil {
				return value
			}
			return types.False
		}
		if equal := types.Equal(o.values[string(name.(types.String))], value); equal != types.True {
			return equal
		}
	}
	return types.True
}

// Iterator implements traits.Iterable.
func (o *object) Iterator() traits.Iterator {
	return types.NewRefValList(types.DefaultTypeAdapter, o.names).Iterator()
}

// Size implements traits.Sizer.
func (o *object) Size() ref.Val { return types.Int(len(o.names)) }

// Type implements ref.Val.
func (o *object) Type() ref.Type { return types.MapType }

// Value implements ref.Val.
func (o *object) Value() any { return o.values }

// ConvertToType implements ref.Val.
func (o *object) ConvertToType(t ref.Type) ref.Val {
	switch t {
	case types.MapType:
		return o
	case types.TypeType:
		return types.MapType
	}
	return types.WrapErr(notEvaluable("an object is no %s", t.TypeName()))
}

// ConvertToNative implements ref.Val.
func (o *object) ConvertToNative(t reflect.Type) (any, error) {
	return nil, fmt.Errorf("an object has no form as %s", t)
}

// A list is a list that knows what it is worth to go over it.
type list struct {
	traits.Lister
	weighing int
}

func newList(elements []ref.Val) *list {
	sum := 1
	for _, e := range elements {
		sum += weigh(e, maxCost)
	}
	return &list{types.NewRefValList(types.DefaultTypeAdapter, elements), sum}
}

// weigh returns about how many steps it takes to go over a value, and no more than limit says is too many.
func weigh(v ref.Val, limit int) int {
	switch v := v.(type) {
	case types.String:
		return 1 + len(v)/100
	case types.Bytes:
		return 1 + len(v)/100
	case *object:
		return v.weighing
	case *list:
		return v.weighing
	case *set:
		return 1 + v.values.Len()
	case traits.Lister:
		sum := 1
		for it := v.Iterator(); sum <= limit && it.HasNext() == types.True; {
			sum += weigh(it.Next(), limit-sum)
		}
		return sum
	case traits.Mapper:
		sum := 1
		for it := v.Iterator(); sum <= limit && it.HasNext() == types.True; {
			key := it.Next()
			sum += weigh(key, limit-sum) + weigh(v.Get(key), limit-sum)
		}
		return sum
	}
	return 1
}

// A set is a register's set of texts. It is a list to CEL, in which membership is looked up by hash.
type set struct {
	values Set
	made   traits.Lister // by the first that goes over it
}

func (s *set) list() traits.Lister {
	if s.made == nil {
		s.made = types.NewStringList(types.DefaultTypeAdapter, s.values.Values())
	}
	return s.made
}

// Contains implements traits.Container. Anything but a text is an error, so that to negate it is safe.
func (s *set) Contains(v ref.Val) ref.Val {
	text, ok := v.(types.String)
	if !ok {
		return types.WrapErr(notEvaluable("a set of texts is asked for a %s", v.Type().TypeName()))
	}
	return types.Bool(s.values.Contains(string(text)))
}

// What else a list does is done on a list.

func (s *set) Add(other ref.Val) ref.Val                   { return s.list().Add(other) }
func (s *set) Get(index ref.Val) ref.Val                   { return s.list().Get(index) }
func (s *set) Iterator() traits.Iterator                   { return s.list().Iterator() }
func (s *set) Size() ref.Val                               { return types.Int(s.values.Len()) }
func (s *set) Equal(other ref.Val) ref.Val                 { return s.list().Equal(other) }
func (s *set) Type() ref.Type                              { return types.ListType }
func (s *set) Value() any                                  { return s.list().Value() }
func (s *set) ConvertToType(t ref.Type) ref.Val            { return s.list().ConvertToType(t) }
func (s *set) ConvertToNative(t reflect.Type) (any, error) { return s.list().ConvertToNative(t) }

// emptySet is the value of a set that nothing was added to.
type emptySet struct{}

func (emptySet) Contains(string) bool { return false }
func (emptySet) Len() int             { return 0 }
func (emptySet) Values() []string     { return nil }

// A decoder makes values of a text that a scanner has found to be JSON.
type decoder struct {
	scanner
	unclear func(*Error)
}

// decode returns the value of a JSON text, which a scanner has gone over.
func decode(text []byte, unclear func(*Error)) (ref.Val, *Error) {
	d := decoder{scanner{text: text}, unclear}
	d.space()
	return d.decode()
}

func (d *decoder) decode() (ref.Val, *Error) {
	switch d.peek() {
	case '"':
		text, err := d.unquote()
		return types.String(text), err
	case '{':
		return d.object()
	case '[':
		return d.array()
	case 't':
		d.at += len("true")
		return types.True, nil
	case 'f':
		d.at += len("false")
		return types.False, nil
	case 'n':
		d.at += len("null")
		return types.NullValue, nil
	}
	start := d.at
	if err := d.number(); err != nil {
		return nil, err
	}
	return number(d.text[start:d.at])
}

// maxInteger is where doubles begin to leave out integers.
const maxInteger = 1 << 53

// number returns a JSON number as a double. One that may stand for several integers is an error.
func number(text []byte) (ref.Val, *Error) {
	v, err := strconv.ParseFloat(string(text), 64)
	if err != nil || math.Abs(v) > maxInteger || math.Abs(v) == maxInteger && !exact(text) {
		return nil, notEvaluable("a number beyond 2^53")
	}
	if v == 0 {
		v = 0 // not -0
	}
	return types.Double(v), nil
}

// exact reports whether a text is 2^53 in digits alone: others may have been rounded to it.
func exact(text []byte) bool {
	return string(text) == "9007199254740992" || string(text) == "-9007199254740992"
}

// unquote returns the text of a string.
func (d *decoder) unquote() (string, *Error) {
	start := d.at
	escaped, err := d.string()
	if err != nil {
		return "", err
	}
	quoted := d.text[start:d.at]
	if !escaped {
		return string(quoted[1 : len(quoted)-1]), nil
	}
	text, _ := jsontext.AppendUnquote(nil, quoted)
	return string(text), nil
}

func (d *decoder) object() (ref.Val, *Error) {
	o := &object{values: map[string]ref.Val{}, unclear: d.unclear, weighing: 1}
	err := d.members(func(name string) *Error {
		value, err := d.decode()
		if err != nil {
			return err
		}
		if _, twice := o.values[name]; twice {
			return unclear("%q stands twice in one object", name)
		}
		o.names = append(o.names, types.String(name))
		o.values[name] = value
		o.weighing += 1 + len(name)/100 + weigh(value, maxCost)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return o, nil
}

// members reads an object; read takes the value of each member from where it stands.
func (d *decoder) members(read func(name string) *Error) *Error {
	d.at++
	for d.space(); d.peek() != '}'; d.space() {
		if d.peek() == ',' {
			d.at++
			d.space()
		}
		name, err := d.unquote()
		if err != nil {
			return err
		}
		d.space()
		d.at++ // the colon
		d.space()
		if err := read(name); err != nil {
			return err
		}
	}
	d.at++
	return nil
}

func (d *decoder) array() (ref.Val, *Error) {
	var elements []ref.Val
	d.at++
	for d.space(); d.peek() != ']'; d.space() {
		if d.peek() == ',' {
			d.at++
			d.space()
		}
		value, err := d.decode()
		if err != nil {
			return nil, err
		}
		elements = append(elements, value)
	}
	d.at++
	return newList(elements), nil
}

// collect appends every text in a value, names too, in the order in which they stand.
func collect(texts []string, v ref.Val) []string {
	switch v := v.(type) {
	case types.String:
		return append(texts, string(v))
	case *object:
		for _, name := range v.names {
			texts = collect(append(texts, string(name.(types.String))), v.values[string(name.(types.String))])
		}
	case *list:
		for it := v.Iterator(); it.HasNext() == types.True; {
			texts = collect(texts, it.Next())
		}
	}
	return texts
}

// canonical appends a JSON text without spaces, members sorted by name, texts in one spelling, numbers as they
// are written.
func (d *decoder) canonical(out []byte) ([]byte, *Error) {
	start := d.at
	switch d.peek() {
	case '"':
		text, err := d.unquote()
		if err != nil {
			return nil, err
		}
		out, _ = jsontext.AppendQuote(out, text)
		return out, nil
	case '{':
		return d.sorted(out)
	case '[':
		out = append(out, '[')
		d.at++
		for d.space(); d.peek() != ']'; d.space() {
			if d.peek() == ',' {
				out = append(out, ',')
				d.at++
				d.space()
			}
			var err *Error
			if out, err = d.canonical(out); err != nil {
				return nil, err
			}
		}
		d.at++
		return append(out, ']'), nil
	}
	if err := d.scanner.value(nil, 0); err != nil {
		return nil, err
	}
	return append(out, d.text[start:d.at]...), nil
}

func (d *decoder) sorted(out []byte) ([]byte, *Error) {
	values := map[string][]byte{}
	var names []string
	err := d.members(func(name string) *Error {
		value, err := d.canonical(nil)
		if err != nil {
			return err
		}
		if values[name] != nil {
			return unclear("%q stands twice in one object", name)
		}
		names, values[name] = append(names, name), value
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	out = append(out, '{')
	for i, name := range names {
		if i > 0 {
			out = append(out, ',')
		}
		out, _ = jsontext.AppendQuote(out, name)
		out = append(append(out, ':'), values[name]...)
	}
	return append(out, '}'), nil
}
