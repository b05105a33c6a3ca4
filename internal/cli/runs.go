package cli

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/fsm-proxy/fsm-proxy/internal/admin"
	"github.com/fsm-proxy/fsm-proxy/internal/handle"
	"github.com/fsm-proxy/fsm-proxy/internal/streamhttp"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/proxy"
)

// runsFlags say how requests find their run, and how long runs live.
type runsFlags struct {
	keys         []string
	trusted      []string
	handleArg    string
	pathCreate   bool
	most         int
	perPrincipal int
	idle, age    time.Duration

	gateways []netip.Prefix // of trusted
}

func (f *runsFlags) register(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.keys, "run-key", nil, "how requests of an era find their run, `ERA=KEY`: process, session (legacy), principal, header:NAME, path or handle (modern);\n"+
		"process, principal, header and path hold for both eras where one is named (default legacy=session,modern=handle with --listen, process without)")
	flags.StringSliceVar(&f.trusted, "trusted-proxies", nil, "`ADDRESSES` of gateways whose header says which run it is, like 10.0.0.0/8; may be repeated")
	flags.StringVar(&f.handleArg, "handle-arg", handle.DefaultArgument, "`NAME` of the argument in which calls carry their run's handle")
	flags.BoolVar(&f.pathCreate, "path-create", false, "with --run-key path: an unknown id in the path begins a run, if nobody can guess it")
	flags.IntVar(&f.most, "max-runs", 0, "runs that are found by a key at a time (default 10000, or one fewer than --max-upstreams where each has a process)")
	flags.IntVar(&f.perPrincipal, "max-runs-per-principal", 0, "such runs of one principal (default 1000, or half of --max-runs where each has a process)")
	flags.DurationVar(&f.idle, "run-idle", 0, "after how long without a request such a run expires (default 24h, or 1h where each has a process)")
	flags.DurationVar(&f.age, "run-age", 30*24*time.Hour, "after how long such a run expires that nobody uses just then")
}

// runLimits are how many runs there may be, in all and of one principal, and for how
// long nobody may use one; 0 is the relay's own default. Where each run has a process
// there are no more than processes, with one left for requests without a run, and one
// principal does not get them all.
func (f *runFlags) runLimits() (most, perPrincipal int, idle time.Duration) {
	r := &f.runs
	most, perPrincipal, idle = r.most, r.perPrincipal, r.idle
	if len(f.command) == 0 || f.share {
		return most, perPrincipal, idle
	}
	if most == 0 {
		most = max(f.limits.processes-1, 1)
	}
	if perPrincipal == 0 {
		perPrincipal = (most + 1) / 2
	}
	if idle == 0 {
		idle = time.Hour
	}
	return most, perPrincipal, idle
}

// keysOf are the keys of both eras; listening tells that there may be several
// clients. A key that no client gets rid of by itself must not be got rid of by
// speaking the other era: named for one era it holds for both.
func (f *runsFlags) keysOf(listening bool, protocol proxy.Protocol) (keys [2]proxy.RunKey, err error) {
	keys = [2]proxy.RunKey{{Kind: proxy.KeyProcess}, {Kind: proxy.KeyProcess}}
	if listening {
		keys = [2]proxy.RunKey{wire.Legacy: {Kind: proxy.KeySession}, wire.Modern: {Kind: proxy.KeyHandle}}
	}
	named := [2]bool{}
	for _, text := range f.keys {
		name, key, _ := strings.Cut(text, "=")
		era := wire.Legacy
		switch name {
		case wire.Legacy.String():
		case wire.Modern.String():
			era = wire.Modern
		default:
			return keys, usagef("--run-key %q names no era: write %s", text, withEra(text))
		}
		if named[era] {
			return keys, usagef("--run-key names two keys for the %s era: there is one for each", era)
		}
		named[era] = true
		if keys[era], err = proxy.ParseRunKey(era, key); err != nil {
			return keys, usagef("--run-key %s=%s: %w", era, key, err)
		}
		if !listening && keys[era].Kind != proxy.KeyProcess && keys[era].Kind != proxy.KeySession {
			return keys, usagef("--run-key %s=%s needs --listen: over standard input and output there is one client, and one run", era, key)
		}
	}
	if !listening { // the only session is the process's
		return [2]proxy.RunKey{{Kind: proxy.KeyProcess}, {Kind: proxy.KeyProcess}}, nil
	}
	return f.acrossEras(keys, named, protocol)
}

