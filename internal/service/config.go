// Package service is one running fsm-proxy: the wrapped server, the relay before it,
// the listeners for clients and operators, and what keeps its files followed. It
// knows no command line: a [Config] says all. What is wrong with one is told with
// the names of the flags, by which users know the settings.
package service

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/exit"
	"github.com/fsm-proxy/fsm-proxy/internal/host"
	"github.com/fsm-proxy/fsm-proxy/internal/watch"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/refusal"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
	"github.com/fsm-proxy/fsm-proxy/proxy/surface"
	"github.com/fsm-proxy/fsm-proxy/upstream"
)

// Config says what is served, to whom, and within which bounds. The zero value of
// a bound or a time is the default of what keeps it (proxy.Config, upstream.Config,
// streamhttp.ServerConfig, wire.Limits), unless its comment says otherwise; the table
// of internal/config fills in what users are told of.
type Config struct {
	PolicyFile string // a file, or a folder with one
	LockFile   string // "": beside the policy
	Server     Server
	Share      bool   // one connection to the server for all clients
	OnRestart  string // of the server's process: "restart" its runs; else they are kept
	Mode       runs.Mode
	Protocol   bridge.Protocol
	Surface    surface.Surface
	Annotate   surface.Annotate
	Refusals   refusal.Form
	NoHint     bool

	Listen    Listen
	Runs      Runs
	Store     Store
	Timeouts  Timeouts
	Limits    Limits
	Reload    Reload
	Operators Operators
	Audit     Audit
	Record    Record

	// Policy is enforced in place of that of PolicyFile, and never changes. nil: it is read.
	Policy *policy.Policy
	// Configuration is the file that this was read from, to be followed. nil: there is none.
	Configuration *Configuration
	// Version is that of fsm-proxy.
	Version string
	// Log must be set.
	Log hclog.Logger
	// In and Out are where the one client is, where there is no Listen.Address; Err is
	// where the log goes to in the end.
	In       io.Reader
	Out, Err io.Writer
	// Ready is called once, with the URL, when clients can connect to Listen.Address. nil: nobody is told.
	Ready func(url string)
}

// Server is the wrapped server: a command, or a URL, with what belongs to it.
type Server struct {
	Command      []string
	Env, PassEnv []string // NAME=VALUE; names of the proxy's own variables

	URL        string
	Headers    []string // "Name: value"
	BearerFile string
	OAuth      OAuth
	SSE        bool // the old HTTP+SSE transport

	Protocol       upstream.Protocol
	ConnectTimeout time.Duration // 0: 30 s; 2 min for a command, which may first fetch itself
	Ping           time.Duration // 0: a command is not pinged
}

// OAuth are the client credentials for a server with a URL; without ClientID there are none.
type OAuth struct {
	ClientID, SecretFile string
	MetadataURL          string // "": found through the server's URL
	Scopes               []string
}

// Listen says where, and to whom, the proxy listens.
type Listen struct {
	Address        string // "": the one client is at In and Out
	Path           string
	AllowedHosts   []string
	AllowedOrigins []string
	Insecure       bool // beyond loopback without authentication
	TLS            TLS

	// What clients are let in by; without any of it, everybody is.
	BearerFile string
	Tokens     string // a file of names and hashes
	ClientCA   string // a file of authorities
	OIDC       OIDC
}

// TLS is the certificate of the address that clients connect to; "": plain HTTP.
type TLS struct{ Cert, Key string }

// OIDC says whose access tokens are accepted; without Issuer none are.
type OIDC struct {
	Issuer     string
	Audiences  []string // none: Resource
	JWKS       string   // a file; "": the issuer is asked
	Algorithms []string
	Skew       time.Duration // 0: none
	Scopes     []string
	Resource   string // the proxy's own URL; "": that of the request
}

// Timeouts say how long things may take.
type Timeouts struct {
	Turn, Call, Ask, Task, CancelGrace time.Duration
	Approval                           time.Duration // for which a call is held that waits for one
	Drain                              time.Duration // 0: no time at all
}

// Reload says how what is in force follows its files.
type Reload struct {
	Debounce, Poll, MaxStranded time.Duration
}

// Operators says where operators, and the kubelet, find the proxy; "": nowhere.
type Operators struct {
	Health  string
	Admin   Admin
	Webhook Webhook
}

// Webhook is where it is told that a call waits for an approval; "": nowhere.
type Webhook struct{ URL, KeyFile string }

// Admin is where operators look inside: a TCP address, or "unix:" and a path.
type Admin struct {
	Address string
	// What operators are let in by; without any of it, everybody is who reaches a loopback address or a socket.
	BearerFile string
	Tokens     string   // a file of names and hashes
	Verbs      []string // that operators have, as [admin.Verbs] names them; nil: all
}

// Audit says where every decision is recorded: a file, "stderr", or, as "", nowhere.
type Audit struct {
	Path      string
	Arguments bool // those of calls are recorded too
}

