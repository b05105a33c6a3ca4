package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/client/transport"

	"github.com/fsm-proxy/fsm-proxy/internal/http1"
	"github.com/fsm-proxy/fsm-proxy/internal/secret"
)

// authorizer makes the Authorization header of HTTP requests.
type authorizer interface {
	header(context.Context) (string, error)
	// rejected is told of an answer 401.
	rejected(*http.Response)
	close()
}

func newAuthorizer(cfg *Config) (authorizer, error) {
	switch {
	case cfg.BearerFile != "":
		file, err := secret.Open("upstream-bearer-file", cfg.BearerFile, cfg.Log)
		return bearer{file}, err
	case cfg.OAuth != nil:
		return newOAuth(cfg), nil
	}
	return nil, nil
}

// bearer gives the token that a file holds.
type bearer struct{ file *secret.File }

func (b bearer) header(context.Context) (string, error) { return "Bearer " + b.file.Get(), nil }

func (b bearer) rejected(*http.Response) { b.file.Rejected() }

func (b bearer) close() {}

// OAuth gets tokens by the client credentials grant. mcp-go finds the
// authorization server (the protected resource's metadata, the server's
// metadata, its issuer checked) and makes the header; it knows no client
// credentials, so that the token request itself is made here.
type OAuth struct {
	// ClientID and ClientSecret identify the proxy. Required.
	ClientID, ClientSecret string
	// Scopes are asked for. Empty: the server's default.
	Scopes []string
	// MetadataURL is where the authorization server describes itself. Empty:
	// it is found by way of the upstream.
	MetadataURL string
}

func (o *OAuth) validate() error {
	if o.ClientID == "" || o.ClientSecret == "" {
		return errors.New("configuring the upstream's OAuth: give a client id and a client secret")
	}
	return nil
}

// tokenMargin is how long before its end a token is replaced.
const tokenMargin = 30 * time.Second

// oauth is an authorizer, and the token store of mcp-go's handler: asked for a
// token it gets one where it has none.
type oauth struct {
	*OAuth
	resource string
	handler  *transport.OAuthHandler
	client   *http.Client
	busy     chan struct{} // holds one element while token is used or fetched
	token    *transport.Token
}

func newOAuth(cfg *Config) *oauth {
	resource := *cfg.endpoint
	resource.RawQuery = ""
	o := &oauth{OAuth: cfg.OAuth, resource: resource.String(), busy: make(chan struct{}, 1)}
	o.client = &http.Client{
		Timeout:       30 * time.Second,
		Transport:     http.DefaultTransport.(*http.Transport).Clone(),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	o.handler = transport.NewOAuthHandler(transport.OAuthConfig{
		ClientID: o.ClientID, ClientSecret: o.ClientSecret, Scopes: o.Scopes,
		TokenStore: o, AuthServerMetadataURL: o.MetadataURL, HTTPClient: o.client,
	})
	o.handler.SetBaseURL(o.resource)
	return o
}

func (o *oauth) header(ctx context.Context) (string, error) {
	return o.handler.GetAuthorizationHeader(ctx)
}

// rejected drops the token, and learns where the authorization server is.
func (o *oauth) rejected(resp *http.Response) {
	o.busy <- struct{}{}
	o.token = nil
	<-o.busy
	o.handler.HandleUnauthorizedResponse(resp)
}

func (o *oauth) close() { o.client.CloseIdleConnections() }

// GetToken implements transport.TokenStore.
func (o *oauth) GetToken(ctx context.Context) (*transport.Token, error) {
	select {
	case o.busy <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-o.busy }()
	if o.token != nil && !o.token.IsExpired() {
		return o.token, nil
	}
	token, err := o.fetch(ctx)
	if err != nil {
		return nil, fmt.Errorf("getting a token: %w", err)
	}
	o.token = token
	return token, nil
}

// SaveToken implements transport.TokenStore. Nothing but GetToken makes tokens.
func (o *oauth) SaveToken(context.Context, *transport.Token) error {
	return errors.New("client credentials have no other tokens")
}

// fetch asks the authorization server for a token.
func (o *oauth) fetch(ctx context.Context) (*transport.Token, error) {
	meta, err := o.handler.GetServerMetadata(ctx)
	if err != nil {
		return nil, err
	}
	if !confidential(meta.TokenEndpoint) {
		return nil, fmt.Errorf("the token endpoint %s is not https: the secret is not sent there", meta.TokenEndpoint)
	}
	form := url.Values{"grant_type": {"client_credentials"}, "resource": {o.resource}}
	if len(o.Scopes) > 0 {
		form.Set("scope", strings.Join(o.Scopes, " "))
	}
	inBody := slices.Contains(meta.TokenEndpointAuthMethodsSupported, "client_secret_post")
	if inBody {
		form.Set("client_id", o.ClientID)
		form.Set("client_secret", o.ClientSecret)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, meta.TokenEndpoint, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	if !inBody {
		req.SetBasicAuth(url.QueryEscape(o.ClientID), url.QueryEscape(o.ClientSecret))
	}
	resp, err := o.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return readToken(resp)
}

// confidential reports whether a secret may go to a URL: https, or this machine.
func confidential(raw string) bool {
	u, err := url.Parse(raw)
	return err == nil && (u.Scheme == "https" || isLoopback(u))
}

func readToken(resp *http.Response) (*transport.Token, error) {
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		var said transport.OAuthError
		_ = json.Unmarshal(raw, &said)
		return nil, fmt.Errorf("the authorization server answered HTTP %d %s", resp.StatusCode, said.ErrorCode)
	}
	var token transport.Token
	if err := json.Unmarshal(raw, &token); err != nil {
		return nil, fmt.Errorf("reading the token: %w", err)
	}
	if token.AccessToken == "" {
		return nil, errors.New("reading the token: there is none in the answer")
	}
	if err := http1.CheckField("Authorization", token.TokenType+" "+token.AccessToken); err != nil {
		return nil, fmt.Errorf("reading the token: %w", err)
	}
	token.RefreshToken = "" // it is asked for anew instead
	if life := time.Duration(token.ExpiresIn) * time.Second; life > 0 {
		token.ExpiresAt = time.Now().Add(life - min(tokenMargin, life/2))
	}
	return &token, nil
}
