package cli

import (
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fsm-proxy/fsm-proxy/internal/http1"
	"github.com/fsm-proxy/fsm-proxy/internal/process"
	"github.com/fsm-proxy/fsm-proxy/internal/stdio"
	"github.com/fsm-proxy/fsm-proxy/upstream"
)

// target is the wrapped server as the command line names it: a command, or a URL
// with what belongs to it.
type target struct {
	command []string // from behind the --
	env     []string
	passEnv []string

	url        string
	headers    []string
	bearerFile string
	oauth      oauthFlags
	sse        bool

	speaks         upstream.Protocol
	connectTimeout time.Duration
	ping           time.Duration // for run alone
}

// oauthFlags are the client credentials for an upstream.
type oauthFlags struct {
	clientID   string
	secretFile string
	metadata   string
	scopes     []string
}

func (t *target) register(flags *pflag.FlagSet) {
	flags.StringArrayVar(&t.env, "env", nil, "`NAME=VALUE` for the command's environment; may be repeated")
	flags.StringSliceVar(&t.passEnv, "pass-env", nil, "a `NAME` of the proxy's environment that the command gets too, where it does not get all; may be repeated")
	flags.StringVar(&t.url, "upstream", "", "the `URL` of the server to wrap, instead of -- COMMAND")
	flags.StringArrayVar(&t.headers, "upstream-header", nil, "`'Name: value'` for every request to --upstream; may be repeated")
	flags.StringVar(&t.bearerFile, "upstream-bearer-file", "", "a `FILE` that holds the bearer token for --upstream")
	flags.StringVar(&t.oauth.clientID, "upstream-oauth-client-id", "", "get tokens for --upstream by OAuth client credentials, as the client of this `ID`")
	flags.StringVar(&t.oauth.secretFile, "upstream-oauth-client-secret-file", "", "a `FILE` that holds the OAuth client's secret")
	flags.StringVar(&t.oauth.metadata, "upstream-oauth-metadata-url", "", "the `URL` where the authorization server describes itself (default: found through --upstream)")
	flags.StringSliceVar(&t.oauth.scopes, "upstream-oauth-scope", nil, "an OAuth `SCOPE` to ask for; may be repeated")
	flags.BoolVar(&t.sse, "upstream-sse", false, "--upstream speaks the old HTTP+SSE transport")
	flags.TextVar(&t.speaks, "upstream-protocol", upstream.ProtocolAuto, "the `PROTOCOL` to speak with the server: legacy (with sessions), modern (2026-07-28),\n"+
		"or auto, which is its client's where the server speaks that, and else the other")
	flags.DurationVar(&t.connectTimeout, "connect-timeout", 0, "how long a connection to the server may take (default 30s; 2m for a command, which may first fetch itself)")
}

// take takes the command from behind the --, checks the whole, and returns the
// arguments in front of the --.
func (t *target) take(c *console, cmd *cobra.Command, args []string) (front []string, err error) {
	front = args
	if at := commandAt(cmd, c.args); at >= 0 && isURL(c.args[at]) {
		return nil, usagef("unexpected argument: a URL; write --upstream in front of it")
	} else if at >= 0 && (cmd.Name() != "check" || isProgram(c.args[at])) {
		return nil, usagef("unexpected argument %q; put -- in front of the server's command: %s", c.args[at], withDash(cmd, c.args))
	}
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		front, t.command = args[:dash], args[dash:]
		if len(t.command) == 0 {
			return nil, usagef("there is no command after --; write '-- COMMAND ARG...'")
		}
		if isURL(t.command[0]) {
			return nil, usagef("after -- stands a URL, and no command; write '--upstream URL' instead")
		}
		if program := quotedCommand(t.command); program != "" {
			return nil, usagef("the command after -- is one argument, \"%s …\"; take the quotes around it away", program)
		}
	}
	if cmd.Flags().Changed("connect-timeout") && t.connectTimeout <= 0 {
		return nil, usagef("--connect-timeout %s must be more than 0", t.connectTimeout)
	}
	return front, t.check()
}

