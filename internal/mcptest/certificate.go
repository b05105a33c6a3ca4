package mcptest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// NewAuthority returns an authority of its own.
func NewAuthority(name string) *Authority {
	made := template(1, name, time.Now().Add(24*time.Hour))
	made.IsCA, made.BasicConstraintsValid, made.KeyUsage = true, true, x509.KeyUsageCertSign
	return (*Authority)(nil).sign(made)
}

// loopbackAuthority signs the certificates of the servers of one test process.
var loopbackAuthority = sync.OnceValue(func() *Authority { return NewAuthority("the tests' own authority") })

func template(serial int64, name string, ends time.Time) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: ends,
	}
}

// sign returns a certificate with its key. One without an authority signs itself. It panics where that cannot be.
func (a *Authority) sign(template *x509.Certificate) *Authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	if a == nil {
		a = &Authority{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		panic(err)
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	return &Authority{made, key}
}

// PEM is the authority's own certificate.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
}

// Client is a client's certificate, good for an hour but for what change does to it.
func (a *Authority) Client(name string, change func(*x509.Certificate), uris ...string) tls.Certificate {
	wanted := template(2, name, time.Now().Add(time.Hour))
	wanted.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	for _, text := range uris {
		uri, err := url.Parse(text)
		if err != nil {
			panic(err)
		}
		wanted.URIs = append(wanted.URIs, uri)
	}
	if change != nil {
		change(wanted)
	}
	made := a.sign(wanted)
	return tls.Certificate{Certificate: [][]byte{made.certificate.Raw}, PrivateKey: made.key, Leaf: made.certificate}
}

// TrustTLS is the configuration of a client that trusts what WriteTLS has signed.
func TrustTLS() *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(loopbackAuthority().certificate)
	return &tls.Config{RootCAs: pool}
}

// SignTLS returns a certificate for this machine's loopback addresses that ends at a time, and its key, as PEM.
// The serial number tells it from others.
func SignTLS(t testing.TB, serial int64, ends time.Time) (cert, key []byte) {
	t.Helper()
	wanted := template(serial, fmt.Sprintf("certificate %d", serial), ends)
	wanted.DNSNames, wanted.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	made := loopbackAuthority().sign(wanted)
	text, err := x509.MarshalPKCS8PrivateKey(made.key)
	if err != nil {
		t.Fatalf("making a certificate: %v", err)
	}
	return made.PEM(), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})
}

// WriteTLS writes a certificate for loopback and its key to files of the test's own.
func WriteTLS(t testing.TB) (cert, key string) {
	t.Helper()
	folder := t.TempDir()
	cert, key = filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key")
	certText, keyText := SignTLS(t, 2, time.Now().Add(time.Hour))
	for path, text := range map[string][]byte{cert: certText, key: keyText} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatalf("writing a certificate: %v", err)
		}
	}
	return cert, key
}

// ListenTLS is Listen for https, with a certificate that DialWeb trusts.
func ListenTLS(t testing.TB, args ...string) (url string, p *Process) {
	t.Helper()
	cert, key := WriteTLS(t)
	url, p = Listen(t, append([]string{"--tls-cert", cert, "--tls-key", key}, args...)...)
	return "https" + url[len("http"):], p
}

// TLS returns what a server needs to speak TLS on loopback, and clients that trust it, by the one protocol that each
// speaks: "HTTP/1.1", "HTTP/2.0".
func TLS(t *testing.T) (cfg *tls.Config, clients map[string]*http.Client) {
	t.Helper()
	lender := httptest.NewTLSServer(nil) // of a certificate, and a client that trusts it
	t.Cleanup(lender.Close)
	clients = map[string]*http.Client{}
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: lender.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}}
		transport.Protocols = new(http.Protocols)
		transport.Protocols.SetHTTP1(protocol == "HTTP/1.1")
		transport.Protocols.SetHTTP2(protocol == "HTTP/2.0")
		t.Cleanup(transport.CloseIdleConnections)
		clients[protocol] = &http.Client{Transport: transport}
	}
	return &tls.Config{Certificates: lender.TLS.Certificates}, clients
}
