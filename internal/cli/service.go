package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/auth"
	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/httpserver"
	"github.com/fsm-proxy/fsm-proxy/internal/stdio"
	"github.com/fsm-proxy/fsm-proxy/internal/streamhttp"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/notify"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy"
	"github.com/fsm-proxy/fsm-proxy/upstream"
)

// service is one run of the proxy: the wrapped server, the relay before it, and
// what keeps its policy what the file says.
type service struct {
	flags  *runFlags
	policy *policy.Policy // to begin with
	from   source
	log    hclog.Logger

	tell    *observers
	server  *upstream.Server
	relay   *proxy.Proxy
	keys    [2]proxy.RunKey
	reloads reloads
	locks   *locks
	bound   atomic.Bool // clients can connect
	closers []func()    // of what was opened, in that order
	// clientCerts says whose certificates are accepted; nil: none is asked for.
	clientCerts *auth.Clients
}

// open opens what both ways of serving need. Nothing is asked of the wrapped
// server yet. What was opened is closed by close, after an error too.
func (s *service) open(ctx context.Context, inherit inheritance, cork *stdio.Cork, endGrace time.Duration) (err error) {
	f := s.flags
	s.tell, err = s.observers(ctx)
	s.onClose(s.tell.close)
	if err != nil {
		return err
	}
	operators, err := f.operators.open(s.log)
	if err != nil {
		return err
	}
	s.onClose(operators.close)
	if s.server, err = f.target.open(inherit, &f.limits, cork, s.log); err != nil {
		return err
	}
	inEmergency(ctx, s.server.Kill)
	s.onClose(s.server.Close)
	if s.keys, err = f.runs.keysOf(f.listen.address != "", f.protocol); err != nil {
		return err
	}
	cfg := s.config()
	cfg.EndGrace = endGrace
	s.locks = &locks{given: f.lock, flags: &f.reload, log: s.log}
	if cfg.Lock, err = s.locks.first(s.policy); err != nil {
		return err
	}
	if s.relay, err = proxy.New(cfg); err != nil {
		return err
	}
	s.onClose(s.relay.Close)
	s.reloads.begin(s.policy)
	s.onClose(s.locks.follow(ctx, s.relay))
	s.onClose(s.follow(ctx))
	s.onClose(f.config.file.follow(ctx, &f.reload, s.live(), s.reloads.configured, s.log))
	s.tell.watch(s)
	operators.serve(s)
	return nil
}

func (s *service) onClose(f func()) { s.closers = append(s.closers, f) }

// close closes what was opened, last first.
func (s *service) close() {
	if s.server != nil {
		defer s.ended(time.Now(), s.server.Children())
	}
	for i := len(s.closers) - 1; i >= 0; i-- {
		s.closers[i]()
	}
}

// Over stdio the client is gone when standard input ends, and soon ends us, too:
// SDKs ask after 2 s and kill after 4. Until then all must be over.
const (
	linger     = 500 * time.Millisecond  // for calls to end by themselves, so that a piped session gets its answers
	endGrace   = 500 * time.Millisecond  // then for what they still answer when they are cancelled
	childGrace = 1500 * time.Millisecond // then for the server to end, and again when it is asked to
)

// overStdio serves the one client at standard input and output.
func (s *service) overStdio(ctx context.Context, c *console) error {
	defer s.close()
	cork := new(stdio.Cork)
	f := s.flags
	if err := s.open(ctx, inheritAll, cork, min(f.cancelGrace, endGrace)); err != nil {
		return err
	}
	if isTerminal(c.in) {
		s.log.Info("speaking MCP over standard input and output: this is for a client to start; give --listen to serve HTTP")
	}
	framing := stdio.Config{
		MaxMessage: int(f.limits.message), Limits: f.limits.wire(), Queue: int(f.limits.outbound), Linger: linger, Cork: cork,
	}
	in, out, restore := pollable(c)
	defer restore()
	s.bound.Store(true)
	serving, stop := s.whileDraining(ctx)
	defer stop()
	if err := stdio.Serve(serving, framing, in, out, s.relay.Open); err != nil {
		return fmt.Errorf("speaking with the client: %w", err)
	}
	return nil
}

// overHTTP serves clients at an address. ready is called once,
// with the URL, when clients can connect.
func (s *service) overHTTP(ctx context.Context, ready func(url string)) error {
	defer s.close()
	f := s.flags
	loopback, err := f.listen.check()
	if err != nil {
		return err
	}
	if err := s.open(ctx, inheritSafe, nil, f.cancelGrace); err != nil {
		return err
	}
	gate, err := s.gate(ctx)
	if err != nil {
		return err
	}
	certificate, err := s.certificate(ctx)
	if err != nil {
		return err
	}
	l, err := listenAt("listen", f.listen.address)
	if err != nil {
		return err
	}
	s.bound.Store(true) // clients can connect, and wait in the listener's queue
	front := streamhttp.NewServer(s.front(loopback, gate))
	s.log.Info("serving", "url", f.listen.url(l), "policy", s.policy.File(), "upstream", s.server.String())
	s.logCommand()
	s.warnSharedRun()
	ready(f.listen.url(l))
	return s.serveHTTP(ctx, f.httpServer(front, certificate, s.log), l, front)
}

