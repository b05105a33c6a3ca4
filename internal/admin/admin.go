package admin

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/pprof"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/streamhttp"
)

// Admin is a look inside a running proxy, and a few levers. All functions are
// required, but for Bearer; they are called by several goroutines at once.
type Admin struct {
	Policy   func() Policy
	Sessions func() []Session // in the order of their ids
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

// Policy is the policy in force, and how it came to be.
type Policy struct {
	Name     string    `json:"name,omitempty"`
	File     string    `json:"file"`
	Digest   string    `json:"digest"`
	States   int       `json:"states"`
	Mode     string    `json:"mode"`
	LoadedAt time.Time `json:"loaded_at"`
	// LastReload is the last attempt, nil where there was none.
	LastReload *Reload `json:"last_reload,omitempty"`
	Succeeded  uint64  `json:"reloads_succeeded"`
	Failed     uint64  `json:"reloads_failed"`
}

// Reload is one attempt to put what the file says in force.
type Reload struct {
	At      time.Time `json:"at"`
	Success bool      `json:"success"`
	// Errors say where the file is wrong, as `fsm-proxy check` does.
	Errors []string `json:"errors,omitempty"`
}

// Session is one client. Ids are hashes: with them nobody can act as the client.
type Session struct {
	ID       string  `json:"id"`
	Remote   string  `json:"remote,omitempty"`
	Client   string  `json:"client,omitempty"`
	Protocol string  `json:"protocol_version,omitempty"`
	State    string  `json:"state"`
	Age      float64 `json:"age_seconds"`
	InFlight int     `json:"in_flight"`
	Run      Run     `json:"-"`
}

// Run is where one walk through the automaton stands.
type Run struct {
	ID       string     `json:"id"`
	Session  string     `json:"session"`
	State    string     `json:"state"`
	Complete bool       `json:"complete"`
	Policy   string     `json:"policy_digest"`
	Stranded *time.Time `json:"stranded_since,omitempty"`
	Refused  bool       `json:"refused,omitempty"`
	TurnHeld bool       `json:"turn_held"`
	Queued   int        `json:"queued"`
}

// Migrated says what a migration did.
type Migrated struct {
	Runs      int `json:"runs"`
	Restarted int `json:"restarted"`
}

// Handler returns the handler of the admin listener.
func (a *Admin) Handler() http.Handler {
	r := newRoutes()
	r.get("/v1/policy", func(w http.ResponseWriter, _ *http.Request) { answer(w, a.Policy()) })
	r.get("/v1/sessions", a.sessions)
	r.get("/v1/runs", a.runs)
	r.handle(http.MethodPost, "/v1/runs/migrate", func(w http.ResponseWriter, _ *http.Request) { answer(w, a.Migrate()) })
	r.get("/v1/log-level", a.level)
	r.handle(http.MethodPut, "/v1/log-level", a.setLevel)
	r.prefix["/debug/pprof/"] = profile
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if a.pass(w, req) {
			r.ServeHTTP(w, req)
		}
	})
}

// pass reports whether a request may go on; else it is answered.
func (a *Admin) pass(w http.ResponseWriter, r *http.Request) bool {
	switch {
	case a.Local && !streamhttp.LoopbackHost(r.Host):
		refuse(w, http.StatusForbidden, "this Host is not served here: use localhost, or 127.0.0.1")
	case !ownOrigin(r):
		refuse(w, http.StatusForbidden, "requests from web pages of another origin are not served here")
	case a.Bearer != nil && !streamhttp.Authorized(r, a.Bearer()):
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

func (a *Admin) level(w http.ResponseWriter, _ *http.Request) {
	answer(w, logLevel{a.Level()})
}

type logLevel struct {
	Level string `json:"level"`
}

// setLevel takes a level as a word, or as /v1/log-level gives it.
func (a *Admin) setLevel(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<10))
	if err != nil {
		refuse(w, http.StatusBadRequest, "the body cannot be read: send a level, like debug")
		return
	}
	word := strings.TrimSpace(string(body))
	if strings.HasPrefix(word, "{") {
		var given logLevel
		if err := json.Unmarshal(body, &given); err != nil {
			refuse(w, http.StatusBadRequest, `send a level, like debug or {"level": "debug"}`)
			return
		}
		word = given.Level
	}
	if err := a.SetLevel(word); err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	a.level(w, r)
}

// answer answers with a JSON object.
func answer(w http.ResponseWriter, v any) { write(w, http.StatusOK, v) }

// refuse answers with what is wrong, and what to do.
func refuse(w http.ResponseWriter, status int, text string) {
	write(w, status, struct {
		Error string `json:"error"`
	}{text})
}

func write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	_ = out.Encode(v) // whoever has gone needs no answer
}

// page says which part of a long list is wanted.
type page struct {
	limit int
	after string
}

const (
	pageSize    = 100
	maxPageSize = 1000
)

var errPage = errors.New("limit is a number from 1 to 1000, after the id of the last one that is known")

func pageOf(r *http.Request) (p page, err error) {
	p = page{limit: pageSize, after: r.URL.Query().Get("after")}
	if text := r.URL.Query().Get("limit"); text != "" {
		if p.limit, err = strconv.Atoi(text); err != nil || p.limit < 1 || p.limit > maxPageSize {
			return p, errPage
		}
	}
	return p, nil
}
