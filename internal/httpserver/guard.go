package httpserver

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// Guard tells requests that mean this server from those that a web page has brought here by
// a name of its own, or that come from another one's page. Its zero value is of a server that
// is not a loopback one, for which any Host will do and no Origin.
type Guard struct {
	loopback       bool
	hosts, origins map[string]bool // lower case
}

// NewGuard returns a guard of a server that listens on a loopback address, or not. Hosts are
// names ("example.com": any port) or names with a port; origins are web origins, "https://example.com".
func NewGuard(loopback bool, hosts, origins []string) Guard {
	return Guard{loopback, lowerSet(hosts), lowerSet(origins)}
}

func lowerSet(list []string) map[string]bool {
	set := make(map[string]bool, len(list))
	for _, s := range list {
		set[strings.ToLower(strings.TrimSuffix(s, "/"))] = true
	}
	return set
}

// Host reports whether a Host header is served: on a loopback address a loopback name, or one
// of the guard's; else any, unless the guard has some.
func (g *Guard) Host(host string) bool {
	switch {
	case g.loopback && LoopbackHost(host):
		return true
	case len(g.hosts) == 0:
		return !g.loopback
	}
	return g.hosts[strings.ToLower(hostname(host))] || g.hosts[strings.ToLower(host)]
}

// Origin reports whether an Origin header is served: one of the guard's, and on a loopback
// address those of this machine.
func (g *Guard) Origin(origin string) bool {
	origin = strings.ToLower(origin)
	if g.origins[origin] || !g.loopback {
		return g.origins[origin]
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

// Authorized reports whether a request carries this bearer token, once. It takes
// the same time whatever the request carries. No request carries an empty token.
func Authorized(r *http.Request, token string) bool {
	values := r.Header["Authorization"]
	if token == "" || len(values) != 1 {
		return false
	}
	scheme, credentials, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "bearer") {
		return false
	}
	a, b := sha256.Sum256([]byte(credentials)), sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// LoopbackHost reports whether a Host header names this machine without asking
// anybody.
func LoopbackHost(host string) bool { return isLoopback(hostname(host)) }
