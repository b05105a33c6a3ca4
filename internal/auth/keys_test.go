package auth

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// rotating is a source of keys that a test changes.
type rotating struct {
	set     atomic.Pointer[keySet] // nil: an error
	fetches atomic.Int32
}

func (x *rotating) fetch(context.Context) (*keySet, error) {
	x.fetches.Add(1)
	time.Sleep(100 * time.Millisecond) // of the bubble
	if set := x.set.Load(); set != nil {
		return set, nil
	}
	return nil, errors.New("nobody is there")
}

func rotatingOf(ids ...string) *rotating {
	x := &rotating{}
	x.set.Store(setOf(ids...))
	return x
}

func setOf(ids ...string) *keySet {
	s := &keySet{source: []byte(strings.Join(ids, " "))}
	for _, id := range ids {
		s.keys = append(s.keys, jose.JSONWebKey{KeyID: id})
	}
	return s
}

// bubble runs a test of fetched keys in its own time.
func bubble(t *testing.T, from *rotating, test func(t *testing.T, f *fetchedKeys)) {
	synctest.Test(t, func(t *testing.T) {
		f := newFetchedKeys(from.fetch, hclog.NewNullLogger())
		ctx, end := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { f.run(ctx); close(done) }()
		test(t, f)
		end()
		<-done
	})
}

// Tokens with keys that nobody knows cannot have the issuer asked more often than
// every so often.
func TestUnknownKeysAreAskedForNowAndThen(t *testing.T) {
	from := rotatingOf("a")
	bubble(t, from, func(t *testing.T, f *fetchedKeys) {
		if set := f.find(t.Context(), "a"); !set.has("a") {
			t.Error("the first request does not wait for the first keys")
		}
		for range 100 {
			f.find(t.Context(), "b")
		}
		if from.fetches.Load() != 1 {
			t.Errorf("fetched %d times right after the first", from.fetches.Load())
		}
		from.set.Store(setOf("a", "b"))
		time.Sleep(askedAtMost)
		if set := f.find(t.Context(), "b"); !set.has("b") {
			t.Error("a key that is new is not asked for")
		}
		begun := from.fetches.Load()
		for range 60 {
			time.Sleep(time.Second)
			f.find(t.Context(), "c")
		}
		if n := from.fetches.Load() - begun; n < 5 || n > 7 {
			t.Errorf("fetched %d times in a minute", n)
		}
	})
}

func TestKeysAreRefreshed(t *testing.T) {
	from := rotatingOf("a")
	bubble(t, from, func(t *testing.T, f *fetchedKeys) {
		before := f.find(t.Context(), "a")
		time.Sleep(refreshEvery + time.Second)
		synctest.Wait()
		if f.current() != before || from.fetches.Load() != 2 {
			t.Errorf("the same keys are others after %d fetches", from.fetches.Load())
		}
		from.set.Store(setOf("b"))
		time.Sleep(refreshEvery + time.Second)
		synctest.Wait()
		if f.current().has("a") {
			t.Error("a withdrawn key stays")
		}
		from.set.Store(nil)
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if !f.current().has("b") {
			t.Error("the keys are forgotten while the issuer cannot be reached")
		}
	})
}

func TestOutageAtTheStart(t *testing.T) {
	from := &rotating{}
	bubble(t, from, func(t *testing.T, f *fetchedKeys) {
		if f.find(t.Context(), "a") != nil {
			t.Error("there are keys")
		}
		time.Sleep(5 * time.Minute)
		if n := from.fetches.Load(); n < 10 || n > 20 {
			t.Errorf("tried %d times in 5 minutes", n)
		}
		from.set.Store(setOf("a"))
		time.Sleep(retryMost + time.Second)
		synctest.Wait()
		if !f.current().has("a") {
			t.Error("the keys are not known though the issuer is back")
		}
	})
}

// A request waits no longer than its client, and no longer than a while.
func TestWaitingForKeysEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		f := newFetchedKeys(func(context.Context) (*keySet, error) { <-hold; return nil, errors.New("no") }, hclog.NewNullLogger())
		ctx, end := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { f.run(ctx); close(done) }()
		begun := time.Now()
		f.find(t.Context(), "a")
		if took := time.Since(begun); took != waitForKeys {
			t.Errorf("waited %v", took)
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		f.find(gone, "a")
		if took := time.Since(begun); took != waitForKeys {
			t.Errorf("waited for a client that is gone, %v in all", took)
		}
		end()
		close(hold)
		<-done
	})
}

