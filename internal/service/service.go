package service

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/auth"
	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/host"
	"github.com/fsm-proxy/fsm-proxy/internal/httpserver"
	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/policyfile"
	"github.com/fsm-proxy/fsm-proxy/internal/stdio"
	"github.com/fsm-proxy/fsm-proxy/internal/streamhttp"
	"github.com/fsm-proxy/fsm-proxy/internal/wait"
	"github.com/fsm-proxy/fsm-proxy/internal/watch"
	"github.com/fsm-proxy/fsm-proxy/internal/webhook"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/notify"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/report"
	"github.com/fsm-proxy/fsm-proxy/proxy"
	"github.com/fsm-proxy/fsm-proxy/proxy/durable"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
	"github.com/fsm-proxy/fsm-proxy/proxy/settings"
	"github.com/fsm-proxy/fsm-proxy/proxy/surface"
	"github.com/fsm-proxy/fsm-proxy/upstream"
)

// service is one run of the proxy: the wrapped server, the relay before it, and
// what keeps its policy what the file says.
type service struct {
	cfg    *Config
	policy *policy.Policy // to begin with
	from   policyfile.Source
	hook   *webhook.Sender // nil: nobody is told of approvals that are wanted
	log    hclog.Logger

	tell     *observers
	store    *durable.Store // where runs are kept; nil: nowhere
	journal  journal.Reader // what is kept there, as operators see it; likewise
	replica  replica        // among others of the store
	server   *upstream.Server
	relay    *proxy.Proxy
	relayed  atomic.Pointer[proxy.Proxy] // is relay, for who may come before it
	keys     [2]runs.Key
	gateways []netip.Prefix
	reloads  reloads
	locks    *locks
	bound    atomic.Bool // clients can connect
	closers  []func()    // of what was opened, in that order
	// clientCerts says whose certificates are accepted; nil: none is asked for.
	clientCerts *auth.Clients
}

// Serve serves until the client or ctx ends.
func Serve(ctx context.Context, cfg Config) error {
	if err := errors.Join(cfg.Server.Check(), cfg.Check()); err != nil {
		return err
	}
	s := &service{cfg: &cfg, policy: cfg.Policy, log: cfg.Log}
	if s.policy == nil {
		p, findings, from, err := policyfile.Open(cfg.PolicyFile)
		if err != nil {
			return err
		}
		s.policy, s.from = p, from
		s.warn(findings)
	}
	if err := cfg.Record.admit(s.policy); err != nil {
		return err
	}
	if cfg.Listen.Address == "" {
		return s.overStdio(ctx)
	}
	return s.overHTTP(ctx)
}

func (s *service) warn(findings policy.Findings) {
	for _, w := range report.Grouped(findings.Warnings()) {
		s.log.Warn("policy: " + w.String())
	}
}

// warnNobody warns of what hangs on who asks, where nobody is known.
func (s *service) warnNobody(p *policy.Policy) {
	const most = 8
	lines := report.AskingWho(p)
	if len(lines) == 0 || s.cfg.Listen.Address != "" && s.cfg.Listen.authenticates() {
		return
	}
	if more := len(lines) - most; more > 0 {
		lines = append(lines[:most], fmt.Sprintf("%d more", more))
	}
	how, do := "on stdio", "serve it with --listen and one of"
	if s.cfg.Listen.Address != "" {
		how, do = "without authentication", "give one of"
	}
	s.log.Warn("policy: "+how+" nobody has a subject, scopes or claims, so what the policy has for somebody, or asks of who, is for nobody: "+
		do+" --tokens, --oidc-issuer and --client-ca, or take these out of the policy", "lines", strings.Join(lines, ", "))
}

