// Package auth finds out who is asking, for each HTTP request: by a bearer token
// that a file holds, one of several tokens with names, an access token of an OAuth
// 2.1 authorization server, or a client's certificate. What a client is let in by
// is for the proxy alone: it is handed on to nobody, and logged nowhere.
package auth

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json/v2"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/asker"
	"github.com/fsm-proxy/fsm-proxy/internal/streamhttp"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// bearer is who has the one token of a bearer file.
var bearer = &asker.Who{Issuer: wire.BearerIssuer, Subject: "bearer"}

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
func (g *Gate) Authenticate(w http.ResponseWriter, r *http.Request) (*asker.Who, bool) {
	who, no := g.who(r)
	if no != nil {
		g.deny(w, r, no)
	}
	return who, no == nil
}

// Who says who is asking, and reports false for somebody who is not let in.
func (g *Gate) Who(r *http.Request) (wire.Principal, bool) {
	who, no := g.who(r)
	return wire.PrincipalOf(who), no == nil
}

func (g *Gate) who(r *http.Request) (*asker.Who, *denial) {
	given := r.Header["Authorization"]
	switch {
	case g.tokens() && len(given) > 0:
		token, no := tokenOf(given)
		if no != nil {
			return nil, no
		}
		return g.holder(r, token)
	case g.cfg.Clients != nil && r.TLS != nil && len(r.TLS.PeerCertificates) > 0:
		who, err := g.cfg.Clients.holder(r.TLS, time.Now())
		if err != nil {
			return nil, wrongCertificate
		}
		return who, nil
	case g.cfg.Clients != nil && !g.tokens():
		return nil, noCertificate
	}
	return nil, missing
}

// tokens reports whether there is a token that would be accepted.
func (g *Gate) tokens() bool {
	return g.cfg.Bearer != nil || g.cfg.Tokens != nil || g.cfg.Issuer != nil
}

// holder says who has the token of a request.
func (g *Gate) holder(r *http.Request, token string) (*asker.Who, *denial) {
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
	return nil, unknown
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

// denial is why a request is not let in. Its text is for the client: it tells
// nothing of the token.
type denial struct {
	reason streamhttp.Reason
	status int
	code   string // RFC 6750, section 3.1; "" where the client sent nothing that could be wrong
	text   string
}

func invalid(text string) *denial {
	return &denial{streamhttp.ReasonBearerWrong, http.StatusUnauthorized, "invalid_token", text}
}

var (
	missing  = &denial{streamhttp.ReasonBearerMissing, http.StatusUnauthorized, "", "a bearer token is needed"}
	repeated = &denial{streamhttp.ReasonBearerWrong, http.StatusBadRequest, "invalid_request", "there is more than one Authorization header"}
	tooLong  = invalid("the token is too long")
	unknown  = invalid("the token is not known here: a bearer token is needed that is")
)

// deny answers a request that is not let in.
func (g *Gate) deny(w http.ResponseWriter, r *http.Request, no *denial) {
	g.cfg.Refused(no.reason, no.status, r)
	switch {
	case no.status == http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "5")
	case g.tokens():
		w.Header().Set("WWW-Authenticate", g.challenge(r, no))
	}
	answer(w, no.status, no.text)
}

// challenge is the value of WWW-Authenticate (RFC 6750, section 3).
func (g *Gate) challenge(r *http.Request, no *denial) string {
	var params []string
	param := func(name, value string) { params = append(params, name+`="`+value+`"`) }
	if no.code != "" {
		param("error", no.code)
		param("error_description", no.text)
	}
	if g.cfg.Issuer != nil {
		if scopes := g.cfg.Issuer.cfg.Scopes; len(scopes) > 0 {
			param("scope", strings.Join(scopes, " "))
		}
		param("resource_metadata", g.metadataURL(r))
	}
	return strings.TrimSuffix("Bearer "+strings.Join(params, ", "), " ")
}

// wellKnownResource is where clients look for the metadata (RFC 9728, section 3).
const wellKnownResource = "/.well-known/oauth-protected-resource"

// metadata is what the proxy says of itself as a protected resource (RFC 9728,
// section 2).
type metadata struct {
	Resource string   `json:"resource"`
	Servers  []string `json:"authorization_servers"`
	Scopes   []string `json:"scopes_supported,omitempty"`
	Methods  []string `json:"bearer_methods_supported"`
}

