package auth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"go.uber.org/goleak"

	"github.com/fsm-proxy/fsm-proxy/internal/asker"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// accepting is a gate for an issuer's tokens, with its keys at hand.
func accepting(t testing.TB, from *mcptest.Issuer, change func(*IssuerConfig)) *Gate {
	t.Helper()
	cfg := IssuerConfig{URL: from.URL, Audiences: []string{mcptest.Audience}, Scopes: []string{mcptest.Scope}, Skew: time.Minute, Keys: from.JWKS()}
	if change != nil {
		change(&cfg)
	}
	i, err := NewIssuer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.Close)
	return New(Config{Issuer: i, Path: "/mcp"})
}

func TestTokens(t *testing.T) {
	issuer, other := mcptest.NewIssuer(t), mcptest.NewIssuer(t)
	g := accepting(t, issuer, nil)
	type says = mcptest.Claims
	now := time.Now().Unix()
	encoded := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	good := issuer.Token("ann", nil)
	parts := strings.Split(good, ".")
	for name, c := range map[string]struct {
		token, fault string // fault "": it is good
	}{
		"good":                       {good, ""},
		"several audiences":          {issuer.Token("ann", says{"aud": []string{"x", mcptest.Audience}}), ""},
		"scp, a list":                {issuer.Token("ann", says{"scope": nil, "scp": []string{"x", mcptest.Scope}}), ""},
		"scp, a text":                {issuer.Token("ann", says{"scope": nil, "scp": "x " + mcptest.Scope}), ""},
		"access token type":          {issuer.Signed(says{"typ": "at+jwt"}, issuer.Says("ann", nil)), ""},
		"no type":                    {issuer.Signed(says{"typ": nil}, issuer.Says("ann", nil)), ""},
		"no key id":                  {issuer.Signed(says{"kid": nil}, issuer.Says("ann", nil)), ""},
		"no iat":                     {issuer.Token("ann", says{"iat": nil}), ""},
		"expired within the skew":    {issuer.Token("ann", says{"exp": now - 30}), ""},
		"early within the skew":      {issuer.Token("ann", says{"nbf": now + 30, "iat": now + 30}), ""},
		"fractions of a second":      {issuer.Token("ann", says{"exp": float64(now) + 3600.5}), ""},
		"for ever":                   {issuer.Token("ann", says{"exp": 1e300}), ""},
		"audience, one run of it":    {issuer.Token("ann", says{"aud": mcptest.Audience + "/runs/x"}), "audience"},
		"audience, with a run of it": {issuer.Token("ann", says{"aud": []string{mcptest.Audience + "/runs/x", mcptest.Audience}}), ""},
		"audience":                   {issuer.Token("ann", says{"aud": "https://other.example"}), "audience"},
		"audience, a beginning":      {issuer.Token("ann", says{"aud": mcptest.Audience + "/"}), "audience"},
		"no audience":                {issuer.Token("ann", says{"aud": nil}), "audience"},
		"audience of another type":   {issuer.Token("ann", says{"aud": 7}), "read"},
		"alg none":                   {issuer.Unsigned(issuer.Says("ann", nil)), "algorithm"},
		"alg none, signed":           {issuer.Signed(says{"alg": "none"}, issuer.Says("ann", nil)), "algorithm"},
		"alg nOnE":                   {issuer.Signed(says{"alg": "nOnE"}, issuer.Says("ann", nil)), "algorithm"},
		"no alg":                     {issuer.Signed(says{"alg": nil}, issuer.Says("ann", nil)), "algorithm"},
		"wrong issuer":               {issuer.Token("ann", says{"iss": other.URL}), "somebody else"},
		"issuer, a slash more":       {issuer.Token("ann", says{"iss": issuer.URL + "/"}), "somebody else"},
		"no issuer":                  {issuer.Token("ann", says{"iss": nil}), "somebody else"},
		"another's key":              {other.Signed(nil, issuer.Says("ann", nil)), "signed"},
		"another's key, no key id":   {other.Signed(says{"kid": nil}, issuer.Says("ann", nil)), "signed"},
		"key confusion, PEM":         {issuer.Confused(issuer.PublicPEM(), issuer.Says("ann", nil)), "algorithm"},
		"key confusion, JWKS":        {issuer.Confused(issuer.JWKS(), issuer.Says("ann", nil)), "algorithm"},
		"empty HMAC key":             {issuer.Confused(nil, issuer.Says("ann", nil)), "algorithm"},
		"RS256 said to be PS256":     {issuer.Signed(says{"alg": "PS256"}, issuer.Says("ann", nil)), "signed"},
		"RS256 said to be RS512":     {issuer.Signed(says{"alg": "RS512"}, issuer.Says("ann", nil)), "algorithm"},
		"expired":                    {issuer.Token("ann", says{"exp": now - 61}), "expired"},
		"negative end":               {issuer.Token("ann", says{"exp": -1e300}), "expired"},
		"no end":                     {issuer.Token("ann", says{"exp": nil}), "expires"},
		"end as text":                {issuer.Token("ann", says{"exp": "9999999999"}), "read"},
		"not yet valid":              {issuer.Token("ann", says{"nbf": now + 120}), "not valid yet"},
		"issued in the future":       {issuer.Token("ann", says{"iat": now + 120}), "not valid yet"},
		"missing sub":                {issuer.Token("", says{"sub": nil}), "whose"},
		"empty sub":                  {issuer.Token("", nil), "whose"},
		"sub with a line feed":       {issuer.Token("ann\nlevel=info", nil), "subject"},
		"sub of 1000 bytes":          {issuer.Token(strings.Repeat("a", 1000), nil), "subject"},
		"sub, a number":              {issuer.Token("ann", says{"sub": 7}), "read"},
		"SUB":                        {issuer.Token("ann", says{"sub": nil, "SUB": "ann"}), "whose"},
		"missing scope":              {issuer.Token("ann", says{"scope": nil}), "scope"},
		"another scope":              {issuer.Token("ann", says{"scope": mcptest.Scope + ":more"}), "scope"},
		"kid is a path":              {issuer.Signed(says{"kid": "../../../../dev/null"}, issuer.Says("ann", nil)), "signed"},
		"kid is a URL":               {issuer.Signed(says{"kid": other.URL + "/keys"}, issuer.Says("ann", nil)), "signed"},
		"kid is SQL":                 {issuer.Signed(says{"kid": "' OR 1=1 --"}, issuer.Says("ann", nil)), "signed"},
		"kid is a number":            {issuer.Signed(says{"kid": 1}, issuer.Says("ann", nil)), "read"},
		"jku elsewhere":              {other.Signed(says{"jku": other.URL + "/keys", "x5u": other.URL}, issuer.Says("ann", nil)), "signed"},
		"its own key":                {other.Signed(says{"jwk": ownKey(t, other)}, issuer.Says("ann", nil)), "signed"},
		"critical header":            {issuer.Signed(says{"crit": []string{"exp"}, "exp": 1}, issuer.Says("ann", nil)), "signed"},
		"a logout token":             {issuer.Signed(says{"typ": "logout+jwt"}, issuer.Says("ann", nil)), "kind"},
		"a type that is no text":     {issuer.Signed(says{"typ": 7}, issuer.Says("ann", nil)), "kind"},
		"an empty type":              {issuer.Signed(says{"typ": ""}, issuer.Says("ann", nil)), "kind"},
		"a proof of possession":      {issuer.Signed(says{"typ": "dpop+jwt"}, issuer.Says("ann", nil)), "kind"},
		"claims changed":             {parts[0] + "." + encoded(`{"sub":"bob"}`) + "." + parts[2], "signed"},
		"signature cut":              {good[:len(good)-8], "signed"},
		"signature gone":             {parts[0] + "." + parts[1] + ".", "signed"},
		"two parts":                  {parts[0] + "." + parts[1], "read"},
		"four parts":                 {good + ".x", "read"},
		"JSON serialization":         {`{"payload":"` + parts[1] + `","signatures":[{"protected":"` + parts[0] + `","signature":"` + parts[2] + `"}]}`, "read"},
		"nonsense":                   {"nonsense", "read"},
		"huge":                       {good + strings.Repeat("A", 20_000), "too long"},
		"somebody else's, with all":  {other.Token("ann", nil), "signed"},
	} {
		who, w := ask(g, "Bearer "+c.token)
		again, _ := ask(g, "Bearer "+c.token)
		challenge := w.Header().Get("WWW-Authenticate")
		switch {
		case c.fault == "" && (w.Code != 0 || who != again || who != wire.Principal{Issuer: issuer.URL, Subject: "ann"}):
			t.Errorf("%s: %d %s, %v", name, w.Code, w.Body, who)
		case c.fault == "scope" && (w.Code != 403 || !strings.Contains(challenge, `error="insufficient_scope"`) || !strings.Contains(challenge, `scope="`+mcptest.Scope+`"`)):
			t.Errorf("%s: %d %s", name, w.Code, challenge)
		case c.fault != "" && (w.Code/100 != 4 || who.Known() || again.Known() || !strings.Contains(w.Body.String(), c.fault)):
			t.Errorf("%s: %d %s, want %q; %v", name, w.Code, w.Body, c.fault, who)
		case c.fault != "" && c.fault != "scope" && !strings.Contains(challenge, `error="invalid_token"`):
			t.Errorf("%s: %s", name, challenge)
		}
	}
}