// fetching is an issuer whose keys are fetched.
func fetching(t *testing.T, from *mcptest.Issuer) *Gate {
	return accepting(t, from, func(cfg *IssuerConfig) { cfg.Keys = nil })
}

func TestDiscovery(t *testing.T) {
	issuer := mcptest.NewIssuer(t)
	g := fetching(t, issuer)
	if who, w := ask(g, "Bearer "+issuer.Token("ann", nil)); !who.Known() {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	for range 10 {
		ask(g, "Bearer "+issuer.Signed(mcptest.Claims{"kid": "other"}, issuer.Says("ann", nil)))
	}
	if n := issuer.Fetched(); n != 1 {
		t.Errorf("the keys were fetched %d times", n)
	}
}

func TestUnreachableIssuerIsNoDenial(t *testing.T) {
	issuer := mcptest.NewIssuer(t)
	issuer.Break(true)
	_, w := ask(fetching(t, issuer), "Bearer "+issuer.Token("ann", nil))
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || w.Header().Get("WWW-Authenticate") != "" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

// What an issuer's addresses answer, and what becomes of it.
func TestFetching(t *testing.T) {
	issuer := mcptest.NewIssuer(t)
	var elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		elsewhere.Add(1)
		_, _ = w.Write(issuer.JWKS())
	}))
	defer other.Close()
	var at *httptest.Server
	metadata := func(issuer, keys string) string { return `{"issuer":"` + issuer + `","jwks_uri":"` + keys + `"}` }
	for name, c := range map[string]struct {
		path  string // of the issuer
		serve func(w http.ResponseWriter, r *http.Request) string
		want  string // "": there are keys
	}{
		"plain": {"", func(w http.ResponseWriter, r *http.Request) string { return metadata(at.URL, at.URL+"/keys") }, ""},
		"with a path": {"/realm", func(w http.ResponseWriter, r *http.Request) string {
			if r.URL.Path != "/realm/.well-known/openid-configuration" {
				w.WriteHeader(404)
			}
			return metadata(at.URL+"/realm", at.URL+"/keys")
		}, ""},
		"RFC 8414": {"/realm", func(w http.ResponseWriter, r *http.Request) string {
			if r.URL.Path != "/.well-known/oauth-authorization-server/realm" {
				w.WriteHeader(404)
			}
			return metadata(at.URL+"/realm", at.URL+"/keys")
		}, ""},
		"redirected here": {"", func(w http.ResponseWriter, r *http.Request) string {
			if r.URL.Path != "/there" {
				http.Redirect(w, r, "/there", http.StatusFound)
				return ""
			}
			return metadata(at.URL, at.URL+"/keys")
		}, ""},
		"another issuer": {"", func(w http.ResponseWriter, r *http.Request) string { return metadata(other.URL, at.URL+"/keys") }, "--oidc-issuer"},
		"redirected elsewhere": {"", func(w http.ResponseWriter, r *http.Request) string {
			http.Redirect(w, r, other.URL, http.StatusFound)
			return ""
		}, "not followed"},
		"redirected for ever": {"", func(w http.ResponseWriter, r *http.Request) string {
			http.Redirect(w, r, r.URL.Path, http.StatusFound)
			return ""
		}, "not followed"},
		"keys without encryption": {"", func(w http.ResponseWriter, r *http.Request) string {
			return metadata(at.URL, "http://keys.example.com/")
		}, "not https"},
		"keys in a file": {"", func(w http.ResponseWriter, r *http.Request) string { return metadata(at.URL, "file:///etc/passwd") }, "no URL"},
		"no keys":        {"", func(w http.ResponseWriter, r *http.Request) string { return `{"issuer":"` + at.URL + `"}` }, "no URL"},
		"no JSON":        {"", func(w http.ResponseWriter, r *http.Request) string { return "<html>" }, "no JSON"},
		"an outage":      {"", func(w http.ResponseWriter, r *http.Request) string { w.WriteHeader(502); return "" }, "502"},
		"2 MiB":          {"", func(w http.ResponseWriter, r *http.Request) string { return strings.Repeat(" ", 2<<20) + "{}" }, "larger"},
	} {
		at = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/keys" {
				_, _ = w.Write(issuer.JWKS())
				return
			}
			text := c.serve(w, r)
			_, _ = w.Write([]byte(text))
		}))
		set, err := newFetcher(at.URL + c.path).keys(t.Context())
		if c.want == "" && (err != nil || len(set.keys) != 1) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		at.Close()
	}
	if n := elsewhere.Load(); n != 0 {
		t.Errorf("%d requests went elsewhere", n)
	}
}
