package attack

import (
	"bufio"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// openID are the flags that let in who has a token of the issuer.
func openID(i *mcptest.Issuer) []string {
	return []string{"--oidc-issuer", i.URL, "--oidc-audience", mcptest.Audience, "--required-scope", mcptest.Scope,
		"--run-key", "modern=principal"}
}

// as has a client send a token.
func (r *rig) as(token string) *rig {
	r.web.Header["Authorization"] = []string{"Bearer " + token}
	return r
}

// client is another client of the same proxy, before its first message.
func (r *rig) client(token string) *rig {
	r.t.Helper()
	other := &rig{t: r.t, upstream: r.upstream, process: r.process, url: r.url}
	other.Session, other.web = mcptest.DialWeb(r.t, r.url)
	return other.as(token)
}

// modernClient is another client, which knows no sessions.
func (r *rig) modernClient(token string) *rig {
	r.t.Helper()
	other := r.client(token)
	other.Modern(mcptest.Modern{})
	return other
}

// attempts are what somebody tries who is not let in, in both eras, at every method.
func (r *rig) attempts() (answers []mcptest.Response) {
	r.t.Helper()
	for _, body := range []string{
		mcptest.Request(1, "initialize", oldHello), call("1", `{"name":"once"}`), mcptest.Request(1, "tools/list", ""), "nonsense",
		call("1", mcptest.Modern{}.Params(`{"name":"once"}`)), mcptest.Request(1, "server/discover", mcptest.Modern{}.Params("")),
	} {
		answers = append(answers, r.web.Post(r.t.Context(), body))
	}
	for _, method := range []string{http.MethodGet, http.MethodDelete, http.MethodPut} {
		answers = append(answers, r.web.Do(request(r, method, "")))
	}
	return answers
}

// Tokens that are not for this proxy, not from its issuer, or not what they seem, by name: nothing is done for them.
func TestTokensOfNoUse(t *testing.T) {
	t.Parallel()
	issuer, other := mcptest.NewIssuer(t), mcptest.NewIssuer(t)
	r := web.with(openID(issuer)...).start(t)
	r.as(issuer.Token("ann", nil)).Initialize()
	type says = mcptest.Claims
	now := time.Now().Unix()
	all := issuer.Says("mallory", nil)
	for name, token := range map[string]string{
		"another audience":    issuer.Token("mallory", says{"aud": "https://other.example"}),
		"no audience":         issuer.Token("mallory", says{"aud": nil}),
		"alg none":            issuer.Unsigned(all),
		"wrong issuer":        issuer.Token("mallory", says{"iss": other.URL}),
		"another's signature": other.Signed(nil, all),
		"another's token":     other.Token("mallory", nil),
		"key confusion":       issuer.Confused(issuer.PublicPEM(), all),
		"key confusion, JWKS": issuer.Confused(issuer.JWKS(), all),
		"expired":             issuer.Token("mallory", says{"exp": now - 3600}),
		"never ending":        issuer.Token("mallory", says{"exp": nil}),
		"not yet valid":       issuer.Token("mallory", says{"nbf": now + 3600}),
		"missing sub":         issuer.Token("", says{"sub": nil}),
		"kid is a path":       issuer.Signed(says{"kid": "../../../../proc/self/environ"}, all),
		"kid is a URL":        issuer.Signed(says{"kid": other.URL + "/keys"}, all),
		"huge":                issuer.Token("mallory", says{"x": strings.Repeat("x", 20_000)}),
		"nonsense":            "nonsense",
		"missing scope":       issuer.Token("mallory", says{"scope": "openid"}),
	} {
		want := http.StatusUnauthorized
		if name == "missing scope" {
			want = http.StatusForbidden
		}
		for n, answer := range r.client(token).attempts() {
			challenge := answer.Header.Get("WWW-Authenticate")
			if answer.Status != want || !strings.Contains(challenge, "/.well-known/oauth-protected-resource/mcp") || len(answer.Messages) > 0 {
				t.Errorf("%s: attempt %d is answered %d %s %s", name, n, answer.Status, challenge, answer.Body)
			}
		}
	}
	if n := len(other.JWKS()); n == 0 || other.Fetched() > 0 {
		t.Errorf("the other issuer was asked for its keys %d times", other.Fetched())
	}
	r.in("start")
	r.untouched()
}

// A header that stands there twice means two principals to two readers.
func TestAuthorizationTwice(t *testing.T) {
	t.Parallel()
	issuer := mcptest.NewIssuer(t)
	r := web.with(openID(issuer)...).start(t)
	ann := issuer.Token("ann", nil)
	r.as(ann).Initialize()
	for _, headers := range [][]string{
		{"Bearer " + ann, "Bearer " + issuer.Token("bob", nil)}, {"Bearer " + ann, "Bearer " + ann}, {"Bearer " + ann, ""},
		{"Bearer " + ann + ", Bearer x"}, {"Bearer " + ann + " x"}, {"Basic " + ann}, {ann}, {"Bearer"}, {""},
	} {
		other := r.client("")
		other.web.Header["Authorization"] = headers
		for n, answer := range other.attempts() {
			if answer.Status != http.StatusUnauthorized && answer.Status != http.StatusBadRequest || len(answer.Messages) > 0 {
				t.Errorf("%.20q: attempt %d is answered %d %s", headers, n, answer.Status, answer.Body)
			}
		}
	}
	for _, at := range []string{"?access_token=" + ann, "?authorization=Bearer%20" + ann} {
		other := r.client("")
		delete(other.web.Header, "Authorization")
		other.web.URL += at
		if answer := other.web.Post(t.Context(), mcptest.Request(1, "initialize", oldHello)); answer.Status != http.StatusUnauthorized {
			t.Errorf("a token in the query is answered %d", answer.Status)
		}
	}
	r.untouched()
}

// A session is its principal's: whoever else has its id finds none, by any way in, with the proof of who they are.
func TestSessionOfAnotherPrincipal(t *testing.T) {
	t.Parallel()
	issuer := mcptest.NewIssuer(t)
	tokens := filepath.Join(t.TempDir(), "tokens.yaml")
	named := fmt.Sprintf("version: 1\ntokens:\n  ann: sha256:%x\n", sha256.Sum256([]byte("named-ann")))
	if err := os.WriteFile(tokens, []byte(named), 0o600); err != nil {
		t.Fatal(err)
	}
	r := web.with(append(openID(issuer), "--bearer-file", secretFile(t, "the-one"), "--tokens", tokens)...).start(t)
	r.as(issuer.Token("ann", nil)).Initialize()
	for name, token := range map[string]string{"bob": issuer.Token("bob", nil), "another ann": "named-ann", "the one token": "the-one"} {
		for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
			ask := func(id string) mcptest.Response {
				other := r.client(token)
				other.web.SetID(id)
				return other.web.Do(request(r, method, call("1", `{"name":"once"}`)))
			}
			foreign, unknown := ask(r.web.ID()), ask(strings.Repeat("A", 26))
			delete(foreign.Header, "Date")
			delete(unknown.Header, "Date")
			if foreign.Status != http.StatusNotFound || string(foreign.Body) != string(unknown.Body) || fmt.Sprint(foreign.Header) != fmt.Sprint(unknown.Header) {
				t.Errorf("%s by %s is answered %d %v %s, and none %d %v %s", method, name, foreign.Status, foreign.Header, foreign.Body,
					unknown.Status, unknown.Header, unknown.Body)
			}
		}
	}
	fresh := r.client(issuer.Token("ann", mcptest.Claims{"jti": "a fresh one"}))
	fresh.web.SetID(r.web.ID())
	if answer := fresh.Tool("ok", `{"alive":true}`); string(answer.Result) != mcptest.Text("ok") {
		t.Errorf("ann with a fresh token is answered %s", answer)
	}
	r.in("start")
	r.untouched()
}

