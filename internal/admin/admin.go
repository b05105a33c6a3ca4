package admin

import (
	"net/http"

	"github.com/fsm-proxy/fsm-proxy/internal/httpserver"
)

// Admin is a look inside a running proxy, and a few levers. All functions are
// required, but for Bearer; they are called by several goroutines at once.
type Admin struct {
	Policy   func() Policy
	Sessions func() []Session // in the order of their ids
	Runs     func() []Run     // in the order of their ids
	// StartRun begins a run that has a URL of its own, RestartRun begins one anew by
	// its id, and reports whether there is one.
	StartRun   func() (Started, error)
	RestartRun func(id string) bool
	// Migrate has stranded runs begin anew.
	Migrate func() Migrated
	Level   func() string
	// SetLevel refuses what is no level.
	SetLevel func(level string) error
	// Bearer is the token that must be sent; nil: none is needed.
	Bearer func() string
	// Local says that the listener is a loopback one, or a unix socket: then the
	// Host must be a loopback name, so that no web page gets in by a name of its
	// own that leads here.
	Local bool
}

// Handler returns the handler of the admin listener.
func (a *Admin) Handler() http.Handler {
	r := newRoutes()
	r.get("/v1/policy", func(w http.ResponseWriter, _ *http.Request) { answer(w, a.Policy()) })
	r.get("/v1/sessions", a.sessions)
	r.get("/v1/runs", a.runs)
	r.handle(http.MethodPost, "/v1/runs", onlyJSON(a.start))
	r.run = onlyJSON(a.restart)
	r.handle(http.MethodPost, "/v1/runs/migrate", onlyJSON(func(w http.ResponseWriter, _ *http.Request) { answer(w, a.Migrate()) }))
	r.get("/v1/log-level", a.level)
	r.handle(http.MethodPut, "/v1/log-level", onlyJSON(a.setLevel))
	r.prefix["/debug/pprof/"] = profiles()
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if a.pass(w, req) {
			httpserver.Admit(w)
			r.ServeHTTP(w, req)
		}
	})
}