// open opens what both ways of serving need. Nothing is asked of the wrapped
// server yet. What was opened is closed by close, after an error too.
func (s *service) open(ctx context.Context, cork *stdio.Cork, endGrace time.Duration) (err error) {
	c := s.cfg
	s.tell, err = s.observers(ctx)
	s.onClose(s.tell.close)
	if err != nil {
		return err
	}
	operators, err := s.operators(ctx)
	if err != nil {
		return err
	}
	s.onClose(operators.close)
	if err = s.openHook(); err != nil {
		return err
	}
	if s.keys, err = c.RunKeys(); err != nil {
		return err
	}
	if err = s.openStore(ctx); err != nil {
		return err
	}
	if s.server, err = c.OpenServer(cork); err != nil {
		return err
	}
	host.InEmergency(ctx, s.server.Kill)
	s.onClose(s.server.Close)
	if s.gateways, err = c.Runs.gateways(); err != nil {
		return err
	}
	cfg := s.config()
	cfg.EndGrace = endGrace
	s.locks = &locks{given: c.LockFile, reload: &c.Reload, log: s.log}
	if cfg.Lock, err = s.locks.first(s.policy); err != nil {
		return err
	}
	if s.relay, err = proxy.New(cfg); err != nil {
		return err
	}
	s.onClose(s.relay.Close)
	s.relayed.Store(s.relay)
	if err = s.relay.Runs.Resume(); errors.Is(err, runs.ErrDamaged) {
		return errors.New("the run that is to go on is shut, since what is kept of it is not what was written; the log names it above: 'fsm-proxy verify RUN --store STORE' says what is wrong, and another --run, or --store, begins another one")
	} else if err != nil {
		return fmt.Errorf("reading what is to go on from the store: %w", err)
	}
	s.reloads.begin(s.policy)
	s.onClose(s.locks.follow(ctx, s.relay))
	s.onClose(s.follow(ctx))
	if file := c.Configuration; file != nil {
		live := Live{Level: s.setLevel, Mode: s.setMode, Told: s.reloads.configured}
		s.onClose(c.Reload.watch(ctx, "configuration", file.Path, file.Digest, func(read watch.File) { file.Take(read, live) }, s.log))
	}
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
func (s *service) overStdio(ctx context.Context) error {
	defer s.close()
	cork, c := new(stdio.Cork), s.cfg
	if err := s.open(ctx, cork, min(c.Timeouts.CancelGrace, endGrace)); err != nil {
		return err
	}
	if host.IsTerminal(c.In) {
		s.log.Info("speaking MCP over standard input and output: this is for a client to start; give --listen to serve HTTP")
	}
	framing := stdio.Config{
		MaxMessage: int(c.Limits.Message), Limits: c.Limits.wire(), Queue: int(c.Limits.Outbound), Linger: linger, Cork: cork,
	}
	in, out, restore := host.Pollable(c.In, c.Out, c.Err)
	defer restore()
	s.warnNobody(s.policy)
	s.bound.Store(true)
	serving, stop := s.whileDraining(ctx)
	defer stop()
	if err := stdio.Serve(serving, framing, in, out, s.relay.Open); err != nil {
		return fmt.Errorf("speaking with the client: %w", err)
	}
	return nil
}

// overHTTP serves clients at an address.
func (s *service) overHTTP(ctx context.Context) error {
	defer s.close()
	c := s.cfg
	loopback, err := c.Listen.check()
	if err != nil {
		return err
	}
	if err := s.open(ctx, nil, c.Timeouts.CancelGrace); err != nil {
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
	l, err := listenAt("listen", c.Listen.Address)
	if err != nil {
		return err
	}
	s.bound.Store(true) // clients can connect, and wait in the listener's queue
	front := streamhttp.NewServer(s.front(loopback, gate))
	s.replica.front.Store(front)
	s.log.Info("serving", "url", c.Listen.url(l), "policy", s.policy.File(), "upstream", s.server.String())
	s.logCommand()
	s.warnSharedRun()
	s.warnNobody(s.policy)
	if c.Ready != nil {
		c.Ready(c.Listen.url(l))
	}
	debug.FreeOSMemory() // what starting took; an idle sidecar would keep it
	return s.serveHTTP(ctx, &httpserver.Server{
		Handler:        front,
		HeaderTimeout:  c.Limits.HeaderTimeout,
		WriteTimeout:   c.Limits.WriteTimeout,
		MaxHeaderBytes: int(c.Limits.Header),
		MaxConnections: c.connections(),
		AddressShare:   c.Limits.ConnectionsPerAddress,
		Gateway:        s.gateway,
		TLSConfig:      certificate.config(),
		Log:            s.log,
	}, l, front)
}

// logWait logs now and then that the server has not answered yet, until stop is called.
func (s *service) logWait() (stop func()) {
	var p wait.Pace
	return wait.While(func(waited time.Duration) {
		if p.Due(waited) {
			s.log.Info("waiting for the server to start (--connect-timeout)", "server", s.server.String(), "for", waited.String(), "of", wait.Brief(s.cfg.Server.Patience()))
		}
	})
}

// logCommand logs what users of a listening proxy may not expect of its command: which
// variables it does not get, and how many processes of it there may be.
func (s *service) logCommand() {
	c := s.cfg
	if len(c.Server.Command) == 0 {
		return
	}
	logWithheld(c.environment(), s.log)
	if absent := c.Server.absent(); len(absent) > 0 {
		s.log.Warn("--pass-env names what the proxy itself does not have, so the command does not get it: set it, or mend the name", "absent", strings.Join(absent, ", "))
	}
	if !c.Share {
		s.log.Info("each session, or run, has a process of the server to itself: --max-upstreams bounds them, --share-upstream has all clients share one", "most", c.Limits.Processes)
	}
}

// front is the configuration of the HTTP side towards clients. gate says whom it
// lets in; nil: everybody.
func (s *service) front(loopback bool, gate *auth.Gate) streamhttp.ServerConfig {
	c, l := s.cfg, &s.cfg.Limits
	cfg := streamhttp.ServerConfig{
		Path:           c.Listen.Path,
		Runs:           byPath(s.keys),
		Loopback:       loopback,
		AllowedHosts:   c.Listen.AllowedHosts,
		AllowedOrigins: c.Listen.AllowedOrigins,
		MaxMessage:     int(l.Message),
		Bodies:         httpserver.NewBodyBudget(int(l.Bodies)),
		Limits:         l.wire(),
		Queue:          int(l.Outbound),
		Store:          int(l.Store),
		StoreTime:      l.StoreTime,
		Sessions:       c.sessions(),
		Share:          l.SessionsPerAddress,
		Idle:           l.Idle,
		Unused:         l.Unused,
		Requests:       l.Requests,
		Listens:        l.Listens,
		Polls:          s.server.Polls,
		Refused:        s.tell.refused,
		Log:            s.log,
	}
	if gate != nil {
		cfg.Public, cfg.Authenticate = gate.Public, gate.Authenticate
		cfg.PrincipalShare = l.SessionsPerPrincipal
		if cfg.PrincipalShare == 0 && !c.Listen.tellsApart() {
			cfg.PrincipalShare = math.MaxInt // all are one principal: there is nobody to keep room for
		}
	}
	if s.replica.peers != nil {
		cfg.PassOn = s.passOn
	}
	if c.Protocol != bridge.ProtocolModern {
		cfg.Open = func(own wire.Stream, from streamhttp.PeerInfo) (wire.Session, error) {
			return s.openSession(own, from)
		}
		if s.store != nil {
			cfg.Resume, cfg.Unanswered = s.resumeSession, s.unanswered
		}
		cfg.Key = s.sessionKey()
	}
	if c.Protocol != bridge.ProtocolLegacy {
		cfg.Modern = func(m *wire.Message, out wire.Stream, from streamhttp.PeerInfo) wire.Pending {
			return s.relay.Serve(m, out, s.peer(from))
		}
	}
	return cfg
}

// config is the relay's configuration.
func (s *service) config() proxy.Config {
	c := s.cfg
	most, perPrincipal, idle := c.runLimits()
	return proxy.Config{
		Policy: s.policy,
		Dial: func(ctx context.Context, with bridge.Opening, r wire.Receiver) (bridge.Conn, error) {
			stop := s.logWait()
			conn, err := s.server.Dial(ctx, upstream.Opening(with), r)
			stop()
			if said, ok := errors.AsType[*upstream.InitializeError](err); ok {
				return nil, &settings.HelloError{Answer: said.Answer}
			}
			if err != nil {
				return nil, err
			}
			return conn, nil
		},
		Notifier:            func(send func(uint8) bool) surface.Notifier { return notify.New(send) },
		Version:             s.cfg.Version,
		Share:               c.Share,
		Streams:             c.Server.URL != "" && !c.Server.SSE,
		Protocol:            c.Runs.protocolOf(c.Protocol),
		Mode:                c.Mode,
		Surface:             c.Surface,
		Annotate:            c.Annotate,
		Refusals:            c.Refusals,
		NoHint:              c.NoHint,
		TurnTimeout:         c.Timeouts.Turn,
		CallTimeout:         c.Timeouts.Call,
		AskTimeout:          c.Timeouts.Ask,
		TaskTimeout:         c.Timeouts.Task,
		CancelGrace:         c.Timeouts.CancelGrace,
		ConnectTimeout:      c.Server.Patience(),
		MaxStranded:         c.Reload.MaxStranded,
		RestartRun:          c.OnRestart == "restart",
		Keys:                s.keys,
		HandleArgument:      c.Runs.HandleArgument,
		PathCreate:          c.Runs.PathCreate,
		RunIdle:             idle,
		RunAge:              c.Runs.Age,
		MaxRuns:             most,
		MaxRunsPerPrincipal: perPrincipal,
		Store:               s.store,
		Terse:               len(s.cfg.Record.Redact) > 0,
		Process:             c.Store.run(s.policy),
		IdleEnds:            c.Runs.Idle > 0,
		KeepEnded:           c.Store.KeepCompleted,
		KeepIdle:            c.Store.KeepIdle,
		SessionIdle:         c.Limits.Idle,
		Forgets:             c.OnRestart == "restart" && len(c.Server.Command) > 0,
		Outlives:            len(c.Server.Command) == 0,
		MaxInFlight:         c.Limits.InFlight,
		MaxQueue:            c.Limits.Queue,
		ApprovalHold:        c.Timeouts.Approval,
		Asked:               s.asked,
		MaxRegisters:        int(c.Limits.Registers),
		MaxSubscriptions:    c.Limits.Subscriptions,
		Log:                 s.log,
		Telemetry:           s.tell.telemetry(),
	}
}

// drain refuses what is new, lets what is under way come to its end, and returns up to when there is time for that.
func (s *service) drain() (until time.Time) {
	begun := time.Now()
	until = begun.Add(s.cfg.Timeouts.Drain)
	s.replica.until.Store(&until)
	s.relay.Refuse()
	s.log.Info("ending: calls under way may finish, new ones are refused", "drain", s.cfg.Timeouts.Drain)
	ctx, stop := context.WithTimeout(context.Background(), s.cfg.Timeouts.Drain)
	defer stop()
	if s.replica.peers != nil {
		giving, end := context.WithCancel(context.Background())
		var given sync.WaitGroup
		given.Go(func() { s.relay.Runs.GiveAway(giving) })
		s.onClose(func() {
			end()
			given.Wait()
		})
	}
	d := s.relay.Drain(ctx)
	s.log.Info("drained", "finished", d.Finished, "broken_off", d.BrokenOff, "refused", d.Refused, "after", time.Since(begun).Round(time.Millisecond))
	return until
}

// whileDraining returns a context that ends when ctx has and the drain after it
// is over. stop ends it without one; both wait for a drain that has begun.
func (s *service) whileDraining(ctx context.Context) (serving context.Context, stop func()) {
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	drained := make(chan struct{})
	undo := context.AfterFunc(ctx, func() {
		defer close(drained)
		defer end()
		s.drain()
	})
	return serving, func() {
		if !undo() {
			<-drained
		}
		end()
	}
}

const (
	// farewellTime is how long clients may still come with a request on a
	// connection that they hold open, to be told to go elsewhere: one that came
	// just as the connection was closed would have no answer at all.
	farewellTime = 500 * time.Millisecond
	// flushTime is how long clients may at least take to read what they are
	// answered; they have the rest of the drain's time, too.
	flushTime = 2 * time.Second
	// answerTime is how long it takes at most to answer what other processes have not answered by then.
	answerTime = 500 * time.Millisecond
)

// serveHTTP serves until ctx ends, and for as long as the drain after it lasts.
// The listener is closed last: whoever sends requests here may hear late that
// there is nobody any more.
func (s *service) serveHTTP(ctx context.Context, server *httpserver.Server, l net.Listener, front *streamhttp.Server) error {
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	var err error
	select {
	case err = <-failed:
		err = fmt.Errorf("serving: %w", err)
	case <-ctx.Done():
	}
	server.Retire()
	until := s.drain()
	if server.Connections() > 0 {
		rest(min(farewellTime, s.cfg.Timeouts.Drain))
	}
	until = time.Now().Add(max(flushTime, time.Until(until)))
	last, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	if s.replica.peers != nil {
		front.AwaitMoved(last)
		defer context.AfterFunc(last, s.replica.peers.BreakOff)()
		var done context.CancelFunc
		last, done = context.WithDeadline(context.Background(), until.Add(answerTime))
		defer done()
	}
	if front.Close(last) != nil || server.Shutdown(last) != nil {
		server.Close()
	}
	return err
}

func rest(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// ended says that the processes which ran are gone.
func (s *service) ended(since time.Time, children int) {
	if children == 0 {
		return
	}
	s.log.Info("ended the server", "processes", children, "after", time.Since(since).Round(time.Millisecond))
}
