package catalogue

import (
	"crypto/sha256"
	"slices"
	"sync"

	"github.com/fsm-proxy/fsm-proxy/internal/handle"
	"github.com/fsm-proxy/fsm-proxy/internal/lock"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// Pins are what tools are held to: locked definitions. A nil Pins holds them to
// nothing. It is safe for concurrent use.
type Pins struct {
	lock   *lock.Lock // nil: there is none, and so no tool is what was locked
	drifts perList[*lock.Drift]
}

// NewPins returns the pins of a lock. Nil is no lock: nothing is what was locked.
func NewPins(l *lock.Lock) *Pins {
	return &Pins{lock: l, drifts: perList[*lock.Drift]{most: 256, read: l.Compare}}
}

// Same reports whether the pins are those of a lock.
func (p *Pins) Same(l *lock.Lock) bool { return l.Same(p.lock) }

// Changes returns in what a tool is not what was locked, nil if it is. The list is of
// tools; one that it does not have is nothing that was locked.
func (p *Pins) Changes(l *wire.List, tool string) lock.Changes {
	if !l.Has(tool) {
		return lock.Changes{lock.Unlisted}
	}
	return p.drift(l).Of(tool)
}

// drift is what is not as it was locked in a list, nil for nothing.
func (p *Pins) drift(l *wire.List) *lock.Drift {
	if p == nil || l.Kind != wire.Tools {
		return nil
	}
	return p.drifts.of(l)
}

// Argument is one more argument that tools are listed with, by which a call says
// which run it belongs to. A nil Argument is none. It is safe for concurrent use.
type Argument struct {
	Name    string
	misfits perList[map[string]handle.Reason]
}

// NewArgument returns the argument of a name.
func NewArgument(name string) *Argument {
	return &Argument{Name: name, misfits: perList[map[string]handle.Reason]{most: 256, read: func(l *wire.List) map[string]handle.Reason {
		return handle.Misfits(l, name)
	}}}
}

// Misfit returns why a listed tool cannot take the argument.
func (a *Argument) Misfit(l *wire.List, tool string) handle.Reason {
	if a == nil {
		return handle.Fits
	}
	return a.misfits.of(l)[tool]
}

// why returns in sentences why tools of a list cannot take the argument, by name.
func (a *Argument) why(l *wire.List) map[string]string {
	if a == nil {
		return nil
	}
	why := make(map[string]string)
	for tool, reason := range a.misfits.of(l) {
		why[tool] = reason.Text()
	}
	return why
}

// Own is what the proxy adds to a list of tools. A nil Own is nothing. It does not change.
type Own struct {
	Tools    [][]byte  // definitions, with which the list begins
	Names    []string  // under which nothing of the upstream's is shown
	Argument *Argument // of all others; those that cannot take it are not shown
}

// hides reports whether a listed tool is not shown.
func (o *Own) hides(l *wire.List, tool string) bool {
	return o != nil && (slices.Contains(o.Names, tool) || o.Argument.Misfit(l, tool) != handle.Fits)
}

// with returns a tool's definition as it is shown.
func (o *Own) with(tool []byte) []byte {
	if o == nil || o.Argument == nil {
		return tool
	}
	edited, _ := handle.AddArgument(tool, o.Argument.Name) // it is not hidden, and so it fits
	return edited
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
