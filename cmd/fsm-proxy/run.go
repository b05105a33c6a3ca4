package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fsm-proxy/fsm-proxy/internal/stdio"
	"github.com/fsm-proxy/fsm-proxy/internal/streamhttp"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/notify"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy"
	"github.com/fsm-proxy/fsm-proxy/upstream"
)

// runFlags are the flags of run.
type runFlags struct {
	policy string
	target
	listen listenFlags
	log    logFlags
	limits limitFlags
	reload reloadFlags

	share     bool
	surface   proxy.Surface
	annotate  proxy.Annotate
	refusals  proxy.Refusals
	noHint    bool
	onRestart string

	turnTimeout, callTimeout, cancelGrace, connectTimeout time.Duration
}

func newRun(c *console) *cobra.Command {
	f := &runFlags{}
	cmd := &cobra.Command{
		Use:   "run --policy FILE [flags] (--upstream URL | -- COMMAND ARG...)",
		Short: "Wrap a server: over standard input and output, or at an address with --listen",
		Example: "  fsm-proxy run --policy files.yaml -- npx -y @modelcontextprotocol/server-filesystem /srv\n" +
			"  fsm-proxy run --policy files.yaml --listen 127.0.0.1:8080 --upstream https://example.com/mcp",
		RunE: func(cmd *cobra.Command, args []string) error {
			front, err := f.take(cmd, args)
			if err == nil {
				err = f.check(cmd.Flags(), front)
			}
			if err != nil {
				return err
			}
			return f.run(cmd.Context(), c)
		},
	}
	f.register(cmd.Flags())
	cmd.SetUsageFunc(groupedUsage)
	return cmd
}

func (f *runFlags) register(flags *pflag.FlagSet) {
	flags.SortFlags = false
	flags.StringVar(&f.policy, "policy", "", "the policy `FILE` to enforce, or a folder with one; changes are followed")
	group(flags, "The wrapped server", f.target.register)
	group(flags, "HTTP, with --listen", f.listen.register)
	flags.BoolVar(&f.share, "share-upstream", false, "one connection to the server for all clients")
	flags.TextVar(&f.surface, "surface", proxy.SurfaceAuto, "the `SURFACE` that clients are shown: auto, dynamic or static")
	flags.TextVar(&f.annotate, "annotate", proxy.AnnotateAuto, "`WHAT` is added to results: auto, off, meta or text")
	flags.TextVar(&f.refusals, "refusals", proxy.RefusalsError, "the `FORM` of refusals: error, plain or opaque")
	flags.BoolVar(&f.noHint, "no-hint", false, "do not tell clients in the instructions that tools appear and disappear")
	flags.StringVar(&f.onRestart, "on-upstream-restart", "keep", "`WHAT` becomes of a run whose server process died: keep or restart")
	flags.DurationVar(&f.turnTimeout, "turn-timeout", time.Minute, "how long a call may wait for its run's turn")
	flags.DurationVar(&f.callTimeout, "call-timeout", 5*time.Minute, "how long a call may take, not counting what a person takes to answer")
	flags.DurationVar(&f.cancelGrace, "cancel-grace", 5*time.Second, "how long a cancelled call may still be answered")
	flags.DurationVar(&f.connectTimeout, "connect-timeout", 0, "how long a connection to the server may take (default 30s; 2m for a command, which may first fetch itself)")
	f.log.register(flags, "info")
	group(flags, "Reload", f.reload.register)
	group(flags, "Limits", f.limits.register)
}

func (f *runFlags) check(flags *pflag.FlagSet, front []string) error {
	if f.policy == "" && len(front) == 1 && f.given() {
		return usagef("unexpected argument %q; if it is the policy, write '--policy %s'", front[0], front[0])
	}
	if err := f.need(front); err != nil {
		return err
	}
	switch {
	case f.policy == "":
		return usagef("no policy to enforce; give --policy FILE, or have one written by 'fsm-proxy init'")
	case f.listen.address == "" && f.listen.stray() != "":
		return usagef("--%s belongs to --listen, which is missing", f.listen.stray())
	case f.onRestart != "keep" && f.onRestart != "restart":
		return usagef("--on-upstream-restart %q is neither keep nor restart", f.onRestart)
	}
	return f.limits.check(flags)
}

// run loads the policy, opens what is needed, and serves until the client or ctx
// ends.
func (f *runFlags) run(ctx context.Context, c *console) error {
	lines := newLogWriter(c.err, f.log.format == "json")
	defer lines.Close()
	log, err := f.log.logger(lines)
	if err != nil {
		return err
	}
	p, findings, from, err := load(f.policy)
	if err != nil {
		return err
	}
	for _, w := range findings.Warnings() {
		log.Warn("policy: " + w.String())
	}
	if f.listen.address == "" {
		return f.overStdio(ctx, c, p, from, log)
	}
	return f.overHTTP(ctx, p, from, log, func(string) {})
}

// Over stdio the client is gone when standard input ends, and soon ends us, too:
// SDKs ask after 2 s and kill after 4. Until then all must be over.
const (
	linger     = 500 * time.Millisecond  // for calls to end by themselves, so that a piped session gets its answers
	endGrace   = 500 * time.Millisecond  // then for what they still answer when they are cancelled
	childGrace = 1500 * time.Millisecond // then for the server to end, and again when it is asked to
)