// What a client is let in by reaches no upstream, in no era, and no log.
func TestTokensStayHere(t *testing.T) {
	t.Parallel()
	issuer := mcptest.NewIssuer(t)
	r := web.with(append(openID(issuer), "--log-level", "trace", "--upstream-bearer-file", secretFile(t, "the-proxys-own"))...).start(t)
	token := issuer.Token("ann", nil)
	r.as(token).Initialize()
	r.lives()
	r.modernClient(token).Call("tools/call", `{"name":"ok","arguments":{"alive":true}}`)
	r.client(issuer.Token("ann", mcptest.Claims{"aud": "other"})).attempts()
	received := r.upstream.Received()
	if len(received) < 4 {
		t.Errorf("the upstream has received %d messages", len(received))
	}
	for _, m := range received {
		if got := m.Header["Authorization"]; !slices.Equal(got, []string{"Bearer the-proxys-own"}) {
			t.Errorf("%s came with %q", m.Method, got)
		}
		if strings.Contains(fmt.Sprint(m.Header)+m.String(), token[:40]) {
			t.Errorf("%s has the token: %v %s", m.Method, m.Header, m)
		}
	}
	text := r.process.Log().String()
	for _, part := range strings.Split(token, ".") {
		if strings.Contains(text, part) {
			t.Errorf("%q is in the log", part)
		}
	}
	if !strings.Contains(text, "subject=ann") {
		t.Errorf("the log does not say who was there:\n%s", text)
	}
}

