package auth

import (
	"context"
	"crypto/tls"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

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
		CheckRedirect: stayThere,
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10,
			TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12},
		},
	}}
}

// stayThere follows redirects to the same host and scheme only.
func stayThere(to *http.Request, via []*http.Request) error {
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
	case u.Scheme != "https" && (u.Scheme != "http" || !thisMachine(u.Hostname())):
		return fmt.Errorf("%q is not https", text)
	}
	return nil
}

func thisMachine(host string) bool {
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
		return nil, fmt.Errorf("getting %s: %w", at, plain(err))
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, fetchSize+1))
	switch {
	case resp.StatusCode != http.StatusOK:
		return nil, statusError{at, resp.StatusCode}
	case err != nil:
		return nil, fmt.Errorf("getting %s: %w", at, plain(err))
	case len(text) > fetchSize:
		return nil, fmt.Errorf("getting %s: it is larger than %d bytes", at, fetchSize)
	}
	return text, nil
}

// plain is an error without the words of net/http around it.
func plain(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		return fmt.Errorf("no answer within %v", fetchTime)
	}
	return err
}
