package proxy

import (
	"bytes"
	"slices"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// amendment gathers edits of one object, in any order: members that are there get
// another value, those that are not are put in front.
type amendment struct {
	object wire.Span // in the bytes that are edited
	empty  bool      // it has no member
	edits  []wire.Edit
	fresh  [][]byte // members, "name":value
}

// amend begins an amendment of the object at a span of raw.
func amend(raw []byte, object wire.Span) *amendment {
	inner := raw[object.Start+1 : object.End-1]
	return &amendment{object: object, empty: len(bytes.TrimSpace(inner)) == 0}
}

// set gives a member a value: at is where its value stands, absent where there is
// none yet.
func (a *amendment) set(at wire.Span, name string, value []byte) {
	if at.Present() {
		a.edits = append(a.edits, wire.Edit{At: at, With: value})
		return
	}
	member := append(wire.AppendString(make([]byte, 0, len(name)+len(value)+3), name), ':')
	a.fresh = append(a.fresh, append(member, value...))
}

// all returns the edits. An object that the amendment leaves alone has none.
func (a *amendment) all() []wire.Edit {
	if len(a.fresh) > 0 {
		with := bytes.Join(a.fresh, []byte{','})
		if !a.empty {
			with = append(with, ',')
		}
		at := a.object.Start + 1
		a.edits = append(a.edits, wire.Edit{At: wire.Span{Start: at, End: at}, With: with})
		a.fresh = nil
	}
	return a.edits
}

// inMeta sets members of the object's _meta, which stands at meta or nowhere. What
// stands there and is no object goes.
func (a *amendment) inMeta(raw []byte, meta wire.Span, names []string, values [][]byte) {
	if len(names) == 0 {
		return
	}
	if !meta.Present() || raw[meta.Start] != '{' {
		a.set(meta, "_meta", object(names, values))
		return
	}
	inner := amend(raw, meta)
	there := make([]bool, len(names))
	_ = wire.Members(raw[meta.Start:meta.End], func(name string, at wire.Span) error {
		if i := slices.Index(names, name); i >= 0 { // once for each way to write it
			there[i] = true
			inner.set(wire.Span{Start: at.Start + meta.Start, End: at.End + meta.Start}, name, values[i])
		}
		return nil
	})
	for i, name := range names {
		if !there[i] {
			inner.set(wire.Span{}, name, values[i])
		}
	}
	a.edits = append(a.edits, inner.all()...)
}

// object makes an object of members.
func object(names []string, values [][]byte) []byte {
	out := []byte{'{'}
	for i, name := range names {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(wire.AppendString(out, name), ':')
		out = append(out, values[i]...)
	}
	return append(out, '}')
}

// spliced makes the edits, sorted by where they stand.
func spliced(raw []byte, edits []wire.Edit) []byte {
	slices.SortStableFunc(edits, func(a, b wire.Edit) int { return int(a.At.Start - b.At.Start) })
	return wire.Splice(raw, edits...)
}
