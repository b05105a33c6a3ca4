package cli

import (
	"context"
	"fmt"
	"math"
	"net/url"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"

	"github.com/fsm-proxy/fsm-proxy/internal/auth"
	"github.com/fsm-proxy/fsm-proxy/internal/streamhttp"
	"github.com/fsm-proxy/fsm-proxy/internal/watch"
)

// authFlags say by what clients are let in, besides the one bearer token.
type authFlags struct {
	tokens   string
	clientCA string
	oidc     oidcFlags
}

// oidcFlags say whose access tokens are accepted.
type oidcFlags struct {
	issuer     string
	audiences  []string
	jwks       string
	algorithms []string
	skew       time.Duration
	scopes     []string
	resource   string
}

func (f *authFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.tokens, "tokens", "", "a `FILE` of names and the SHA-256 of their bearer tokens; changes are followed")
	flags.StringVar(&f.clientCA, "client-ca", "", "accept clients whose certificate leads to an authority in this PEM `FILE`, with --tls-cert; changes are followed")
	f.oidc.register(flags)
}

func (f *oidcFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.issuer, "oidc-issuer", "", "accept access tokens (JWTs) of the issuer at this `URL`, letter by letter as its tokens have it")
	flags.StringSliceVar(&f.audiences, "oidc-audience", nil, "an `AUDIENCE` that tokens may be for (default --resource-url); may be repeated")
	flags.StringVar(&f.jwks, "oidc-jwks", "", "a `FILE` with the issuer's keys, instead of asking it for them; changes are followed")
	flags.StringSliceVar(&f.algorithms, "oidc-algorithms", auth.DefaultAlgorithms, "the `SIGNATURES` that are accepted")
	flags.DurationVar(&f.skew, "oidc-skew", time.Minute, "how far the issuer's clock may be off")
	flags.StringSliceVar(&f.scopes, "required-scope", nil, "a `SCOPE` that access tokens must have; may be repeated")
	flags.StringVar(&f.resource, "resource-url", "", "the `URL` at which clients find this proxy, for their tokens (default that of the request)")
}

// listening are the flags that mean nothing without --listen. The environment's are
// passed over there.
var listening = []string{"allowed-host", "allowed-origin", "bearer-file", "insecure-listen", "tls-cert", "tls-key",
	"tokens", "client-ca", "oidc-issuer", "oidc-audience", "oidc-jwks", "oidc-algorithms", "oidc-skew", "required-scope", "resource-url"}

// given reports whether clients are let in by anything of it.
func (f *authFlags) given() bool { return f.tokens != "" || f.clientCA != "" || f.oidc.issuer != "" }

// check refuses what cannot be meant.
func (f *authFlags) check(flags *pflag.FlagSet, tls *tlsFlags) error {
	if f.clientCA != "" && !tls.given() {
		return usagef("--client-ca belongs to --tls-cert, which is missing: certificates are shown over TLS only")
	}
	return f.oidc.check(flags)
}

func (f *oidcFlags) check(flags *pflag.FlagSet) error {
	if f.issuer == "" {
		for _, name := range []string{"oidc-audience", "oidc-jwks", "oidc-algorithms", "oidc-skew", "required-scope", "resource-url"} {
			if flags.Changed(name) {
				return usagef("--%s belongs to --oidc-issuer, which is missing", name)
			}
		}
		return nil
	}
	if len(f.audiences) == 0 && f.resource == "" {
		return usagef("--oidc-issuer needs --oidc-audience, or --resource-url: tokens for somebody else must not be accepted here")
	}
	for _, scope := range f.scopes {
		if scope == "" || strings.ContainsFunc(scope, noScope) {
			return usagef("--required-scope %q is no scope; give one without spaces, and the flag once for each", scope)
		}
	}
	if _, err := f.resourceURL(); err != nil {
		return err
	}
	cfg := f.config(nil)
	if err := cfg.Check(); err != nil {
		return usagef("--oidc-issuer: %w", err)
	}
	return nil
}