// Limits bound what clients and servers can take.
type Limits struct {
	Message               Size
	Bodies                Size
	UpstreamMessage       Size
	ListBytes             Size
	ListPages             int
	InFlight              int
	Queue                 int
	Registers             Size
	Subscriptions         int
	Outbound              Size
	Store                 Size
	StoreTime             time.Duration
	Connections           int // 0: what open files and memory leave
	ConnectionsPerAddress int
	Header                Size
	HeaderTimeout         time.Duration
	Depth                 int
	Batch                 int
	Sessions              int // 0: 10,000, or Processes where each has one
	SessionsPerAddress    int
	SessionsPerPrincipal  int
	Requests              int
	Listens               int
	Processes             int
	Idle                  time.Duration
	Unused                time.Duration
	WriteTimeout          time.Duration
}

// Configuration is the configuration file, which is followed.
type Configuration struct {
	Path   string
	Digest [32]byte // of what was read
	// Take takes what the file has become.
	Take func(read watch.File, live Live)
}

// Live is what a changed configuration file changes at once.
type Live struct {
	Level, Mode func(text string) error // as the flags take it
	// Told is told of each change what was wrong with it, nil for nothing.
	Told func(errors []string)
}

// Check refuses what cannot be meant, before anything is opened. It does not look
// at Server, which other commands have as well: see [Server.Check].
func (c *Config) Check() error {
	if c.Listen.Address != "" {
		if _, err := c.Listen.check(); err != nil {
			return err
		}
	} else if c.Store.PeerListen != "" {
		return exit.Usagef("--peer-listen needs --listen: over standard input and output nobody else has the client")
	}
	if err := errors.Join(c.Listen.OIDC.check(), c.Store.check(), c.Record.check(c.Store.lasts(), c.Audit.Arguments || c.Operators.Webhook.URL != "")); err != nil {
		return err
	}
	return c.Runs.check(c.Listen.Address != "", c.Listen.authenticates(), c.Protocol)
}

// eachHasProcess reports whether each session, or run, has a process of the server to itself.
func (c *Config) eachHasProcess() bool { return len(c.Server.Command) > 0 && !c.Share }

// sessions is how many sessions there may be: no more than processes, where each
// takes one.
func (c *Config) sessions() int {
	if c.Limits.Sessions == 0 && c.eachHasProcess() {
		return c.Limits.Processes
	}
	return c.Limits.Sessions
}

// wire is what bounds a message's inside.
func (l *Limits) wire() wire.Limits { return wire.Limits{Depth: l.Depth, Batch: l.Batch} }

// What open files are kept for besides the connections of clients.
const (
	ownFiles     = 64 // the policy's and certificate's files and watches, the log, the audit, traces, listeners
	healthConns  = 32 // connections to Operators.Health
	adminConns   = 16 // connections to Operators.Admin
	processFiles = 4  // of a process of the wrapped server: three pipes, and what watches for its end
	urlFiles     = 3  // of a client of a server with a URL: its own connection, a call's, a stream's
)

// connectionMemory is what a connection may take before anybody knows whose it is: the head of a request as it comes
// in, and what the HTTP server keeps.
const connectionMemory = 128 << 10

// mostConnections is how many there are where nothing bounds them.
const mostConnections = 65_536

// connections is how many connections clients may have, by Limits or by what there is: open files that
// nothing else needs, and half the memory that the process may take.
func (c *Config) connections() int {
	if c.Limits.Connections > 0 {
		return c.Limits.Connections
	}
	most := mostConnections
	if limit := host.MemoryLimit(); limit < math.MaxInt64 {
		most = min(most, max(int(limit/2/connectionMemory), 16))
	}
	files := host.OpenFiles()
	if files == 0 {
		return most
	}
	left := files - ownFiles - healthConns - adminConns
	switch {
	case len(c.Server.Command) == 0:
		left /= urlFiles
	case c.Share:
		left -= processFiles
	default:
		left -= processFiles * c.Limits.Processes
	}
	return min(most, max(left, files/4))
}

// Size is a number of bytes, written as a number with KiB, MiB or GiB after it where
// wanted.
type Size int64

var sizeUnits = []struct {
	suffix string
	bytes  int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// String renders the size in the largest unit that divides it.
func (s *Size) String() string {
	for _, u := range sizeUnits {
		if int64(*s) >= u.bytes && int64(*s)%u.bytes == 0 {
			return strconv.FormatInt(int64(*s)/u.bytes, 10) + u.suffix
		}
	}
	return "0"
}

// Set reads "4MiB", "32 KiB" or "1000".
func (s *Size) Set(text string) error {
	digits, unit := strings.TrimSpace(text), int64(1)
	for _, u := range sizeUnits {
		if n := len(digits) - len(u.suffix); n > 0 && strings.EqualFold(digits[n:], u.suffix) {
			digits, unit = strings.TrimSpace(digits[:n]), u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n <= 0 || n > math.MaxInt64/unit {
		return fmt.Errorf("%q is no size; write a number of bytes, or one with KiB, MiB or GiB", text)
	}
	*s = Size(n * unit)
	return nil
}

// Type names the value in --help.
func (s *Size) Type() string { return "size" }