// withEra says how to write a key that was given without an era.
func withEra(key string) string {
	for _, era := range []wire.Era{wire.Legacy, wire.Modern} {
		if _, err := proxy.ParseRunKey(era, key); err == nil {
			return era.String() + "=" + key
		}
	}
	return "legacy=KEY or modern=KEY"
}

// acrossEras has a key that is named for one era hold for the other, unless it is of
// one era only, and refuses two of which the one lets a client begin anew where the
// other does not.
func (f *runsFlags) acrossEras(keys [2]proxy.RunKey, named [2]bool, protocol proxy.Protocol) ([2]proxy.RunKey, error) {
	for _, era := range []wire.Era{wire.Legacy, wire.Modern} {
		other := wire.Modern - era
		if kind := keys[era].Kind; named[era] && !named[other] && kind != proxy.KeySession && kind != proxy.KeyHandle {
			keys[other] = keys[era]
		}
		if (protocol == proxy.ProtocolAuto || protocol == proxy.ProtocolBoth) && !f.resettable(keys[era]) && f.resettable(keys[other]) {
			return keys, usagef("--run-key %[1]s=%[2]s,%[3]s=%[4]s: a client whose run %[2]s keeps begins anew by speaking the %[3]s era, under %[4]s; "+
				"write '--run-key %[1]s=%[2]s', which holds for both eras, or leave one of them with '--protocol legacy' or '--protocol modern'", era, keys[era], other, keys[other])
		}
	}
	return keys, nil
}

// resettable reports whether a client can leave its run under the key, and begin
// another, by itself.
func (f *runsFlags) resettable(key proxy.RunKey) bool {
	switch key.Kind {
	case proxy.KeySession, proxy.KeyHandle:
		return true
	case proxy.KeyPath:
		return f.pathCreate
	}
	return false
}

// check refuses what cannot be meant.
func (f *runsFlags) check(listening, authenticated bool, protocol proxy.Protocol) error {
	keys, err := f.keysOf(listening, protocol)
	if err != nil {
		return err
	}
	if err := handle.ValidArgument(f.handleArg); err != nil {
		return usagef("--handle-arg: %w", err)
	}
	if f.pathCreate && !byPath(keys) {
		return usagef("--path-create begins runs by their URL, and no --run-key is path: add modern=path or legacy=path to --run-key, or leave --path-create out")
	}
	f.gateways = nil
	for _, text := range f.trusted {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			addr, single := netip.ParseAddr(text)
			if single != nil {
				return usagef("--trusted-proxies %q is neither an address nor a network like 10.0.0.0/8", text)
			}
			prefix = netip.PrefixFrom(addr, addr.BitLen())
		}
		f.gateways = append(f.gateways, prefix.Masked())
	}
	for _, key := range keys {
		if key.Kind == proxy.KeyPrincipal && !authenticated {
			return usagef("--run-key %s needs to know who is asking: give --oidc-issuer, --tokens or --client-ca", key)
		}
		if key.Kind == proxy.KeyHeader && len(f.gateways) == 0 {
			return usagef("--run-key %s needs --trusted-proxies with the gateway's address: anybody can send a header", key)
		}
	}
	return nil
}

// trusts reports whether a request comes from a gateway that may say which run it
// is.
func (f *runsFlags) trusts(remote string) bool {
	at, err := netip.ParseAddrPort(remote)
	return err == nil && f.gateway(at.Addr().Unmap())
}

