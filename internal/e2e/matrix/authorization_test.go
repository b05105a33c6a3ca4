package matrix

import (
	"context"
	"net/url"
	"slices"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// asked is what a client asks a person to agree to.
type asked struct{ resources, scopes []string }

// flow is a client's way to a token, by what the proxy says when there is none; ann agrees to all of it.
func flow(t *testing.T, seen *asked) auth.OAuthHandler {
	t.Helper()
	handler, err := auth.NewAuthorizationCodeHandler(&auth.AuthorizationCodeHandlerConfig{
		PreregisteredClient: &oauthex.ClientCredentials{ClientID: "agent", ClientSecretAuth: &oauthex.ClientSecretAuth{ClientSecret: "x"}},
		RedirectURL:         "http://127.0.0.1:1/back",
		AuthorizationCodeFetcher: func(_ context.Context, args *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
			u, err := url.Parse(args.URL)
			if err != nil {
				return nil, err
			}
			seen.resources = append(seen.resources, u.Query().Get("resource"))
			seen.scopes = append(seen.scopes, u.Query().Get("scope"))
			return &auth.AuthorizationResult{Code: "ann", State: u.Query().Get("state")}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return handler
}

// authorized is a place that wants a token, behind the endpoint.
type authorized struct {
	path string
	keys []string // flags
}

var (
	plainEndpoint = authorized{"", []string{"--run-key", "modern=principal"}}
	ownURL        = authorized{"/runs/3f1a7c5e9b2d48c6a0e1f2d3c4b5a697", []string{"--run-key", "legacy=path", "--path-create"}}
)

// serve starts a proxy that accepts the issuer's tokens for its endpoint, whose URL it returns.
func (a authorized) serve(t *testing.T, issuer *mcptest.Issuer) (endpoint string, u *mcptest.Upstream) {
	t.Helper()
	u, upstream := mcptest.HTTP(t, mcptest.Failing())
	address := mcptest.FreeAddress(t)
	endpoint = "http://" + address + "/mcp"
	const plan = "version: 1\nname: plain\ninitial: open\nstates:\n  open:\n    tools: [ok]\n"
	flags := append([]string{mcptest.Proxy(t), "run", "--policy", mcptest.WritePolicy(t, plan), "--upstream", upstream, "--listen", address,
		"--oidc-issuer", issuer.URL, "--oidc-audience", endpoint, "--required-scope", mcptest.Scope}, a.keys...)
	_, p := mcptest.Dial(t, flags...)
	p.AwaitListening(address)
	return endpoint, u
}

// The official client finds its way from the proxy's refusal to its metadata, from there to the authorization server,
// and back with a token, at the endpoint and at a run's own URL, in both eras.
func TestAuthorizationOfTheOfficialClient(t *testing.T) {
	t.Parallel()
	for _, at := range []authorized{plainEndpoint, ownURL} {
		issuer := mcptest.NewIssuer(t)
		endpoint, u := at.serve(t, issuer)
		for _, revision := range []string{"2025-11-25", "2026-07-28"} {
			at.comeIn(t, endpoint+at.path, revision)
		}
		for _, m := range u.Received() {
			if m.Header.Get("Authorization") != "" {
				t.Errorf("%s came upstream with the client's token", m.Method)
			}
		}
	}
}

// comeIn has the official client begin without a token, and call a tool.
func (a authorized) comeIn(t *testing.T, url, revision string) {
	t.Helper()
	var seen asked
	client := mcp.NewClient(&mcp.Implementation{Name: "official", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url, OAuthHandler: flow(t, &seen)},
		&mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Errorf("%s at %q: %v", revision, a.path, err)
		return
	}
	answer, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "ok"})
	if err != nil || answer.IsError {
		t.Errorf("%s at %q: %v, %v", revision, a.path, answer, err)
	}
	if !slices.Equal(seen.resources, []string{url}) || !slices.Equal(seen.scopes, []string{mcptest.Scope}) {
		t.Errorf("%s at %q: a person was asked for %+v", revision, a.path, seen)
	}
	if err := session.Close(); err != nil {
		t.Error(err)
	}
}
