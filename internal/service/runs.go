package service

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/admin"
	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/exit"
	"github.com/fsm-proxy/fsm-proxy/internal/handle"
	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/streamhttp"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/operator"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

// Runs says how requests find their run, and how long runs live.
type Runs struct {
	Keys            []string // "legacy=KEY", "modern=KEY"
	Trusted         []string // gateways whose header says which run it is: addresses, networks
	HandleArgument  string
	PathCreate      bool          // with the key path: an unknown id begins a run
	Max             int           // 0: 10,000, or one fewer than processes where each has one
	MaxPerPrincipal int           // 0: 1,000, or half of Max where each has a process
	Idle            time.Duration // 0: 24 h, or 1 h where each has a process
	Age             time.Duration
}

// runLimits are how many runs there may be, in all and of one principal, and for how
// long nobody may use one; 0 is the relay's own default. Where each run has a process
// there are no more than processes, with one left for requests without a run, and one
// principal does not get them all.
func (c *Config) runLimits() (most, perPrincipal int, idle time.Duration) {
	r := &c.Runs
	most, perPrincipal, idle = r.Max, r.MaxPerPrincipal, r.Idle
	if !c.eachHasProcess() {
		return most, perPrincipal, idle
	}
	if most == 0 {
		most = max(c.Limits.Processes-1, 1)
	}
	if perPrincipal == 0 {
		perPrincipal = (most + 1) / 2
	}
	if idle == 0 {
		idle = time.Hour
	}
	return most, perPrincipal, idle
}

// RunKeys are the keys by which requests find their run, by era.
func (c *Config) RunKeys() ([2]runs.Key, error) {
	return c.Runs.keysOf(c.Listen.Address != "", c.Protocol)
}

// keysOf are the keys of both eras; listening tells that there may be several
// clients. A key that no client gets rid of by itself must not be got rid of by
// speaking the other era: named for one era it holds for both.
func (f *Runs) keysOf(listening bool, protocol bridge.Protocol) (keys [2]runs.Key, err error) {
	keys = [2]runs.Key{{Kind: runs.Process}, {Kind: runs.Process}}
	if listening {
		keys = [2]runs.Key{wire.Legacy: {Kind: runs.Session}, wire.Modern: {Kind: runs.Handle}}
	}
	named := [2]bool{}
	for _, text := range f.Keys {
		name, key, _ := strings.Cut(text, "=")
		era := wire.Legacy
		switch name {
		case wire.Legacy.String():
		case wire.Modern.String():
			era = wire.Modern
		default:
			return keys, exit.Usagef("--run-key %q names no era: write %s", text, withEra(text))
		}
		if named[era] {
			return keys, exit.Usagef("--run-key names two keys for the %s era; give one", era)
		}
		named[era] = true
		if keys[era], err = runs.ParseKey(bridge.ClientOf(era), key); err != nil {
			return keys, exit.Usagef("--run-key %s=%s: %w", era, key, err)
		}
		if !listening && keys[era].Kind != runs.Process && keys[era].Kind != runs.Session {
			return keys, exit.Usagef("--run-key %s=%s needs --listen: over standard input and output there is one client, and one run", era, key)
		}
	}
	if !listening { // the only session is the process's
		return [2]runs.Key{{Kind: runs.Process}, {Kind: runs.Process}}, nil
	}
	return f.acrossEras(keys, named, protocol)
}

// withEra says how to write a key that was given without an era.
func withEra(key string) string {
	for _, era := range []wire.Era{wire.Legacy, wire.Modern} {
		if _, err := runs.ParseKey(bridge.ClientOf(era), key); err == nil {
			return era.String() + "=" + key
		}
	}
	return "legacy=KEY or modern=KEY"
}

// acrossEras has a key that is named for one era hold for the other, unless it is of
// one era only, and refuses two of which the one lets a client begin anew where the
// other does not.
func (f *Runs) acrossEras(keys [2]runs.Key, named [2]bool, protocol bridge.Protocol) ([2]runs.Key, error) {
	if a, b := keys[wire.Legacy], keys[wire.Modern]; named == [2]bool{true, true} && a.Kind == runs.Header && b.Kind == runs.Header && a != b {
		return keys, exit.Usagef("--run-key legacy=%s,modern=%s: what the one header says would lead to the run of whom the other says it of; write '--run-key legacy=%s', which holds for both eras", a, b, a)
	}
	for _, era := range []wire.Era{wire.Legacy, wire.Modern} {
		other := wire.Modern - era
		if kind := keys[era].Kind; named[era] && !named[other] && kind != runs.Session && kind != runs.Handle {
			keys[other] = keys[era]
		}
		if (protocol == bridge.ProtocolAuto || protocol == bridge.ProtocolBoth) && !f.resettable(keys[era]) && f.resettable(keys[other]) {
			return keys, exit.Usagef("--run-key %[1]s=%[2]s,%[3]s=%[4]s: a client whose run %[2]s keeps begins anew by speaking the %[3]s era, under %[4]s; "+
				"write '--run-key %[1]s=%[2]s', which holds for both eras, or leave one of them with '--protocol legacy' or '--protocol modern'", era, keys[era], other, keys[other])
		}
	}
	return keys, nil
}

