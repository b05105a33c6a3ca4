package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"

	"github.com/fsm-proxy/fsm-proxy/internal/admin"
)

// operatorFlags say where operators, and the kubelet, find the proxy.
type operatorFlags struct {
	health string
	admin  adminFlags
}

func (f *operatorFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.health, "health", "", "answer probes and give metrics at this `ADDR`, to everybody: /livez, /readyz, /startupz, /metrics")
	flags.StringVar(&f.admin.address, "admin", "", "let operators look inside at this `ADDR`, a loopback one, or unix:PATH")
	flags.StringVar(&f.admin.bearerFile, "admin-bearer-file", "", "a `FILE` that holds the bearer token which operators must send; with it --admin may be any address")
}

// check refuses what is not safe.
func (f *operatorFlags) check() error {
	if f.health != "" {
		if _, err := net.ResolveTCPAddr("tcp", f.health); err != nil {
			return usagef("--health %q is no address (%w); write it like :9090", f.health, err)
		}
	}
	switch {
	case f.admin.address == "" && f.admin.bearerFile != "":
		return usagef("--admin-bearer-file belongs to --admin, which is missing")
	case f.admin.address == "" || f.admin.unix() != "":
		return nil
	}
	addr, err := net.ResolveTCPAddr("tcp", f.admin.address)
	switch {
	case err != nil:
		return usagef("--admin %q is no address (%w); write it like 127.0.0.1:9091, or unix:/run/fsm-proxy.sock", f.admin.address, err)
	case !addr.IP.IsLoopback() && f.admin.bearerFile == "":
		return fmt.Errorf("--admin %s can be reached from other machines; give a loopback address, unix:PATH, or --admin-bearer-file FILE", f.admin.address)
	}
	return nil
}

// unix is the path of the unix socket, "" where it is none.
func (f *adminFlags) unix() string {
	path, _ := strings.CutPrefix(f.address, "unix:")
	if path == f.address {
		return ""
	}
	return path
}

// local reports whether only this machine reaches the admin listener.
func (f *adminFlags) local() bool {
	addr, err := net.ResolveTCPAddr("tcp", f.address)
	return f.unix() != "" || err == nil && addr.IP.IsLoopback()
}

// operators are the listeners for operators. They are opened before anything
// else, so that a port that is taken stops the start, and closed last.
type operators struct {
	health, admin net.Listener // nil: not asked for
	token         func() string
	servers       []*http.Server
}

// open opens the listeners that the flags ask for.
func (f *operatorFlags) open() (*operators, error) {
	o := &operators{}
	err := f.check()
	if err == nil && f.admin.bearerFile != "" {
		var file *tokenFile
		if file, err = openTokenFile("admin-bearer-file", f.admin.bearerFile); err == nil {
			o.token = file.get
		}
	}
	if err == nil && f.health != "" {
		o.health, err = listenAt("health", f.health)
	}
	if err == nil && f.admin.address != "" {
		o.admin, err = f.admin.listen()
	}
	if err != nil {
		o.close()
		return nil, err
	}
	return o, nil
}

func (f *adminFlags) listen() (net.Listener, error) {
	if path := f.unix(); path != "" {
		return listenUnix(path)
	}
	return listenAt("admin", f.address)
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

// listenUnix listens at a socket that only this user can open. One that a dead
// process has left behind is removed.
func listenUnix(path string) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil {
		if info.Mode().Type() != fs.ModeSocket {
			return nil, fmt.Errorf("--admin unix:%s: there is a file of another kind; choose another path, or remove it", path)
		}
		if conn, err := net.Dial("unix", path); err == nil {
			conn.Close()
			return nil, fmt.Errorf("--admin unix:%s: another process listens there; choose another path, or end it", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("removing the socket that a dead process has left: %w", err)
		}
	}
	l, err := privately(func() (net.Listener, error) { return net.Listen("unix", path) })
	if err != nil {
		return nil, fmt.Errorf("--admin unix:%s: %w; give a path in a folder that exists and can be written, of at most 100 characters", path, cause(err))
	}
	return l, nil
}

// serve begins to answer.
func (o *operators) serve(s *service) {
	if o.health != nil {
		o.start(o.health, s.health().Handler(), s.log)
		s.log.Info("answering probes", "url", "http://"+o.health.Addr().String())
	}
	if o.admin != nil {
		o.start(o.admin, s.admin(o.token).Handler(), s.log)
		s.log.Info("answering operators", "address", o.admin.Addr().String())
	}
}

func (o *operators) start(l net.Listener, handler http.Handler, log hclog.Logger) {
	server := &http.Server{
		Handler: handler, ErrorLog: log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 32 << 10,
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

// health is what the service says to probes.
func (s *service) health() *admin.Health {
	return &admin.Health{
		Metrics: s.tell.metrics.Handler(),
		Ready: []admin.Check{
			{Name: "policy", Run: s.policyLoaded},
			{Name: "not ending", Run: s.notEnding},
			{Name: "upstream", Run: s.server.Reachable},
		},
		Started: []admin.Check{
			{Name: "policy", Run: s.policyLoaded},
			{Name: "listeners", Run: s.listens},
		},
	}
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
func (s *service) admin(token func() string) *admin.Admin {
	return &admin.Admin{
		Policy:   s.adminPolicy,
		Sessions: s.adminSessions,
		Migrate: func() admin.Migrated {
			done := s.relay.Migrate()
			s.log.Info("stranded runs began anew, as an operator asked", "runs", done.Runs, "restarted", done.Restarted)
			return admin.Migrated{Runs: done.Runs, Restarted: done.Restarted}
		},
		Level:    func() string { return s.log.GetLevel().String() },
		SetLevel: s.setLevel,
		Bearer:   token,
		Local:    s.flags.operators.admin.local(),
	}
}

func (s *service) setLevel(text string) error {
	level := hclog.LevelFromString(text)
	if level == hclog.NoLevel {
		return errors.New("a level is one of trace, debug, info, warn, error, off")
	}
	s.log.SetLevel(level)
	return nil
}

func (s *service) adminPolicy() admin.Policy {
	r := s.reloads.state()
	out := admin.Policy{
		Name: r.policy.Name(), File: r.policy.File(), Digest: r.policy.Digest(), States: len(r.policy.States()),
		Mode:     s.relay.Mode().String(),
		LoadedAt: r.since, Succeeded: r.succeeded, Failed: r.failed,
	}
	if !r.at.IsZero() {
		out.LastReload = &admin.Reload{At: r.at, Success: r.errors == nil, Errors: r.errors}
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
		run := admin.Run{
			ID: id, Session: id, State: info.Run.State, Complete: info.Run.Complete, Policy: info.Run.Policy,
			Refused: info.Run.Refused, TurnHeld: info.Run.TurnHeld, Queued: info.Run.Queued,
		}
		if since := info.Run.Stranded; !since.IsZero() {
			run.Stranded = &since
		}
		out[i] = admin.Session{
			ID: id, Remote: info.Peer.Remote, Client: info.Client, Protocol: info.Protocol, State: info.Run.State,
			Age: time.Since(info.Began).Seconds(), InFlight: info.InFlight, Run: run,
		}
	}
	return out
}
