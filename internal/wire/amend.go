package wire

import (
	"bytes"
	"slices"
)

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
