package service

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"runtime"
	"strings"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/auth"
	"github.com/fsm-proxy/fsm-proxy/internal/exit"
	"github.com/fsm-proxy/fsm-proxy/internal/secret"
	"github.com/fsm-proxy/fsm-proxy/internal/watch"
)

// authenticates reports whether clients are let in by something.
func (f *Listen) authenticates() bool { return f.BearerFile != "" || f.tellsApart() }

// tellsApart reports whether clients are told apart by something.
func (f *Listen) tellsApart() bool { return f.Tokens != "" || f.ClientCA != "" || f.OIDC.Issuer != "" }

// check refuses what cannot be meant, or is not safe, before anything is opened.
// It reports whether the address is a loopback one.
func (f *Listen) check() (loopback bool, err error) {
	if f.Path == "" || f.Path[0] != '/' {
		return false, exit.Usagef("--path %q does not begin with /; write it like /mcp", f.Path)
	}
	addr, err := net.ResolveTCPAddr("tcp", f.Address)
	if err != nil {
		return false, exit.Usagef("--listen %q is no address (%w); write it like 127.0.0.1:8080", f.Address, err)
	}
	if addr.IP.IsLoopback() {
		return true, nil
	}
	if !f.authenticates() && !f.Insecure {
		return false, exit.Usagef("--listen %s can be reached from other machines; give --bearer-file FILE, --tokens, --oidc-issuer or "+
			"--client-ca so that clients must authenticate, or --insecure-listen if something else sees to that", f.Address)
	}
	return false, nil
}

// url is where a client finds the proxy.
func (f *Listen) url(l net.Listener) string {
	addr := l.Addr().(*net.TCPAddr)
	host := addr.IP.String()
	if addr.IP.IsUnspecified() {
		host = "localhost"
	}
	return fmt.Sprintf("%s://%s%s", f.TLS.scheme(), net.JoinHostPort(host, fmt.Sprint(addr.Port)), f.Path)
}

func (f *OIDC) check() error {
	if f.Issuer == "" {
		return nil
	}
	if len(f.Audiences) == 0 && f.Resource == "" {
		return exit.Usagef("--oidc-issuer needs --oidc-audience, or --resource-url: tokens for somebody else must not be accepted here")
	}
	for _, scope := range f.Scopes {
		if scope == "" || strings.ContainsFunc(scope, noScope) {
			return exit.Usagef("--required-scope %q is no scope; give one without spaces, and the flag once for each", scope)
		}
	}
	if _, err := f.resourceURL(); err != nil {
		return err
	}
	cfg := f.config(nil)
	if err := cfg.Check(); err != nil {
		return exit.Usagef("--oidc-issuer: %w", err)
	}
	return nil
}

// noScope reports whether a character stands in no scope (RFC 6749, section 3.3).
func noScope(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }

// resourceURL is the URL at which clients find the proxy; nil: it was not said.
func (f *OIDC) resourceURL() (*url.URL, error) {
	if f.Resource == "" {
		return nil, nil
	}
	u, err := url.Parse(f.Resource)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.ContainsFunc(f.Resource, noScope) {
		return nil, exit.Usagef("--resource-url %q is no URL like https://mcp.example.com/mcp", f.Resource)
	}
	return u, nil
}

func (f *OIDC) config(log hclog.Logger) auth.IssuerConfig {
	audiences := f.Audiences
	if len(audiences) == 0 {
		audiences = []string{f.Resource}
	}
	return auth.IssuerConfig{URL: f.Issuer, Audiences: audiences, Scopes: f.Scopes, Algorithms: f.Algorithms, Skew: f.Skew, Log: log}
}

