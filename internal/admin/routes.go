package admin

import (
	"maps"
	"net/http"
	"slices"
	"strings"
)

// routes are paths with the methods that each takes. What is not there is
// answered with what is.
type routes struct {
	paths  map[string]map[string]http.HandlerFunc
	prefix map[string]http.HandlerFunc // whole subtrees, GET only
	run    http.HandlerFunc            // of /v1/runs/{id}/restart
}

func newRoutes() *routes {
	return &routes{paths: map[string]map[string]http.HandlerFunc{}, prefix: map[string]http.HandlerFunc{}}
}

func (r *routes) get(path string, f http.HandlerFunc) {
	r.handle(http.MethodGet, path, f)
	r.handle(http.MethodHead, path, f)
}

func (r *routes) handle(method, path string, f http.HandlerFunc) {
	if r.paths[path] == nil {
		r.paths[path] = map[string]http.HandlerFunc{}
	}
	r.paths[path][method] = f
}

// ServeHTTP implements http.Handler.
func (r *routes) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	methods := r.find(req.URL.Path)
	if methods == nil {
		refuse(w, http.StatusNotFound, "there is no "+printable(req.URL.Path)+" here, but "+strings.Join(r.known(), ", "))
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

func (r *routes) find(path string) map[string]http.HandlerFunc {
	if methods := r.paths[path]; methods != nil {
		return methods
	}
	if id, ok := runOf(path); ok && id != "" && r.run != nil {
		return map[string]http.HandlerFunc{http.MethodPost: r.run}
	}
	for prefix, f := range r.prefix {
		if strings.HasPrefix(path, prefix) {
			return map[string]http.HandlerFunc{http.MethodGet: f, http.MethodHead: f}
		}
	}
	return nil
}

// runOf is the run that a path under /v1/runs names.
func runOf(path string) (id string, ok bool) {
	rest, ok := strings.CutPrefix(path, "/v1/runs/")
	if !ok {
		return "", false
	}
	id, ok = strings.CutSuffix(rest, "/restart")
	return id, ok && !strings.Contains(id, "/")
}

func (r *routes) known() []string {
	return slices.Sorted(func(yield func(string) bool) {
		for path := range r.paths {
			if !yield(path) {
				return
			}
		}
		for prefix := range r.prefix {
			if !yield(prefix) {
				return
			}
		}
	})
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
