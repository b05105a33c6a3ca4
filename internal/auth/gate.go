// Package auth finds out who is asking, for each HTTP request: by a bearer token
// that a file holds, one of several tokens with names, an access token of an OAuth
// 2.1 authorization server, or a client's certificate. What a client is let in by
// is for the proxy alone: it is handed on to nobody, and logged nowhere.
package auth

import (
	"crypto/sha256"
	"crypto/subtle"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/streamhttp"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// bearer is who has the one token of a bearer file.
var bearer = wire.Principal{Issuer: wire.BearerIssuer, Subject: "bearer"}

// Config is by what clients are let in: any of it does. With nothing of it nobody is.
type Config struct {
	// Bearer returns the token of all who have it. An empty token lets nobody in.
	Bearer func() string
	// Tokens are those of principals with a name; nil: there are none.
	Tokens *Tokens
	// Issuer issues access tokens; nil: none are accepted.
	Issuer *Issuer
	// Clients says whose certificates are accepted; nil: nobody's. Where a request
	// carries a token as well, that says who is asking.
	Clients *Clients
	// Resource is this server's URL, as its clients have it; nil: that of the request.
	Resource *url.URL
	// Path is the path that is served.
	Path string
	// Refused is told of a request before it is refused, with the status; nil: nobody is.
	Refused func(why streamhttp.Reason, status int, r *http.Request)
}

// Gate authenticates requests. It is safe for concurrent use.
type Gate struct{ cfg Config }

// New returns a gate.
func New(cfg Config) *Gate {
	if cfg.Refused == nil {
		cfg.Refused = func(streamhttp.Reason, int, *http.Request) {}
	}
	return &Gate{cfg: cfg}
}

// Authenticate says who is asking. Where nobody is let in, the request is answered.
// It is for [streamhttp.ServerConfig].
func (g *Gate) Authenticate(w http.ResponseWriter, r *http.Request) (wire.Principal, bool) {
	who, no := g.who(r)
	if no != nil {
		g.deny(w, r, no)
	}
	return who, no == nil
}

func (g *Gate) who(r *http.Request) (wire.Principal, *denial) {
	given := r.Header["Authorization"]
	switch {
	case g.tokens() && len(given) > 0:
		token, no := tokenOf(given)
		if no != nil {
			return wire.Principal{}, no
		}
		return g.holder(r, token)
	case g.cfg.Clients != nil && r.TLS != nil && len(r.TLS.PeerCertificates) > 0:
		return g.cfg.Clients.of(r.TLS)
	case g.cfg.Clients != nil && !g.tokens():
		return wire.Principal{}, noCertificate
	}
	return wire.Principal{}, missing
}

// tokens reports whether there is a token that would be accepted.
func (g *Gate) tokens() bool {
	return g.cfg.Bearer != nil || g.cfg.Tokens != nil || g.cfg.Issuer != nil
}

// holder says who has the token of a request.
func (g *Gate) holder(r *http.Request, token string) (wire.Principal, *denial) {
	sum := digest(token)
	if g.cfg.Bearer != nil && same(sum, g.cfg.Bearer()) {
		return bearer, nil
	}
	if g.cfg.Tokens != nil {
		if who, ok := g.cfg.Tokens.holder(sum); ok {
			return who, nil
		}
	}
	if g.cfg.Issuer != nil {
		run, of := strings.CutPrefix(r.URL.Path, g.cfg.Path+runs)
		if !of {
			run = ""
		}
		return g.cfg.Issuer.holder(r.Context(), sum, token, run)
	}
	return wire.Principal{}, unknown
}

// digest is a token's SHA-256. What is not unusually long needs no memory.
func digest(token string) [sha256.Size]byte {
	var room [2048]byte
	return sha256.Sum256(append(room[:0], token...))
}

// same compares in a time that tells nothing of either.
func same(sum [sha256.Size]byte, token string) bool {
	own := digest(token)
	return subtle.ConstantTimeCompare(sum[:], own[:]) == 1 && token != ""
}

// maxToken is how long a token may be, in bytes: what is longer is read no further.
const maxToken = 16 << 10

// tokenOf is the token in an Authorization header (RFC 6750, section 2.1).
func tokenOf(given []string) (string, *denial) {
	if len(given) > 1 {
		return "", repeated
	}
	const scheme = "bearer "
	if len(given[0]) < len(scheme) || !strings.EqualFold(given[0][:len(scheme)], scheme) {
		return "", missing
	}
	token := strings.Trim(given[0][len(scheme):], " ")
	switch {
	case token == "":
		return "", missing
	case len(token) > maxToken:
		return "", tooLong
	}
	return token, nil
}

func answer(w http.ResponseWriter, status int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text+"\n")
}
