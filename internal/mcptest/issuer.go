package mcptest

import (
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// Audience is whom the tokens of an Issuer are for, and Scope what they have, unless a test says otherwise.
const (
	Audience = "https://proxy.example/mcp"
	Scope    = "mcp:use"
)

// Issuer is an authorization server on loopback that has its metadata and its keys read, and whose tokens the test
// writes. It is safe for concurrent use.
type Issuer struct {
	// URL is the issuer's name and address.
	URL string

	t testing.TB

	mu      sync.Mutex // guards what follows
	keys    []issuerKey
	number  int // of the newest key
	fetched int
	down    bool
}

type issuerKey struct {
	id      string
	private *rsa.PrivateKey
}

// Claims are what a token says, or its header.
type Claims map[string]any

// NewIssuer serves an issuer with one key.
func NewIssuer(t testing.TB) *Issuer {
	t.Helper()
	i := &Issuer{t: t}
	i.Rotate()
	server := httptest.NewServer(http.HandlerFunc(i.serve))
	i.URL = server.URL
	t.Cleanup(server.Close)
	return i
}

// Rotate makes a new key, with which tokens are signed from now on. Those before are withdrawn.
func (i *Issuer) Rotate() {
	i.t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		i.t.Fatal(err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.number++
	i.keys = []issuerKey{{fmt.Sprintf("key %d", i.number), key}}
}

// Break has the issuer answer 500, or serve again.
func (i *Issuer) Break(down bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.down = down
}

// Fetched is how often the keys were read.
func (i *Issuer) Fetched() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.fetched
}

func (i *Issuer) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path == "/token" {
		i.grant(w, r)
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.down:
		w.WriteHeader(http.StatusInternalServerError)
	case r.URL.Path == "/.well-known/openid-configuration":
		_ = json.NewEncoder(w).Encode(Claims{
			"issuer": i.URL, "jwks_uri": i.URL + "/keys", "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token",
			"response_types_supported": []string{"code"}, "code_challenge_methods_supported": []string{"S256"},
			"subject_types_supported": []string{"public"}, "id_token_signing_alg_values_supported": []string{"RS256"},
		})
	case r.URL.Path == "/keys":
		i.fetched++
		_, _ = w.Write(i.jwksLocked())
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// grant gives a token for a code, which is the name of who has agreed, to the resource that is asked for.
func (i *Issuer) grant(w http.ResponseWriter, r *http.Request) {
	token := i.Token(r.PostFormValue("code"), Claims{"aud": r.PostFormValue("resource")})
	_ = json.NewEncoder(w).Encode(Claims{"access_token": token, "token_type": "Bearer", "expires_in": 3600})
}

// JWKS are the keys, as a file has them.
func (i *Issuer) JWKS() []byte {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.jwksLocked()
}

func (i *Issuer) jwksLocked() []byte {
	var keys []Claims
	for _, k := range i.keys {
		public := k.private.PublicKey
		keys = append(keys, Claims{"kty": "RSA", "use": "sig", "alg": "RS256", "kid": k.id,
			"n": base64.RawURLEncoding.EncodeToString(public.N.Bytes()),
			"e": base64.RawURLEncoding.EncodeToString(big.NewInt(int64(public.E)).Bytes())})
	}
	text, err := json.Marshal(Claims{"keys": keys})
	if err != nil {
		i.t.Error(err)
	}
	return text
}

// PublicPEM is the newest key's public half.
func (i *Issuer) PublicPEM() []byte {
	i.t.Helper()
	der, err := x509.MarshalPKIXPublicKey(&i.newest().private.PublicKey)
	if err != nil {
		i.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

func (i *Issuer) newest() issuerKey {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.keys[len(i.keys)-1]
}

// Says is what a token of a subject says, with some of it otherwise; nil leaves a claim out.
func (i *Issuer) Says(subject string, otherwise Claims) Claims {
	now := time.Now().Unix()
	c := Claims{"iss": i.URL, "aud": Audience, "sub": subject, "scope": "openid " + Scope, "iat": now, "exp": now + 3600}
	return with(c, otherwise)
}

func with(c, otherwise Claims) Claims {
	maps.Copy(c, otherwise)
	maps.DeleteFunc(c, func(_ string, value any) bool { return value == nil })
	return c
}

// Token is a signed token of a subject, with some of what it says otherwise; nil leaves a claim out.
func (i *Issuer) Token(subject string, otherwise Claims) string {
	i.t.Helper()
	return i.Signed(nil, i.Says(subject, otherwise))
}

// Signed is a token that the newest key has signed with RS256, whatever its header says otherwise.
func (i *Issuer) Signed(header, claims Claims) string {
	i.t.Helper()
	key := i.newest()
	input := i.unsigned(with(Claims{"alg": "RS256", "typ": "JWT", "kid": key.id}, header), claims)
	sum := sha256.Sum256([]byte(input))
	signature, err := rsa.SignPKCS1v15(rand.Reader, key.private, crypto.SHA256, sum[:])
	if err != nil {
		i.t.Fatal(err)
	}
	return input + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// Unsigned is a token with "alg": "none" and no signature.
func (i *Issuer) Unsigned(claims Claims) string {
	i.t.Helper()
	return i.unsigned(Claims{"alg": "none", "typ": "JWT"}, claims) + "."
}

// Confused is a token whose HMAC was made with a public text, for a reader that takes its key for a secret.
func (i *Issuer) Confused(secret []byte, claims Claims) string {
	i.t.Helper()
	input := i.unsigned(Claims{"alg": "HS256", "typ": "JWT", "kid": i.newest().id}, claims)
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(input))
	return input + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func (i *Issuer) unsigned(header, claims Claims) string {
	i.t.Helper()
	var parts [2]string
	for n, part := range []Claims{header, claims} {
		text, err := json.Marshal(part)
		if err != nil {
			i.t.Fatal(err)
		}
		parts[n] = base64.RawURLEncoding.EncodeToString(text)
	}
	return parts[0] + "." + parts[1]
}
