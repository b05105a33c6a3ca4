// Package subscriptions keeps what clients want to be told by the upstream, updates of resources and log
// messages, and has the upstream told of it over each connection: a session's own, or one that all share.
package subscriptions

import (
	"slices"
	"sync"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// levels are the log levels of MCP, most verbose first.
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// IsLevel reports whether there is such a log level.
func IsLevel(level string) bool { return slices.Contains(levels, level) }

// Covers reports whether who asks for a log level gets messages of another: it is as severe, or more
// so. One that is no level covers nothing.
func Covers(asked, level string) bool {
	least := slices.Index(levels, asked)
	return least >= 0 && slices.Index(levels, level) >= least
}

// Wants are what one session wants to be told. The zero value is nothing. It is safe for concurrent use.
type Wants struct {
	mu    sync.Mutex      // guards what follows
	uris  map[string]bool // of resources; true: the upstream was asked for their updates
	level *wire.Message   // the last logging/setLevel; nil: there was none
}

// enter adds a resource that is about to be asked for, up to a bound. entered is false where it is
// there already, ok where there is no room for it.
func (w *Wants) enter(uri string, most int) (entered, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, there := w.uris[uri]; there {
		return false, true
	}
	if len(w.uris) >= most {
		return false, false
	}
	if w.uris == nil {
		w.uris = make(map[string]bool)
	}
	w.uris[uri] = false
	return true, true
}

// Asked notes that the upstream was asked for a resource's updates: from now on each new connection is.
func (w *Wants) Asked(uri string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, there := w.uris[uri]; there {
		w.uris[uri] = true
	}
}

// Leave takes out a resource.
func (w *Wants) Leave(uri string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.uris, uri)
}

// Has reports whether a resource's updates are wanted.
func (w *Wants) Has(uri string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ok := w.uris[uri]
	return ok
}

// hasAsked reports whether they are, and the upstream was asked for them.
func (w *Wants) hasAsked(uri string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.uris[uri]
}

// Follow makes the resources those that uris returns, and returns which were added or are gone.
func (w *Wants) Follow(uris func() []string) (changed []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.uris
	w.uris = make(map[string]bool)
	for _, uri := range uris() {
		w.uris[uri] = true
		if _, there := before[uri]; !there {
			changed = append(changed, uri)
		}
	}
	for uri := range before {
		if !w.uris[uri] {
			changed = append(changed, uri)
		}
	}
	return changed
}

// again are the requests that bring a new connection to where the last one was. A resource that the
// upstream was not asked for yet goes its own way, on which it may be refused.
func (w *Wants) again() (requests []*wire.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.level != nil {
		requests = append(requests, w.level)
	}
	for uri, asked := range w.uris {
		if asked {
			requests = append(requests, ofResource("resources/subscribe", uri))
		}
	}
	return requests
}

// SetLevel keeps a client's logging/setLevel, whose level is one.
func (w *Wants) SetLevel(m *wire.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.level = m
}

// Raise asks for a log level, and reports whether it is more verbose than what was asked for before.
// One that is no level is not.
func (w *Wants) Raise(level string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !IsLevel(level) || w.level != nil && Covers(w.level.P.Level, level) {
		return false
	}
	params := wire.Object([]string{"level"}, [][]byte{wire.AppendString(nil, level)})
	w.level = wire.Made(wire.RequestMessage(0, "logging/setLevel", params))
	return true
}

// Level is the last logging/setLevel; nil: there was none.
func (w *Wants) Level() *wire.Message {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.level
}

// Logs reports whether log messages of a level are wanted. Who has asked for no level gets what comes.
func (w *Wants) Logs(level string) bool {
	m := w.Level()
	return m == nil || Covers(m.P.Level, level)
}

// ofResource is a request about a resource.
func ofResource(method, uri string) *wire.Message {
	params := append(wire.AppendString([]byte(`{"uri":`), uri), '}')
	return wire.Made(wire.RequestMessage(0, method, params))
}
