package process

import (
	"cmp"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// ownPrefix begins the names of the proxy's own variables, which may hold its
// secrets.
const ownPrefix = "FSM_PROXY_"

// safe are the variables that a child of a listening proxy gets: what programs
// need to run at all, and no credentials.
var safe = []string{"HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"}

var safeWindows = []string{
	"APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LANG", "LOCALAPPDATA", "NUMBER_OF_PROCESSORS", "OS", "PATH",
	"PATHEXT", "PROCESSOR_ARCHITECTURE", "PROGRAMDATA", "PROGRAMFILES", "PROGRAMFILES(X86)", "SYSTEMDRIVE",
	"SYSTEMROOT", "TEMP", "TMP", "TZ", "USERNAME", "USERPROFILE", "WINDIR",
}

// proxies and authorities name the variables that say how the network is reached: a
// child needs them where all traffic goes through an HTTP proxy, or where certificates
// are signed by an organization's own authority. Both cases of letters count.
var (
	proxies = []string{
		"ALL_PROXY", "FTP_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
		"NPM_CONFIG_HTTPS_PROXY", "NPM_CONFIG_NOPROXY", "NPM_CONFIG_PROXY", "PIP_PROXY",
	}
	authorities = []string{
		"AWS_CA_BUNDLE", "CARGO_HTTP_CAINFO", "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE", "CURL_CA_BUNDLE", "DENO_CERT", "DENO_TLS_CA_STORE",
		"GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "HTTPLIB2_CA_CERTS", "NIX_SSL_CERT_FILE",
		"NODE_EXTRA_CA_CERTS", "NODE_USE_ENV_PROXY", "NODE_USE_SYSTEM_CA", "NPM_CONFIG_CAFILE", "PIP_CERT",
		"REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS",
	}
)

// Environment is what a child gets of the proxy's own environment.
type Environment struct {
	// Variables are NAME=VALUE.
	Variables []string
	// Withheld are the names of variables that the child might miss, those first that are likely secrets.
	Withheld []string
	// Passwords are the names of variables that the child would get, but for the
	// password, or user name, in the URL of a proxy.
	Passwords []string
}

// Environ makes a child's environment of the proxy's own, env. A stdio wrapper's
// child gets all of it, so that wrapping changes nothing, less FSM_PROXY_…;
// under --listen it gets a small safe set, how the network is reached, and the
// variables named in pass. set are NAME=VALUE, added last.
func Environ(stdio bool, env, pass, set []string) Environment {
	out := Environment{Variables: []string{}}
	named := func(name string) bool {
		return slices.ContainsFunc(pass, func(p string) bool { return sameName(p, name) })
	}
	isSet := func(name string) bool {
		return slices.ContainsFunc(set, func(s string) bool { return sameName(nameOf(s), name) })
	}
	secret := map[string]bool{}
	for _, entry := range env {
		name := nameOf(entry)
		value := strings.TrimPrefix(entry[len(name):], "=")
		upper := strings.ToUpper(name)
		proxy := slices.Contains(proxies, upper)
		switch {
		case isSet(name):
		case named(name), stdio && !strings.HasPrefix(name, ownPrefix):
			out.Variables = append(out.Variables, entry)
		case stdio:
		case proxy && strings.Contains(value, "@"):
			out.Passwords = append(out.Passwords, name)
		case proxy, isSafe(name), slices.Contains(authorities, upper):
			out.Variables = append(out.Variables, entry)
		case missable(name, value):
			out.Withheld = append(out.Withheld, name)
			secret[name] = isSecret(upper, value)
		}
	}
	slices.Sort(out.Passwords)
	slices.SortFunc(out.Withheld, func(a, b string) int {
		switch {
		case secret[a] == secret[b]:
			return cmp.Compare(a, b)
		case secret[a]:
			return -1
		}
		return 1
	})
	out.Variables = append(out.Variables, set...)
	return out
}

// nameOf is the name in NAME=VALUE. Windows has names that begin with "=".
func nameOf(entry string) string {
	if i := strings.IndexByte(entry[min(1, len(entry)):], '='); i >= 0 {
		return entry[:i+1]
	}
	return entry
}

func sameName(a, b string) bool {
	if runtime.GOOS == "windows" {
		return strings.EqualFold(a, b)
	}
	return a == b
}

func isSafe(name string) bool {
	if runtime.GOOS == "windows" {
		return slices.Contains(safeWindows, strings.ToUpper(name))
	}
	return strings.HasPrefix(name, "LC_") || slices.Contains(safe, name)
}

var (
	ordinary    = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	serviceLink = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`_(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?|PORT_[0-9]+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)$`)
	})
	secretWord = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|API_?KEY|(^|_)(KEY|KEYS|PASS|PWD|PAT|AUTH|DSN)(_|$)`)
	})
)

// missable reports whether a child might miss a variable: it is none of the proxy's
// own, of a shell's own, or of Kubernetes'.
func missable(name, value string) bool {
	switch {
	case len(name) > 64, !ordinary.MatchString(name), strings.HasPrefix(strings.ToUpper(name), ownPrefix):
		return false
	case IsServiceLink(name, value):
		return false
	}
	return !slices.Contains([]string{"_", "COLUMNS", "HOSTNAME", "LINES", "LS_COLORS", "OLDPWD", "PWD", "SHLVL"}, name)
}

// IsServiceLink reports whether a variable is one of those that Kubernetes sets in a pod
// for each Service of its namespace: X_SERVICE_HOST and so on, for a Service named x. The
// last kind, X_PORT, holds a URL: tcp://10.0.0.1:80.
func IsServiceLink(name, value string) bool {
	return serviceLink().MatchString(name) || strings.HasSuffix(name, "_PORT") && strings.Contains(value, "://")
}

// isSecret reports whether a variable is likely a secret, by its name, or by a URL
// with a password in it.
func isSecret(upper, value string) bool {
	_, after, url := strings.Cut(value, "://")
	return secretWord().MatchString(upper) || url && strings.Contains(after, "@")
}
