package admin

import (
	"mime"
	"net/http"
	"net/url"

	"github.com/fsm-proxy/fsm-proxy/internal/httpserver"
)

const otherHost = "this Host is not served here: use localhost, or 127.0.0.1"

// pass reports whether a request may go on; else it is answered.
func (a *Admin) pass(w http.ResponseWriter, r *http.Request) bool {
	switch {
	case a.Local && !httpserver.LoopbackHost(r.Host):
		refuse(w, http.StatusForbidden, otherHost)
	case !ownOrigin(r) || !ownSite(r):
		refuse(w, http.StatusForbidden, "requests from web pages of another origin are not served here")
	case a.Bearer != nil && !httpserver.Authorized(r, a.Bearer()):
		w.Header().Set("WWW-Authenticate", "Bearer")
		refuse(w, http.StatusUnauthorized, "a bearer token is needed: the one in the proxy's --admin-bearer-file")
	default:
		return true
	}
	return false
}

// ownOrigin reports whether a request comes from no web page, or from one that
// was served here.
func ownOrigin(r *http.Request) bool {
	given := r.Header["Origin"]
	if len(given) == 0 {
		return true
	}
	u, err := url.Parse(given[0])
	return len(given) == 1 && err == nil && u.Host != "" && u.Host == r.Host
}

// ownSite reports the same by what browsers say since they send no Origin for
// images and links.
func ownSite(r *http.Request) bool {
	for _, site := range r.Header["Sec-Fetch-Site"] {
		if site != "same-origin" && site != "none" {
			return false
		}
	}
	return true
}

// onlyJSON keeps from f, which changes something, what does not say that it is
// JSON.
func onlyJSON(f http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !isJSON(r) {
			refuse(w, http.StatusUnsupportedMediaType, "what changes something must come with the header Content-Type: application/json")
			return
		}
		f(w, r)
	}
}

// isJSON reports whether a request says that its body is JSON, which a web page
// cannot say to another origin without asking first.
func isJSON(r *http.Request) bool {
	given := r.Header["Content-Type"]
	if len(given) != 1 {
		return false
	}
	kind, _, err := mime.ParseMediaType(given[0])
	return err == nil && kind == "application/json"
}
