package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// modernOnly is a server that speaks the modern era and no other.
func modernOnly(t *testing.T) string {
	t.Helper()
	results := map[string]string{
		"server/discover": `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private",` +
			`"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"modern-demo","version":"7"}}}`,
		"tools/list": `{"resultType":"complete","tools":[{"name":"act","inputSchema":{"type":"object"}}],"ttlMs":0,"cacheScope":"private"}`,
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		m, err := wire.Read(raw, wire.FromUpstream)
		w.Header().Set("Content-Type", "application/json")
		switch {
		case err != nil || m.Era() != wire.Modern || r.Header.Get(wire.HeaderMethod) != m.Method:
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, "%s", wire.ErrorAnswer(nil, wire.CodeHeaderMismatch, "not of this era", nil))
		case results[m.Method] == "":
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprintf(w, "%s", wire.ErrorAnswer(m.Bytes(m.ID), wire.CodeMethodNotFound, "unknown", nil))
		default:
			fmt.Fprintf(w, "%s", wire.ResultAnswer(m.Bytes(m.ID), []byte(results[m.Method])))
		}
	}))
	t.Cleanup(web.Close)
	return web.URL
}

// TestInventoryOfAModernServer is taken by init, check and lock alike.
func TestInventoryOfAModernServer(t *testing.T) {
	url := modernOnly(t)
	path := filepath.Join(t.TempDir(), "policy.yaml")
	for _, args := range [][]string{
		{"init", "-o", path, "--upstream", url},
		{"check", "--strict", path, "--upstream", url},
		{"lock", path, "--upstream", url},
	} {
		if r := command(t, nil, args...); r.code != 0 {
			t.Fatalf("%s: exit code %d\n%s%s", args[0], r.code, r.stdout, r.stderr)
		}
	}
	written, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(written), "modern-demo") || !strings.Contains(string(written), "act") {
		t.Errorf("%v\n%s", err, written)
	}
}
