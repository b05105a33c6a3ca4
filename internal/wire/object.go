package wire

import (
	"bytes"
	"errors"
	"io"
	"slices"
)

// Members calls f for each member of a JSON object, in order, with its decoded
// name and where its value stands in object.
func Members(object []byte, f func(name string, value Span) error) error {
	return eachMember(object, func(name string, _, value Span) error { return f(name, value) })
}

// Member returns the value of a member of a JSON object, the last where there are
// several; nil: there is none, or no object.
func Member(object []byte, name string) (value []byte) {
	_ = Members(object, func(key string, at Span) error {
		if key == name {
			value = object[at.Start:at.End:at.End]
		}
		return nil
	})
	return value
}

// Elements calls f for each value of a JSON array, in order.
func Elements(array []byte, f func(value []byte) error) error {
	dec := decoder(array)
	if tok, err := dec.ReadToken(); err != nil {
		return err
	} else if tok.Kind() != '[' {
		return errors.New("no JSON array")
	}
	for dec.PeekKind() != ']' {
		raw, err := dec.ReadValue()
		if err != nil {
			return err
		}
		end := int(dec.InputOffset())
		if err := f(array[end-len(raw) : end : end]); err != nil {
			return err
		}
	}
	return nil
}

func eachMember(object []byte, f func(name string, whole, value Span) error) error {
	j := judges.Get().(*judge)
	defer judges.Put(j)
	j.buf = *bytes.NewBuffer(object)
	defer func() { j.buf = bytes.Buffer{} }()
	j.dec.Reset(&j.buf, lenient...)
	dec := &j.dec
	if tok, err := dec.ReadToken(); err != nil {
		return err
	} else if tok.Kind() != '{' {
		return errors.New("no JSON object")
	}
	for dec.PeekKind() != '}' {
		name, err := dec.ReadValue()
		if err != nil {
			return err
		}
		key, start := unquote(name), int(dec.InputOffset())-len(name)
		raw, err := dec.ReadValue()
		if err != nil {
			return err
		}
		end := int(dec.InputOffset())
		if err := f(key, span(start, end), span(end-len(raw), end)); err != nil {
			return err
		}
	}
	if _, err := dec.ReadToken(); err != nil && err != io.EOF {
		return err
	}
	return nil
}

// Amendment gathers edits, in any order, and new values of one object's members:
// those that are there get another value, those that are not are put in front.
type Amendment struct {
	raw    []byte
	object Span
	edits  []Edit
	fresh  [][]byte // members, "name":value
}

// Amend begins an amendment of the object at a span of raw.
func Amend(raw []byte, object Span) *Amendment { return &Amendment{raw: raw, object: object} }

// Set gives a member a value: at is where its value stands, absent where there is
// none yet.
func (a *Amendment) Set(at Span, name string, value []byte) {
	if at.Present() {
		a.Add(Edit{At: at, With: value})
		return
	}
	member := append(AppendString(make([]byte, 0, len(name)+len(value)+3), name), ':')
	a.fresh = append(a.fresh, append(member, value...))
}

// SetMeta sets members of the object's _meta, which stands at meta or nowhere. What
// stands there and is no object goes.
func (a *Amendment) SetMeta(meta Span, names []string, values [][]byte) {
	if len(names) == 0 {
		return
	}
	if !meta.Present() || a.raw[meta.Start] != '{' {
		a.Set(meta, "_meta", Object(names, values))
		return
	}
	inner := Amend(a.raw, meta)
	there := make([]bool, len(names))
	_ = Members(a.raw[meta.Start:meta.End], func(name string, at Span) error {
		if i := slices.Index(names, name); i >= 0 { // once for each way to write it
			there[i] = true
			inner.Set(Span{Start: at.Start + meta.Start, End: at.End + meta.Start}, name, values[i])
		}
		return nil
	})
	for i, name := range names {
		if !there[i] {
			inner.Set(Span{}, name, values[i])
		}
	}
	a.Add(inner.all()...)
}

