package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/admin"
	"github.com/fsm-proxy/fsm-proxy/internal/auth"
	"github.com/fsm-proxy/fsm-proxy/internal/exit"
	"github.com/fsm-proxy/fsm-proxy/internal/httpserver"
	"github.com/fsm-proxy/fsm-proxy/internal/secret"
	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
	"github.com/fsm-proxy/fsm-proxy/proxy/operator"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

// check refuses what is not safe.
func (f *Operators) check() error {
	if f.Health != "" {
		if _, err := net.ResolveTCPAddr("tcp", f.Health); err != nil {
			return exit.Usagef("--health %q is no address (%w); write it like :9090", f.Health, err)
		}
	}
	for _, verb := range f.Admin.verbs() {
		if !slices.Contains(admin.Verbs, verb) {
			return exit.Usagef("--admin-verbs %q is no verb; it takes %s, or %s alone", verb, strictyaml.And(admin.Verbs), noVerbs)
		}
	}
	switch {
	case strings.HasPrefix(f.Admin.Address, "unix:@"), f.Admin.Address == "unix:":
		return exit.Usagef("--admin %q is no path, and only a file has permissions; write it like unix:/run/fsm-proxy.sock", f.Admin.Address)
	case f.Admin.Address == "" || f.Admin.Unix() != "":
		return nil
	}
	if _, err := net.ResolveTCPAddr("tcp", f.Admin.Address); err != nil {
		return exit.Usagef("--admin %q is no address (%w); write it like 127.0.0.1:9091, or unix:/run/fsm-proxy.sock", f.Admin.Address, err)
	}
	return nil
}

// noVerbs stands for no verb at all.
const noVerbs = "none"

// verbs are those that operators have; nil: all.
func (f *Admin) verbs() []string {
	if len(f.Verbs) == 1 && f.Verbs[0] == noVerbs {
		return []string{}
	}
	return f.Verbs
}

// Unix is the path of the unix socket, "" where it is none.
func (f *Admin) Unix() string {
	path, _ := strings.CutPrefix(f.Address, "unix:")
	if path == f.Address {
		return ""
	}
	return path
}

// local reports whether only this machine reaches a listener.
func local(l net.Listener) bool {
	addr, tcp := l.Addr().(*net.TCPAddr)
	return !tcp || addr.IP.IsLoopback()
}

// operators are the listeners for operators. They are opened before anything
// else, so that a port that is taken stops the start, and closed last.
type operators struct {
	health, admin net.Listener // nil: not asked for
	gate          *auth.Gate   // says who an operator is; nil: nobody is asked
	servers       []*httpserver.Server
}

// operators opens the listeners that the configuration asks for.
func (s *service) operators(ctx context.Context) (*operators, error) {
	f, o := &s.cfg.Operators, &operators{}
	err := f.check()
	if err == nil {
		o.gate, err = s.adminGate(ctx)
	}
	if err == nil && f.Health != "" {
		o.health, err = listenAt("health", f.Health)
	}
	if err == nil && f.Admin.Address != "" {
		o.admin, err = f.Admin.listen()
	}
	if err != nil {
		o.close()
		return nil, err
	}
	return o, nil
}

// adminGate opens what operators are let in by; nil: everybody is, and nobody told apart.
func (s *service) adminGate(ctx context.Context) (*auth.Gate, error) {
	f := &s.cfg.Operators.Admin
	if !f.authenticates() {
		return nil, nil
	}
	var cfg auth.Config
	if f.BearerFile != "" {
		file, err := secret.Open("admin-bearer-file", f.BearerFile, s.log)
		if err != nil {
			return nil, err
		}
		cfg.Bearer = file.Get
	}
	var err error
	cfg.Tokens, err = s.tokens(ctx, "admin-tokens", "operators' token file", f.Tokens)
	return auth.New(cfg), err
}

func (f *Admin) authenticates() bool { return f.BearerFile != "" || f.Tokens != "" }