// gateway reports whether an address is one of --trusted-proxies.
func (f *runsFlags) gateway(addr netip.Addr) bool {
	return slices.ContainsFunc(f.gateways, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// byPath reports whether runs of some era have a URL of their own.
func byPath(keys [2]proxy.RunKey) bool {
	return keys[wire.Legacy].Kind == proxy.KeyPath || keys[wire.Modern].Kind == proxy.KeyPath
}

// peer is what the relay learns of a client.
func (s *service) peer(from streamhttp.PeerInfo) proxy.Peer {
	p := proxy.Peer{Session: from.Session, Remote: from.RemoteAddr, Run: from.Run, Principal: from.Principal}
	for _, key := range s.keys {
		if key.Kind == proxy.KeyHeader {
			header := from.Header // and not from, which would be copied for every request
			p.Header = func(name string) []string { return header[name] }
			p.Trusted = s.flags.runs.trusts(from.RemoteAddr)
		}
	}
	return p
}

// sessionKey is what a gateway says of each request of a session: all must be of
// one run. Nil: that is not asked of it.
func (s *service) sessionKey() func(from streamhttp.PeerInfo) string {
	key := s.keys[wire.Legacy]
	if key.Kind != proxy.KeyHeader {
		return nil
	}
	return func(from streamhttp.PeerInfo) string {
		if given := from.Header[key.Header]; len(given) == 1 && s.flags.runs.trusts(from.RemoteAddr) {
			return given[0]
		}
		return ""
	}
}

var errNoPaths = errors.New("no run has a URL of its own here: give --run-key modern=path or legacy=path")

// startRun begins a run that has a URL of its own, for an operator to hand out. It
// belongs to whoever comes with that URL.
func (s *service) startRun() (admin.Started, error) {
	for _, era := range []wire.Era{wire.Modern, wire.Legacy} {
		if s.keys[era].Kind != proxy.KeyPath {
			continue
		}
		id, err := s.relay.StartRun(era, wire.Principal{})
		if err != nil {
			return admin.Started{}, err
		}
		s.log.Info("a run was begun, as an operator asked")
		return admin.Started{ID: id, Path: s.flags.listen.path + "/runs/" + id}, nil
	}
	return admin.Started{}, errNoPaths
}

// restartRun begins a run anew by its name, and reports whether there is one.
func (s *service) restartRun(name string) bool {
	state, ok := s.relay.RestartRun(name)
	if !ok {
		return false
	}
	if s.tell.audit != nil {
		ctx, stop := context.WithTimeout(context.Background(), time.Second)
		defer stop()
		s.tell.audit.Restarted(ctx, name, state)
	}
	s.log.Info("a run was begun anew, as an operator asked", "run", name)
	return true
}

// adminRuns are the runs there are: those of sessions by the session's name, the
// others by their own.
func (s *service) adminRuns() []admin.Run {
	var all []admin.Run
	for _, info := range s.relay.Runs() {
		all = append(all, adminRun(info))
	}
	return all
}

// runName is what a run is called. That of the only session has no name.
func runName(info proxy.RunInfo) string {
	if info.Name == "" {
		return "stdio"
	}
	return info.Name
}

func adminRun(info proxy.RunInfo) admin.Run {
	run := admin.Run{
		ID: runName(info), Key: info.Key.String(), Owner: info.Owner.Subject, Sessions: info.Sessions, State: info.State, Complete: info.Complete,
		Policy: info.Policy, Refused: info.Refused, TurnHeld: info.TurnHeld, Queued: info.Queued,
	}
	if since := info.Stranded; !since.IsZero() {
		run.Stranded = &since
	}
	return run
}

// warnSharedRun warns where a run belongs to a principal, and several clients may be
// one: all who have the token of --bearer-file.
func (s *service) warnSharedRun() {
	byPrincipal := func(key proxy.RunKey) bool { return key.Kind == proxy.KeyPrincipal }
	if s.flags.listen.bearerFile != "" && slices.ContainsFunc(s.keys[:], byPrincipal) {
		s.log.Warn("all who have the token of --bearer-file are one principal, and with --run-key principal they share one run; " +
			"tell clients apart with --tokens, --oidc-issuer or --client-ca")
	}
}