// ownKey is an issuer's public key, for a token's header.
func ownKey(t *testing.T, of *mcptest.Issuer) json.RawMessage {
	var set struct{ Keys []json.RawMessage }
	if err := json.Unmarshal(of.JWKS(), &set); err != nil {
		t.Fatal(err)
	}
	return set.Keys[0]
}

// Claims that stand there twice mean two things to two readers.
func TestClaimsTwice(t *testing.T) {
	for _, payload := range []string{`{"sub":"ann","sub":"bob"}`, `{"iss":"a","\u0069ss":"b"}`, `{"sub":"` + "\xff" + `"}`, `[]`, ``, `{"exp":1e999}`} {
		if c, no := readClaims([]byte(payload)); no == nil {
			t.Errorf("%q is read as %+v", payload, c)
		}
	}
}

func TestNoTokenIsGiven(t *testing.T) {
	issuer := mcptest.NewIssuer(t)
	_, w := ask(accepting(t, issuer, nil))
	want := `Bearer scope="` + mcptest.Scope + `", resource_metadata="http://127.0.0.1:8080/.well-known/oauth-protected-resource/mcp"`
	if got := w.Header().Get("WWW-Authenticate"); w.Code != 401 || got != want {
		t.Errorf("%d %s, want %s", w.Code, got, want)
	}
}