// patience is how long a connection to the server may take.
func (t *target) patience() time.Duration {
	switch {
	case t.connectTimeout > 0:
		return t.connectTimeout
	case len(t.command) > 0:
		return 2 * time.Minute
	}
	return 30 * time.Second
}

func (t *target) given() bool { return t.url != "" || len(t.command) > 0 }

// need is the error for a command line that names no server. front are the
// arguments in front of the --, where a command does not belong.
func (t *target) need(front []string) error {
	switch {
	case len(front) > 0 && len(t.command) > 0:
		return usagef("unexpected argument %q in front of --; remove it", front[0])
	case len(front) > 0:
		return usagef("unexpected argument %q; remove it", front[0])
	case !t.given():
		return usagef("no server to wrap; give '--upstream URL', or '-- COMMAND ARG...' at the end")
	}
	return nil
}

func (t *target) check() error {
	switch {
	case t.url != "" && len(t.command) > 0:
		return usagef("both --upstream and a command after --; give one of them")
	case t.url == "" && t.hasURLFlags():
		return usagef("the --upstream-… flags belong to --upstream URL, which is missing")
	case len(t.command) == 0 && len(t.env)+len(t.passEnv) > 0:
		return usagef("--env and --pass-env belong to a command after --, which is missing")
	case !t.given() && t.speaks != upstream.ProtocolAuto:
		return usagef("--upstream-protocol belongs to a server, which is missing; give '--upstream URL', or '-- COMMAND ARG...' at the end")
	case t.sse && t.speaks == upstream.ProtocolModern:
		return usagef("--upstream-protocol modern does not go with --upstream-sse, a transport that has sessions alone; leave one of them out")
	case (t.oauth.clientID == "") != (t.oauth.secretFile == ""):
		return usagef("--upstream-oauth-client-id and --upstream-oauth-client-secret-file belong together; give both")
	case t.oauth.clientID != "" && t.bearerFile != "":
		return usagef("both --upstream-bearer-file and --upstream-oauth-client-id; give one of them")
	case t.oauth.clientID == "" && (t.oauth.metadata != "" || len(t.oauth.scopes) > 0):
		return usagef("the --upstream-oauth-… flags need --upstream-oauth-client-id")
	}
	for _, pair := range t.env {
		if name, _, ok := strings.Cut(pair, "="); !ok || name == "" {
			return usagef("--env %q is not NAME=VALUE", pair)
		}
	}
	for _, name := range t.passEnv {
		if before, _, pair := strings.Cut(name, "="); pair {
			return usagef("--pass-env %q is no name of a variable; write '--pass-env %s', or give a value with --env", hidden(name), before)
		}
		if strings.ContainsAny(name, "*? ") {
			return usagef("--pass-env %q is no name of a variable, and there are no patterns; give --pass-env once for each", name)
		}
	}
	return t.checkURL()
}

func (t *target) hasURLFlags() bool {
	return len(t.headers) > 0 || t.bearerFile != "" || t.oauth.clientID != "" || t.sse
}

func (t *target) checkURL() error {
	if t.url == "" {
		return nil
	}
	u, err := url.Parse(t.url)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return usagef("--upstream %q is no URL; write it like http://127.0.0.1:3001/mcp", t.url)
	}
	return nil
}

// header reads the --upstream-header flags. A value can be a secret, so it is
// not repeated in errors.
func (t *target) header() (http.Header, error) {
	if len(t.headers) == 0 {
		return nil, nil
	}
	header := make(http.Header)
	for i, line := range t.headers {
		name, value, ok := strings.Cut(line, ":")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, usagef("--upstream-header number %d is not 'Name: value'", i+1)
		}
		value = strings.TrimSpace(value)
		if err := http1.CheckField(name, value); err != nil {
			return nil, usagef("--upstream-header number %d is not 'Name: value': %v", i+1, err)
		}
		header.Add(name, value)
	}
	return header, nil
}