// noScope reports whether a character stands in no scope (RFC 6749, section 3.3).
func noScope(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }

// resourceURL is the URL at which clients find the proxy; nil: it was not said.
func (f *oidcFlags) resourceURL() (*url.URL, error) {
	if f.resource == "" {
		return nil, nil
	}
	u, err := url.Parse(f.resource)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.ContainsFunc(f.resource, noScope) {
		return nil, usagef("--resource-url %q is no URL like https://mcp.example.com/mcp", f.resource)
	}
	return u, nil
}

func (f *oidcFlags) config(log hclog.Logger) auth.IssuerConfig {
	audiences := f.audiences
	if len(audiences) == 0 {
		audiences = []string{f.resource}
	}
	return auth.IssuerConfig{URL: f.issuer, Audiences: audiences, Scopes: f.scopes, Algorithms: f.algorithms, Skew: f.skew, Log: log}
}

// gate opens what clients are let in by; nil: everybody is, and nobody told apart.
func (s *service) gate(ctx context.Context) (*auth.Gate, error) {
	f := &s.flags.listen
	if !f.authenticates() {
		return nil, nil
	}
	resource, err := f.auth.oidc.resourceURL()
	if err != nil {
		return nil, err
	}
	cfg := auth.Config{Resource: resource, Path: f.path, Refused: s.tell.refused}
	if f.bearerFile != "" {
		file, err := openTokenFile("bearer-file", f.bearerFile, s.log)
		if err != nil {
			return nil, err
		}
		cfg.Bearer = file.get
	}
	if cfg.Tokens, err = s.tokens(ctx); err != nil {
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

// guarded has the HTTP side let in whom the gate does; nil lets in everybody.
func (f *runFlags) guarded(cfg streamhttp.ServerConfig, gate *auth.Gate) streamhttp.ServerConfig {
	if gate == nil {
		return cfg
	}
	cfg.Public, cfg.Authenticate = gate.Public, gate.Authenticate
	cfg.PrincipalShare = f.limits.principalShare
	if cfg.PrincipalShare == 0 && !f.listen.auth.given() {
		cfg.PrincipalShare = math.MaxInt // all are one principal: there is nobody to keep room for
	}
	return cfg
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
	s.onClose(s.flags.reload.watch(ctx, what, path, file.Digest, func(file watch.File) {
		if err := try(file); err != nil {
			s.log.Error("the "+what+" was not reloaded, what was read last stays in use", "error", err)
			return
		}
		s.log.Info("the "+what+" was reloaded", "file", file.Path)
	}, s.log))
	return nil
}

// tokens are those of the token file, nil without one.
func (s *service) tokens(ctx context.Context) (*auth.Tokens, error) {
	path := s.flags.listen.auth.tokens
	if path == "" {
		return nil, nil
	}
	tokens := &auth.Tokens{}
	err := s.followed(ctx, "tokens", "token file", path, func(file watch.File) error {
		if err := tokens.Set(file.Path, file.Content).Err(); err != nil {
			return fmt.Errorf("the token file has errors:\n%w", err)
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
		s.log.Warn("others than its owner can write to the token file, and let themselves in; take that from them with chmod go-w",
			"file", path, "mode", info.Mode().Perm().String())
	}
}

// clients are those whose certificates are accepted, nil where none is asked for.
func (s *service) clients(ctx context.Context) (*auth.Clients, error) {
	path := s.flags.listen.auth.clientCA
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
	f := &s.flags.listen.auth.oidc
	if f.issuer == "" {
		return nil, nil
	}
	cfg := f.config(s.log)
	if f.jwks == "" {
		issuer, err := auth.NewIssuer(cfg)
		if err == nil {
			s.onClose(issuer.Close)
		}
		return issuer, err
	}
	var issuer *auth.Issuer
	err := s.followed(ctx, "oidc-jwks", "file of the issuer's keys", f.jwks, func(file watch.File) (err error) {
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
