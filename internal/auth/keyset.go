package auth

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"slices"

	"github.com/go-jose/go-jose/v4"
)

// Algorithms are the signatures that can be accepted (RFC 7518, section 3.1; RFC
// 8037): asymmetric ones, so that who can verify a token can make none. There is no
// way to accept "none".
var Algorithms = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}

// DefaultAlgorithms are those that issuers use.
var DefaultAlgorithms = []string{"RS256", "PS256", "ES256", "ES384", "EdDSA"}

const (
	maxKeys    = 100  // of an issuer: each may be tried for a token that names none
	minRSABits = 2048 // what is less can be factored
)

// keySet are an issuer's keys at a time. It does not change.
type keySet struct {
	source []byte
	keys   []jose.JSONWebKey
}

// readKeys reads a JWK set (RFC 7517). What cannot sign a token is passed over.
func readKeys(text []byte) (*keySet, error) {
	var set struct {
		Keys []jsontext.Value `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, errors.New("it is no JWK set: a JSON object with \"keys\" is needed")
	}
	out := &keySet{source: bytes.Clone(text)}
	for _, raw := range set.Keys {
		if key, ok := readKey(raw); ok {
			out.keys = append(out.keys, key)
		}
	}
	switch n := len(out.keys); {
	case n == 0:
		return nil, fmt.Errorf("none of its %d keys can verify a signature: RSA of at least %d bits, EC and Ed25519 can", len(set.Keys), minRSABits)
	case n > maxKeys:
		return nil, fmt.Errorf("it has %d keys, and at most %d are read", n, maxKeys)
	}
	return out, nil
}

// readKey reads one key, which may be a private one: only its public half is kept.
func readKey(raw []byte) (key jose.JSONWebKey, ok bool) {
	if key.UnmarshalJSON(raw) != nil || key.Use != "" && key.Use != "sig" {
		return key, false
	}
	key = key.Public()
	return key, key.Valid() && strong(key) && (key.Algorithm == "" || slices.Contains(Algorithms, key.Algorithm))
}

func strong(key jose.JSONWebKey) bool {
	switch public := key.Key.(type) {
	case *rsa.PublicKey:
		return public.N.BitLen() >= minRSABits
	case *ecdsa.PublicKey, ed25519.PublicKey:
		return true
	}
	return false
}

// has reports whether there is a key of this id; "": any.
func (s *keySet) has(id string) bool {
	return id == "" || slices.ContainsFunc(s.keys, func(key jose.JSONWebKey) bool { return key.KeyID == id })
}

// verify returns what a token says, if a key of the set has signed it. A key is
// tried for no other algorithm than its own.
func (s *keySet) verify(jws *jose.JSONWebSignature) (payload []byte, ok bool) {
	header := jws.Signatures[0].Protected
	for i := range s.keys {
		key := &s.keys[i]
		if header.KeyID != "" && key.KeyID != header.KeyID || key.Algorithm != "" && key.Algorithm != header.Algorithm {
			continue
		}
		if payload, err := jws.Verify(key.Key); err == nil {
			return payload, true
		}
	}
	return nil, false
}