// String names the server for people.
func (t *target) String() string {
	if t.url != "" {
		return t.url
	}
	return shellLine(t.command)
}

// inheritance is how much of the proxy's own environment a command gets.
type inheritance bool

const (
	inheritAll  inheritance = true  // as if the proxy were not there
	inheritSafe inheritance = false // a small safe set: clients are others
)

// grace is how long the server may take to end; 0 is upstream's own.
func (i inheritance) grace() time.Duration {
	if i == inheritAll {
		return childGrace
	}
	return 0
}

// open makes the wrapped server of the flags. Nothing is started yet. cork is
// nil where no client is at standard input and output.
func (t *target) open(inherit inheritance, limits *limitFlags, cork *stdio.Cork, log hclog.Logger) (*upstream.Server, error) {
	header, err := t.header()
	if err != nil {
		return nil, err
	}
	oauth, err := t.oauth.config(log)
	if err != nil {
		return nil, err
	}
	if t.bearerFile != "" {
		if _, err := openTokenFile("upstream-bearer-file", t.bearerFile, log); err != nil {
			return nil, err
		}
	}
	env := t.environment(inherit)
	return upstream.New(upstream.Config{
		Command:      t.command,
		Quote:        inherit == inheritAll,
		Grace:        inherit.grace(),
		Env:          env.Variables,
		Withheld:     firstNames(env.Withheld),
		DialTimeout:  t.patience(),
		Ping:         t.ping,
		Trial:        newLister().opening(),
		URL:          t.url,
		Header:       header,
		BearerFile:   t.bearerFile,
		OAuth:        oauth,
		SSE:          t.sse,
		Protocol:     t.speaks,
		MaxMessage:   int(limits.upstreamMessage),
		MaxPages:     limits.listPages,
		MaxListBytes: int(limits.listBytes),
		MaxProcesses: limits.processes,
		Cork:         cork,
		Log:          log,
	})
}

// environment is what the command gets of the proxy's own.
func (t *target) environment(inherit inheritance) process.Environment {
	return process.Environ(bool(inherit), os.Environ(), t.passEnv, t.env)
}

// absent are the names of --pass-env that the proxy's own environment lacks.
func (t *target) absent() []string {
	return slices.DeleteFunc(slices.Clone(t.passEnv), func(name string) bool {
		_, set := os.LookupEnv(name)
		return set
	})
}

// mostVariables is how many names of variables a log line has.
const mostVariables = 16

// firstNames are the first of some names.
func firstNames(names []string) []string { return names[:min(len(names), mostVariables)] }

// logWithheld logs what of the proxy's environment the command does not get: names,
// and no values.
func logWithheld(env process.Environment, log hclog.Logger) {
	if n := len(env.Passwords); n > 0 {
		log.Warn("the command does not get a proxy's URL that holds a password: name it with --pass-env to pass it on, or give another with --env",
			"withheld", strings.Join(firstNames(env.Passwords), ", "))
	}
	if n := len(env.Withheld); n > 0 {
		fields := []any{"withheld", strings.Join(firstNames(env.Withheld), ", ")}
		if n > mostVariables {
			fields = append(fields, "others", n-mostVariables)
		}
		log.Info("the command gets a reduced environment, as clients are others than who started fsm-proxy: name what it needs with --pass-env", fields...)
	}
}

// config is what upstream takes, nil where no OAuth is asked for.
func (o *oauthFlags) config(log hclog.Logger) (*upstream.OAuth, error) {
	if o.clientID == "" {
		return nil, nil
	}
	secret, err := openTokenFile("upstream-oauth-client-secret-file", o.secretFile, log)
	if err != nil {
		return nil, err
	}
	return &upstream.OAuth{ClientID: o.clientID, ClientSecret: secret.get(), Scopes: o.scopes, MetadataURL: o.metadata}, nil
}