func TestBadIssuerConfig(t *testing.T) {
	for _, c := range []struct {
		cfg  IssuerConfig
		want string
	}{
		{IssuerConfig{URL: "http://login.example.com", Audiences: []string{"a"}}, "https"},
		{IssuerConfig{URL: "login.example.com", Audiences: []string{"a"}}, "no URL"},
		{IssuerConfig{URL: "https://user:secret@login.example.com", Audiences: []string{"a"}}, "no URL"},
		{IssuerConfig{URL: "https://login.example.com"}, "audience"},
		{IssuerConfig{URL: "https://login.example.com", Audiences: []string{"a"}, Algorithms: []string{"none"}}, `"none"`},
		{IssuerConfig{URL: "https://login.example.com", Audiences: []string{"a"}, Algorithms: []string{"RS256", "HS256"}}, `"HS256"`},
		{IssuerConfig{URL: "https://login.example.com", Audiences: []string{"a"}, Keys: []byte("{")}, "no JWK set"},
		{IssuerConfig{URL: "https://login.example.com", Audiences: []string{"a"}, Keys: []byte(`{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}`)}, "none of its 1 keys"},
	} {
		if i, err := NewIssuer(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") && c.want == "https" {
			t.Errorf("%+v: %v, %v", c.cfg, i, err)
		}
	}
}

