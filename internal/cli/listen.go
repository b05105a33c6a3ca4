package cli

import (
	"fmt"
	"net"
	"slices"

	"github.com/spf13/pflag"
)

// listenFlags say where, and to whom, the proxy listens.
type listenFlags struct {
	address        string
	path           string
	allowedHosts   []string
	allowedOrigins []string
	bearerFile     string
	insecure       bool
	tls            tlsFlags
	auth           authFlags
}

func (f *listenFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.address, "listen", "", "serve Streamable HTTP at this `ADDR` instead of standard input and output")
	flags.StringVar(&f.path, "path", "/mcp", "the `PATH` to serve under --listen")
	flags.StringSliceVar(&f.allowedHosts, "allowed-host", nil, "a `HOST` to accept; may be repeated")
	flags.StringSliceVar(&f.allowedOrigins, "allowed-origin", nil, "an `ORIGIN` to accept, like https://example.com; may be repeated")
	flags.StringVar(&f.bearerFile, "bearer-file", "", "a `FILE` that holds the bearer token which clients must send")
	flags.BoolVar(&f.insecure, "insecure-listen", false, "listen beyond loopback without authentication")
	f.tls.register(flags)
	f.auth.register(flags)
}

// stray names a flag that was given and means nothing without --listen.
func stray(flags *pflag.FlagSet) string {
	i := slices.IndexFunc(listening, flags.Changed)
	if i < 0 {
		return ""
	}
	return listening[i]
}

// authenticates reports whether clients are let in by something.
func (f *listenFlags) authenticates() bool { return f.bearerFile != "" || f.auth.given() }

// check refuses what cannot be meant, or is not safe, before anything is opened.
// It reports whether the address is a loopback one.
func (f *listenFlags) check() (loopback bool, err error) {
	if f.path == "" || f.path[0] != '/' {
		return false, usagef("--path %q does not begin with /", f.path)
	}
	addr, err := net.ResolveTCPAddr("tcp", f.address)
	if err != nil {
		return false, usagef("--listen %q is no address (%w); write it like 127.0.0.1:8080", f.address, err)
	}
	if addr.IP.IsLoopback() {
		return true, nil
	}
	if !f.authenticates() && !f.insecure {
		return false, usagef("--listen %s can be reached from other machines; give --bearer-file FILE, --tokens, --oidc-issuer or "+
			"--client-ca so that clients must authenticate, or --insecure-listen if something else sees to that", f.address)
	}
	return false, nil
}

// url is where a client finds the proxy.
func (f *listenFlags) url(l net.Listener) string {
	addr := l.Addr().(*net.TCPAddr)
	host := addr.IP.String()
	if addr.IP.IsUnspecified() {
		host = "localhost"
	}
	return fmt.Sprintf("%s://%s%s", f.tls.scheme(), net.JoinHostPort(host, fmt.Sprint(addr.Port)), f.path)
}
