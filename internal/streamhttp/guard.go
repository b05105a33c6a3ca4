package streamhttp

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/httpserver"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// guard decides which requests are looked at at all.
type guard struct {
	loopback bool
	hosts    map[string]bool // lower case
	origins  map[string]bool // lower case
	public   func(http.ResponseWriter, *http.Request) bool
	identify func(http.ResponseWriter, *http.Request) (wire.Principal, bool)
	tell     func(Reason, int, *http.Request)
}

func newGuard(cfg *ServerConfig) *guard {
	return &guard{
		loopback: cfg.Loopback,
		hosts:    lowerSet(cfg.AllowedHosts),
		origins:  lowerSet(cfg.AllowedOrigins),
		public:   cfg.Public,
		identify: cfg.Authenticate,
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

// pass says who is asking, if the request may go on; else it is answered.
func (g *guard) pass(w http.ResponseWriter, r *http.Request) (who wire.Principal, ok bool) {
	if !g.fromHere(w, r) || g.public != nil && g.public(w, r) {
		return wire.Principal{}, false
	}
	if g.identify != nil {
		if who, ok = g.identify(w, r); !ok {
			return who, false
		}
		httpserver.Admit(w)
	}
	return who, true
}

// fromHere reports whether Host and Origin are served; else the request is
// answered.
func (g *guard) fromHere(w http.ResponseWriter, r *http.Request) bool {
	if !g.hostAllowed(r.Host) {
		g.tell(ReasonHost, http.StatusForbidden, r)
		refuse(w, http.StatusForbidden, "this Host is not served here: start the proxy with --allowed-host to allow it")
		return false
	}
	if origin := r.Header["Origin"]; len(origin) > 0 {
		if len(origin) > 1 || !g.originAllowed(origin[0]) {
			g.tell(ReasonOrigin, http.StatusForbidden, r)
			refuse(w, http.StatusForbidden, "this Origin is not served here: start the proxy with --allowed-origin to allow it")
			return false
		}
		if cors(w, r, origin[0]) {
			return false
		}
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
