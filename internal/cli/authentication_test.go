package cli

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/config"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// What cannot be meant, or is not safe, is refused before anything is opened.
func TestBadAuthentication(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	put := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	policy, plain := put("p.yaml", plainPolicy), put("plain.yaml", "version: 1\ntokens: {ann: hunter2}\n")
	cert, key := mcptest.WriteTLS(t)
	const issuer = "https://login.example.com"
	for name, c := range map[string]struct {
		flags []string
		code  int
		want  string
	}{
		"no audience":             {[]string{"--oidc-issuer", issuer}, 2, "--oidc-audience, or --resource-url"},
		"no issuer, audience":     {[]string{"--oidc-audience", "a"}, 2, "--oidc-audience belongs to --oidc-issuer"},
		"no issuer, keys":         {[]string{"--oidc-jwks", policy}, 2, "--oidc-jwks belongs to --oidc-issuer"},
		"no issuer, scope":        {[]string{"--required-scope", "a"}, 2, "--required-scope belongs to --oidc-issuer"},
		"no issuer, resource":     {[]string{"--resource-url", "https://a/mcp"}, 2, "--resource-url belongs to --oidc-issuer"},
		"plain http":              {[]string{"--oidc-issuer", "http://login.example.com", "--oidc-audience", "a"}, 2, "is not https"},
		"no URL":                  {[]string{"--oidc-issuer", "login", "--oidc-audience", "a"}, 2, "is no URL"},
		"alg none":                {[]string{"--oidc-issuer", issuer, "--oidc-audience", "a", "--oidc-algorithms", "none"}, 2, `"none" is none of RS256`},
		"HMAC":                    {[]string{"--oidc-issuer", issuer, "--oidc-audience", "a", "--oidc-algorithms", "RS256,HS256"}, 2, `"HS256" is none of RS256`},
		"two scopes in one":       {[]string{"--oidc-issuer", issuer, "--oidc-audience", "a", "--required-scope", "a b"}, 2, "the flag once for each"},
		"resource with a query":   {[]string{"--oidc-issuer", issuer, "--resource-url", "https://a/mcp?x=1"}, 2, "--resource-url"},
		"negative skew":           {[]string{"--oidc-issuer", issuer, "--oidc-audience", "a", "--oidc-skew", "-1s"}, 2, "--oidc-skew"},
		"no such file of keys":    {[]string{"--oidc-issuer", issuer, "--oidc-audience", "a", "--oidc-jwks", "no.json"}, 1, "--oidc-jwks: reading"},
		"a file of no keys":       {[]string{"--oidc-issuer", issuer, "--oidc-audience", "a", "--oidc-jwks", policy}, 1, "no JWK set"},
		"authorities without TLS": {[]string{"--client-ca", cert}, 2, "--client-ca belongs to --tls-cert"},
		"no authorities":          {[]string{"--client-ca", policy, "--tls-cert", cert, "--tls-key", key}, 1, "there is no certificate in it"},
		"no such token file":      {[]string{"--tokens", "no.yaml"}, 1, "--tokens: reading"},
		"tokens in plain":         {[]string{"--tokens", plain}, 1, "plain.yaml:2:15"},
		"too small a share":       {[]string{"--max-sessions-per-principal", "0"}, 2, "--max-sessions-per-principal"},
	} {
		args := append([]string{"run", "--policy", policy, "--listen", "127.0.0.1:0"}, append(c.flags, "--", "cat")...)
		r := command(t, nil, args...)
		if r.code != c.code || !strings.Contains(r.stderr, c.want) || strings.Contains(r.stderr, "hunter2") {
			t.Errorf("%s: exit %d, %s; want %d, %q", name, r.code, r.stderr, c.code, c.want)
		}
	}
	for name := range config.Keys() {
		if name == "oidc-skew" || name == "insecure-listen" || !slices.Contains(config.Needs(name), "listen") {
			continue
		}
		r := command(t, nil, "run", "--policy", policy, "--"+name, "RS256", "--", "cat")
		if r.code != 2 || !strings.Contains(r.stderr, "--"+name+" belongs to --listen") {
			t.Errorf("--%s without --listen: exit %d, %s", name, r.code, r.stderr)
		}
	}
}

// Who can write to the token file can let themselves in.
func TestTokenFileThatOthersWrite(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		return // there are no such permissions
	}
	tokens := filepath.Join(t.TempDir(), "tokens.yaml")
	hash := strings.Repeat("0123456789abcdef", 4)
	if err := os.WriteFile(tokens, []byte("version: 1\ntokens: {ann: sha256:"+hash+"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(tokens, 0o622); err != nil {
		t.Fatal(err)
	}
	u := mcptest.Stdio(t, "quiet")
	_, p := mcptest.Listen(t, append([]string{"--policy", mcptest.WritePolicy(t, plainPolicy), "--tokens", tokens, "--"}, u.Command()...)...)
	p.Log().Await(t, "others than its owner can write to the token file")
}

// Where a run belongs to a principal, it is said that all who have the token of
// --bearer-file are one.
func TestBearersShareOneRun(t *testing.T) {
	t.Parallel()
	const warning = "all who have the token of --bearer-file are one principal"
	u := mcptest.Stdio(t, "quiet")
	token, path := write(t, "token", "s3cret\n"), mcptest.WritePolicy(t, plainPolicy)
	for key, warned := range map[string]bool{"legacy=principal": true, "modern=principal": true, "legacy=session": false} {
		_, p := mcptest.Listen(t, append([]string{"--policy", path, "--bearer-file", token, "--run-key", key, "--"}, u.Command()...)...)
		if warned {
			p.Log().Await(t, warning)
		}
		_ = p.Process.Signal(syscall.SIGTERM)
		p.ExitCode()
		if !warned && strings.Contains(p.Log().String(), warning) {
			t.Errorf("%s: it is warned of what is not so", key)
		}
	}
}
