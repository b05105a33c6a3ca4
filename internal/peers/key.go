package peers

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"time"
)

// Key is what a process is known by to others: a certificate that it has signed itself, and its key. It is kept nowhere
// but in the process. It is immutable.
type Key struct {
	own  tls.Certificate
	hash [sha256.Size]byte
}

// NewKey makes a key (ECDSA, P-256).
func NewKey() (*Key, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "fsm-proxy"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), // it ends with its process
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	return &Key{tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, sha256.Sum256(der)}, nil
}

// Hash is the SHA-256 of the certificate: see [journal.Peer.Key].
func (k *Key) Hash() [32]byte { return k.hash }

var errOtherKey = errors.New("verifying a certificate: it is not the one that the lease names")

// to is for connections to the process with a certificate of a hash, and to no other one.
func (k *Key) to(hash [32]byte) *tls.Config {
	cfg := k.config()
	cfg.InsecureSkipVerify = true // what is verified is the hash, whoever has signed
	cfg.VerifyConnection = func(state tls.ConnectionState) error {
		if hashOf(&state) != hash {
			return errOtherKey
		}
		return nil
	}
	return cfg
}

// from is for connections from processes whose certificates' hashes are known, and from no others.
func (k *Key) from(known func(ctx context.Context, hash [32]byte) bool) *tls.Config {
	cfg := k.config()
	cfg.ClientAuth = tls.RequireAnyClientCert
	cfg.SessionTicketsDisabled = true
	cfg.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		own := cfg.Clone()
		own.GetConfigForClient = nil
		own.VerifyConnection = func(state tls.ConnectionState) error {
			if !known(hello.Context(), hashOf(&state)) {
				return errOtherKey
			}
			return nil
		}
		return own, nil
	}
	return cfg
}

// config has answers sent in as few records as there can be: short ones are for who shows what is there of a page.
func (k *Key) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{k.own}, NextProtos: []string{"http/1.1"}, DynamicRecordSizingDisabled: true,
	}
}

// hashOf is the hash of the other side's certificate, whose key it has proved to have; zero: it has shown none.
func hashOf(state *tls.ConnectionState) (hash [32]byte) {
	if state != nil && len(state.PeerCertificates) > 0 {
		hash = sha256.Sum256(state.PeerCertificates[0].Raw)
	}
	return hash
}
