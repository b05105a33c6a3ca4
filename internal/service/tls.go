package service

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/watch"
)

func (f *TLS) given() bool { return f.Cert != "" || f.Key != "" }

// scheme is how a client reaches the address.
func (f *TLS) scheme() string {
	if f.given() {
		return "https"
	}
	return "http"
}

// certificate is what two files hold, kept what they say. A pair of files that do
// not fit changes nothing: the last good one stays. It is safe for concurrent use.
type certificate struct {
	files TLS
	log   hclog.Logger
	inUse atomic.Pointer[tls.Certificate]
	// secure has clients show a certificate; nil: none is asked for.
	secure func(*tls.Config)
	mu     sync.Mutex // guards what follows
	digest [32]byte   // of the pair that was looked at last
}

// pair is what both files hold.
type pair struct{ cert, key watch.File }

// The words for both files, in messages.
const (
	certWord = "certificate"
	keyWord  = "certificate's key"
)

func (f *TLS) read() pair {
	return pair{readPEM(f.Cert, certWord), readPEM(f.Key, keyWord)}
}

// readPEM reads one file. A folder, which could hold a policy, holds no certificate.
func readPEM(path, what string) watch.File {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return watch.File{Path: path, Err: fmt.Errorf("reading %s %s: it is a folder; give the path of a file", what, path)}
	}
	return watch.Config{Path: path, What: what}.Read()
}

func (p pair) digest() [32]byte {
	return sha256.Sum256(append(p.cert.Digest[:], p.key.Digest[:]...))
}

// parse makes a certificate of both files. Its error names the flags, and nothing
// that is in the files.
func (p pair) parse() (*tls.Certificate, error) {
	switch {
	case p.cert.Err != nil:
		return nil, fmt.Errorf("--tls-cert: %w", p.cert.Err)
	case p.key.Err != nil:
		return nil, fmt.Errorf("--tls-key: %w", p.key.Err)
	}
	made, err := tls.X509KeyPair(p.cert.Content, p.key.Content)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert %s and --tls-key %s: %s; give the PEM files of a certificate and of its key, which has no password",
			p.cert.Path, p.key.Path, strings.TrimPrefix(err.Error(), "tls: "))
	}
	return &made, nil
}

// open reads the files for the first time.
func (f *TLS) open(log hclog.Logger) (*certificate, error) {
	p := f.read()
	made, err := p.parse()
	if err != nil {
		return nil, err
	}
	c := &certificate{files: *f, log: log, digest: p.digest()}
	c.use(made)
	return c, nil
}

// use puts a certificate in use, and says if clients will not take it.
func (c *certificate) use(made *tls.Certificate) {
	now, leaf := time.Now(), made.Leaf
	switch {
	case now.After(leaf.NotAfter):
		c.log.Warn("the certificate has expired, clients will refuse it", "file", c.files.Cert, "expired", leaf.NotAfter)
	case now.Before(leaf.NotBefore):
		c.log.Warn("the certificate is not valid yet, clients will refuse it", "file", c.files.Cert, "begins", leaf.NotBefore)
	}
	c.inUse.Store(made)
}

// follow keeps the certificate what its files say until stop is called.
func (c *certificate) follow(ctx context.Context, f *Reload) (stop func()) {
	p := c.files.read()
	look := func(watch.File) { c.reload() }
	cert := f.watch(ctx, certWord, c.files.Cert, p.cert.Digest, look, c.log)
	key := f.watch(ctx, keyWord, c.files.Key, p.key.Digest, look, c.log)
	c.reload() // what has changed since they were opened
	return func() { key(); cert() }
}

// reload looks at both files. New connections get what fits; open ones go on.
func (c *certificate) reload() {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.files.read()
	if p.digest() == c.digest {
		return
	}
	c.digest = p.digest()
	made, err := p.parse()
	if err != nil {
		c.log.Error("the certificate was not reloaded, the last good one stays in use", "error", err)
		return
	}
	c.use(made)
	c.log.Info("the certificate was reloaded", "file", p.cert.Path, "names", made.Leaf.DNSNames, "expires", made.Leaf.NotAfter)
}

// certificate is that of the address, followed from now on; nil for plain HTTP.
func (s *service) certificate(ctx context.Context) (*certificate, error) {
	c := s.cfg
	if !c.Listen.TLS.given() {
		return nil, nil
	}
	pair, err := c.Listen.TLS.open(s.log)
	if err != nil {
		return nil, err
	}
	if s.clientCerts != nil {
		only := c.Listen.BearerFile == "" && c.Listen.Tokens == "" && c.Listen.OIDC.Issuer == ""
		pair.secure = func(cfg *tls.Config) { s.clientCerts.Secure(cfg, only) }
	}
	s.onClose(pair.follow(ctx, &c.Reload))
	return pair, nil
}

// config has a server speak TLS with the certificate in use; c may be nil, for plain
// HTTP.
func (c *certificate) config() *tls.Config {
	if c == nil {
		return nil
	}
	cfg := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.inUse.Load(), nil },
	}
	if c.secure != nil {
		c.secure(cfg)
	}
	return cfg
}
