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
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// authority signs the certificates of one test process.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pool        *x509.CertPool
}

var signer = sync.OnceValues(func() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "the tests' own authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AddCert(certificate)
	return &authority{certificate, key, pool}, nil
})

// TrustTLS is the configuration of a client that trusts what WriteTLS has signed.
func TrustTLS(t testing.TB) *tls.Config {
	t.Helper()
	a, err := signer()
	if err != nil {
		t.Fatalf("making an authority: %v", err)
	}
	return &tls.Config{RootCAs: a.pool}
}

// SignTLS returns a certificate for this machine's loopback addresses that ends at a time, and its key, as PEM.
// The serial number tells it from others.
func SignTLS(t testing.TB, serial int64, ends time.Time) (cert, key []byte) {
	t.Helper()
	cert, key, err := sign(serial, ends)
	if err != nil {
		t.Fatalf("making a certificate: %v", err)
	}
	return cert, key
}

func sign(serial int64, ends time.Time) (cert, key []byte, err error) {
	a, err := signer()
	if err != nil {
		return nil, nil, err
	}
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: fmt.Sprintf("certificate %d", serial)},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: ends,
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, own.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	text, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text}), nil
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
