package catalogue

import (
	"strings"

	"github.com/yosida95/uritemplate/v3"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// View is what an upstream offers of one kind: the list, and for resources the
// templates that may serve URIs that are not listed. The zero View is of an upstream
// that was not asked yet.
type View struct {
	List      *wire.List
	Templates *wire.List // nil but for resources
}

// NoTools is the view of an upstream that has none.
var NoTools = func() View {
	m, err := wire.Read([]byte(`{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}`), wire.FromUpstream)
	if err == nil {
		var l *wire.List
		if l, err = wire.NewList(wire.Tools, []*wire.Message{m}); err == nil {
			return View{List: l}
		}
	}
	panic(err) // the text above is a constant
}()

// LacksTemplates reports whether a policy binds URIs that are not listed, so that
// templates matter, and the view has none.
func (v View) LacksTemplates(p *policy.Policy) bool {
	if v.Templates != nil || v.List.Kind != wire.Resources || p == nil {
		return false
	}
	for _, uri := range p.Exact(policy.Resource) {
		if !v.List.Has(uri) {
			return true
		}
	}
	return false
}

// content is one content of a list.
type content struct {
	kind            wire.ListKind
	list, templates [32]byte
}

func (v View) content() content {
	c := content{kind: v.List.Kind, list: v.List.Digest}
	if v.Templates != nil {
		c.templates = v.Templates.Digest
	}
	return c
}

// Look is what decides how a list looks, beside what is listed. It is comparable.
type Look struct {
	run.Snapshot
	Pins   *Pins // that tools are held to where the policy in force says so
	Own    *Own  // what is added to tools
	Static bool  // the static surface: all that the policy in force binds anywhere
}

// of returns what matters of a look for a kind.
func (l Look) of(k policy.Kind) Look {
	p := l.InForce()
	switch {
	case l.Shadow:
		return Look{Snapshot: run.Snapshot{Shadow: true}}
	case k != policy.Tool:
		l.Pins, l.Own = nil, nil
	case p == nil || p.Pin() != policy.PinRefuse:
		l.Pins = nil
	}
	if l.Static {
		l.Snapshot = run.Snapshot{Policy: p}
	}
	return l
}

// Names returns what of a kind is listed and allowed, in the upstream's order; by the
// policy alone where no list is known.
func (l Look) Names(k policy.Kind, v View) (names []string) {
	l.Static = false
	l = l.of(k)
	if v.List == nil {
		return l.Exact(k)
	}
	l.each(v, func(name string, _ []byte) { names = append(names, name) })
	return names
}

// each calls f for the items of a view that are shown, in order: those that are listed,
// and then those that only a template serves.
func (l Look) each(v View, f func(name string, item []byte)) {
	k, drift := policyKind(v.List.Kind), l.Pins.drift(v.List)
	for _, item := range v.List.Items {
		if l.binds(k, item.Name) && drift.Of(item.Name) == nil && !l.Own.hides(v.List, item.Name) {
			f(item.Name, item.Raw)
		}
	}
	if v.Templates == nil {
		return
	}
	uris := l.Exact(k)
	if l.Static {
		uris = l.Policy.Exact(k)
	}
	for _, uri := range uris {
		if item := v.served(uri); item != nil && !v.List.Has(uri) {
			f(uri, item)
		}
	}
}

// binds reports whether a listed item is shown, going by its name.
func (l Look) binds(k policy.Kind, name string) bool {
	if l.Static {
		return l.Policy.BoundAnywhere(k, name, true)
	}
	return l.Visible(k, name)
}

// served returns an item of a URI, made of the first template that serves it; nil: none does.
func (v View) served(uri string) []byte {
	for _, t := range v.Templates.Items {
		tmpl, err := uritemplate.New(t.Name)
		if err != nil || tmpl.Match(uri) == nil {
			continue
		}
		item := wire.Pick(t.Raw, func(name string, value []byte) []byte {
			if name == "uriTemplate" {
				return nil
			}
			return value
		})
		return inFront(item, "uri", uri)
	}
	return nil
}

// inFront returns an object with one more member, a text, before all others.
func inFront(object []byte, name, text string) []byte {
	a := wire.Amend(object, wire.Span{End: int32(len(object))})
	a.Set(wire.Span{}, name, wire.AppendString(nil, text))
	return a.Bytes()
}

// render returns the result of a list request. tells puts where an item is allowed
// at the end of its description, on the static surface.
func (l Look) render(v View, tells bool) []byte {
	var items [][]byte
	if l.Own != nil {
		items = append(items, l.Own.Tools...)
	}
	l.each(v, func(name string, item []byte) {
		if l.Static && tells {
			item = describe(item, l.allowed(policyKind(v.List.Kind), name, v.List.Has(name)))
		}
		items = append(items, l.Own.with(item))
	})
	return v.List.Result(items)
}

// allowed is the end of a description on the static surface.
func (l Look) allowed(k policy.Kind, name string, listed bool) string {
	states := l.Policy.BoundIn(k, name, listed)
	names := make([]string, len(states))
	for i, s := range states {
		names[i] = l.Policy.StateName(s)
	}
	return "[Allowed in state: " + strings.Join(names, ", ") + "]"
}

// describe returns an item with text at the end of its description.
func describe(item []byte, text string) []byte {
	var edits []wire.Edit
	_ = wire.Members(item, func(key string, at wire.Span) error {
		if key == "description" {
			said, _ := wire.Text(item[at.Start:at.End]) // what is no string says nothing
			edits = append(edits, wire.Edit{At: at, With: wire.AppendString(nil, strings.TrimSpace(said+" "+text))})
		}
		return nil
	})
	if edits == nil {
		return inFront(item, "description", text)
	}
	return wire.Splice(item, edits...)
}

func policyKind(k wire.ListKind) policy.Kind {
	switch k {
	case wire.Resources:
		return policy.Resource
	case wire.Prompts:
		return policy.Prompt
	}
	return policy.Tool
}