// An issuer that cannot be reached ends nothing: who has another way in is served, and the others are when it is back.
func TestIssuerAway(t *testing.T) {
	t.Parallel()
	issuer := mcptest.NewIssuer(t)
	issuer.Break(true)
	health := mcptest.FreeAddress(t)
	r := web.with(append(openID(issuer), "--bearer-file", secretFile(t, "the-one"), "--health", health)...).start(t)
	ann := r.client(issuer.Token("ann", nil))
	for n, answer := range ann.attempts() {
		if answer.Status != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "" {
			t.Errorf("attempt %d is answered %d %s", n, answer.Status, answer.Body)
		}
	}
	if answer := r.client("").web.Do(at(t, http.MethodGet, "http://"+health+"/readyz")); answer.Status != http.StatusOK {
		t.Errorf("readyz is answered %d %s", answer.Status, answer.Body)
	}
	r.as("the-one").Initialize()
	r.lives()
	issuer.Break(false)
	r.process.Log().Await(t, "the issuer's keys are known")
	ann.Initialize()
	ann.lives()
}

func at(t *testing.T, method, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// A key that was withdrawn opens nothing, by a file of keys that is swapped; a session that it has begun goes on for
// its principal.
func TestKeyWithdrawn(t *testing.T) {
	t.Parallel()
	issuer := mcptest.NewIssuer(t)
	keys := filepath.Join(t.TempDir(), "keys.json")
	put := func() {
		if err := os.WriteFile(keys+".new", issuer.JWKS(), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(keys+".new", keys); err != nil {
			t.Fatal(err)
		}
	}
	put()
	r := web.with(append(openID(issuer), "--oidc-jwks", keys, "--reload-debounce", "5ms")...).start(t)
	old := issuer.Token("ann", nil)
	r.as(old).Initialize()
	issuer.Rotate()
	put()
	r.process.Log().Await(t, "the file of the issuer's keys was reloaded")
	for n, answer := range r.client(old).attempts() {
		if answer.Status != http.StatusUnauthorized {
			t.Errorf("attempt %d with a token of the withdrawn key is answered %d", n, answer.Status)
		}
	}
	r.as(issuer.Token("ann", nil))
	r.in("start")
	r.untouched()
	if issuer.Fetched() > 0 {
		t.Error("the issuer was asked, though there is a file")
	}
}

// Who is taken out of the token file is not let in any more.
func TestTokenTakenOut(t *testing.T) {
	t.Parallel()
	tokens := filepath.Join(t.TempDir(), "tokens.yaml")
	put := func(names ...string) {
		text := "version: 1\ntokens:\n"
		for _, name := range names {
			text += fmt.Sprintf("  %s: sha256:%x\n", name, sha256.Sum256([]byte("token of "+name)))
		}
		if err := os.WriteFile(tokens, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("ann", "bob")
	r := web.with("--tokens", tokens, "--reload-debounce", "5ms").start(t)
	r.as("token of ann").Initialize()
	bob := r.client("token of bob")
	bob.Initialize()
	put("ann")
	r.process.Log().Await(t, "the token file was reloaded")
	for n, answer := range bob.attempts() {
		if answer.Status != http.StatusUnauthorized {
			t.Errorf("attempt %d is answered %d", n, answer.Status)
		}
	}
	if err := os.WriteFile(tokens, []byte("version: 1\ntokens: {bob: token-in-plain}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.process.Log().Await(t, "the token file was not reloaded")
	if strings.Contains(r.process.Log().String(), "token-in-plain") {
		t.Error("the log repeats what stands where a hash belongs")
	}
	r.in("start")
	r.untouched()
}

// Certificates open connections, over HTTP/1.1 and HTTP/2, and sessions are theirs.
func TestClientCertificates(t *testing.T) {
	t.Parallel()
	ours, theirs := mcptest.NewAuthority("ours"), mcptest.NewAuthority("ours")
	authorities := filepath.Join(t.TempDir(), "clients.crt")
	if err := os.WriteFile(authorities, ours.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	r := webTLS.with("--client-ca", authorities).start(t)
	r.web.Present(ours.Client("ann", nil))
	r.Initialize()
	r.overHTTP1(ours.Client("ann", nil), http.StatusOK)
	r.overHTTP1(ours.Client("bob", nil), http.StatusNotFound)
	bob := r.client("")
	bob.web.Present(ours.Client("bob", nil, "spiffe://example.com/bob"))
	bob.Initialize()
	bob.web.SetID(r.web.ID())
	if answer := bob.web.Post(t.Context(), call("1", `{"name":"once"}`)); answer.Status != http.StatusNotFound {
		t.Errorf("another certificate's session is answered %d %s", answer.Status, answer.Body)
	}
	for name, present := range map[string]func(*mcptest.Web){
		"none":              func(*mcptest.Web) {},
		"another authority": func(w *mcptest.Web) { w.Present(theirs.Client("ann", nil)) },
		"ended": func(w *mcptest.Web) {
			w.Present(ours.Client("ann", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }))
		},
	} {
		other := r.client("the certificate is what counts")
		present(other.web)
		for n, answer := range other.attempts() {
			if answer.Err == nil {
				t.Errorf("%s: attempt %d is answered %d %s", name, n, answer.Status, answer.Body)
			}
		}
	}
	r.in("start")
	r.untouched()
}

// overHTTP1 uses the session twice on one connection of HTTP/1.1, with a certificate.
func (r *rig) overHTTP1(certificate tls.Certificate, want int) {
	r.t.Helper()
	cfg := mcptest.TrustTLS()
	cfg.Certificates = []tls.Certificate{certificate}
	connection, err := tls.Dial("tcp", r.address(), cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	defer connection.Close()
	_ = connection.SetDeadline(time.Now().Add(mcptest.Patience))
	answers := bufio.NewReader(connection)
	for range 2 {
		req := request(r, http.MethodPost, call("1", `{"name":"ok","arguments":{"alive":true}}`))
		req.Header.Set("Mcp-Session-Id", r.web.ID())
		if err := req.Write(connection); err != nil {
			r.t.Fatal(err)
		}
		answer, err := http.ReadResponse(answers, req)
		if err != nil {
			r.t.Fatal(err)
		}
		text, _ := io.ReadAll(answer.Body)
		if answer.StatusCode != want {
			r.t.Errorf("over HTTP/1.1: %d %s, want %d", answer.StatusCode, text, want)
		}
	}
}

// A page of another site learns nothing at any port, whatever it asks for, nor under a name that leads here.
func TestRebindingOnEveryPort(t *testing.T) {
	t.Parallel()
	issuer := mcptest.NewIssuer(t)
	health, admin := mcptest.FreeAddress(t), mcptest.FreeAddress(t)
	r := web.with(append(openID(issuer), "--health", health, "--admin", admin)...).start(t)
	r.as(issuer.Token("ann", nil)).Initialize()
	front := "http://" + r.address()
	for _, place := range []struct {
		url    string
		public bool // it says the same to everybody, whatever name it is called by
	}{
		{front + "/mcp", false}, {front + "/mcp/runs/x", false}, {front + "/", false},
		{front + "/.well-known/oauth-protected-resource", false}, {front + "/.well-known/oauth-protected-resource/mcp", false},
		{"http://" + admin + "/v1/sessions", false}, {"http://" + admin + "/v1/policy", false}, {"http://" + admin + "/debug/pprof/", false},
		{"http://" + health + "/readyz", true}, {"http://" + health + "/metrics", true},
	} {
		for _, header := range []http.Header{{"Origin": {"https://evil.example"}}, {"Origin": {"null"}}, {"Host": {"evil.example"}}} {
			for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodOptions} {
				stranger := r.client(issuer.Token("ann", nil))
				for name, values := range header {
					stranger.web.Header[name] = values
				}
				answer := stranger.web.Do(at(t, method, place.url))
				if !place.public && answer.Status != http.StatusForbidden {
					t.Errorf("%s %s with %v is answered %d %s", method, place.url, header, answer.Status, answer.Body)
				}
				if allowed := answer.Header.Get("Access-Control-Allow-Origin"); allowed != "" {
					t.Errorf("%s %s with %v allows the origin %s to read the answer", method, place.url, header, allowed)
				}
			}
		}
	}
	page := r.client("")
	delete(page.web.Header, "Authorization")
	page.web.Header.Set("Origin", "http://localhost:6274")
	answer := page.web.Do(at(t, http.MethodGet, front+"/.well-known/oauth-protected-resource/mcp"))
	if want := `"authorization_servers":["` + issuer.URL + `"]`; answer.Status != 200 || !strings.Contains(string(answer.Body), want) ||
		answer.Header.Get("Access-Control-Allow-Origin") != "http://localhost:6274" {
		t.Errorf("a page of this machine gets %d %v %s", answer.Status, answer.Header, answer.Body)
	}
	r.in("start")
	r.untouched()
}

// A token whose audience is one run's URL opens that run alone, in both eras: neither another run nor what is served
// beside runs, and nothing in an era whose runs have no URL.
func TestTokenOfOneRun(t *testing.T) {
	t.Parallel()
	const mine, other = "7LJ2QZ4N5XKVTB3H6MWPYRACDE", "7LJ2QZ4N5XKVTB3H6MWPYRACDF"
	for _, keys := range []string{"legacy=path", "legacy=session,modern=path"} {
		t.Run(keys, func(t *testing.T) {
			t.Parallel()
			issuer := mcptest.NewIssuer(t)
			flags := []string{"--oidc-issuer", issuer.URL, "--oidc-audience", mcptest.Audience, "--run-key", keys, "--path-create"}
			r := web.with(flags...).start(t)
			whole := issuer.Token("ann", nil)
			one := issuer.Token("ann", mcptest.Claims{"aud": mcptest.Audience + "/runs/" + mine})
			asks := func(token, path string, modern bool) mcptest.Response {
				c := r.client(token)
				c.web.URL = r.url + path
				if modern {
					c.Modern(mcptest.Modern{})
					return c.web.Post(t.Context(), aloneCall(`{"name":"ok"}`))
				}
				return c.web.Post(t.Context(), mcptest.Request(1, "initialize", oldHello))
			}
			for range 2 { // what is remembered of a token opens no more
				for _, path := range []string{"", "/runs/" + other, "/runs/" + mine + "x"} {
					for _, modern := range []bool{false, true} {
						if answer := asks(one, path, modern); answer.Status != http.StatusUnauthorized || len(answer.Messages) > 0 {
							t.Errorf("%q, modern %v, is answered %d %s", path, modern, answer.Status, answer.Body)
						}
					}
				}
				for _, token := range []string{one, whole} {
					if answer := asks(token, "/runs/"+mine, true); answer.Status != http.StatusOK || denied(string(answer.Body)) {
						t.Errorf("the run itself is answered %d %s", answer.Status, answer.Body)
					}
					answer := asks(token, "/runs/"+mine, false)
					if has := answer.Header.Get("Mcp-Session-Id") != ""; has != (keys == "legacy=path") {
						t.Errorf("a session there: %v, answered %d %s", has, answer.Status, answer.Body)
					}
				}
			}
			if answer := asks(whole, "/runs/"+other, true); answer.Status != http.StatusOK || denied(string(answer.Body)) {
				t.Errorf("with a token for all another run is answered %d %s", answer.Status, answer.Body)
			}
		})
	}
}
