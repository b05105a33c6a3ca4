package auth

import (
	"encoding/json/v2"
	"net/http"
	"net/url"
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
	if !ok {
		return false
	}
	outside := g.cfg.Path
	if g.cfg.Resource != nil {
		outside = g.cfg.Resource.Path
	}
	return of == "" || of == g.cfg.Path || of == outside || strings.HasPrefix(of, g.cfg.Path+"/")
}

// resource is the URL of this server as its clients have it: what it was told, or
// else what the request is for.
func (g *Gate) resource(r *http.Request) *url.URL {
	if g.cfg.Resource != nil {
		return g.cfg.Resource
	}
	u := &url.URL{Scheme: "http", Host: r.Host, Path: g.cfg.Path}
	if r.TLS != nil {
		u.Scheme = "https"
	}
	return u
}

// metadataURL is where a request's client finds the metadata (RFC 9728, section 3.1).
func (g *Gate) metadataURL(r *http.Request) string {
	u := *g.resource(r)
	u.Path = wellKnownResource + strings.TrimSuffix(u.Path, "/")
	return u.String()
}