// overStdio serves the one client at standard input and output.
func (f *runFlags) overStdio(ctx context.Context, c *console, p *policy.Policy, from source, log hclog.Logger) error {
	cork := new(stdio.Cork)
	server, err := f.open(inheritAll, &f.limits, cork, log)
	if err != nil {
		return err
	}
	defer server.Close()
	cfg := f.config(p, server, log)
	cfg.EndGrace = min(f.cancelGrace, endGrace)
	relay, err := proxy.New(cfg)
	if err != nil {
		return err
	}
	defer relay.Close()
	defer f.reload.follow(ctx, from, relay, log)()
	if isTerminal(c.in) {
		log.Info("speaking MCP over standard input and output: this is for a client to start; give --listen to serve HTTP")
	}
	framing := stdio.Config{
		MaxMessage: int(f.limits.message), Limits: f.limits.wire(), Queue: int(f.limits.outbound), Linger: linger, Cork: cork,
	}
	in, out, restore := pollable(c)
	defer restore()
	if err := stdio.Serve(ctx, framing, in, out, relay.Open); err != nil {
		return fmt.Errorf("speaking with the client: %w", err)
	}
	return nil
}

// overHTTP serves any number of clients at an address. ready is called once,
// with the URL, when clients can connect.
func (f *runFlags) overHTTP(ctx context.Context, p *policy.Policy, from source, log hclog.Logger, ready func(url string)) error {
	loopback, err := f.listen.check()
	if err != nil {
		return err
	}
	server, err := f.open(inheritSafe, &f.limits, nil, log)
	if err != nil {
		return err
	}
	defer server.Close()
	relay, err := proxy.New(f.config(p, server, log))
	if err != nil {
		return err
	}
	defer relay.Close()
	defer f.reload.follow(ctx, from, relay, log)()
	token, err := f.listen.token()
	if err != nil {
		return err
	}
	l, err := f.listen.open()
	if err != nil {
		return err
	}
	front := streamhttp.NewServer(f.front(relay, loopback, token, log))
	log.Info("serving", "url", f.listen.url(l), "policy", p.File(), "upstream", server.String())
	ready(f.listen.url(l))
	return serveHTTP(ctx, f.httpServer(front, log), l, front.Close, log)
}

// front is the configuration of the HTTP side towards clients.
func (f *runFlags) front(relay *proxy.Proxy, loopback bool, token func() string, log hclog.Logger) streamhttp.ServerConfig {
	return streamhttp.ServerConfig{
		Open: func(own wire.Stream, from streamhttp.PeerInfo) wire.Session {
			return relay.OpenFor(proxy.Peer{Session: from.Session, Remote: from.RemoteAddr}, own)
		},
		Path:           f.listen.path,
		Loopback:       loopback,
		AllowedHosts:   f.listen.allowedHosts,
		AllowedOrigins: f.listen.allowedOrigins,
		BearerToken:    token,
		MaxMessage:     int(f.limits.message),
		Limits:         f.limits.wire(),
		Queue:          int(f.limits.outbound),
		Store:          int(f.limits.store),
		StoreTime:      f.limits.storeTime,
		Sessions:       f.sessions(),
		Share:          f.limits.share,
		Idle:           f.limits.idle,
		Unused:         f.limits.unused,
		WriteTimeout:   f.limits.writeTimeout,
		Log:            log,
	}
}

// sessions is how many sessions there may be: no more than processes, where each
// takes one.
func (f *runFlags) sessions() int {
	if f.limits.sessions == 0 && len(f.command) > 0 && !f.share {
		return f.limits.processes
	}
	return f.limits.sessions
}

func (f *runFlags) httpServer(handler http.Handler, log hclog.Logger) httpServer {
	return &streamhttp.LeanServer{
		Handler:        handler,
		HeaderTimeout:  f.limits.headerTimeout,
		MaxHeaderBytes: int(f.limits.header),
		Log:            log,
	}
}

// patience is how long a connection to the server may take.
func (f *runFlags) patience() time.Duration {
	switch {
	case f.connectTimeout > 0:
		return f.connectTimeout
	case len(f.command) > 0:
		return 2 * time.Minute
	}
	return 30 * time.Second
}

// config is the relay's configuration.
func (f *runFlags) config(p *policy.Policy, server *upstream.Server, log hclog.Logger) proxy.Config {
	return proxy.Config{
		Policy: p,
		Dial: func(ctx context.Context, initialize *wire.Message, r wire.Receiver) (proxy.Upstream, error) {
			conn, err := server.Dial(ctx, initialize, r)
			if said, ok := errors.AsType[*upstream.InitializeError](err); ok {
				return nil, &proxy.HelloError{Answer: said.Answer}
			}
			if err != nil {
				return nil, err
			}
			return conn, nil
		},
		Notifier:         func(send func(uint8) bool) proxy.Notifier { return notify.New(send) },
		Version:          versionText(),
		Share:            f.share,
		Streams:          f.url != "" && !f.sse,
		Surface:          f.surface,
		Annotate:         f.annotate,
		Refusals:         f.refusals,
		NoHint:           f.noHint,
		TurnTimeout:      f.turnTimeout,
		CallTimeout:      f.callTimeout,
		CancelGrace:      f.cancelGrace,
		ConnectTimeout:   f.patience(),
		MaxStranded:      f.reload.maxStranded,
		RestartRun:       f.onRestart == "restart",
		MaxInFlight:      f.limits.inFlight,
		MaxQueue:         f.limits.queue,
		MaxSubscriptions: f.limits.subscriptions,
		Log:              log,
	}
}