// Public answers requests for the metadata, which need no token. It is for
// [streamhttp.ServerConfig].
func (g *Gate) Public(w http.ResponseWriter, r *http.Request) bool {
	if g.cfg.Issuer == nil || !g.isMetadata(r.URL.Path) {
		return false
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		answer(w, http.StatusMethodNotAllowed, "use GET")
		return true
	}
	text, err := json.Marshal(metadata{
		Resource: g.resource(r).String(), Servers: []string{g.cfg.Issuer.cfg.URL}, Scopes: g.cfg.Issuer.cfg.Scopes, Methods: []string{"header"},
	})
	if err != nil {
		answer(w, http.StatusInternalServerError, "the metadata cannot be written")
		return true
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-cache")
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(text)
	return true
}

// isMetadata reports whether a path is that of the metadata, or of those of a path
// that is served here, or that is so named outside.
func (g *Gate) isMetadata(path string) bool {
	of, ok := strings.CutPrefix(path, wellKnownResource)
	return ok && (of == "" || slices.Contains(g.paths(), of) || g.run(of) != "")
}

// paths are the path that is served, and what it is called outside.
func (g *Gate) paths() []string {
	if g.cfg.Resource != nil {
		return []string{g.cfg.Path, g.cfg.Resource.Path}
	}
	return []string{g.cfg.Path}
}

// runs is what stands between the path served and the id of a run that has a URL of
// its own: to its client that is a resource of its own.
const runs = "/runs/"

// run is what a path, or that of its metadata, has behind the path served: "/runs/ID",
// "" for none.
func (g *Gate) run(path string) string {
	path = strings.TrimPrefix(path, wellKnownResource)
	for _, served := range g.paths() {
		rest, ok := strings.CutPrefix(path, served)
		if id, of := strings.CutPrefix(rest, runs); ok && of && id != "" && !strings.Contains(id, "/") {
			return rest
		}
	}
	return ""
}

// resource is the URL that a request is for, or whose metadata it is for, as its
// client has it: as it was told, or else as the request says.
func (g *Gate) resource(r *http.Request) *url.URL {
	u := &url.URL{Scheme: "http", Host: r.Host, Path: g.cfg.Path}
	if r.TLS != nil {
		u.Scheme = "https"
	}
	if g.cfg.Resource != nil {
		*u = *g.cfg.Resource
	}
	u.Path += g.run(r.URL.Path)
	return u
}

// metadataURL is where a request's client finds the metadata (RFC 9728, section 3.1).
func (g *Gate) metadataURL(r *http.Request) string {
	u := g.resource(r)
	u.Path = wellKnownResource + strings.TrimSuffix(u.Path, "/")
	return u.String()
}

// cache remembers who was verified, by what they have shown: a signature costs more than all else of a call. What
// was verified holds as long as that by which it was, T, is in force. The zero value is ready. It is safe for
// concurrent use.
type cache[K, T comparable] struct {
	mu     sync.RWMutex
	all    map[K]known[T] // guarded by mu
	claims int            // bytes of theirs; guarded by mu
}

// known is one who was verified.
type known[T comparable] struct {
	who   *asker.Who
	until time.Time
	by    T
}

// find returns who has shown key, if that is known and holds.
func (c *cache[K, T]) find(key K, by T, now time.Time) (*asker.Who, bool) {
	c.mu.RLock()
	k, ok := c.all[key]
	c.mu.RUnlock()
	return k.who, ok && k.by == by && now.Before(k.until)
}

// same returns the one that is remembered and says the same, else who.
func (c *cache[K, T]) same(who *asker.Who) *asker.Who {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, k := range c.all {
		if k.who.Equal(who) {
			return k.who
		}
	}
	return who
}

// maxClaims is how many bytes the claims may have that a cache remembers.
const maxClaims = 16 << 20

// put remembers one, in place of any other where there are as many as may be.
func (c *cache[K, T]) put(key K, k known[T], most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetLocked(key)
	c.claims += len(k.who.Claims)
	for old := range c.all {
		if len(c.all) < most && c.claims <= maxClaims {
			break
		}
		c.forgetLocked(old)
	}
	if c.all == nil {
		c.all = make(map[K]known[T])
	}
	c.all[key] = k
}

func (c *cache[K, T]) forgetLocked(key K) {
	if k, ok := c.all[key]; ok {
		c.claims -= len(k.who.Claims)
		delete(c.all, key)
	}
}
