package admin

import (
	"maps"
	"net/http"
	"slices"
	"strings"
)

// routes are paths with the methods that each takes. What is not there is answered with what is.
type routes map[string]map[string]http.HandlerFunc

const releaseAllPath = "/v1/runs/release"

// The paths that stand for many.
const (
	runPath      = "/v1/runs/{id}"
	resetPath    = "/v1/runs/{id}/reset"
	endPath      = "/v1/runs/{id}/end"
	forkPath     = "/v1/runs/{id}/fork"
	acceptPath   = "/v1/runs/{id}/accept"
	releasePath  = "/v1/runs/{id}/release"
	annotatePath = "/v1/runs/{id}/annotate"
	signalPath   = "/v1/runs/{id}/signals/{name}"
	approvalPath = "/v1/approvals/{id}"
	allowPath    = "/v1/approvals/{id}/allow"
	denyPath     = "/v1/approvals/{id}/deny"

	journalRunPath     = "/v1/journal/runs/{id}"
	journalRecordsPath = "/v1/journal/runs/{id}/records"
	journalOfRunPath   = "/v1/journal/runs/{id}/objects"

	profilesPath = "/debug/pprof/" // and all beneath it
)

func (r routes) get(path string, f http.HandlerFunc) {
	r.handle(http.MethodGet, path, f)
	r.handle(http.MethodHead, path, f)
}

func (r routes) handle(method, path string, f http.HandlerFunc) {
	if r[path] == nil {
		r[path] = map[string]http.HandlerFunc{}
	}
	r[path][method] = f
}

// ServeHTTP implements http.Handler.
func (r routes) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	methods := r.find(req.URL.Path)
	if methods == nil {
		refuse(w, http.StatusNotFound, "there is no "+printable(req.URL.Path)+" here, but "+strings.Join(slices.Sorted(maps.Keys(r)), ", "))
		return
	}
	f := methods[req.Method]
	if f == nil {
		w.Header().Set("Allow", strings.Join(slices.Sorted(maps.Keys(methods)), ", "))
		refuse(w, http.StatusMethodNotAllowed, "this path takes "+w.Header().Get("Allow")+" only")
		return
	}
	f(w, req)
}

func (r routes) find(path string) map[string]http.HandlerFunc {
	if methods := r[path]; methods != nil {
		return methods
	}
	if strings.HasPrefix(path, profilesPath) {
		return r[profilesPath]
	}
	for _, pattern := range []string{runPath, resetPath, endPath, forkPath, annotatePath, acceptPath, releasePath, signalPath, approvalPath, allowPath, denyPath, journalRunPath, journalRecordsPath, journalOfRunPath} {
		if parameters(pattern, path) != nil {
			return r[pattern]
		}
	}
	return nil
}

// parameters are what stands in a path where a pattern has braces, nil where the path is none of it.
func parameters(pattern, path string) (values []string) {
	parts, wants := strings.Split(path, "/"), strings.Split(pattern, "/")
	if len(parts) != len(wants) {
		return nil
	}
	for i, want := range wants {
		switch {
		case strings.HasPrefix(want, "{") && parts[i] != "":
			values = append(values, parts[i])
		case want != parts[i]:
			return nil
		}
	}
	return values
}

// printable is what somebody sent, fit for a message.
func printable(path string) string {
	const most = 100
	if len(path) > most {
		path = path[:most] + "…"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\u2028' || r == '\u2029' || r == '\ufffd' {
			return '?'
		}
		return r
	}, path)
}
