package cli

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// secured is a folder laid out as the kubelet mounts a Secret.
type secured struct {
	folder string
	swaps  int
}

func (s *secured) cert() string { return filepath.Join(s.folder, "tls.crt") }
func (s *secured) key() string  { return filepath.Join(s.folder, "tls.key") }

// swap puts other files in place of those there are, all at once.
func (s *secured) swap(t *testing.T, cert, key []byte) {
	t.Helper()
	s.swaps++
	version := fmt.Sprintf("..%d", s.swaps)
	for _, err := range []error{
		os.Mkdir(filepath.Join(s.folder, version), 0o700),
		os.WriteFile(filepath.Join(s.folder, version, "tls.crt"), cert, 0o600),
		os.WriteFile(filepath.Join(s.folder, version, "tls.key"), key, 0o600),
		os.Symlink(version, filepath.Join(s.folder, "..data_tmp")),
		os.Rename(filepath.Join(s.folder, "..data_tmp"), filepath.Join(s.folder, "..data")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"tls.crt", "tls.key"} {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(s.folder, name)); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
	}
}

// sign makes a certificate that is good for an hour.
func sign(t *testing.T, serial int64) (cert, key []byte) {
	return mcptest.SignTLS(t, serial, time.Now().Add(time.Hour))
}

// served is the serial number of the certificate that a new connection gets, and
// what it speaks.
func served(t *testing.T, address string, versions ...uint16) (serial int64, protocol string, err error) {
	t.Helper()
	cfg := mcptest.TrustTLS()
	cfg.NextProtos = []string{"h2", "http/1.1"}
	if len(versions) > 0 {
		cfg.MinVersion, cfg.MaxVersion = versions[0], versions[0]
	}
	conn, err := tls.Dial("tcp", address, cfg)
	if err != nil {
		return 0, "", err
	}
	defer conn.Close()
	state := conn.ConnectionState()
	return state.PeerCertificates[0].SerialNumber.Int64(), state.NegotiatedProtocol, nil
}

// A session goes on over its connection while the certificate under it is swapped;
// new connections get the new one, and a pair that does not fit changes nothing.
func TestCertificateRotation(t *testing.T) {
	t.Parallel()
	s := &secured{folder: t.TempDir()}
	cert, key := sign(t, 11)
	s.swap(t, cert, key)
	u := mcptest.Stdio(t, "quiet")
	plain, p := mcptest.Listen(t, append([]string{"--policy", mcptest.WritePolicy(t, plainPolicy), "--tls-cert", s.cert(), "--tls-key", s.key(),
		"--reload-debounce", "5ms", "--"}, u.Command()...)...)
	url := strings.Replace(plain, "http:", "https:", 1)
	p.Log().Await(t, "url="+url)
	address := strings.TrimSuffix(strings.TrimPrefix(url, "https://"), "/mcp")
	expect := func(want int64) {
		t.Helper()
		if serial, protocol, err := served(t, address); err != nil || serial != want || protocol != "h2" {
			t.Errorf("certificate %d over %q, %v; want %d over h2", serial, protocol, err, want)
		}
	}
	expect(11)
	session, web := mcptest.DialWeb(t, url)
	session.Initialize()
	stop := web.Listen()
	defer stop()

	cert, key = sign(t, 12)
	s.swap(t, cert, key)
	p.Log().Await(t, "the certificate was reloaded")
	expect(12)
	contains(t, string(session.Tool("work", "").Raw), `"result"`)

	other, _ := sign(t, 13)
	s.swap(t, other, key)
	p.Log().Await(t, "the last good one stays in use")
	p.Log().Await(t, "private key does not match")
	expect(12)

	old, its := mcptest.SignTLS(t, 14, time.Now().Add(-time.Hour))
	s.swap(t, old, its)
	p.Log().Await(t, "the certificate has expired")
	contains(t, string(session.Tool("work", "").Raw), `"result"`)
	if strings.Contains(p.Log().String(), "PRIVATE KEY-----") {
		t.Error("the key is in the log")
	}
}

// TLS 1.1 and plain HTTP are refused; 1.2 and 1.3 are not.
func TestTLSVersions(t *testing.T) {
	t.Parallel()
	u := mcptest.Stdio(t, "quiet")
	url, _ := mcptest.ListenTLS(t, append([]string{"--policy", mcptest.WritePolicy(t, plainPolicy), "--"}, u.Command()...)...)
	address := strings.TrimSuffix(strings.TrimPrefix(url, "https://"), "/mcp")
	for version, ok := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		if _, _, err := served(t, address, version); (err == nil) != ok {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
	}
	if code := post(t, "http://"+address+"/mcp", ""); code != http.StatusBadRequest {
		t.Errorf("plain HTTP is answered %d", code)
	}
}

// What is wrong with the files is one line that says which, and what to do.
func TestTLSErrors(t *testing.T) {
	t.Parallel()
	cert, key := mcptest.WriteTLS(t)
	_, other := mcptest.WriteTLS(t)
	text := write(t, "no.pem", "hunter2\n")
	for name, c := range map[string]struct {
		flags []string
		code  int
		says  []string
	}{
		"no key":          {[]string{"--tls-cert", cert}, 2, []string{"--tls-key", "--tls-cert belongs to --tls-key, which is missing"}},
		"missing":         {[]string{"--tls-cert", "no.crt", "--tls-key", key}, 1, []string{"--tls-cert", "no.crt", "no such file"}},
		"missing key":     {[]string{"--tls-cert", cert, "--tls-key", "no.key"}, 1, []string{"--tls-key", "no.key", "no such file"}},
		"a folder":        {[]string{"--tls-cert", t.TempDir(), "--tls-key", key}, 1, []string{"it is a folder"}},
		"another's key":   {[]string{"--tls-cert", cert, "--tls-key", other}, 1, []string{cert, other, "does not match"}},
		"no PEM":          {[]string{"--tls-cert", text, "--tls-key", key}, 1, []string{text, "PEM"}},
		"no PEM as a key": {[]string{"--tls-cert", cert, "--tls-key", text}, 1, []string{text, "PEM"}},
		"swapped":         {[]string{"--tls-cert", key, "--tls-key", cert}, 1, []string{"PEM"}},
	} {
		t.Run(name, func(t *testing.T) {
			policy := write(t, "p.yaml", plainPolicy)
			r := command(t, nil, append(append([]string{"run", "--policy", policy, "--listen", "127.0.0.1:0"}, c.flags...), "--", "cat")...)
			oneLine(t, r.stderr, c.says...)
			if r.code != c.code || strings.Contains(r.stderr, "hunter2") {
				t.Errorf("exit code %d, want %d: %s", r.code, c.code, r.stderr)
			}
		})
	}
	r := command(t, nil, "run", "--policy", write(t, "p.yaml", plainPolicy), "--tls-cert", cert, "--tls-key", key, "--", "cat")
	oneLine(t, r.stderr, "--tls-cert belongs to --listen")
}