// Add adds edits of raw that were made elsewhere.
func (a *Amendment) Add(edits ...Edit) { a.edits = append(a.edits, edits...) }

// Bytes returns raw with the edits made. Those at one place are made in the order in
// which they came.
func (a *Amendment) Bytes() []byte {
	edits := a.all()
	slices.SortStableFunc(edits, func(a, b Edit) int { return int(a.At.Start - b.At.Start) })
	return Splice(a.raw, edits...)
}

func (a *Amendment) all() []Edit {
	if len(a.fresh) == 0 {
		return a.edits
	}
	with := bytes.Join(a.fresh, []byte{','})
	if inner := a.raw[a.object.Start+1 : a.object.End-1]; len(bytes.TrimSpace(inner)) > 0 {
		with = append(with, ',')
	}
	at := a.object.Start + 1
	return append(a.edits, Edit{At: Span{Start: at, End: at}, With: with})
}

// Object makes an object of members.
func Object(names []string, values [][]byte) []byte {
	out := []byte{'{'}
	for i, name := range names {
		out = appendMember(out, name, values[i])
	}
	return append(out, '}')
}

// Pick returns an object of the members for which f returns a value.
func Pick(object []byte, f func(name string, value []byte) []byte) []byte {
	out := []byte{'{'}
	_ = Members(object, func(name string, at Span) error {
		if value := f(name, object[at.Start:at.End]); value != nil {
			out = appendMember(out, name, value)
		}
		return nil
	})
	return append(out, '}')
}

func appendMember(out []byte, name string, value []byte) []byte {
	if len(out) > 1 {
		out = append(out, ',')
	}
	return append(append(AppendString(out, name), ':'), value...)
}

// Without returns the edits that take members out of the object at a span of raw,
// each with the one comma that belongs to it, and leave every other byte as it is:
// the comma behind a member that stands first, else the one before it. What is no
// object has no members.
func Without(raw []byte, object Span, drop func(name string) bool) (edits []Edit) {
	kept := false
	_ = eachMember(raw[object.Start:object.End], func(name string, whole, _ Span) error {
		if !drop(name) {
			kept = true
			return nil
		}
		edits = append(edits, Edit{At: withComma(raw, Span{whole.Start + object.Start, whole.End + object.Start}, !kept)})
		return nil
	})
	return edits
}

// withComma returns where a member stands with one comma: the one before it, or behind it where it is the first.
func withComma(raw []byte, member Span, first bool) Span {
	if !first {
		return Span{int32(bytes.LastIndexByte(raw[:member.Start], ',')), member.End}
	}
	rest := raw[member.End:]
	if behind := bytes.TrimLeft(rest, whitespace); len(behind) > 0 && behind[0] == ',' {
		member.End += int32(len(rest) - len(behind) + 1)
	}
	return member
}

// whitespace is what may stand between the tokens of JSON.
const whitespace = " \t\r\n"

// Arguments are those of a request's call. They are read where they are asked for.
type Arguments Message

// Scalar is what an argument is that is no array and no object.
type Scalar struct {
	Text    string // decoded; of a literal as it is written
	Literal bool   // a number, true, false or null
}

// Scalar returns the argument at a path of names, each but the first that of a member of
// the object before it: ok if it is there and a scalar; unclear if, at any name on the
// way, another one reads alike or it stands twice.
func (a *Arguments) Scalar(path []string) (value Scalar, ok, unclear bool) {
	at := (*Message)(a).Bytes(a.P.Arguments)
	for _, name := range path {
		object := at
		at = nil
		_ = Members(object, func(key string, value Span) error {
			if key == name {
				unclear = unclear || at != nil
				at = object[value.Start:value.End]
			}
			unclear = unclear || Lookalike(key, name)
			return nil
		})
	}
	if len(at) == 0 || at[0] == '{' || at[0] == '[' {
		return Scalar{}, false, unclear
	}
	if text, ok := Text(at); ok {
		return Scalar{Text: text}, true, unclear
	}
	return Scalar{Text: string(at), Literal: true}, true, unclear
}