// logWait logs now and then that the server has not answered yet, until stop is called.
func (s *service) logWait() (stop func()) {
	var p pace
	return whileWaiting(func(waited time.Duration) {
		if p.due(waited) {
			s.log.Info("waiting for the server to start (--connect-timeout)", "server", s.server.String(), "for", waited.String(), "of", brief(s.flags.patience()))
		}
	})
}

// logCommand logs what users of a listening proxy may not expect of its command: which
// variables it does not get, and how many processes of it there may be.
func (s *service) logCommand() {
	f := s.flags
	if len(f.command) == 0 {
		return
	}
	logWithheld(f.environment(inheritSafe), s.log)
	if absent := f.absent(); len(absent) > 0 {
		s.log.Warn("--pass-env names what the proxy itself does not have, so the command does not get it: set it, or mend the name", "absent", strings.Join(absent, ", "))
	}
	if !f.share {
		s.log.Info("each session, or run, has a process of the server to itself: --max-upstreams bounds them, --share-upstream has all clients share one", "most", f.limits.processes)
	}
}

// front is the configuration of the HTTP side towards clients.
func (s *service) front(loopback bool, gate *auth.Gate) streamhttp.ServerConfig {
	f := s.flags
	return s.eras(f.guarded(streamhttp.ServerConfig{
		Path:           f.listen.path,
		Runs:           byPath(s.keys),
		Loopback:       loopback,
		AllowedHosts:   f.listen.allowedHosts,
		AllowedOrigins: f.listen.allowedOrigins,
		MaxMessage:     int(f.limits.message),
		Bodies:         httpserver.NewBodyBudget(int(f.limits.bodies)),
		Limits:         f.limits.wire(),
		Queue:          int(f.limits.outbound),
		Store:          int(f.limits.store),
		StoreTime:      f.limits.storeTime,
		Sessions:       f.sessions(),
		Share:          f.limits.share,
		Idle:           f.limits.idle,
		Unused:         f.limits.unused,
		Requests:       f.limits.requests,
		Listens:        f.limits.listens,
		Polls:          s.server.Polls,
		Refused:        s.tell.refused,
		Log:            s.log,
	}, gate))
}

// config is the relay's configuration.
func (s *service) config() proxy.Config {
	f := s.flags
	most, perPrincipal, idle := f.runLimits()
	return proxy.Config{
		Policy: s.policy,
		Dial: func(ctx context.Context, with bridge.Opening, r wire.Receiver) (bridge.Conn, error) {
			stop := s.logWait()
			conn, err := s.server.Dial(ctx, upstream.Opening(with), r)
			stop()
			if said, ok := errors.AsType[*upstream.InitializeError](err); ok {
				return nil, &proxy.HelloError{Answer: said.Answer}
			}
			if err != nil {
				return nil, err
			}
			return conn, nil
		},
		Notifier:            func(send func(uint8) bool) proxy.Notifier { return notify.New(send) },
		Version:             versionText(),
		Share:               f.share,
		Streams:             f.url != "" && !f.sse,
		Protocol:            f.runs.protocolOf(f.protocol),
		Mode:                f.mode,
		Surface:             f.surface,
		Annotate:            f.annotate,
		Refusals:            f.refusals,
		NoHint:              f.noHint,
		TurnTimeout:         f.turnTimeout,
		CallTimeout:         f.callTimeout,
		AskTimeout:          f.askTimeout,
		TaskTimeout:         f.taskTimeout,
		CancelGrace:         f.cancelGrace,
		ConnectTimeout:      f.patience(),
		MaxStranded:         f.reload.maxStranded,
		RestartRun:          f.onRestart == "restart",
		Keys:                s.keys,
		HandleArgument:      f.runs.handleArg,
		PathCreate:          f.runs.pathCreate,
		RunIdle:             idle,
		RunAge:              f.runs.age,
		MaxRuns:             most,
		MaxRunsPerPrincipal: perPrincipal,
		MaxInFlight:         f.limits.inFlight,
		MaxQueue:            f.limits.queue,
		MaxSubscriptions:    f.limits.subscriptions,
		Log:                 s.log,
		Telemetry:           s.tell.telemetry(),
	}
}
