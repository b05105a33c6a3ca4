package upstream

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/http1"
	"github.com/fsm-proxy/fsm-proxy/internal/process"
	"github.com/fsm-proxy/fsm-proxy/internal/stdio"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// Config says what is wrapped, and how. Either Command or URL must be set; all
// other zero values mean what their comments say.
type Config struct {
	// Command is the program to run, with its arguments: a stdio server.
	Command []string
	// Env is the complete environment of the child. nil: an empty one. See
	// [process.Environ].
	Env []string
	// Withheld are names of variables that the proxy has and the child does not
	// get. The log has them beside a child that ends before it has answered.
	Withheld []string
	// Quote puts what the child wrote last to its standard error into the error
	// of its end, which clients are told. It is for clients that could start
	// the child themselves: to others it may give secrets away.
	Quote bool
	// Dir is the child's working directory. Empty: the proxy's own.
	Dir string
	// Grace is how long the child may take to end after its input has ended,
	// and again after it was asked to terminate (SIGTERM), before it is killed.
	// 0: 2 s.
	Grace time.Duration

	// URL is the MCP endpoint of an HTTP server.
	URL string
	// Header goes with every HTTP request.
	Header http.Header
	// BearerFile names a file whose content, less white space around it, goes
	// with every HTTP request as a bearer token. It is read again when it has
	// changed.
	BearerFile string
	// OAuth gets tokens for HTTP requests. nil: none.
	OAuth *OAuth
	// SSE says that the server speaks the old HTTP+SSE transport (2024-11-05)
	// and not Streamable HTTP.
	SSE bool

	// Protocol is the era that is spoken; zero: the one in which a client asks, and the
	// other where the server does not speak that.
	Protocol Protocol

	// MaxMessage bounds a message from the upstream, in bytes. 0: 64 MiB.
	MaxMessage int
	// MaxPages bounds the pages of a list. 0: 1,000.
	MaxPages int
	// MaxListBytes bounds the pages of a list taken together. 0: 32 MiB.
	MaxListBytes int
	// ListTTL is how long a list is kept where the upstream does not promise to
	// tell of changes. 0: 30 s.
	ListTTL time.Duration
	// MaxProcesses bounds the children that run at the same time. 0: 64.
	MaxProcesses int
	// DialTimeout bounds a connection's making, the answer to initialize
	// included. 0: 2 min, since a command may first have to fetch itself.
	DialTimeout time.Duration
	// PageTimeout bounds the wait for each page of a list. 0: 2 min.
	PageTimeout time.Duration
	// Ping is how long a child that is pinged may send nothing before it is ended:
	// see [Conn.Suspect]. 0: it is not pinged.
	Ping time.Duration
	// Trial introduces the proxy itself to a child that is started only to see whether
	// that is possible: see [Server.Reachable]. Zero: none is started for that.
	Trial Opening
	// ProbeTimeout is how long a server/discover may go unanswered until the server
	// counts as one of the legacy era. 0: 3 s.
	ProbeTimeout time.Duration
	// MinBackoff and MaxBackoff bound the time after a failed dial in which
	// another one fails at once. 0: 200 ms and 5 s.
	MinBackoff, MaxBackoff time.Duration

	// Cork gathers what is written to the child and to a client at standard
	// input and output, who has to have the same. nil: nothing is gathered.
	Cork *stdio.Cork

	// Log takes the child's standard error and what no caller can be told.
	// nil: nothing is logged.
	Log hclog.Logger

	endpoint *url.URL
}

// validate checks the configuration and fills the defaults in. Its errors are
// one line that says what to do.
func (c *Config) validate() error {
	c.defaults()
	switch {
	case c.SSE && c.Protocol == ProtocolModern:
		return errors.New("configuring the upstream: HTTP+SSE has sessions alone, and no revision " + wire.ModernRevision)
	case len(c.Command) > 0 && c.URL != "":
		return errors.New("configuring the upstream: give a command or a URL, not both")
	case len(c.Command) > 0:
		return c.validateCommand()
	case c.URL != "":
		return c.validateURL()
	}
	return errors.New("configuring the upstream: give a command or a URL")
}

func (c *Config) defaults() {
	c.Grace = cmp.Or(c.Grace, 2*time.Second)
	c.MaxMessage = cmp.Or(c.MaxMessage, 64<<20)
	c.MaxPages = cmp.Or(c.MaxPages, 1000)
	c.MaxListBytes = cmp.Or(c.MaxListBytes, 32<<20)
	c.ListTTL = cmp.Or(c.ListTTL, 30*time.Second)
	c.MaxProcesses = cmp.Or(c.MaxProcesses, 64)
	c.DialTimeout = cmp.Or(c.DialTimeout, 2*time.Minute)
	c.PageTimeout = cmp.Or(c.PageTimeout, 2*time.Minute)
	c.ProbeTimeout = cmp.Or(c.ProbeTimeout, 3*time.Second)
	c.MinBackoff = cmp.Or(c.MinBackoff, 200*time.Millisecond)
	c.MaxBackoff = cmp.Or(c.MaxBackoff, 5*time.Second)
	if c.Log == nil {
		c.Log = hclog.NewNullLogger()
	}
}

// validateCommand finds the program, so that a misspelt one ends the start and
// not the first call.
func (c *Config) validateCommand() error {
	if c.Header != nil || c.BearerFile != "" || c.OAuth != nil || c.SSE {
		return errors.New("configuring the upstream: headers, tokens and SSE belong to a URL, not to a command")
	}
	name := c.Command[0]
	path, err := process.LookPath(c.Dir, name)
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("starting the upstream: no command %q in PATH: install it or give its absolute path", name)
	}
	if err != nil {
		hint := "give the path of a program"
		if errors.Is(err, fs.ErrPermission) {
			hint = "make it executable (chmod +x), or put its interpreter in front of it"
		}
		return fmt.Errorf("starting the upstream: %q cannot be executed: %w: %s", process.Placed(c.Dir, name), err, hint)
	}
	c.Command = append([]string{path}, c.Command[1:]...)
	return nil
}