// gate opens what clients are let in by; nil: everybody is, and nobody told apart.
func (s *service) gate(ctx context.Context) (*auth.Gate, error) {
	f := &s.cfg.Listen
	if !f.authenticates() {
		return nil, nil
	}
	resource, err := f.OIDC.resourceURL()
	if err != nil {
		return nil, err
	}
	cfg := auth.Config{Resource: resource, Path: f.Path, Refused: s.tell.refused}
	if f.BearerFile != "" {
		file, err := secret.Open("bearer-file", f.BearerFile, s.log)
		if err != nil {
			return nil, err
		}
		cfg.Bearer = file.Get
	}
	if cfg.Tokens, err = s.tokens(ctx, "tokens", "token file", f.Tokens); err != nil {
		return nil, err
	}
	if cfg.Clients, err = s.clients(ctx); err != nil {
		return nil, err
	}
	if cfg.Issuer, err = s.issuer(ctx); err != nil {
		return nil, err
	}
	return auth.New(cfg), nil
}

// followed has take read a file, again whenever it changes, until the service ends.
// What it cannot take changes nothing.
func (s *service) followed(ctx context.Context, flag, what, path string, take func(watch.File) error) error {
	try := func(file watch.File) error {
		if file.Err != nil {
			return file.Err
		}
		return take(file)
	}
	file := readPEM(path, what)
	if err := try(file); err != nil {
		return fmt.Errorf("--%s: %w", flag, err)
	}
	s.onClose(s.cfg.Reload.watch(ctx, what, path, file.Digest, func(file watch.File) {
		if err := try(file); err != nil {
			s.log.Error("the "+what+" was not reloaded, the last good one stays in use", "error", err)
			return
		}
		s.log.Info("the "+what+" was reloaded", "file", file.Path)
	}, s.log))
	return nil
}

// tokens are those of a token file that a flag names, nil without one.
func (s *service) tokens(ctx context.Context, flag, what, path string) (*auth.Tokens, error) {
	if path == "" {
		return nil, nil
	}
	tokens := &auth.Tokens{}
	err := s.followed(ctx, flag, what, path, func(file watch.File) error {
		if err := tokens.Set(file.Path, file.Content).Err(); err != nil {
			return fmt.Errorf("the "+what+" has errors:\n%w", err)
		}
		s.warnOfWriters(file.Path)
		return nil
	})
	return tokens, err
}

// warnOfWriters says so if others can let themselves in by writing to a file.
func (s *service) warnOfWriters(path string) {
	info, err := os.Stat(path)
	if err == nil && info.Mode().Perm()&0o022 != 0 && runtime.GOOS != "windows" {
		s.log.Warn("others than its owner can write to the token file, and so let themselves in: run 'chmod go-w' on it",
			"file", path, "mode", info.Mode().Perm().String())
	}
}

// clients are those whose certificates are accepted, nil where none is asked for.
func (s *service) clients(ctx context.Context) (*auth.Clients, error) {
	path := s.cfg.Listen.ClientCA
	if path == "" {
		return nil, nil
	}
	clients := &auth.Clients{}
	err := s.followed(ctx, "client-ca", "file of client authorities", path, func(file watch.File) error {
		if err := clients.Set(file.Content); err != nil {
			return fmt.Errorf("reading the client authorities in %s: %w", file.Path, err)
		}
		return nil
	})
	s.clientCerts = clients
	return clients, err
}

// issuer is whose access tokens are accepted, nil for nobody's.
func (s *service) issuer(ctx context.Context) (*auth.Issuer, error) {
	f := &s.cfg.Listen.OIDC
	if f.Issuer == "" {
		return nil, nil
	}
	cfg := f.config(s.log)
	if f.JWKS == "" {
		issuer, err := auth.NewIssuer(cfg)
		if err == nil {
			s.onClose(issuer.Close)
		}
		return issuer, err
	}
	var issuer *auth.Issuer
	err := s.followed(ctx, "oidc-jwks", "file of the issuer's keys", f.JWKS, func(file watch.File) (err error) {
		if issuer == nil {
			cfg.Keys = file.Content
			issuer, err = auth.NewIssuer(cfg)
		} else {
			err = issuer.SetKeys(file.Content)
		}
		if err != nil {
			return fmt.Errorf("reading the issuer's keys in %s: %w", file.Path, err)
		}
		return nil
	})
	return issuer, err
}
