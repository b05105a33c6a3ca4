package peers

import (
	"io"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/httpserver"
)

// Headers between processes. From outside, none with their prefix is passed on, to either side.
const (
	headerPrefix   = "Fsm-Proxy-"
	headerLease    = headerPrefix + "Lease"    // of a request: the lease that it is for
	headerGreeting = headerPrefix + "Greeting" // of a request: it asks only whether its sender is known
	headerNotHere  = httpserver.HeaderNotHere  // of an answer 421: nothing was done
)

// take answers a request that another process has sent.
func (p *Peers) take(w http.ResponseWriter, r *http.Request) {
	if !p.knows(r.Context(), hashOf(r.TLS)) { // its lease may have ended since it connected
		NotHere(w, r)
		return
	}
	httpserver.Admit(w)
	if r.Header[headerGreeting] != nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	if !p.has(r.Header[headerLease]) || p.Closed() {
		NotHere(w, r)
		return
	}
	httpserver.AllowBodyTime(w, r)
	who, n, err := decode(r.Body, &p.known)
	if err != nil {
		p.cfg.Log.Warn("a request that was passed on cannot be read", "from", r.RemoteAddr, "error", err)
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	if r.ContentLength -= n; r.ContentLength > 0 {
		r.Header.Set("Content-Length", strconv.FormatInt(r.ContentLength, 10))
	} else {
		r.Body = http.NoBody
		r.Header.Del("Content-Length")
	}
	strip(r.Header)
	r.RemoteAddr, r.TLS = who.Remote, nil
	p.cfg.Handler(w, r, who)
}

// has reports whether a request is for the lease that this process has, and may act by.
func (p *Peers) has(given []string) bool {
	if len(given) != 1 {
		return false
	}
	lease, err := strconv.ParseInt(given[0], 10, 64)
	return err == nil && lease != 0 && lease == p.cfg.Lease() && p.cfg.Trusts(lease)
}

// NotHere answers a request that was passed on for what this process does not have, or may not act for: nothing was done,
// and who has sent it may ask another one.
func NotHere(w http.ResponseWriter, r *http.Request) {
	httpserver.AllowBodyTime(w, r)
	_, _ = io.Copy(io.Discard, r.Body) // who is still sending it might not hear the answer
	w.Header().Set(headerNotHere, "1")
	http.Error(w, "not here", http.StatusMisdirectedRequest)
}

// strip removes the headers that are for processes.
func strip(h http.Header) {
	for name := range h {
		if betweenProcesses(name) {
			delete(h, name)
		}
	}
}

func betweenProcesses(name string) bool {
	return len(name) >= len(headerPrefix) && strings.EqualFold(name[:len(headerPrefix)], headerPrefix)
}

// hopByHop are the headers that are for one connection, and those that say who asks, which was found out already.
var hopByHop = []string{
	"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// endToEnd is the headers that are passed on.
func endToEnd(h http.Header) iter.Seq2[string, []string] {
	return func(yield func(string, []string) bool) {
		var named map[string]bool // by the connection's own header
		for _, list := range h["Connection"] {
			for name := range strings.SplitSeq(list, ",") {
				if named == nil {
					named = make(map[string]bool)
				}
				named[http.CanonicalHeaderKey(strings.TrimSpace(name))] = true
			}
		}
		for name, values := range h {
			if !named[name] && !slices.Contains(hopByHop, name) && !betweenProcesses(name) && !yield(name, values) {
				return
			}
		}
	}
}
