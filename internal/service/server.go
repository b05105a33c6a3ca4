package service

import (
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/exit"
	"github.com/fsm-proxy/fsm-proxy/internal/host"
	"github.com/fsm-proxy/fsm-proxy/internal/http1"
	"github.com/fsm-proxy/fsm-proxy/internal/inventory"
	"github.com/fsm-proxy/fsm-proxy/internal/process"
	"github.com/fsm-proxy/fsm-proxy/internal/secret"
	"github.com/fsm-proxy/fsm-proxy/internal/stdio"
	"github.com/fsm-proxy/fsm-proxy/upstream"
)

// Patience is how long a connection to the server may take.
func (t *Server) Patience() time.Duration {
	switch {
	case t.ConnectTimeout > 0:
		return t.ConnectTimeout
	case len(t.Command) > 0:
		return 2 * time.Minute
	}
	return 30 * time.Second
}

// Given reports whether there is a server.
func (t *Server) Given() bool { return t.URL != "" || len(t.Command) > 0 }

// Check refuses what cannot be meant, before anything is opened.
func (t *Server) Check() error {
	switch {
	case t.URL != "" && len(t.Command) > 0:
		return exit.Usagef("both --upstream and a command after --; give one of them")
	case t.SSE && t.Protocol == upstream.ProtocolModern:
		return exit.Usagef("--upstream-protocol modern does not go with --upstream-sse, a transport that has sessions alone; leave one of them out")
	case t.OAuth.ClientID != "" && t.BearerFile != "":
		return exit.Usagef("both --upstream-bearer-file and --upstream-oauth-client-id; give one of them")
	}
	for _, pair := range t.Env {
		if name, _, ok := strings.Cut(pair, "="); !ok || name == "" {
			return exit.Usagef("--env %q is not NAME=VALUE", pair)
		}
	}
	for _, name := range t.PassEnv {
		if before, _, pair := strings.Cut(name, "="); pair {
			return exit.Usagef("--pass-env \"%s=…\" is no name of a variable; write '--pass-env %s', or give a value with --env", before, before)
		}
		if strings.ContainsAny(name, "*? ") {
			return exit.Usagef("--pass-env %q is no name of a variable, and there are no patterns; give --pass-env once for each", name)
		}
	}
	if t.URL == "" {
		return nil
	}
	if u, err := url.Parse(t.URL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return exit.Usagef("--upstream %q is no URL; write it like http://127.0.0.1:3001/mcp", t.URL)
	}
	return nil
}

// header reads Headers. A value can be a secret, so it is
// not repeated in errors.
func (t *Server) header() (http.Header, error) {
	if len(t.Headers) == 0 {
		return nil, nil
	}
	header := make(http.Header)
	for i, line := range t.Headers {
		name, value, ok := strings.Cut(line, ":")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, exit.Usagef("--upstream-header number %d is not 'Name: value'", i+1)
		}
		value = strings.TrimSpace(value)
		if err := http1.CheckField(name, value); err != nil {
			return nil, exit.Usagef("--upstream-header number %d is not 'Name: value': %v", i+1, err)
		}
		header.Add(name, value)
	}
	return header, nil
}

// String names the server for who started it.
func (t *Server) String() string {
	if t.URL != "" {
		return t.URL
	}
	return host.ShellLine(t.Command)
}

// OpenServer makes the wrapped server. Nothing is started yet. Where clients are
// others than who started the proxy, a command gets a reduced environment. cork is
// nil where no client is at In and Out.
func (c *Config) OpenServer(cork *stdio.Cork) (*upstream.Server, error) {
	t := &c.Server
	header, err := t.header()
	if err != nil {
		return nil, err
	}
	oauth, err := t.OAuth.config(c.Log)
	if err != nil {
		return nil, err
	}
	env, own, grace := c.environment(), c.Listen.Address == "", time.Duration(0)
	if own {
		grace = childGrace
	}
	return upstream.New(upstream.Config{
		Command:      t.Command,
		Quote:        own,
		Grace:        grace,
		Env:          env.Variables,
		Withheld:     firstNames(env.Withheld),
		DialTimeout:  t.Patience(),
		Ping:         t.Ping,
		Trial:        inventory.New(c.Version).Opening(),
		URL:          t.URL,
		Header:       header,
		BearerFile:   t.BearerFile,
		OAuth:        oauth,
		SSE:          t.SSE,
		Protocol:     t.Protocol,
		MaxMessage:   int(c.Limits.UpstreamMessage),
		MaxPages:     c.Limits.ListPages,
		MaxListBytes: int(c.Limits.ListBytes),
		MaxProcesses: c.Limits.Processes,
		Cork:         cork,
		Log:          c.Log,
	})
}

// environment is what the command gets of the proxy's own.
func (c *Config) environment() process.Environment {
	return process.Environ(c.Listen.Address == "", os.Environ(), c.Server.PassEnv, c.Server.Env)
}

// absent are the names of PassEnv that the proxy's own environment lacks.
func (t *Server) absent() []string {
	return slices.DeleteFunc(slices.Clone(t.PassEnv), func(name string) bool {
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
		log.Info("the command gets a reduced environment, as anybody may be a client of --listen: name what it needs with --pass-env", fields...)
	}
}

// config is what upstream takes, nil where no OAuth is asked for.
func (o *OAuth) config(log hclog.Logger) (*upstream.OAuth, error) {
	if o.ClientID == "" {
		return nil, nil
	}
	secret, err := secret.Open("upstream-oauth-client-secret-file", o.SecretFile, log)
	if err != nil {
		return nil, err
	}
	return &upstream.OAuth{ClientID: o.ClientID, ClientSecret: secret.Get(), Scopes: o.Scopes, MetadataURL: o.MetadataURL}, nil
}