// resettable reports whether a client can leave its run under the key, and begin
// another, by itself.
func (f *Runs) resettable(key runs.Key) bool {
	switch key.Kind {
	case runs.Session, runs.Handle:
		return true
	case runs.Path:
		return f.PathCreate
	}
	return false
}

// check refuses what cannot be meant.
func (f *Runs) check(listening, authenticated bool, protocol bridge.Protocol) error {
	keys, err := f.keysOf(listening, protocol)
	if err != nil {
		return err
	}
	if err := handle.ValidArgument(f.HandleArgument); err != nil {
		return exit.Usagef("--handle-arg: %w", err)
	}
	if f.PathCreate && !byPath(keys) {
		return exit.Usagef("--path-create begins runs by their URL, and no --run-key is path: add modern=path or legacy=path to --run-key, or leave --path-create out")
	}
	gateways, err := f.gateways()
	if err != nil {
		return err
	}
	for _, key := range keys {
		if key.Kind == runs.Principal && !authenticated {
			return exit.Usagef("--run-key %s needs to know who is asking: give --oidc-issuer, --tokens or --client-ca", key)
		}
		if key.Kind == runs.Header && len(gateways) == 0 {
			return exit.Usagef("--run-key %s needs --trusted-proxies with the gateway's address: anybody can send a header", key)
		}
	}
	return nil
}

// gateways are the networks of the trusted gateways.
func (f *Runs) gateways() (networks []netip.Prefix, err error) {
	for _, text := range f.Trusted {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			addr, single := netip.ParseAddr(text)
			if single != nil {
				return nil, exit.Usagef("--trusted-proxies %q is neither an address nor a network like 10.0.0.0/8", text)
			}
			prefix = netip.PrefixFrom(addr, addr.BitLen())
		}
		networks = append(networks, prefix.Masked())
	}
	return networks, nil
}

// protocolOf is the protocol as it is served: whoever names a key for the modern era
// wants clients to speak it.
func (f *Runs) protocolOf(given bridge.Protocol) bridge.Protocol {
	if given == bridge.ProtocolAuto && slices.ContainsFunc(f.Keys, func(key string) bool { return strings.HasPrefix(key, "modern=") }) {
		return bridge.ProtocolBoth
	}
	return given
}

// trusts reports whether a request comes from a gateway that may say which run it
// is.
func (s *service) trusts(remote string) bool {
	at, err := netip.ParseAddrPort(remote)
	return err == nil && s.gateway(at.Addr().Unmap())
}

