// Package admin is what operators and the kubelet ask of a running proxy over
// HTTP, apart from what clients ask: [Health] for probes and metrics, read-only
// and for everybody who can reach it, and [Admin] for a look inside, and a few
// levers, for those who may.
//
// The package knows no proxy: it is given functions that answer.
package admin

import (
	"context"
	"encoding/json/v2"
	"io"
	"mime"
	"net/http"
	"net/http/pprof"
	"net/url"
	"sort"
	"strconv"

	"github.com/fsm-proxy/fsm-proxy/internal/httpserver"
	"github.com/fsm-proxy/fsm-proxy/internal/journal"
)

// Admin is a look inside a running proxy, and a few levers. All functions are
// required, but for Who, Journal and those of Others; they are called by several goroutines at once.
type Admin struct {
	Policy   func() Policy
	Sessions func() []Session // in the order of their ids
	// Runs are those of a query, in the order of their ids: no fewer than it asks for, if there are so many. whole tells
	// that these are all.
	Runs func(ctx context.Context, q RunsQuery) (all []Run, whole bool, err error)
	// Start begins a run before its first client comes. An error is a [*Refusal].
	Start func(s Start) (Started, error)
	// Verbs are those that there are, "" for none; nil: all of [Verbs].
	Verbs []string
	Acts
	// Run shows a run by its id, and Signal sends it a signal, which may wait for as long as ctx lasts. An error
	// of these is a [*Refusal].
	Run    func(id string) (RunDetail, error)
	Signal func(ctx context.Context, s Signal) (Signalled, error)
	// Approvals are the calls that wait for a yes or a no, in the order of their ids, and Approve answers one. An error of
	// this one is a [*Refusal].
	Approvals func() []Approval
	Approve   func(ctx context.Context, a ApprovalAnswer) (Approved, error)
	Others
	// Migrate has stranded runs begin anew.
	Migrate func() Migrated
	Level   func() string
	// SetLevel refuses what is no level.
	SetLevel func(level string) error
	// Who says by a request's token which operator sends it, and reports false where it has none that is known; nil:
	// no token is needed, and what needs one is refused.
	Who func(r *http.Request) (name string, ok bool)
	// Journal is what is kept of runs, as far as operators may see it; nil: nothing is.
	Journal journal.Reader
	// Local says that the listener is a loopback one, or a unix socket: then the
	// Host must be a loopback name, so that no web page gets in by a name of its
	// own that leads here.
	Local bool
}

// Acts are what is done to runs.
type Acts struct {
	// Reset begins a run anew, End ends it for good, Annotate keeps what is said of it, Accept has it go on as the store
	// has it, and Release gives it away. An error of these is a [*Refusal].
	Reset, End, Annotate, Accept, Release func(v Verb) (Stands, error)
	// ReleaseAll gives away all runs of this process that [Acts.Release] would. An error is a [*Refusal].
	ReleaseAll func(v Verb) (Released, error)
	// Fork begins a run that is what another one was after an entry. An error is a [*Refusal].
	Fork func(f Fork) (Forked, error)
}

// Others are the other processes that share what is kept of runs; the zero Others: there are none.
type Others struct {
	// Self is how operators know this process among them.
	Self string
	// Elsewhere are those of other processes, in any order, as an operator sees them, "" for nobody who is known; absent
	// names the processes that have not answered.
	Elsewhere func(ctx context.Context, from string) (all []Approval, absent []string)
	// PassOn has another process answer a request, where what was said of it here tells that it may: it is to be tried here
	// once more where that one does not either. An error is what it is answered with.
	PassOn func(w http.ResponseWriter, r *http.Request, on Onward) (again bool, err error)
	// Asked reports whether an approval is wanted in this process, or was, and its answer is known still.
	Asked func(id string) bool
}

// Handler returns the handler of the admin listener.
func (a *Admin) Handler() http.Handler {
	r := routes{}
	r.get("/v1/policy", func(w http.ResponseWriter, _ *http.Request) { answer(w, a.Policy()) })
	r.get("/v1/sessions", a.sessions)
	r.get("/v1/runs", a.runs)
	r.handle(http.MethodPost, "/v1/runs", onlyJSON(a.allowed("start", a.start)))
	a.ofRuns(r)
	r.handle(http.MethodPost, "/v1/runs/migrate", onlyJSON(a.allowed("migrate", func(w http.ResponseWriter, _ *http.Request) { answer(w, a.Migrate()) })))
	r.handle(http.MethodPost, releaseAllPath, onlyJSON(a.allowed("release", here(a.verb(releaseAllPath, with(reasonForm, a.ReleaseAll))))))
	a.journals(r)
	r.get("/v1/log-level", a.level)
	r.handle(http.MethodPut, "/v1/log-level", onlyJSON(a.setLevel))
	r.get(profilesPath, profiles())
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if a.pass(w, req) {
			httpserver.Admit(w)
			r.ServeHTTP(w, req)
		}
	})
}

