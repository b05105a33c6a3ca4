// Package catalogue is what is shown to whom: it makes of what an upstream lists the
// bytes of a list as a client sees it where its run stands, and says what there is to
// say of listed tools: whether they are what was locked, whether arguments fit them, and
// what is wrong with a policy beside them. It fetches nothing: lists in, bytes and
// findings out, kept for the next who asks.
package catalogue

import (
	"bytes"
	"crypto/sha256"
	"sync"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
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

// mirrored are the arguments that tools want repeated in headers, by the tool's name.
// Most tools have none and are not in it.
type mirrored = map[string][]wire.ParamHeader

func readMirrored(l *wire.List) mirrored {
	tools := make(mirrored)
	for _, item := range l.Items {
		if headers, err := wire.ParamHeaders(l.Member(item.Name, "inputSchema")); err == nil && len(headers) > 0 {
			tools[item.Name] = headers
		}
	}
	return tools
}

// HeaderFault returns, as a text, in what the headers of a listed tool's call differ
// from its arguments; "": in nothing.
func (c *Catalogue) HeaderFault(l *wire.List, tool string, arguments []byte, headers func(name string) []string) string {
	wanted := c.mirrors.of(l)[tool]
	if wanted == nil {
		return ""
	}
	return wire.ParamFault(wanted, arguments, headers)
}

// perList is what was read of lists, each content once. Servers show different lists
// to different clients, but not many: beyond a bound all are forgotten. It is safe
// for concurrent use.
type perList[T any] struct {
	most int
	read func(*wire.List) T

	mu   sync.RWMutex // guards what follows
	have map[[sha256.Size]byte]T
}

// of returns what there is to read of a list.
func (p *perList[T]) of(l *wire.List) T {
	p.mu.RLock()
	found, known := p.have[l.Digest]
	p.mu.RUnlock()
	if known {
		return found
	}
	found = p.read(l)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.have == nil || len(p.have) >= p.most {
		p.have = make(map[[sha256.Size]byte]T)
	}
	p.have[l.Digest] = found
	return found
}
