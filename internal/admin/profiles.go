package admin

import (
	"net/http"
	"net/http/pprof"
)

// maxProfiles is how many profiles may be made at once: each costs memory, and
// many stop the whole process for a moment.
const maxProfiles = 4

// profiles has profile called, but not too often at once.
func profiles() http.HandlerFunc {
	room := make(chan struct{}, maxProfiles)
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case room <- struct{}{}:
			defer func() { <-room }()
			profile(w, r)
		default:
			w.Header().Set("Retry-After", "5")
			refuse(w, http.StatusServiceUnavailable, "too many profiles are being made: wait until one is done")
		}
	}
}

// profile serves the profiles of net/http/pprof, without its hold on the default
// mux.
func profile(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/debug/pprof/cmdline":
		refuse(w, http.StatusNotFound, "the command line may hold secrets, and is not shown")
	case "/debug/pprof/profile":
		pprof.Profile(w, r)
	case "/debug/pprof/symbol":
		pprof.Symbol(w, r)
	case "/debug/pprof/trace":
		pprof.Trace(w, r)
	default:
		pprof.Index(w, r)
	}
}
