package cli

import (
	"context"
	"errors"
	"net/http"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fsm-proxy/fsm-proxy/internal/httpserver"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy"
)

// runFlags are the flags of run.
type runFlags struct {
	policy string
	target
	listen listenFlags
	log    logFlags
	limits limitFlags
	reload reloadFlags
	config configFlags
	drain  drainFlags
	audit  auditFlags
	runs   runsFlags

	operators operatorFlags

	lock      string
	mode      proxy.Mode
	protocol  proxy.Protocol
	share     bool
	surface   proxy.Surface
	annotate  proxy.Annotate
	refusals  proxy.Refusals
	noHint    bool
	onRestart string

	turnTimeout, callTimeout, askTimeout, taskTimeout, cancelGrace time.Duration
}

func newRun(c *console) *cobra.Command {
	f := &runFlags{}
	cmd := &cobra.Command{
		Use:   "run (--policy FILE | --config FILE) [flags] [--upstream URL | -- COMMAND ARG...]",
		Short: "Wrap a server: over standard input and output, or at an address with --listen",
		Example: "  fsm-proxy run --policy files.yaml -- npx -y @modelcontextprotocol/server-filesystem /srv\n" +
			"  fsm-proxy run --policy files.yaml --listen 127.0.0.1:8080 --upstream https://example.com/mcp\n" +
			"  fsm-proxy run --config fsm-proxy.yaml",
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkEnvironment(cmd.Root(), os.Environ()); err != nil {
				return err
			}
			return f.bind(cmd)
		},
		ValidArgsFunction: policiesThenCommand(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			front, err := f.take(c, cmd, args)
			if err == nil {
				err = f.check(cmd.Flags(), front)
			}
			if err == nil {
				err = f.run(cmd.Context(), c)
			}
			return f.config.file.locate(err)
		},
	}
	f.register(cmd.Flags())
	cmd.SetUsageFunc(groupedUsage)
	return cmd
}

func (f *runFlags) register(flags *pflag.FlagSet) {
	flags.SortFlags = false
	flags.StringVar(&f.policy, "policy", "", "the policy `FILE` to enforce, or a folder with one; changes are followed")
	f.config.register(flags)
	flags.StringVar(&f.lock, "lock", "", "the lock `FILE` of the policy's tools (default: the policy's name with .lock.yaml, beside it)")
	flags.TextVar(&f.mode, "mode", proxy.Enforce, "the `MODE`: enforce the policy, or shadow, to refuse nothing and log what would have been")
	group(flags, "The wrapped server", func(flags *pflag.FlagSet) {
		f.target.register(flags)
		flags.DurationVar(&f.ping, "upstream-ping", 30*time.Second, "how long a command that left a call unanswered may say nothing when it is pinged, before it is ended; 0: it is not pinged")
	})
	group(flags, "HTTP, with --listen", f.listen.register)
	flags.TextVar(&f.protocol, "protocol", proxy.ProtocolAuto, "the `PROTOCOL` that clients may speak: legacy (with sessions), modern (2026-07-28), both, or auto: both, but with\n"+
		"--listen clients that know both have a session, unless --run-key names modern=KEY")
	group(flags, "Runs", f.runs.register)
	flags.BoolVar(&f.share, "share-upstream", false, "one connection to the server for all clients")
	flags.TextVar(&f.surface, "surface", proxy.SurfaceAuto, "the `SURFACE` that clients are shown: auto, dynamic or static")
	flags.TextVar(&f.annotate, "annotate", proxy.AnnotateAuto, "`WHAT` is added to results: auto, off, meta or text")
	flags.TextVar(&f.refusals, "refusals", proxy.RefusalsError, "the `FORM` of refusals: error, plain or opaque")
	flags.BoolVar(&f.noHint, "no-hint", false, "do not tell clients in the instructions that tools appear and disappear")
	flags.StringVar(&f.onRestart, "on-upstream-restart", "keep", "`WHAT` becomes of a run whose server process died: keep or restart")
	flags.DurationVar(&f.turnTimeout, "turn-timeout", time.Minute, "how long a call may wait for its run's turn")
	flags.DurationVar(&f.callTimeout, "call-timeout", 5*time.Minute, "how long a call may take, not counting what a person takes to answer")
	flags.DurationVar(&f.askTimeout, "ask-timeout", 10*time.Minute, "how long a client may take to answer what the server asks it in the middle of a call")
	flags.DurationVar(&f.taskTimeout, "task-timeout", time.Hour, "how long a task may run whose end moves its run")
	flags.DurationVar(&f.cancelGrace, "cancel-grace", 5*time.Second, "how long a cancelled call may still be answered")
	f.drain.register(flags)
	f.log.register(flags, "info")
	group(flags, "Operators", f.operators.register)
	group(flags, "Audit", f.audit.register)
	group(flags, "Reload", f.reload.register)
	group(flags, "Limits", f.limits.register)
}

func (f *runFlags) check(flags *pflag.FlagSet, front []string) error {
	if f.policy == "" && len(front) == 1 {
		return usagef("unexpected argument %q; if it is the policy, write '--policy %s'", front[0], front[0])
	}
	if err := f.need(front); err != nil {
		return err
	}
	switch {
	case f.policy == "":
		return usagef("no policy to enforce; give --policy FILE, or have one written by 'fsm-proxy init'")
	case flags.Changed("upstream-ping") && f.url != "":
		return usagef("--upstream-ping belongs to a command after --, and --upstream is a URL; remove it")
	case f.listen.address == "" && stray(flags) != "":
		return usagef("--%s belongs to --listen, which is missing", stray(flags))
	}
	return f.consistent(flags)
}

// consistent refuses values that cannot be meant.
func (f *runFlags) consistent(flags *pflag.FlagSet) error {
	if f.onRestart != "keep" && f.onRestart != "restart" {
		return usagef("--on-upstream-restart %q is neither keep nor restart", f.onRestart)
	}
	return errors.Join(f.listen.tls.check(), f.listen.auth.check(flags, &f.listen.tls), f.limits.check(flags), f.runs.check(f.listen.address != "", f.listen.authenticates(), f.protocol))
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
	for _, w := range policy.Grouped(findings.Warnings()) {
		log.Warn("policy: " + w.String())
	}
	s := &service{flags: f, policy: p, from: from, log: log}
	if f.listen.address == "" {
		return s.overStdio(ctx, c)
	}
	return s.overHTTP(ctx, func(string) {})
}

// sessions is how many sessions there may be: no more than processes, where each
// takes one.
func (f *runFlags) sessions() int {
	if f.limits.sessions == 0 && len(f.command) > 0 && !f.share {
		return f.limits.processes
	}
	return f.limits.sessions
}

// httpServer is what carries the HTTP side; certificate is nil for plain HTTP.
func (f *runFlags) httpServer(handler http.Handler, certificate *certificate, log hclog.Logger) *httpserver.Server {
	return &httpserver.Server{
		Handler:        handler,
		HeaderTimeout:  f.limits.headerTimeout,
		WriteTimeout:   f.limits.writeTimeout,
		MaxHeaderBytes: int(f.limits.header),
		MaxConnections: f.connections(),
		AddressShare:   f.limits.strangers,
		Gateway:        f.runs.gateway,
		TLSConfig:      certificate.config(),
		Log:            log,
	}
}
