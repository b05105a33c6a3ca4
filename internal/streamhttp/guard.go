package streamhttp

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// guard decides which requests are looked at at all.
type guard struct {
	loopback bool
	hosts    map[string]bool // lower case
	origins  map[string]bool // lower case
	bearer   func() string
	tell     func(Reason, *http.Request)
}

func newGuard(cfg *ServerConfig) *guard {
	return &guard{
		loopback: cfg.Loopback,
		hosts:    lowerSet(cfg.AllowedHosts),
		origins:  lowerSet(cfg.AllowedOrigins),
		bearer:   cfg.BearerToken,
		tell:     cfg.tell,
	}
}

func lowerSet(list []string) map[string]bool {
	set := make(map[string]bool, len(list))
	for _, s := range list {
		set[strings.ToLower(strings.TrimSuffix(s, "/"))] = true
	}
	return set
}

// pass reports whether the request may go on; else it is answered.
func (g *guard) pass(w http.ResponseWriter, r *http.Request) bool {
	if !g.hostAllowed(r.Host) {
		g.tell(ReasonHost, r)
		refuse(w, http.StatusForbidden, "this Host is not served here: start the proxy with --allowed-host to allow it")
		return false
	}
	if origin := r.Header["Origin"]; len(origin) > 0 {
		if len(origin) > 1 || !g.originAllowed(origin[0]) {
			g.tell(ReasonOrigin, r)
			refuse(w, http.StatusForbidden, "this Origin is not served here: start the proxy with --allowed-origin to allow it")
			return false
		}
		if cors(w, r, origin[0]) {
			return false
		}
	}
	if g.bearer != nil && !g.authorized(r) {
		g.tell(bearerReason(r), r)
		w.Header().Set("WWW-Authenticate", "Bearer")
		refuse(w, http.StatusUnauthorized, "a bearer token is needed")
		return false
	}
	return true
}

func (g *guard) hostAllowed(host string) bool {
	if !g.loopback && len(g.hosts) == 0 {
		return true
	}
	if g.loopback && LoopbackHost(host) {
		return true
	}
	if len(g.hosts) == 0 {
		return false
	}
	return g.hosts[strings.ToLower(hostname(host))] || g.hosts[strings.ToLower(host)]
}

func (g *guard) originAllowed(origin string) bool {
	origin = strings.ToLower(origin)
	if g.origins[origin] {
		return true
	}
	if !g.loopback {
		return false
	}
	u, err := url.Parse(origin)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && isLoopback(u.Hostname())
}

// hostname is a Host header without its port and brackets.
func hostname(host string) string {
	if strings.HasPrefix(host, "[") {
		name, rest, ok := strings.Cut(host[1:], "]")
		if ok && (rest == "" || rest[0] == ':') {
			return name
		}
		return ""
	}
	if name, port, ok := strings.Cut(host, ":"); ok && !strings.Contains(port, ":") {
		return name
	}
	return host
}

// isLoopback reports whether a host name is this machine's without asking
// anybody: a name that resolves to it is not.
func isLoopback(name string) bool {
	if len(name) == len("localhost") && strings.EqualFold(name, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(name)
	return err == nil && addr.Unmap().IsLoopback()
}

// cors tells browsers what an allowed origin may do, and reports whether the
// request was answered by that.
func cors(w http.ResponseWriter, r *http.Request, origin string) bool {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Expose-Headers", "Mcp-Session-Id, WWW-Authenticate")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
	if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
		h.Set("Access-Control-Allow-Headers", asked)
	}
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}

func (g *guard) authorized(r *http.Request) bool { return Authorized(r, g.bearer()) }

// Authorized reports whether a request carries this bearer token, once. It takes
// the same time whatever the request carries. No request carries an empty token.
func Authorized(r *http.Request, token string) bool {
	given := r.Header["Authorization"]
	if token == "" || len(given) != 1 {
		return false
	}
	const scheme = "bearer "
	if len(given[0]) < len(scheme) || !strings.EqualFold(given[0][:len(scheme)], scheme) {
		return false
	}
	a, b := sha256.Sum256([]byte(given[0][len(scheme):])), sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// LoopbackHost reports whether a Host header names this machine without asking
// anybody.
func LoopbackHost(host string) bool { return isLoopback(hostname(host)) }
