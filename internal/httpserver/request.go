package httpserver

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

const (
	// tinyBody is up to what size a body counts for nothing: the buffers of its
	// connection are larger.
	tinyBody = 4 << 10
	// quickBody is up to what size the body of a request with a session, or of a
	// principal, counts for nothing: such a one never waits. How many there can be is
	// bounded by how many connections there are.
	quickBody = 64 << 10
	// bodyTime is how long the reading of a body larger than quickBody may take, and
	// bodyWait how much of that it may wait for room.
	bodyTime = 45 * time.Second
	bodyWait = 5 * time.Second
)

var (
	// ErrNoRoom is a body for which there is no room in the budget.
	ErrNoRoom = errors.New("reading a body: there is no room for it")
	// ErrBodyTooLarge is a body that is longer than it may be.
	ErrBodyTooLarge = errors.New("reading a body: longer than the limit")
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

// Claim begins to count the body of a request, which takes nothing yet; nil: it is so
// small that it counts for nothing. Known are requests with a session or a principal; the
// end of stop ends their waiting.
func (b *BodyBudget) Claim(r *http.Request, known bool, stop <-chan struct{}) *BodyClaim {
	if n := r.ContentLength; n >= 0 && (n <= tinyBody || known && n <= quickBody) {
		return nil
	}
	return &BodyClaim{budget: b, known: known, patience: bodyWait, gone: r.Context().Done(), stop: stop}
}

// Read reads the body of a request, after an error as much of it as it has read. A buffer
// that counts grows as bytes come: a length alone is promised too easily. A nil claim counts
// nothing.
func (c *BodyClaim) Read(r *http.Request, limit int) ([]byte, error) {
	if c == nil {
		raw := make([]byte, r.ContentLength)
		n, err := io.ReadFull(r.Body, raw)
		return raw[:n], err
	}
	most := limit + 1
	if r.ContentLength >= 0 {
		most = int(r.ContentLength)
	}
	raw := make([]byte, 0, min(most, tinyBody))
	for {
		n, err := r.Body.Read(raw[len(raw):cap(raw)])
		raw = raw[:len(raw)+n]
		switch {
		case len(raw) > limit:
			return raw, ErrBodyTooLarge
		case int64(len(raw)) == r.ContentLength:
			return raw, nil
		case err == io.EOF && r.ContentLength < 0:
			return raw, nil
		case err == io.EOF:
			return raw, io.ErrUnexpectedEOF
		case err != nil:
			return raw, err
		}
		if len(raw) == cap(raw) {
			grown, err := c.enlarge(raw, min(2*cap(raw), most))
			if err != nil {
				return raw, err
			}
			raw = grown
		}
	}
}

// AllowBodyTime gives a body 45 s to arrive that is larger than 64 KiB, or of unknown length:
// the server's own read timeout is too short for it.
func AllowBodyTime(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength < 0 || r.ContentLength > quickBody {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime)) // net/http lifts it behind the body
	}
}
