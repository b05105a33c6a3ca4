package auth

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/asker"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// whoHas is who a gate finds behind a token.
func whoHas(t *testing.T, g *Gate, token string) *asker.Who {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:8080/mcp", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	who, ok := g.Authenticate(httptest.NewRecorder(), r)
	if !ok || who == nil {
		t.Fatalf("the token %q lets nobody in", token)
	}
	return who
}

// What a token says is known of its holder, once for all requests that show it, and nothing that would open anything.
func TestWhatATokenSays(t *testing.T) {
	issuer := mcptest.NewIssuer(t)
	g := accepting(t, issuer, nil)
	type says = mcptest.Claims
	for name, c := range map[string]struct {
		says   says
		scopes []string
	}{
		"scope":      {says{"scope": mcptest.Scope + "  build build"}, []string{mcptest.Scope, "build"}},
		"scp, list":  {says{"scope": nil, "scp": []string{"build", mcptest.Scope, ""}}, []string{"build", mcptest.Scope}},
		"scp, text":  {says{"scope": nil, "scp": "build " + mcptest.Scope}, []string{"build", mcptest.Scope}},
		"both":       {says{"scope": mcptest.Scope, "scp": []string{"build", mcptest.Scope}}, []string{mcptest.Scope, "build"}},
		"with a tab": {says{"scope": mcptest.Scope + "\tbuild"}, []string{mcptest.Scope, "build"}},
	} {
		c.says["team"] = "red"
		token := issuer.Token("ann", c.says)
		who := whoHas(t, g, token)
		if who.Subject != "ann" || who.Issuer != issuer.URL || !slices.Equal(who.Scopes, c.scopes) {
			t.Errorf("%s: %q %q %q", name, who.Subject, who.Issuer, who.Scopes)
		}
		if !bytes.Contains(who.Claims, []byte(`"team":"red"`)) || bytes.Contains(who.Claims, []byte(token[strings.LastIndexByte(token, '.')+1:])) {
			t.Errorf("%s: the claims are %s", name, who.Claims)
		}
		if whoHas(t, g, token) != who {
			t.Errorf("%s: the same token makes another Who", name)
		}
	}
}

// Two tokens of one name are one Who, and so are two connections with equal certificates.
func TestEqualPeopleAreOne(t *testing.T) {
	g := New(Config{Tokens: tokens(t, "version: 1\ntokens:\n  ann: ["+hashOf("a1")+", "+hashOf("a2")+"]\n  bob: "+hashOf("b1")+"\n")})
	ann := whoHas(t, g, "a1")
	if ann != whoHas(t, g, "a2") || ann == whoHas(t, g, "b1") || ann.Scopes != nil || ann.Claims != nil {
		t.Errorf("ann is %+v", ann)
	}
	ours := mcptest.NewAuthority("ours")
	clients := accepted(t, ours)
	of := func(name string) *asker.Who {
		who, err := clients.holder(&tls.ConnectionState{PeerCertificates: []*x509.Certificate{ours.Client(name, nil).Leaf}}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return who
	}
	if first := of("ann"); first != of("ann") || first == of("bob") || first.Subject != "CN=ann" || first.Issuer != "CN=ours" {
		t.Errorf("the certificate's is %+v", first)
	}
}

// The claims that are remembered take so many bytes and no more, however few tokens there are.
func TestClaimsAreBounded(t *testing.T) {
	var c cache[int, int]
	until := time.Now().Add(time.Minute)
	big := &asker.Who{Claims: make([]byte, 1<<20)}
	for n := range 40 {
		c.put(n, known[int]{who: big, until: until}, maxKnown)
		c.put(n, known[int]{who: big, until: until}, maxKnown) // the same again takes nothing more
	}
	if len(c.all) != maxClaims>>20 || c.claims != maxClaims {
		t.Errorf("%d are remembered, of %d bytes", len(c.all), c.claims)
	}
	if _, ok := c.find(39, 0, time.Now()); !ok {
		t.Error("the last one is not remembered")
	}
}