func (f *Admin) listen() (net.Listener, error) {
	if path := f.Unix(); path != "" {
		return listenUnix(path)
	}
	l, err := listenAt("admin", f.Address)
	if err == nil && !local(l) && !f.authenticates() {
		l.Close()
		return nil, exit.Usagef("--admin %s can be reached from other machines; give a loopback address, unix:PATH, or --admin-bearer-file FILE or --admin-tokens FILE", f.Address)
	}
	return l, err
}

// listenAt listens at the address that a flag names.
func listenAt(flag, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("--%s %s: the port is taken; choose another, or end what holds it", flag, address)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("--%s %s: not permitted; choose a port above 1023", flag, address)
	case err != nil:
		return nil, fmt.Errorf("listening: %w; choose another --%s address", err, flag)
	}
	return l, nil
}

// serve begins to answer.
func (o *operators) serve(s *service) {
	if s.replica.peers != nil {
		s.replica.desk.Store(&desk{s.admin(o).Passed()})
	}
	if o.health != nil {
		o.start(o.health, s.health(local(o.health)).Handler(), healthConns, s.log)
		s.log.Info("answering probes", "url", "http://"+o.health.Addr().String())
	}
	if o.admin != nil {
		o.start(o.admin, s.admin(o).Handler(), adminConns, s.log)
		s.log.Info("answering operators", "address", o.admin.Addr().String())
	}
}

// start serves at a listener, at most so many connections.
func (o *operators) start(l net.Listener, handler http.Handler, connections int, log hclog.Logger) {
	server := &httpserver.Server{
		Handler: handler, HeaderTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxConnections: connections, AddressShare: connections, Log: log,
	}
	o.servers = append(o.servers, server)
	go func() { _ = server.Serve(l) }() // until close
}

// close ends the listeners, and lets answers under way go out.
func (o *operators) close() {
	ctx, stop := context.WithTimeout(context.Background(), time.Second)
	defer stop()
	for _, server := range o.servers {
		if server.Shutdown(ctx) != nil {
			server.Close()
		}
	}
	for _, l := range []net.Listener{o.health, o.admin} {
		if l != nil {
			l.Close()
		}
	}
}

// health is what the service says to probes, at a loopback listener or another.
func (s *service) health(loopback bool) *admin.Health {
	h := &admin.Health{
		Local:   loopback,
		Metrics: s.tell.metrics.Handler(),
		Ready: []admin.Check{
			{Name: "policy", Run: s.policyLoaded},
			{Name: "listeners", Run: s.listens},
			{Name: "not ending", Run: s.notEnding},
			{Name: "upstream", Run: s.server.Reachable},
		},
		Started: []admin.Check{
			{Name: "policy", Run: s.policyLoaded},
			{Name: "listeners", Run: s.listens},
		},
	}
	if s.tell.audit != nil {
		h.Ready = append(h.Ready, admin.Check{Name: "audit", Run: s.tell.audit.Blocked})
	}
	if s.store != nil {
		h.Ready = append(h.Ready, admin.Check{Name: "store", Run: s.store.Down})
	}
	return h
}

func (s *service) policyLoaded() error {
	if s.relay.Policy() == nil {
		return errors.New("no policy is in force")
	}
	return nil
}

func (s *service) notEnding() error {
	if s.relay.Draining() {
		return errors.New("fsm-proxy is ending: what is under way comes to its end, nothing new is taken")
	}
	return nil
}

func (s *service) listens() error {
	if !s.bound.Load() {
		return errors.New("clients cannot connect yet")
	}
	return nil
}