// ofRuns are the paths of what is asked about one run, or about calls that wait, which another process may have.
func (a *Admin) ofRuns(r routes) {
	does := func(path, verb string, room chan struct{}, f func(w http.ResponseWriter, r *http.Request) error) {
		r.handle(http.MethodPost, path, onlyJSON(a.allowed(verb, a.wherever(room, f))))
	}
	r.get(runPath, a.wherever(nil, a.run))
	does(resetPath, "reset", nil, a.verb(resetPath, with(reasonForm, a.Reset)))
	does(endPath, "end", nil, a.verb(endPath, with(reasonForm, a.End)))
	does(forkPath, "fork", nil, a.verb(forkPath, a.fork))
	does(annotatePath, "annotate", nil, a.verb(annotatePath, with(textForm, a.Annotate)))
	does(acceptPath, "accept", nil, a.verb(acceptPath, with(reasonForm, a.Accept)))
	does(releasePath, "release", nil, a.verb(releasePath, with(reasonForm, a.Release)))
	does(signalPath, "signal", make(chan struct{}, maxSignals), a.signals())
	r.get("/v1/approvals", a.approvals)
	r.get(approvalPath, a.wherever(nil, a.approval))
	room := make(chan struct{}, maxSignals)
	does(allowPath, "approve", room, a.approve(allowPath, true))
	does(denyPath, "approve", room, a.approve(denyPath, false))
	for _, path := range []string{allowPath, denyPath} {
		r.handle(http.MethodPost, path, a.askedHere(path, r[path][http.MethodPost]))
	}
}

const otherHost = "this Host is not served here: use localhost, or 127.0.0.1"

// pass reports whether a request may go on; else it is answered.
func (a *Admin) pass(w http.ResponseWriter, r *http.Request) bool {
	switch {
	case a.Local && !httpserver.LoopbackHost(r.Host):
		refuse(w, http.StatusForbidden, otherHost)
	case !ownOrigin(r) || !ownSite(r):
		refuse(w, http.StatusForbidden, "requests from web pages of another origin are not served here")
	case a.Who != nil && !a.known(r):
		w.Header().Set("WWW-Authenticate", "Bearer")
		refuse(w, http.StatusUnauthorized, "a bearer token is needed: the one in the proxy's --admin-bearer-file, or one of --admin-tokens")
	default:
		return true
	}
	return false
}

func (a *Admin) known(r *http.Request) bool {
	_, ok := a.Who(r)
	return ok
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

// onlyJSON keeps from f, which changes something, what does not say that its body is JSON, which a web page cannot say
// to another origin without asking first.
func onlyJSON(f http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		given := r.Header["Content-Type"]
		if len(given) == 1 {
			if kind, _, err := mime.ParseMediaType(given[0]); err == nil && kind == "application/json" {
				f(w, r)
				return
			}
		}
		refuse(w, http.StatusUnsupportedMediaType, "what changes something must come with the header Content-Type: application/json")
	}
}

// list is one page of a list. Next is what to give as after for the next one.
type list[T any] struct {
	Count *int   `json:"count,omitempty"` // of all pages; nil: nobody has counted them
	Next  string `json:"next,omitempty"`
	Items []T    `json:"items"`
	// Absent are the processes that have not said what they have.
	Absent []string `json:"absent,omitempty"`
}

func (a *Admin) sessions(w http.ResponseWriter, r *http.Request) {
	serveList(w, r, a.Sessions(), true, func(s Session) string { return s.ID })
}

func (a *Admin) runs(w http.ResponseWriter, r *http.Request) {
	given := r.URL.Query()
	q := RunsQuery{After: given.Get("after"), Limit: maxPageSize, Owner: given.Get("owner"), Issuer: given.Get("issuer")}
	all, whole, err := a.Runs(r.Context(), q)
	if err != nil {
		fail(w, err)
		return
	}
	serveList(w, r, all, whole, func(run Run) string { return run.ID })
}

const (
	pageSize    = 100
	maxPageSize = 1000
)

// serveList answers with the page that is asked for of all items, which are in the
// order of their ids. whole tells that these are all that there are; else absent may name the processes that have the rest.
func serveList[T any](w http.ResponseWriter, r *http.Request, all []T, whole bool, id func(T) string, absent ...string) {
	limit, after := pageSize, r.URL.Query().Get("after")
	if text := r.URL.Query().Get("limit"); text != "" {
		var err error
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > maxPageSize {
			refuse(w, http.StatusBadRequest, "limit is a number from 1 to 1000, after the id of the last one that is known")
			return
		}
	}
	from := 0
	if after != "" {
		from = sort.Search(len(all), func(i int) bool { return id(all[i]) > after })
	}
	to := min(from+limit, len(all))
	for to > from && to < len(all) && id(all[to]) == id(all[to-1]) {
		to++ // the next page begins after that id
	}
	out := list[T]{Items: append([]T{}, all[from:to]...), Absent: absent}
	if count := len(all); whole {
		out.Count = &count
	}
	if to < len(all) {
		out.Next = id(all[to-1])
	}
	answer(w, out)
}

type logLevel struct {
	Level string `json:"level"`
}

func (a *Admin) level(w http.ResponseWriter, _ *http.Request) {
	answer(w, logLevel{a.Level()})
}

// setLevel takes what level gives.
func (a *Admin) setLevel(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<10))
	if err != nil {
		refuse(w, http.StatusBadRequest, `the body cannot be read: send a level, like {"level": "debug"}`)
		return
	}
	var given logLevel
	if err := json.Unmarshal(body, &given, json.RejectUnknownMembers(true)); err != nil {
		refuse(w, http.StatusBadRequest, `this is no level: send {"level": "debug"}`)
		return
	}
	if err := a.SetLevel(given.Level); err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	a.level(w, r)
}

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