// gateway reports whether an address is that of a trusted gateway.
func (s *service) gateway(addr netip.Addr) bool {
	return slices.ContainsFunc(s.gateways, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// byPath reports whether runs of some era have a URL of their own.
func byPath(keys [2]runs.Key) bool {
	return keys[wire.Legacy].Kind == runs.Path || keys[wire.Modern].Kind == runs.Path
}

// peer is what the relay learns of a client.
func (s *service) peer(from streamhttp.PeerInfo) observe.Peer {
	p := observe.Peer{Session: from.Session, ID: from.ID, Remote: from.RemoteAddr, Run: from.Run, Principal: from.Principal}
	for _, key := range s.keys {
		if key.Kind == runs.Header {
			header := from.Header // and not from, which would be copied for every request
			p.Header = func(name string) []string { return header[name] }
			p.Trusted = s.trusts(from.RemoteAddr)
		}
	}
	return p
}

// sessionKey is what a gateway says of each request of a session: all must be of
// one run. Nil: that is not asked of it.
func (s *service) sessionKey() func(from streamhttp.PeerInfo) string {
	key := s.keys[wire.Legacy]
	if key.Kind != runs.Header {
		return nil
	}
	return func(from streamhttp.PeerInfo) string {
		if given := from.Header[key.Header]; len(given) == 1 && s.trusts(from.RemoteAddr) {
			return given[0]
		}
		return ""
	}
}

// startRun begins a run before its first client comes: without a key one that has a URL of its own, for an operator to
// hand out.
func (s *service) startRun(v admin.Start) (admin.Started, error) {
	b := runs.Beginning{Key: cmp.Or(v.Key, runs.Path.String()), Value: v.Value, Owner: wire.Principal{Issuer: v.Issuer, Subject: v.Subject}, By: run.Remark{Text: v.Reason}}
	from := observe.Peer{Remote: v.Remote}
	if v.From != "" {
		from.Principal = wire.Principal{Issuer: "admin", Subject: v.From}
	}
	done, err := s.relay.Operators().Start(b, from)
	if err != nil {
		return admin.Started{}, begunNone(err)
	}
	return s.started(done.Info, done.Secret), nil
}

// started is a run that was begun for an operator, with what finds it.
func (s *service) started(at runs.Info, secret string) admin.Started {
	out := admin.Started{ID: secret, Key: at.Key.String(), Run: runName(at), State: at.State}
	if at.Key == runs.Path {
		out.Path = s.cfg.Listen.Path + "/runs/" + secret
	}
	return out
}

// begunNone is what an operator is told for whom no run is begun.
func begunNone(err error) error {
	if why, ok := errors.AsType[*runs.Missing](err); ok {
		return &admin.Refusal{Status: http.StatusConflict, Code: why.Code.String(), Text: why.Text}
	}
	return adminRefusal(err)
}

// forkRun begins a run that is what another one was after one of its entries.
func (s *service) forkRun(v admin.Fork) (admin.Forked, error) {
	at := uint64(0)
	if v.At != nil {
		at = *v.At
	}
	if s.replica.peers != nil { // what its owner has not written yet belongs to it, too
		_, err := s.relay.Operators().Look(runOf(v.Run))
		if _, elsewhere := errors.AsType[*journal.Elsewhere](err); elsewhere {
			return admin.Forked{}, adminRefusal(err)
		}
	}
	done, err := s.relay.Operators().Fork(operatorVerb(&v.Verb), at)
	if err != nil {
		return admin.Forked{}, begunNone(err)
	}
	out := admin.Forked{Started: s.started(done.Info, done.Secret), Seq: done.Seq, Parent: done.Of.Run, Fork: done.Of.Seq, Since: []admin.SentCall{}, More: done.More}
	for _, x := range done.Sent {
		out.Since = append(out.Since, admin.SentCall{Seq: x.Seq, Begun: x.Begun, Kind: x.Symbol.Kind.String(), Name: x.Symbol.Name, Case: x.Symbol.Case, Outcome: x.Outcome})
	}
	return out, nil
}

func operatorVerb(v *admin.Verb) operator.Verb {
	return operator.Verb{Run: runOf(v.Run), Text: v.Text, From: observe.Peer{Remote: v.Remote, Principal: wire.Principal{Issuer: "admin", Subject: v.From}}}
}

// operate has a verb of operators done.
func (s *service) operate(do func(*operator.Desk, operator.Verb) (operator.Standing, error)) func(admin.Verb) (admin.Stands, error) {
	return func(v admin.Verb) (admin.Stands, error) {
		at, err := do(s.relay.Operators(), operatorVerb(&v))
		if err != nil {
			return admin.Stands{}, adminRefusal(err)
		}
		return admin.Stands{ID: runName(at.Info), State: at.State, Complete: at.Complete, Seq: at.Seq}, nil
	}
}

// endRun ends a run for good.
func (s *service) endRun(v admin.Verb) (admin.Stands, error) {
	if s.cfg.Listen.Address == "" {
		return admin.Stands{}, &admin.Refusal{Status: http.StatusConflict, Code: policy.NotAvailable.String(),
			Text: "over standard input and output the run ends with fsm-proxy: reset has it begin anew"}
	}
	return s.operate((*operator.Desk).End)(v)
}

// acceptRun has a run go on as the store has it.
func (s *service) acceptRun(v admin.Verb) (admin.Stands, error) {
	if s.cfg.Listen.Address == "" {
		return admin.Stands{}, &admin.Refusal{Status: http.StatusConflict, Code: policy.NotAvailable.String(),
			Text: "over standard input and output fsm-proxy is started anew: its run goes on then as the store has it"}
	}
	return s.operate((*operator.Desk).Accept)(v)
}

// soleOperator is the name of whoever has the token of --admin-bearer-file.
const soleOperator = "operator"

// runOf is the name of a run whose id an operator gives: see runName.
func runOf(id string) string {
	if id == onlyRun {
		return ""
	}
	return id
}

// showRun shows one run.
func (s *service) showRun(id string) (admin.RunDetail, error) {
	at, err := s.relay.Operators().Look(runOf(id))
	if err != nil {
		return admin.RunDetail{}, adminRefusal(err)
	}
	out := admin.RunDetail{Run: adminRun(at.Info), Seq: at.Seq, Registers: at.Registers.AppendJSON(nil), Counts: at.Counts, Signals: []admin.Sendable{}, Approvals: []admin.Approval{}}
	for _, x := range at.Signals {
		out.Signals = append(out.Signals, admin.Sendable{Name: x.Name, Description: x.Says, From: x.From.String(), To: x.To, Completes: x.Completes})
	}
	for _, x := range at.Approvals {
		out.Approvals = append(out.Approvals, adminApproval(x))
	}
	return out, nil
}

// signal sends a run a signal of an operator's.
func (s *service) signal(ctx context.Context, said admin.Signal) (admin.Signalled, error) {
	who := wire.Principal{Issuer: "admin", Subject: said.From}
	done, err := s.relay.Operators().Send(ctx, operator.Signal{Run: runOf(said.Run), Name: said.Name, Note: said.Note, Seq: said.Seq,
		From: observe.Peer{Remote: said.Remote, Principal: who}})
	if err != nil {
		return admin.Signalled{}, adminRefusal(err)
	}
	return admin.Signalled{ID: runName(done.Info), State: done.State, Complete: done.Complete, Restarted: done.Restarted, Seq: done.Seq, Next: validNext(done.Standing)}, nil
}

func validNext(at operator.Standing) admin.ValidNext { return admin.ValidNext{Signals: at.Names()} }

// adminRefusal is what an operator is told who gets nothing.
func adminRefusal(err error) error {
	no, ok := errors.AsType[*operator.Refused](err)
	if !ok {
		return err
	}
	out := &admin.Refusal{Status: statusOf(no.Why), Text: no.Error(), Code: no.String(), Why: no.Missing}
	if no.At.State != "" {
		out.State, out.Seq = no.At.State, &no.At.Seq
	}
	if no.Signal != "" {
		next := validNext(no.At)
		out.Kind, out.Next = policy.Signal.String(), &next
	}
	return out
}

func statusOf(why operator.Why) int {
	switch why {
	case operator.NoRun, operator.NoSignal, operator.NoApproval:
		return http.StatusNotFound
	case operator.Ending, operator.Cancelled, operator.NotKept, operator.PerhapsKept:
		return http.StatusServiceUnavailable
	case operator.Denied, operator.Ambiguous, operator.Moved, operator.Shadow, operator.Stranded, operator.Ended, operator.Answered, operator.Unwritable, operator.Damaged, operator.Unacceptable, operator.Irreversible, operator.Busy, operator.Unshared:
	}
	return http.StatusConflict
}

// adminRuns are the runs there are, those that are kept and that nobody uses as well.
func (s *service) adminRuns(ctx context.Context, q admin.RunsQuery) (all []admin.Run, whole bool, err error) {
	ctx, stop := context.WithTimeout(ctx, listTime)
	defer stop()
	infos, whole, err := s.relay.Runs.List(ctx, runs.Query{After: q.After, Limit: q.Limit, Subject: q.Owner, Issuer: q.Issuer})
	if err != nil {
		return nil, false, &admin.Refusal{Status: http.StatusServiceUnavailable, Code: policy.StoreUnavailable.String(), Text: "the store cannot be read now: " + err.Error()}
	}
	holders := s.replica.holders(ctx)
	for _, info := range infos {
		run := adminRun(info)
		if run.Process = holders[info.Lease]; run.Process != "" && info.Lease != s.replica.own() { // whoever uses it uses it there
			run.Sessions, run.AtRest = nil, false
		}
		all = append(all, run)
	}
	return all, whole, nil
}

// listTime is how long the store may take to list runs.
const listTime = 5 * time.Second

// onlyRun is the id of the run of the only session.
const onlyRun = "stdio"

// runName is what a run is called. That of the only session has no name.
func runName(info runs.Info) string {
	if info.Name == "" {
		return onlyRun
	}
	return info.Name
}

func adminRun(info runs.Info) admin.Run {
	run := admin.Run{
		ID: runName(info), Key: info.Key.String(), Owner: info.Owner.Subject, Sessions: &info.Sessions, State: info.State, Complete: info.Complete,
		Policy: info.Policy, Refused: info.Refused, Shut: info.Shut, TurnHeld: info.TurnHeld, Queued: info.Queued, AtRest: info.AtRest,
	}
	if since := info.Stranded; !since.IsZero() {
		run.Stranded = &since
	}
	return run
}

// warnSharedRun warns where a run belongs to a principal, and several clients may be
// one: all who have the token of --bearer-file.
func (s *service) warnSharedRun() {
	byPrincipal := func(key runs.Key) bool { return key.Kind == runs.Principal }
	if s.cfg.Listen.BearerFile != "" && slices.ContainsFunc(s.keys[:], byPrincipal) {
		s.log.Warn("all who have the token of --bearer-file are one principal, and with --run-key principal they share one run; " +
			"tell clients apart with --tokens, --oidc-issuer or --client-ca")
	}
}
