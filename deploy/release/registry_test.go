package main

import (
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// registry serves the files of the release as npm's registry and PyPI's index do, and what else tests put in it.
type registry struct {
	*httptest.Server
	mu      sync.Mutex
	fetched []string // guarded by mu; the files that were asked for
}

func serveRegistry(t *testing.T, handlers map[string]http.Handler) *registry {
	r := &registry{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /files/{name}", func(w http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		r.fetched = append(r.fetched, q.PathValue("name"))
		r.mu.Unlock()
		http.ServeFile(w, q, filepath.Join(dist, q.PathValue("name")))
	})
	for pattern, h := range handlers {
		mux.Handle(pattern, h)
	}
	r.Server = httptest.NewServer(mux)
	t.Cleanup(r.Close)
	return r
}

// fetchedFiles are the files that were asked for until now.
func (r *registry) fetchedFiles() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.fetched...)
}

// npmRegistry answers what npm asks of a package: its manifests and where they are.
func npmRegistry(t *testing.T) *registry {
	t.Helper()
	packages := npmTarballs(t)
	return serveRegistry(t, map[string]http.Handler{
		"GET /npm/{name...}": http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			file, ok := packages[q.PathValue("name")]
			if !ok {
				http.NotFound(w, q)
				return
			}
			data, err := os.ReadFile(filepath.Join(dist, file))
			if err != nil {
				t.Error(err)
			}
			var manifest map[string]any
			if err := json.Unmarshal(untargz(t, data)["package/package.json"].data, &manifest); err != nil {
				t.Error(err)
			}
			sum := sha512.Sum512(data)
			manifest["dist"] = map[string]string{
				"tarball":   "http://" + q.Host + "/files/" + file,
				"integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:]),
			}
			_ = json.NewEncoder(w).Encode(map[string]any{
				"name": manifest["name"], "dist-tags": map[string]any{"latest": manifest["version"]},
				"versions": map[string]any{manifest["version"].(string): manifest},
			})
		}),
	})
}

// npmTarballs are the files of the release's npm packages, by name.
func npmTarballs(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dist, "*.tgz"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, path := range paths {
		var manifest npmManifest
		if err := json.Unmarshal(untargz(t, read(t, path))["package/package.json"].data, &manifest); err != nil {
			t.Fatal(err)
		}
		files[manifest.Name] = filepath.Base(path)
	}
	return files
}

// pythonIndex is the page of one project in a PEP 503 index.
func pythonIndex(t *testing.T) *registry {
	t.Helper()
	return serveRegistry(t, map[string]http.Handler{
		"GET /simple/fsm-proxy/": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			for _, wheel := range wheels(t) {
				fmt.Fprintf(w, "<a href=\"/files/%s\">%s</a>\n", strings.ReplaceAll(wheel, "+", "%2B"), wheel)
			}
		}),
	})
}

// wheels are the names of the release's wheels.
func wheels(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dist, "*.whl"))
	if err != nil {
		t.Fatal(err)
	}
	for i, path := range paths {
		paths[i] = filepath.Base(path)
	}
	return paths
}
