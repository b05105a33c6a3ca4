// Package catalogue is what is shown to whom: it makes of what an upstream lists the
// bytes of a list as a client sees it where its run stands, and says what there is to
// say of listed tools: whether they are what was locked, whether arguments fit them, and
// what is wrong with a policy beside them. It fetches nothing: lists in, bytes and
// findings out, kept for the next who asks.
package catalogue

import (
	"bytes"
	"slices"
	"strings"
	"sync"

	"github.com/yosida95/uritemplate/v3"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// Catalogue is what was made of lists, for all clients of one upstream. It is safe for
// concurrent use.
type Catalogue struct {
	Validator
	opaque  bool
	mirrors perList[mirrored]
	noticed noticed

	mu       sync.Mutex // guards what follows
	rendered map[rendering][]byte
	size     int // of all of them, in bytes
}

// New returns a Catalogue that has seen no list yet. If it is opaque, no list names a state.
func New(opaque bool) *Catalogue {
	return &Catalogue{opaque: opaque, mirrors: perList[mirrored]{most: 64, read: readMirrored}}
}

// maxRendered bounds the bytes of results that are kept.
const maxRendered = 64 << 20

// rendering is one result: it is the same for every run that looks alike over the same
// lists.
type rendering struct {
	content
	look     Look
	finished bool
}

// List returns the result of a list request, as what a view has looks to a client. finish,
// where it is not nil, makes it of what is rendered, always in the same way.
func (c *Catalogue) List(v View, l Look, finish func(result []byte) []byte) []byte {
	l = l.of(policyKind(v.List.Kind))
	key := rendering{v.content(), l, finish != nil}
	c.mu.Lock()
	out, ok := c.rendered[key]
	c.mu.Unlock()
	if ok {
		return out
	}
	out = l.render(v, !c.opaque)
	if finish != nil {
		out = finish(out)
	}
	c.keep(key, out)
	return out
}

func (c *Catalogue) keep(key rendering, out []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rendered == nil {
		c.rendered = make(map[rendering][]byte)
	}
	for old, b := range c.rendered {
		if c.size+len(out) <= maxRendered {
			break
		}
		c.size -= len(b)
		delete(c.rendered, old)
	}
	if _, there := c.rendered[key]; !there {
		c.size += len(out)
	}
	c.rendered[key] = out
}

// Forget drops what was rendered: policies and locks that came and went would be kept
// in memory with it.
func (c *Catalogue) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rendered, c.size = nil, 0
}

// Differ reports whether a list looks otherwise to a client than before. It asks for what is
// known to be listed where it hangs on that; what is not known differs.
func (c *Catalogue) Differ(k wire.ListKind, known func(wire.ListKind) View, from, to Look, finish func(result []byte) []byte) bool {
	kind := policyKind(k)
	from, to = from.of(kind), to.of(kind)
	if from == to || !from.Static && !to.Static && from.Pins == to.Pins && from.Own == to.Own && !from.Differs(to.Snapshot, kind) {
		return false
	}
	v := known(k)
	return v.List == nil || from.lacksTemplates(v) || to.lacksTemplates(v) || !bytes.Equal(c.List(v, from, finish), c.List(v, to, finish))
}

// lacksTemplates reports whether what is shown hangs on templates that a view is without.
func (l Look) lacksTemplates(v View) bool {
	return v.LacksTemplates(l.Policy) || v.LacksTemplates(l.InForce())
}

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
		l.Snapshot = run.Snapshot{Policy: p}.As(l.Who)
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
		uris = slices.DeleteFunc(l.Policy.Exact(k), func(uri string) bool { return !l.Policy.BoundFor(k, uri, false, l.Who) })
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
		return l.Policy.BoundFor(k, name, true, l.Who)
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