// admin is what the service says to operators, and lets them do.
func (s *service) admin(o *operators) *admin.Admin {
	a := &admin.Admin{
		Policy:   s.adminPolicy,
		Sessions: s.adminSessions,
		Runs:     s.adminRuns,

		Start: s.startRun,
		Verbs: s.cfg.Operators.Admin.verbs(),
		Acts: admin.Acts{
			Reset: s.operate((*operator.Desk).Reset), End: s.endRun, Fork: s.forkRun, Annotate: s.operate((*operator.Desk).Annotate), Accept: s.acceptRun,
			Release: s.releaseRun, ReleaseAll: s.releaseRuns,
		},
		Migrate: func() admin.Migrated {
			done := s.relay.Migrate()
			s.log.Info("stranded runs began anew, as an operator asked", "runs", done.Runs, "restarted", done.Restarted, "unwritten", done.Unwritten)
			return admin.Migrated(done)
		},
		Level:    func() string { return s.log.GetLevel().String() },
		SetLevel: s.askedLevel,
		Run:      s.showRun,
		Signal:   s.signal,

		Approvals: s.approvals, Approve: s.approve,
		Journal: s.journal,

		Who:   o.who(),
		Local: o.admin != nil && local(o.admin),
	}
	if s.replica.peers != nil {
		a.Others = admin.Others{Self: s.replica.self, Elsewhere: s.othersApprovals, PassOn: s.passOnOperator, Asked: func(id string) bool { return s.relay.Operators().Asked(id) }}
	}
	return a
}

// who says which operator sends a request; nil: nobody is asked.
func (o *operators) who() func(r *http.Request) (name string, ok bool) {
	if o.gate == nil {
		return nil
	}
	return func(r *http.Request) (string, bool) {
		who, ok := o.gate.Who(r)
		if who.Shared() { // of the one token that has no name
			return soleOperator, ok
		}
		return who.Subject, ok
	}
}

// askedLevel is setLevel for an operator. The log says so, if its old or its new
// level lets it.
func (s *service) askedLevel(text string) error {
	old := s.log.GetLevel()
	if err := s.setLevel(text); err != nil {
		return err
	}
	level := s.log.GetLevel()
	s.log.SetLevel(min(old, level))
	s.log.Info("the log's level was changed, as an operator asked", "level", level.String())
	s.log.SetLevel(level)
	return nil
}

func (s *service) setLevel(text string) error {
	level := hclog.LevelFromString(text)
	if level == hclog.NoLevel {
		return errors.New("a level is one of trace, debug, info, warn, error, off")
	}
	s.log.SetLevel(level)
	return nil
}

// setMode puts the mode of this word in force for every run.
func (s *service) setMode(text string) error {
	var m runs.Mode
	if err := m.UnmarshalText([]byte(text)); err != nil {
		return err
	}
	s.relay.SetMode(m)
	return nil
}

func (s *service) adminPolicy() admin.Policy {
	r := s.reloads.state()
	out := admin.Policy{
		Name: r.policy.Name(), Digest: r.policy.Digest(), States: len(r.policy.States()),
		Mode: s.relay.Runs.Mode().String(), LoadedAt: r.since, Source: r.attempts.told(r.policy.File()), Parts: r.policy.Files()[1:],
	}
	if file := s.cfg.Configuration; file != nil {
		source := r.configuration.told(file.Path)
		out.Configuration = &source
	}
	return out
}

func (a *attempts) told(file string) admin.Source {
	out := admin.Source{File: file, Succeeded: a.succeeded, Failed: a.failed}
	if !a.at.IsZero() {
		out.LastReload = &admin.Reload{At: a.at, Success: a.errors == nil, Errors: a.errors}
	}
	return out
}

// adminSessions names sessions, and their runs, as the log does.
func (s *service) adminSessions() []admin.Session {
	infos := s.relay.Sessions()
	out := make([]admin.Session, len(infos))
	for i, info := range infos {
		id := info.Peer.Session
		if id == "" {
			id = "stdio"
		}
		out[i] = admin.Session{
			ID: id, Remote: info.Peer.Remote, Client: info.Client, Version: info.Version, Protocol: info.Protocol, State: info.Run.State,
			Age: time.Since(info.Began).Seconds(), InFlight: info.InFlight, Run: runName(info.Run),
		}
	}
	return out
}
