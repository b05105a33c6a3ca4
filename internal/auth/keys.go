package auth

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/tls"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/hashicorp/go-hclog"
)

// Algorithms are the signatures that can be accepted (RFC 7518, section 3.1; RFC
// 8037): asymmetric ones, so that who can verify a token can make none. There is no
// way to accept "none".
var Algorithms = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}

// DefaultAlgorithms are those that issuers use.
var DefaultAlgorithms = []string{"RS256", "PS256", "ES256", "ES384", "EdDSA"}

const (
	maxKeys    = 100  // of an issuer: each may be tried for a token that names none
	minRSABits = 2048 // what is less can be factored
)

// keySet are an issuer's keys at a time. It does not change.
type keySet struct {
	source []byte
	keys   []jose.JSONWebKey
}

// readKeys reads a JWK set (RFC 7517). What cannot sign a token is passed over.
func readKeys(text []byte) (*keySet, error) {
	var set struct {
		Keys []jsontext.Value `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, errors.New("it is no JWK set: a JSON object with \"keys\" is needed")
	}
	out := &keySet{source: bytes.Clone(text)}
	for _, raw := range set.Keys {
		if key, ok := readKey(raw); ok {
			out.keys = append(out.keys, key)
		}
	}
	switch n := len(out.keys); {
	case n == 0:
		return nil, fmt.Errorf("none of its %d keys can verify a signature: RSA of at least %d bits, EC and Ed25519 can", len(set.Keys), minRSABits)
	case n > maxKeys:
		return nil, fmt.Errorf("it has %d keys, and at most %d are read", n, maxKeys)
	}
	return out, nil
}

// readKey reads one key, which may be a private one: only its public half is kept.
func readKey(raw []byte) (key jose.JSONWebKey, ok bool) {
	if key.UnmarshalJSON(raw) != nil || key.Use != "" && key.Use != "sig" {
		return key, false
	}
	key = key.Public()
	return key, key.Valid() && strong(key) && (key.Algorithm == "" || slices.Contains(Algorithms, key.Algorithm))
}

func strong(key jose.JSONWebKey) bool {
	switch public := key.Key.(type) {
	case *rsa.PublicKey:
		return public.N.BitLen() >= minRSABits
	case *ecdsa.PublicKey, ed25519.PublicKey:
		return true
	}
	return false
}

// has reports whether there is a key of this id; "": any.
func (s *keySet) has(id string) bool {
	return id == "" || slices.ContainsFunc(s.keys, func(key jose.JSONWebKey) bool { return key.KeyID == id })
}

// verify returns what a token says, if a key of the set has signed it. A key is
// tried for no other algorithm than its own.
func (s *keySet) verify(jws *jose.JSONWebSignature) (payload []byte, ok bool) {
	header := jws.Signatures[0].Protected
	for i := range s.keys {
		key := &s.keys[i]
		if header.KeyID != "" && key.KeyID != header.KeyID || key.Algorithm != "" && key.Algorithm != header.Algorithm {
			continue
		}
		if payload, err := jws.Verify(key.Key); err == nil {
			return payload, true
		}
	}
	return nil, false
}

// source is where an issuer's keys come from.
type source interface {
	// current are the keys that are known; nil: none are yet.
	current() *keySet
	// find is current, having looked for a key of this id if there is none; it may
	// wait for that.
	find(ctx context.Context, id string) *keySet
}

// fixedKeys are keys that are given, and replaced, by somebody else.
type fixedKeys struct{ set atomic.Pointer[keySet] }

func (k *fixedKeys) current() *keySet                         { return k.set.Load() }
func (k *fixedKeys) find(_ context.Context, _ string) *keySet { return k.set.Load() }

// How keys are kept up to date.
const (
	refreshEvery = 10 * time.Minute // so that a key which the issuer has withdrawn is trusted no longer than that
	askedAtMost  = 10 * time.Second // between two fetches that tokens with unknown keys ask for
	retryFirst   = time.Second      // while there are no keys, doubled each time
	retryMost    = 30 * time.Second // and for keys that could not be refreshed
	waitForKeys  = 5 * time.Second  // of a request, for a fetch under way
)

// fetchedKeys are keys that are fetched, again now and then, and for tokens of a key
// that is not known. One goroutine does that, in run.
type fetchedKeys struct {
	fixedKeys
	fetch func(ctx context.Context) (*keySet, error)
	log   hclog.Logger
	asked chan struct{}

	mu    sync.Mutex    // guards what follows
	begun time.Time     // when the last fetch began
	over  chan struct{} // closed when the fetch under way is over; nil: none is
}

func newFetchedKeys(fetch func(ctx context.Context) (*keySet, error), log hclog.Logger) *fetchedKeys {
	return &fetchedKeys{fetch: fetch, log: log, asked: make(chan struct{}, 1), begun: time.Now(), over: make(chan struct{})}
}

func (f *fetchedKeys) find(ctx context.Context, id string) *keySet {
	set := f.current()
	if set != nil && set.has(id) {
		return set
	}
	over := f.ask()
	if over == nil {
		return set
	}
	timer := time.NewTimer(waitForKeys)
	defer timer.Stop()
	select {
	case <-over:
	case <-timer.C:
	case <-ctx.Done():
	}
	return f.current()
}

// ask returns what is closed when the next fetch is over; nil: it is too early for
// one.
func (f *fetchedKeys) ask() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over == nil {
		if time.Since(f.begun) < askedAtMost {
			return nil
		}
		f.beginLocked()
		f.asked <- struct{}{} // there is room: it is received before the fetch is over
	}
	return f.over
}

func (f *fetchedKeys) beginLocked() {
	f.begun, f.over = time.Now(), make(chan struct{})
}

// run keeps the keys up to date until ctx ends.
func (f *fetchedKeys) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	retry := retryFirst
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.asked:
		case <-timer.C:
			f.begin()
		}
		err := f.refresh(ctx)
		wait := refreshEvery
		if err != nil {
			wait, retry = retry, min(2*retry, retryMost)
		} else {
			retry = retryFirst
		}
		timer.Reset(wait)
	}
}

// begin says that a fetch is under way, unless one was asked for already: that is
// this one then.
func (f *fetchedKeys) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over == nil {
		f.beginLocked()
		return
	}
	select {
	case <-f.asked:
	default:
	}
}

// refresh fetches the keys. Those there are stay where that fails, or where they
// are the same.
func (f *fetchedKeys) refresh(ctx context.Context) error {
	set, err := f.fetch(ctx)
	old := f.current()
	switch {
	case ctx.Err() != nil:
	case err != nil && old == nil:
		f.log.Error("the issuer's keys are not known yet, its tokens are answered 503 until they are", "error", err)
	case err != nil:
		f.log.Warn("the issuer's keys were not refreshed, those known stay", "error", err)
	case old == nil || !bytes.Equal(old.source, set.source):
		f.set.Store(set)
		f.log.Info("the issuer's keys are known", "keys", len(set.keys))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.over)
	f.over = nil
	return err
}

// What is fetched of an issuer.
const (
	fetchTime = 10 * time.Second
	fetchSize = 1 << 20
	maxHops   = 3
)

// fetcher fetches what an issuer says of itself.
type fetcher struct {
	issuer string
	client http.Client
}

func newFetcher(issuer string) *fetcher {
	return &fetcher{issuer: issuer, client: http.Client{
		Timeout:       fetchTime,
		CheckRedirect: onSameHost,
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10,
			TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12},
		},
	}}
}

// onSameHost follows redirects to the same host and scheme only.
func onSameHost(to *http.Request, via []*http.Request) error {
	if len(via) > maxHops || to.URL.Host != via[0].URL.Host || to.URL.Scheme != via[0].URL.Scheme {
		return fmt.Errorf("a redirect to %s is not followed", to.URL.Redacted())
	}
	return nil
}

// keys fetches the issuer's keys from where its metadata says they are.
func (f *fetcher) keys(ctx context.Context) (*keySet, error) {
	at, err := f.discover(ctx)
	if err != nil {
		return nil, err
	}
	text, err := f.get(ctx, at)
	if err != nil {
		return nil, err
	}
	set, err := readKeys(text)
	if err != nil {
		return nil, fmt.Errorf("reading the keys at %s: %w", at, err)
	}
	return set, nil
}

// discover finds out where the keys are: by OpenID Connect Discovery, or else by
// RFC 8414.
func (f *fetcher) discover(ctx context.Context) (keys string, err error) {
	openID, oauth, err := wellKnown(f.issuer)
	if err != nil {
		return "", err
	}
	text, err := f.get(ctx, openID)
	if status, ok := errors.AsType[statusError](err); ok && status.code/100 == 4 {
		if other, otherErr := f.get(ctx, oauth); otherErr == nil {
			text, err = other, nil
		}
	}
	if err != nil {
		return "", err
	}
	return f.keysIn(text)
}

// keysIn reads an issuer's metadata, which must be its own.
func (f *fetcher) keysIn(text []byte) (string, error) {
	var said struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(text, &said); err != nil {
		return "", errors.New("reading the issuer's metadata: it is no JSON object with \"issuer\" and \"jwks_uri\"")
	}
	if said.Issuer != f.issuer {
		return "", fmt.Errorf("reading the issuer's metadata: they are of issuer %q, and not of %q; give --oidc-issuer letter by letter as the issuer writes it", said.Issuer, f.issuer)
	}
	if err := checkURL(said.Keys); err != nil {
		return "", fmt.Errorf("reading the issuer's metadata: jwks_uri %w", err)
	}
	return said.Keys, nil
}

// wellKnown are the places of an issuer's metadata (OpenID Connect Discovery 1.0,
// section 4; RFC 8414, section 3.1).
func wellKnown(issuer string) (openID, oauth string, err error) {
	u, err := url.Parse(issuer)
	if err != nil {
		return "", "", err
	}
	path := strings.TrimSuffix(u.Path, "/")
	u.Path, u.RawPath = path+"/.well-known/openid-configuration", ""
	openID = u.String()
	u.Path = "/.well-known/oauth-authorization-server" + path
	return openID, u.String(), nil
}

// checkURL refuses what nobody should get keys from.
func checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.Fragment != "":
		return fmt.Errorf("%q is no URL like https://login.example.com", text)
	case u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(u.Hostname())):
		return fmt.Errorf("%q is not https", text)
	}
	return nil
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

// statusError is an answer that is none.
type statusError struct {
	at   string
	code int
}

// Error tells the status.
func (e statusError) Error() string {
	return fmt.Sprintf("getting %s: it answers %d %s", e.at, e.code, http.StatusText(e.code))
}

// get fetches a document, of at most fetchSize bytes.
func (f *fetcher) get(ctx context.Context, at string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := f.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("getting %s: %w", at, withoutURL(err))
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, fetchSize+1))
	switch {
	case resp.StatusCode != http.StatusOK:
		return nil, statusError{at, resp.StatusCode}
	case err != nil:
		return nil, fmt.Errorf("getting %s: %w", at, withoutURL(err))
	case len(text) > fetchSize:
		return nil, fmt.Errorf("getting %s: it is larger than %d bytes", at, fetchSize)
	}
	return text, nil
}

// withoutURL returns an error without the words of net/http around it.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		return fmt.Errorf("no answer within %v", fetchTime)
	}
	return err
}
