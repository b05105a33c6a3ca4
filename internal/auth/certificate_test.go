package auth

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/asker"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// serveTLS serves a gate's principals over TLS.
func serveTLS(t *testing.T, g *Gate, required bool) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if who, ok := g.Authenticate(w, r); ok {
			fmt.Fprintf(w, "%s / %s", who.Issuer, who.Subject)
		}
	}))
	s.TLS = &tls.Config{}
	g.cfg.Clients.Secure(s.TLS, required)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// caller is a client with these certificates, over connections of its own.
func caller(t *testing.T, s *httptest.Server, certificates ...tls.Certificate) *http.Client {
	cfg := s.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	cfg.Certificates = certificates
	transport := &http.Transport{TLSClientConfig: cfg}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func get(t *testing.T, c *http.Client, at, token string) (status int, body string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, at, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(text)
}

func accepted(t *testing.T, roots ...*mcptest.Authority) *Clients {
	t.Helper()
	c := &Clients{}
	var text []byte
	for _, root := range roots {
		text = append(text, root.PEM()...)
	}
	if err := c.Set(text); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestClientCertificates(t *testing.T) {
	ours, theirs := mcptest.NewAuthority("ours"), mcptest.NewAuthority("theirs")
	s := serveTLS(t, New(Config{Clients: accepted(t, ours)}), true)
	for name, c := range map[string]struct {
		certificate tls.Certificate
		want        string // "": no connection
	}{
		"a name":            {ours.Client("ann", nil), "CN=ours / CN=ann"},
		"a URI":             {ours.Client("ann", nil, "spiffe://example.com/agent"), "CN=ours / spiffe://example.com/agent"},
		"two URIs":          {ours.Client("ann", nil, "spiffe://a/1", "spiffe://a/2"), ""},
		"no subject":        {ours.Client("", func(c *x509.Certificate) { c.Subject = pkix.Name{} }), ""},
		"another authority": {theirs.Client("ann", nil), ""},
		"its own authority": {mcptest.NewAuthority("ours").Client("ann", nil), ""},
		"ended":             {ours.Client("ann", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }), ""},
		"not begun":         {ours.Client("ann", func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }), ""},
		"for servers": {ours.Client("ann", func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}), ""},
		"none": {tls.Certificate{}, ""},
	} {
		client := caller(t, s, c.certificate)
		for range 2 {
			status, body := get(t, client, s.URL, "")
			if c.want == "" && status != 0 || c.want != "" && (status != 200 || body != c.want) {
				t.Errorf("%s: %d %s, want %q", name, status, body, c.want)
			}
		}
	}
}

// Beside tokens a certificate may be left out; a token says who is asking.
func TestCertificatesBesideTokens(t *testing.T) {
	ours, theirs := mcptest.NewAuthority("ours"), mcptest.NewAuthority("theirs")
	s := serveTLS(t, New(Config{Clients: accepted(t, ours), Bearer: func() string { return "secret" }}), false)
	none, ann := caller(t, s), caller(t, s, ours.Client("ann", nil))
	for _, c := range []struct {
		client *http.Client
		token  string
		status int
		want   string
	}{
		{none, "secret", 200, "bearer-file / bearer"}, {none, "other", 401, "not known"}, {none, "", 401, "needed"},
		{ann, "", 200, "CN=ours / CN=ann"}, {ann, "secret", 200, "bearer-file / bearer"}, {ann, "other", 401, "not known"},
		{caller(t, s, theirs.Client("ann", nil)), "secret", 0, ""},
	} {
		if status, body := get(t, c.client, s.URL, c.token); status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%q: %d %s, want %d %s", c.token, status, body, c.status, c.want)
		}
	}
}

// Authorities that are taken out let nobody in, on connections from before either.
func TestAuthoritiesReplaced(t *testing.T) {
	ours, others := mcptest.NewAuthority("ours"), mcptest.NewAuthority("others")
	clients := accepted(t, ours)
	s := serveTLS(t, New(Config{Clients: clients}), true)
	ann, bob := caller(t, s, ours.Client("ann", nil)), caller(t, s, others.Client("bob", nil))
	if status, body := get(t, ann, s.URL, ""); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	for _, bad := range []string{"", "nonsense", "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n",
		string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ours.Client("ann", func(c *x509.Certificate) { c.BasicConstraintsValid = true }).Certificate[0]}))} {
		if err := clients.Set([]byte(bad)); err == nil {
			t.Errorf("%.40q is read as authorities", bad)
		}
	}
	if status, _ := get(t, ann, s.URL, ""); status != 200 {
		t.Errorf("after a bad file ann gets %d", status)
	}
	if err := clients.Set(others.PEM()); err != nil {
		t.Fatal(err)
	}
	if status, body := get(t, ann, s.URL, ""); status != 401 {
		t.Errorf("on the connection from before ann gets %d %s", status, body)
	}
	if status, body := get(t, bob, s.URL, ""); status != 200 || body != "CN=others / CN=bob" {
		t.Errorf("bob gets %d %s", status, body)
	}
}

// A certificate that ends while its connection is open lets nobody in from then on.
func TestCertificateEndsOnAnOpenConnection(t *testing.T) {
	ours := mcptest.NewAuthority("ours")
	clients := accepted(t, ours)
	leaf := ours.Client("ann", nil)
	state := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf.Leaf}}
	want := wire.Principal{Issuer: "CN=ours", Subject: "CN=ann"}
	for _, c := range []struct {
		after time.Duration
		ok    bool
	}{{0, true}, {59 * time.Minute, true}, {61 * time.Minute, false}, {0, true}} {
		who, err := clients.holder(state, time.Now().Add(c.after))
		if (err == nil) != c.ok || c.ok && wire.PrincipalOf(who) != want {
			t.Errorf("after %v: %v, %v", c.after, who, err)
		}
	}
	if _, err := new(Clients).holder(state, time.Now()); err == nil {
		t.Error("no authority lets somebody in")
	}
	if len(clients.known.all) != 1 {
		t.Errorf("%d certificates are remembered", len(clients.known.all))
	}
	for range maxClients + 5 {
		clients.known.put(&x509.Certificate{}, known[*x509.CertPool]{who: &asker.Who{}}, maxClients)
	}
	if len(clients.known.all) != maxClients {
		t.Errorf("%d certificates are remembered", len(clients.known.all))
	}
}
