package runs

import (
	"errors"
	"fmt"
	"net/textproto"
	"slices"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/handle"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// Kind is how a request finds its run.
type Kind uint8

// The kinds of keys.
const (
	Default   Kind = iota // none was chosen: session for clients that have them, process for others
	Process               // one run for all
	Session               // the client's session
	Principal             // who is asking, as authentication has found out
	Header                // a header that a trusted gateway sets
	Path                  // the URL's path
	Handle                // a handle that a client without a session brings
)

var kinds = [...]string{"default", "process", "session", "principal", "header", "path", "handle"}

// String is the word of the command line.
func (k Kind) String() string { return kinds[k] }

// Key is how requests of clients find their run. There is one for those with sessions, one for those without, and
// no other where it is missing: leaving it out resets nothing.
type Key struct {
	Kind   Kind
	Header string // of Header: its canonical name
}

// String is as ParseKey reads it.
func (k Key) String() string {
	if k.Kind == Header {
		return "header:" + k.Header
	}
	return k.Kind.String()
}

// kindOf is the kind of a word, Default for none.
func kindOf(word string) Kind {
	return Kind(max(slices.Index(kinds[:], word), int(Default)))
}

// ParseKey reads a key: process, session (where there are sessions), principal,
// header:NAME, path, handle (where there are none).
func ParseKey(of bridge.Client, text string) (Key, error) {
	word, header, headed := strings.Cut(text, ":")
	k := Key{Kind: kindOf(word)}
	switch {
	case k.Kind == Default:
		return k, fmt.Errorf("%q is no run key: it is one of process, session, principal, header:NAME, path, handle", text)
	case k.Kind == Session && of.Stateless():
		return k, errors.New("there are no sessions in the modern era: choose process, principal, header:NAME, path or handle")
	case k.Kind == Handle && !of.Stateless():
		return k, errors.New("handles are for the modern era: choose process, session, principal, header:NAME or path")
	case headed != (k.Kind == Header) || headed && !wire.IsToken(header):
		return k, errors.New("a header is named behind a colon: header:X-Run-Id")
	}
	k.Header = textproto.CanonicalMIMEHeaderKey(header)
	return k, nil
}

// Renews says how a run that is complete is followed by another.
func (k Key) Renews() string {
	switch k.Kind {
	case Process:
		return "A new run begins when fsm-proxy is started again, or an operator restarts this one."
	case Principal, Header:
		return "A new run begins with the tool " + handle.StartName + "."
	case Path:
		return "A new run begins at a new URL, which an operator hands out."
	case Handle:
		return "A new run begins with the tool " + handle.StartName + "."
	}
	return "A new run begins with a new session."
}

// Renews is [Key.Renews] of this run: one of the process that is kept is there again when that is started again.
func (r *Run) Renews() string {
	if r.Key.Kind == Process && r.kept != nil {
		return "A new run begins when an operator resets this one, or fsm-proxy is started with another --run NAME."
	}
	return r.Key.Renews()
}

// Begins reports whether a run begins with the first call under the key.
func (k Key) Begins() bool { return k.Kind == Principal || k.Kind == Header }

// NameOf is what the run of an id is called, which must not be told.
func (k Kind) NameOf(id string) string { return NameOf(k.String() + "\x00" + id) }