// Which keys of a set are used.
func TestKeysOfASet(t *testing.T) {
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	strong, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	var all []jose.JSONWebKey
	add := func(id, use, alg string, key any) {
		all = append(all, jose.JSONWebKey{Key: key, KeyID: id, Use: use, Algorithm: alg})
	}
	add("curve", "", "", &curve.PublicKey)
	add("strong", "sig", "PS256", &strong.PublicKey)
	add("private", "sig", "", strong)
	add("weak", "sig", "RS256", &weak.PublicKey)
	add("for encryption", "enc", "", &strong.PublicKey)
	add("another algorithm", "sig", "RSA-OAEP", &strong.PublicKey)
	add("HMAC", "sig", "HS256", []byte("secret"))
	text, err := json.Marshal(jose.JSONWebKeySet{Keys: all})
	if err != nil {
		t.Fatal(err)
	}
	text = []byte(strings.Replace(string(text), `{"keys":[`, `{"keys":[{"kty":"new"},7,`, 1))
	set, err := readKeys(text)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, key := range set.keys {
		got = append(got, key.KeyID)
		if !key.IsPublic() {
			t.Errorf("%s is private", key.KeyID)
		}
	}
	if strings.Join(got, " ") != "curve strong private" {
		t.Errorf("the keys are %q", got)
	}
}

// A key that the issuer has begun to use since is asked for, and one that it has
// withdrawn verifies nothing any more, whatever was remembered.
func TestRotation(t *testing.T) {
	issuer := mcptest.NewIssuer(t)
	g := accepting(t, issuer, nil)
	old := issuer.Token("ann", nil)
	if who, w := ask(g, "Bearer "+old); !who.Known() {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	issuer.Rotate()
	fresh := issuer.Token("ann", nil)
	if who, _ := ask(g, "Bearer "+fresh); who.Known() {
		t.Error("a key that is not known verifies a token")
	}
	if err := g.cfg.Issuer.SetKeys([]byte("nonsense")); err == nil {
		t.Error("nonsense is read as keys")
	}
	if who, _ := ask(g, "Bearer "+old); !who.Known() {
		t.Error("keys that cannot be read have replaced those before")
	}
	if err := g.cfg.Issuer.SetKeys(issuer.JWKS()); err != nil {
		t.Fatal(err)
	}
	if who, w := ask(g, "Bearer "+fresh); !who.Known() {
		t.Errorf("the new key: %d %s", w.Code, w.Body)
	}
	if who, _ := ask(g, "Bearer "+old); who.Known() {
		t.Error("a withdrawn key verifies a token that was remembered")
	}
}

// The metadata say where tokens come from, to everybody.
func TestMetadata(t *testing.T) {
	issuer := mcptest.NewIssuer(t)
	g := accepting(t, issuer, nil)
	get := func(g *Gate, method, at string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		if !g.Public(w, httptest.NewRequest(method, at, nil)) {
			w.Code = 0
		}
		return w
	}
	const place = "http://127.0.0.1:8080/.well-known/oauth-protected-resource"
	for _, at := range []string{place, place + "/mcp", "https://127.0.0.1:8080/.well-known/oauth-protected-resource"} {
		w := get(g, "GET", at)
		scheme, _, _ := strings.Cut(at, ":")
		want := `{"resource":"` + scheme + `://127.0.0.1:8080/mcp","authorization_servers":["` + issuer.URL + `"],"scopes_supported":["mcp:use"],"bearer_methods_supported":["header"]}`
		if got := w.Body.String(); w.Code != 200 || got != want || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %s, want %s", at, w.Code, got, want)
		}
	}
	for _, at := range []string{"http://h/mcp", place + "x", place + "/other", "http://h/", place + "/mcpx", place + "/mcp/runs/", place + "/mcp/runs/x/y", place + "/runs/x"} {
		if w := get(g, "GET", at); w.Code != 0 {
			t.Errorf("%s: %d", at, w.Code)
		}
	}
	if w := get(g, "GET", place+"/mcp/runs/x"); !strings.Contains(w.Body.String(), `"resource":"http://127.0.0.1:8080/mcp/runs/x"`) {
		t.Errorf("of a run: %d %s", w.Code, w.Body)
	}
	if w := get(g, "POST", place); w.Code != 405 {
		t.Errorf("POST: %d", w.Code)
	}
	outside, err := url.Parse("https://mcp.example.com/team/mcp")
	if err != nil {
		t.Fatal(err)
	}
	g = New(Config{Issuer: g.cfg.Issuer, Path: "/mcp", Resource: outside})
	for _, at := range []string{place, place + "/mcp", place + "/team/mcp"} {
		if w := get(g, "GET", at); !strings.Contains(w.Body.String(), `"resource":"https://mcp.example.com/team/mcp"`) {
			t.Errorf("%s: %d %s", at, w.Code, w.Body)
		}
	}
	if w := get(g, "GET", place+"/mcp/runs/x"); !strings.Contains(w.Body.String(), `"resource":"https://mcp.example.com/team/mcp/runs/x"`) {
		t.Errorf("of a run: %d %s", w.Code, w.Body)
	}
	_, w := ask(g)
	if got := w.Header().Get("WWW-Authenticate"); !strings.Contains(got, `resource_metadata="https://mcp.example.com/.well-known/oauth-protected-resource/team/mcp"`) {
		t.Error(got)
	}
	if w := get(New(Config{Bearer: func() string { return "x" }, Path: "/mcp"}), "GET", place); w.Code != 0 {
		t.Errorf("without an issuer: %d", w.Code)
	}
}

