package auth

import (
	"encoding/json/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// wellKnownResource is where clients look for the metadata (RFC 9728, section 3).
const wellKnownResource = "/.well-known/oauth-protected-resource"

// metadata is what the proxy says of itself as a protected resource (RFC 9728,
// section 2).
type metadata struct {
	Resource string   `json:"resource"`
	Servers  []string `json:"authorization_servers"`
	Scopes   []string `json:"scopes_supported,omitempty"`
	Methods  []string `json:"bearer_methods_supported"`
}

// Public answers requests for the metadata, which need no token. It is for
// [streamhttp.ServerConfig].
func (g *Gate) Public(w http.ResponseWriter, r *http.Request) bool {
	if g.cfg.Issuer == nil || !g.isMetadata(r.URL.Path) {
		return false
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		answer(w, http.StatusMethodNotAllowed, "use GET")
		return true
	}
	text, err := json.Marshal(metadata{
		Resource: g.resource(r).String(), Servers: []string{g.cfg.Issuer.cfg.URL}, Scopes: g.cfg.Issuer.cfg.Scopes, Methods: []string{"header"},
	})
	if err != nil {
		answer(w, http.StatusInternalServerError, "the metadata cannot be written")
		return true
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-cache")
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(text)
	return true
}

// isMetadata reports whether a path is that of the metadata, or of those of a path
// that is served here, or that is so named outside.
func (g *Gate) isMetadata(path string) bool {
	of, ok := strings.CutPrefix(path, wellKnownResource)
	return ok && (of == "" || slices.Contains(g.paths(), of) || g.run(of) != "")
}

// paths are the path that is served, and what it is called outside.
func (g *Gate) paths() []string {
	if g.cfg.Resource != nil {
		return []string{g.cfg.Path, g.cfg.Resource.Path}
	}
	return []string{g.cfg.Path}
}

// runs is what stands between the path served and the id of a run that has a URL of
// its own: to its client that is a resource of its own.
const runs = "/runs/"

// run is what a path, or that of its metadata, has behind the path served: "/runs/ID",
// "" for none.
func (g *Gate) run(path string) string {
	path = strings.TrimPrefix(path, wellKnownResource)
	for _, served := range g.paths() {
		rest, ok := strings.CutPrefix(path, served)
		if id, of := strings.CutPrefix(rest, runs); ok && of && id != "" && !strings.Contains(id, "/") {
			return rest
		}
	}
	return ""
}

// resource is the URL that a request is for, or whose metadata it is for, as its
// client has it: as it was told, or else as the request says.
func (g *Gate) resource(r *http.Request) *url.URL {
	u := &url.URL{Scheme: "http", Host: r.Host, Path: g.cfg.Path}
	if r.TLS != nil {
		u.Scheme = "https"
	}
	if g.cfg.Resource != nil {
		*u = *g.cfg.Resource
	}
	u.Path += g.run(r.URL.Path)
	return u
}

// metadataURL is where a request's client finds the metadata (RFC 9728, section 3.1).
func (g *Gate) metadataURL(r *http.Request) string {
	u := g.resource(r)
	u.Path = wellKnownResource + strings.TrimSuffix(u.Path, "/")
	return u.String()
}
