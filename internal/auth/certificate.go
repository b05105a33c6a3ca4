package auth

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/asker"
	"github.com/fsm-proxy/fsm-proxy/internal/streamhttp"
)

// Clients says whose certificates are accepted: those that lead to one of some
// authorities: nobody's, before Set. It is safe for concurrent use.
//
// A certificate's principal has the authority's distinguished name for its issuer,
// and for its subject the URI among its alternative names (as SPIFFE has it), or
// else its distinguished name (RFC 4514).
type Clients struct {
	roots atomic.Pointer[x509.CertPool]
	known cache[*x509.Certificate, *x509.CertPool]
}

// maxClients is how many certificates are remembered.
const maxClients = 1000

// Set replaces the authorities, at once, by those in PEM: the next request of a client whose
// certificate leads to none of them is not let in. After an error those from before
// stay.
func (c *Clients) Set(roots []byte) error {
	pool := x509.NewCertPool()
	n := 0
	for rest := roots; ; n++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		one, err := x509.ParseCertificate(block.Bytes)
		switch {
		case block.Type != "CERTIFICATE" || err != nil:
			return fmt.Errorf("its part %d is no certificate", n+1)
		case one.BasicConstraintsValid && !one.IsCA:
			return fmt.Errorf("its part %d, of %s, is no authority's", n+1, one.Subject)
		}
		pool.AddCert(one)
	}
	if n == 0 {
		return errors.New("there is no certificate in it; give those of the authorities, as PEM")
	}
	c.roots.Store(pool)
	return nil
}

// Secure has a server ask clients for a certificate; required: without one that is
// accepted there is no connection. Else a request may carry a token instead.
func (c *Clients) Secure(cfg *tls.Config, required bool) {
	cfg.ClientAuth = tls.RequestClientCert
	if required {
		cfg.ClientAuth = tls.RequireAnyClientCert
	}
	cfg.SessionTicketsDisabled = true // who comes back is looked at anew
	// crypto/tls would keep the authorities from the start.
	cfg.VerifyConnection = func(state tls.ConnectionState) error {
		if len(state.PeerCertificates) == 0 {
			return nil
		}
		_, err := c.holder(&state, time.Now())
		return err
	}
}

var (
	noCertificate    = &denial{streamhttp.ReasonCertificate, http.StatusUnauthorized, "", "a client certificate is needed"}
	wrongCertificate = &denial{streamhttp.ReasonCertificate, http.StatusUnauthorized, "", "the client certificate is not accepted any more"}
)

// holder returns whose certificate a connection has; the handshake has shown that the
// key is theirs, too.
func (c *Clients) holder(state *tls.ConnectionState, now time.Time) (*asker.Who, error) {
	leaf, roots := state.PeerCertificates[0], c.roots.Load()
	if who, ok := c.known.find(leaf, roots, now); ok {
		return who, nil
	}
	k, err := verify(state.PeerCertificates, roots, now)
	if err == nil {
		k.who = c.known.same(k.who) // another connection has another leaf
		c.known.put(leaf, k, maxClients)
	}
	return k.who, err
}

// verify says whose a certificate is, which comes first, followed by those between
// it and an authority.
func verify(given []*x509.Certificate, roots *x509.CertPool, now time.Time) (k known[*x509.CertPool], err error) {
	if roots == nil {
		return k, errors.New("no authority is known")
	}
	between := x509.NewCertPool()
	for _, one := range given[1:] {
		between.AddCert(one)
	}
	chains, err := given[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return k, err
	}
	subject, err := subjectOf(given[0])
	if err != nil {
		return k, err
	}
	chain := chains[0]
	k = known[*x509.CertPool]{who: &asker.Who{Issuer: chain[len(chain)-1].Subject.String(), Subject: subject}, by: roots, until: chain[0].NotAfter}
	for _, one := range chain {
		if one.NotAfter.Before(k.until) {
			k.until = one.NotAfter
		}
	}
	return k, nil
}

func subjectOf(leaf *x509.Certificate) (string, error) {
	subject := leaf.Subject.String()
	switch len(leaf.URIs) {
	case 0:
	case 1:
		subject = leaf.URIs[0].String()
	default:
		return "", errors.New("the certificate has more than one URI, and one subject is needed")
	}
	if !plainName(subject) {
		return "", errors.New("the certificate has no subject that can be written down")
	}
	return subject, nil
}