// A token that is for the URL of a run, or of several, opens those and nothing else, whether it is remembered or not.
func TestTokenOfARun(t *testing.T) {
	issuer := mcptest.NewIssuer(t)
	g := accepting(t, issuer, nil)
	one := issuer.Token("ann", mcptest.Claims{"aud": mcptest.Audience + "/runs/x"})
	two := issuer.Token("ann", mcptest.Claims{"aud": []string{mcptest.Audience + "/runs/x", mcptest.Audience + "/runs/y", "other"}})
	all := issuer.Token("ann", nil)
	none := issuer.Token("ann", mcptest.Claims{"aud": mcptest.Audience + "/runs/"})
	for range 2 {
		for path, opened := range map[string]string{
			"/mcp/runs/x": one + two + all, "/mcp/runs/y": two + all, "/mcp/runs/z": all, "/mcp": all, "/mcp/runs/": all, "/mcp/runs/x/y": all, "/runs/x": all, "/mcp/runs/X": all,
			"/.well-known/oauth-protected-resource/mcp/runs/x": all,
		} {
			for _, token := range []string{one, two, all, none} {
				r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:8080"+path, nil)
				r.Header.Set("Authorization", "Bearer "+token)
				if _, ok := g.Authenticate(httptest.NewRecorder(), r); ok != strings.Contains(opened, token) {
					t.Errorf("%s: let in %v", path, ok)
				}
			}
		}
	}
}

// There is room for so many tokens and no more.
func TestCacheIsBounded(t *testing.T) {
	var c cache[[32]byte, *keySet]
	set, now := setOf("a"), time.Now()
	for n := range maxKnown + 100 {
		c.put([32]byte{byte(n), byte(n >> 8)}, known[*keySet]{who: &asker.Who{Subject: "ann"}, by: set, until: now.Add(time.Minute)}, maxKnown)
	}
	if len(c.all) != maxKnown {
		t.Errorf("%d are remembered", len(c.all))
	}
	last := [32]byte{byte((maxKnown + 99) & 0xff), byte((maxKnown + 99) >> 8)}
	if who, ok := c.find(last, set, now); !ok || who.Subject != "ann" {
		t.Error("the last one is not remembered")
	}
	if _, ok := c.find(last, set, now.Add(time.Minute)); ok {
		t.Error("one is remembered beyond its end")
	}
	if _, ok := c.find(last, setOf("a"), now); ok {
		t.Error("one is remembered that other keys may not verify")
	}
}

func BenchmarkTokenKnown(b *testing.B) {
	issuer := mcptest.NewIssuer(b)
	g := accepting(b, issuer, nil)
	r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:8080/mcp", nil)
	r.Header.Set("Authorization", "Bearer "+issuer.Token("ann", nil))
	w := httptest.NewRecorder()
	for b.Loop() {
		g.Authenticate(w, r)
	}
}

func BenchmarkTokenVerified(b *testing.B) {
	issuer := mcptest.NewIssuer(b)
	g := accepting(b, issuer, nil)
	token := issuer.Token("ann", nil)
	for b.Loop() {
		if _, _, no := g.cfg.Issuer.verify(b.Context(), token); no != nil {
			b.Fatal(no)
		}
	}
}
