package proxy

import (
	"errors"
	"fmt"
	"net/textproto"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/handle"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// KeyKind is how a request finds its run.
type KeyKind uint8

// The kinds of keys.
const (
	KeyDefault   KeyKind = iota // none was chosen: session for clients that have them, process for others
	KeyProcess                  // one run for all
	KeySession                  // the client's session
	KeyPrincipal                // who is asking, as authentication has found out
	KeyHeader                   // a header that a trusted gateway sets
	KeyPath                     // the URL's path
	KeyHandle                   // a handle that the client brings (modern)
)

var keyKinds = [...]string{"default", "process", "session", "principal", "header", "path", "handle"}

// String is the word of the command line.
func (k KeyKind) String() string { return keyKinds[k] }

// RunKey is how requests of clients find their run. There is one for those with sessions, one for those without, and
// no other where it is missing: leaving it out resets nothing.
type RunKey struct {
	Kind   KeyKind
	Header string // of KeyHeader: its canonical name
}

// String is as ParseRunKey reads it.
func (k RunKey) String() string {
	if k.Kind == KeyHeader {
		return "header:" + k.Header
	}
	return k.Kind.String()
}

// ParseRunKey reads a key: process, session (where there are sessions), principal,
// header:NAME, path, handle (where there are none).
func ParseRunKey(of bridge.Client, text string) (RunKey, error) {
	word, header, headed := strings.Cut(text, ":")
	k := RunKey{}
	for kind, name := range keyKinds {
		if KeyKind(kind) != KeyDefault && name == word {
			k.Kind = KeyKind(kind)
		}
	}
	switch {
	case k.Kind == KeyDefault:
		return k, fmt.Errorf("%q is no run key: it is one of process, session, principal, header:NAME, path, handle", text)
	case k.Kind == KeySession && of.Stateless():
		return k, errors.New("there are no sessions in the modern era: choose process, principal, header:NAME, path or handle")
	case k.Kind == KeyHandle && !of.Stateless():
		return k, errors.New("handles are for the modern era: choose process, session, principal, header:NAME or path")
	case headed != (k.Kind == KeyHeader) || headed && !wire.IsToken(header):
		return k, errors.New("a header is named behind a colon: header:X-Run-Id")
	}
	k.Header = textproto.CanonicalMIMEHeaderKey(header)
	return k, nil
}

// renews says how a run that is complete is followed by another.
func (k RunKey) renews() string {
	switch k.Kind {
	case KeyProcess:
		return "A new run begins when fsm-proxy is started again, or an operator restarts this one."
	case KeyPrincipal, KeyHeader:
		return "A new run begins with the tool " + handle.StartName + "."
	case KeyPath:
		return "A new run begins at a new URL, which an operator hands out."
	case KeyHandle:
		return "A new run begins with the tool " + handle.StartName + "."
	}
	return "A new run begins with a new session."
}