// reserved are the headers that the transport itself sets.
var reserved = []string{
	"Accept", "Connection", "Content-Length", "Content-Type", "Host", "Last-Event-Id",
	"Mcp-Method", "Mcp-Name", "Mcp-Protocol-Version", "Mcp-Session-Id", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

func (c *Config) validateURL() error {
	u, err := url.Parse(c.URL)
	switch {
	case err != nil:
		return fmt.Errorf("reading the upstream's URL %q: %w", c.URL, errors.Unwrap(err))
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("reading the upstream's URL %q: it must begin with http:// or https://", c.URL)
	case u.Hostname() == "":
		return fmt.Errorf("reading the upstream's URL %q: it names no host", c.URL)
	case u.User != nil:
		return fmt.Errorf("reading the upstream's URL: it holds a password or user name: give a header or a bearer file instead")
	}
	u.Fragment = ""
	c.endpoint = u
	if err := c.validateHeader(); err != nil {
		return err
	}
	if c.OAuth != nil {
		return c.OAuth.validate()
	}
	return nil
}

func (c *Config) validateHeader() error {
	auth := 0
	for name, values := range c.Header {
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		if slices.Contains(reserved, canonical) || strings.HasPrefix(canonical, wire.HeaderParam) {
			return fmt.Errorf("configuring the upstream: the header %s is set by the proxy itself", canonical)
		}
		if http1.CheckField(name, strings.Join(values, "")) != nil {
			return fmt.Errorf("configuring the upstream: %q is no header", name)
		}
		if canonical == "Authorization" {
			auth++
		}
	}
	if c.BearerFile != "" {
		auth++
	}
	if c.OAuth != nil {
		auth++
	}
	if auth > 1 {
		return errors.New("configuring the upstream: give one of an Authorization header, a bearer file and OAuth")
	}
	if auth > 0 && c.endpoint.Scheme == "http" && !isLoopback(c.endpoint) {
		c.Log.Warn("credentials go to the upstream over plain http: use https", "host", c.endpoint.Host)
	}
	return nil
}

// isLoopback reports whether a URL is one of this machine.
func isLoopback(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// String names the upstream for people, without its arguments and query, which
// may hold secrets, nor such parts of the path.
func (c *Config) String() string {
	if c.endpoint != nil {
		return c.endpoint.Scheme + "://" + c.endpoint.Host + plainPath(c.endpoint.Path)
	}
	return c.Command[0]
}

// urlHint suggests another URL, or the other transport, where the server's status says that
// there is no MCP at this URL; "": there is nothing to suggest.
func (c *Config) urlHint(status int) string {
	if c.endpoint == nil || status != http.StatusNotFound && status != http.StatusMethodNotAllowed {
		return ""
	}
	path := strings.TrimSuffix(c.endpoint.Path, "/")
	old := strings.HasSuffix(path, "/sse")
	switch {
	case c.SSE && old:
		return "; if it is no server of the old HTTP+SSE transport, leave out --upstream-sse, and its URL may end in /mcp"
	case c.SSE:
		return "; is its event stream elsewhere, as at /sse, or is it no server of the old HTTP+SSE transport? Then leave out --upstream-sse"
	case old:
		return "; is it a server of the old HTTP+SSE transport? Then give --upstream-sse"
	case strings.HasSuffix(path, "/mcp"):
		return "; is its path another one, or is it a server of the old HTTP+SSE transport? Then give --upstream-sse"
	}
	return fmt.Sprintf("; is /mcp missing from the URL (%s/mcp), or is it a server of the old HTTP+SSE transport? Then give --upstream-sse",
		strings.TrimSuffix(c.String(), "/"))
}

// plainPath is a URL's path without what could be a key in it, as some hosted
// servers have there: a segment stays that is a short word, or a version.
func plainPath(path string) string {
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		digits := strings.IndexFunc(segment, unicode.IsDigit) >= 0
		if len(segment) > 16 || digits && len(segment) > 4 {
			segments[i] = "…"
		}
	}
	return strings.Join(segments, "/")
}

// Protocol is the era that is spoken with a server. The zero value leaves it to the
// client and the server.
type Protocol uint8

// The protocols.
const (
	ProtocolAuto   Protocol = iota // the client's era, or the other where the server does not speak that
	ProtocolLegacy                 // sessions: 2024-11-05 to 2025-11-25
	ProtocolModern                 // 2026-07-28
)

var protocols = []string{"auto", "legacy", "modern"}

// String is the word of the command line.
func (p Protocol) String() string { return protocols[p] }

// MarshalText returns the word of the command line.
func (p Protocol) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads the word of the command line.
func (p *Protocol) UnmarshalText(text []byte) error {
	i := slices.Index(protocols, string(text))
	if i < 0 {
		return fmt.Errorf("%q is none of %s", text, strings.Join(protocols, ", "))
	}
	*p = Protocol(i)
	return nil
}

// fixed is the only era that may be spoken; false: there is none.
func (p Protocol) fixed() (era wire.Era, ok bool) {
	if p == ProtocolModern {
		era = wire.Modern
	}
	return era, p != ProtocolAuto
}

// opening is the request whose answer is waited for until [Config.DialTimeout]. Where
// server/discover is tried before initialize, it is given up earlier.
func (p Protocol) opening() string {
	if p == ProtocolModern {
		return "server/discover"
	}
	return "initialize"
}
