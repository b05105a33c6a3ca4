package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/exit"
	"github.com/fsm-proxy/fsm-proxy/internal/httpserver"
	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/stores"
	"github.com/fsm-proxy/fsm-proxy/internal/peers"
	"github.com/fsm-proxy/fsm-proxy/internal/streamhttp"
	"github.com/fsm-proxy/fsm-proxy/internal/telemetry"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/refusal"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

// checkPeers says what is wrong with how others pass requests on to this process.
func (f *Store) checkPeers() error {
	if f.PeerListen == "" {
		return nil
	}
	if !f.shares() {
		return exit.Usagef("--peer-listen is for processes that share a database: give --store postgres://HOST/DATABASE")
	}
	addr, err := net.ResolveTCPAddr("tcp", f.PeerListen)
	if err != nil {
		return exit.Usagef("--peer-listen %q is no address (%w); write it like :9902", f.PeerListen, err)
	}
	if f.Advertise == "" && addr.IP.IsUnspecified() || addr.IP == nil && f.Advertise == "" {
		return exit.Usagef("--peer-listen %s is no address at which others find this process: give --advertise HOST:PORT, in a pod with the pod's address", f.PeerListen)
	}
	if f.Advertise == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(f.Advertise)
	if err != nil {
		return exit.Usagef("--advertise %q is no address (%w); write it like gateway-0:9902", f.Advertise, err)
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.Unmap().IsUnspecified() {
		return exit.Usagef("--advertise %s is no address at which others find this process: write it like gateway-0:9902, in a pod with the pod's address", f.Advertise)
	}
	if n, err := net.LookupPort("tcp", port); err != nil || n == 0 {
		return exit.Usagef("--advertise %s has no port at which others find this process: write it like gateway-0:9902", f.Advertise)
	}
	return nil
}

// replica is this process among those that share its store.
type replica struct {
	key   *peers.Key
	self  string       // this process, for people
	l     net.Listener // where others pass requests on; nil: nobody does
	found []any        // where they find that, for the log
	all   func(ctx context.Context) ([]journal.Peer, error)
	own   func() int64 // the number of this process's lease
	peers *peers.Peers
	front atomic.Pointer[streamhttp.Server] // of clients; nil: it is not there yet
	desk  atomic.Pointer[desk]              // of operators; likewise
	lease time.Duration
	until atomic.Pointer[time.Time] // when the drain is over; nil: it has not begun
	// outdate has a run be looked for that nobody has.
	outdate func(run string)

	reading chan struct{} // guards read
	read    time.Time     // when it was looked last for tasks of runs that nobody has
}

// openReplica opens where others pass requests on to this process, and returns how they know it.
func (s *service) openReplica() (own journal.Peer, err error) {
	c := &s.cfg.Store
	name, _ := os.Hostname()
	own.Holder = fmt.Sprintf("process %d on %s", os.Getpid(), name)
	s.replica.self = own.Holder
	if c.PeerListen == "" {
		return own, nil
	}
	if s.replica.key, err = peers.NewKey(); err != nil {
		return own, err
	}
	if s.replica.l, err = listenAt("peer-listen", c.PeerListen); err != nil {
		return own, err
	}
	s.onClose(func() { s.replica.l.Close() })
	listens := s.replica.l.Addr().String()
	own.Key, own.Address = s.replica.key.Hash(), cmp.Or(c.Advertise, listens)
	s.replica.found = []any{"address", own.Address}
	if own.Address != listens {
		s.replica.found = append(s.replica.found, "listen", listens)
	}
	return own, nil
}

// joins has this process pass requests on to the others of its store.
func (s *service) joins(all journal.Store) {
	r := &s.replica
	store, shared := all.(journal.Shared)
	if r.l == nil || !shared {
		return
	}
	r.all, r.own, r.lease, r.reading = store.Peers, store.Lease, s.cfg.Store.lease(), make(chan struct{}, 1)
	r.outdate = func(run string) {
		if relay := s.relayed.Load(); relay != nil {
			relay.Runs.Outdate(run)
		}
	}
	r.peers = peers.New(peers.Config{
		Key: r.key, Peers: store.Peers, Lease: store.Lease, Trusts: store.Trusts, Every: r.lease / 4, Connections: s.cfg.connections(), Log: s.log,
		Handler: r.serve,
	})
	go func() {
		if err := r.peers.Serve(r.l); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("other processes can pass nothing on to this one any more", "error", err)
		}
	}()
	s.onClose(func() {
		ctx, stop := context.WithTimeout(context.Background(), time.Second)
		defer stop()
		r.peers.Close(ctx)
	})
	s.log.Info("sharing the store: other processes pass requests on to this one", r.found...)
}

// The listeners that requests have come to which are passed on: what comes to one is never served as if it had come to
// another one.
const doorClients, doorOperators = "clients", "operators"

// serve answers a request that another process has passed on.
func (r *replica) serve(w http.ResponseWriter, req *http.Request, from peers.Passenger) {
	if from.Run != "" {
		r.outdate(from.Run)
	}
	front, desk := r.front.Load(), r.desk.Load()
	switch {
	case from.Door == doorClients && front != nil:
		front.ServePassed(w, req, from.Who, from.Remote, from.Waits)
	case from.Door == doorOperators && desk != nil:
		desk.serve(w, req, operatorOf(from.Who))
	default:
		peers.NotHere(w, req)
	}
}

// left is for how long what is passed on may wait elsewhere for an approval, so that this process has its answer before its
// drain is over; zero: none has begun.
func (r *replica) left() time.Duration {
	until := r.until.Load()
	if until == nil {
		return 0
	}
	return max(time.Until(*until)-answerTime, time.Millisecond)
}

// leaseLost has the runs leave memory that this process has had by a lease.
func (s *service) leaseLost(lease int64) {
	if relay := s.relayed.Load(); relay != nil {
		relay.Runs.LeaseLost(lease)
	}
}

// How soon it is looked again where a request is to be served, and for how long beyond a lease.
const (
	looksFirst, looksLast = 10 * time.Millisecond, 250 * time.Millisecond
	looksBeyond           = 5 * time.Second
)

// passOn has a request served by the process that has its run. Where that is gone, or has not come yet, it is looked again
// where the run is, until the lease of that process must be over.
func (s *service) passOn(w http.ResponseWriter, r *http.Request, p streamhttp.Passed) (again bool) {
	at, ok := errors.AsType[*journal.Elsewhere](p.Why)
	if !ok {
		return false
	}
	again, no := s.carry(w, r, errand{
		at: at, free: at.Run != "" || at.Free || p.Message != nil && p.Message.Method == "initialize",
		body: p.Body, message: p.Message, who: peers.Passenger{Who: p.Who, Remote: p.From.RemoteAddr, Door: doorClients, Waits: s.replica.left()}, since: p.Since,
		repeats: func() bool { return repeatable(s.relay.Policy(), r, p.Message) },
		about:   "the task", declined: func() error { return s.replica.readTasks(r.Context(), s.relay.Runs, p.Since) },
	})
	if no != nil {
		s.refuses(w, p, no)
	}
	return again
}

// errand is a request that another process is to serve.
type errand struct {
	at      *journal.Elsewhere
	free    bool // where nobody has the run, the first of the others takes it that can
	body    []byte
	message *wire.Message // that is the body; nil: none, a batch, or an operator's
	who     peers.Passenger
	since   time.Time   // when it was found first that it is served elsewhere
	repeats func() bool // whether it may be served once more though it may have been served before

	about    string       // where all are asked: what it is about
	sole     bool         // who has that, has had it alone: what went to another one, and was lost, has done nothing
	declined func() error // what is done once none of them knows of it, until that succeeds; nil: nothing
}

// unserved is why nobody serves a request.
type unserved struct {
	code   policy.Code
	text   string
	over   bool // its client, or this process, waits no longer
	ending bool // this process does not, and has the client be answered still
}

func waitsNot() *unserved {
	return &unserved{code: policy.StoreUnavailable, text: "this process is ending; try again", over: true}
}

func endsBefore() *unserved {
	return &unserved{code: policy.StoreUnavailable, text: "This process is ending, and no other one has served this. Nothing was done; try again.", ending: true}
}

// carry has another process serve a request. Where none does, either it is to be looked again where its run is, after the
// time that this has waited by then, or there is a reason.
func (s *service) carry(w http.ResponseWriter, r *http.Request, e errand) (again bool, no *unserved) {
	if e.at.Anywhere {
		return s.askAll(w, r, e)
	}
	to := []journal.Peer{e.at.By}
	nobodys := e.at.By == (journal.Peer{})
	if nobodys {
		to = nil
	}
	if nobodys && e.free {
		to, e.who.Run = s.replica.inAnyOrder(r.Context()), e.at.Run
	}
	httpserver.Keep(w) // as who is served here is
	outcome, served := peers.NotSent, false
	for i := 0; i < len(to) && !served && (i == 0 || time.Since(e.since) <= s.patience()); i++ {
		outcome = s.pass(w, r, to[i], &e)
		served = outcome == peers.Answered || outcome == peers.Cancelled || outcome == peers.Lost && !e.repeats()
	}
	switch outcome {
	case peers.Answered:
		if nobodys { // whoever has answered has it
			e.at.Outdate()
		}
		return false, nil
	case peers.Cancelled: // by its client, or since this process ends
		return false, waitsNot()
	}
	e.at.Outdate()
	switch {
	case outcome == peers.Lost && !e.repeats():
		return false, e.unknown()
	case s.replica.peers.Closed():
		return false, endsBefore()
	case len(to) == 0 && e.free && s.relay.Draining(), time.Since(e.since) > s.patience():
		return false, &unserved{code: policy.StoreUnavailable, text: "No process can go on with this run just now. Nothing was done; try again later."}
	}
	if !lookAgain(r.Context(), e.since) {
		return false, waitsNot()
	}
	return true, nil
}

// pass has a process serve a request. An event stream that breaks off before the response has one all the same, since not every
// client comes back for it, and mostly nobody has it any more. Where it is this process that ends, the other one has it.
func (s *service) pass(w http.ResponseWriter, r *http.Request, to journal.Peer, e *errand) peers.Outcome {
	follower := &streamhttp.Follower{ResponseWriter: w}
	outcome := s.replica.peers.Pass(follower, r, to, e.body, e.who)
	s.tell.passedOn(outcome)
	switch m := e.message; {
	case outcome != peers.Answered && outcome != peers.Broken:
		return outcome
	case m == nil || m.Kind != wire.Request:
	case m.Method == "subscriptions/listen" && s.relay.Draining(): // which ends with this process, whatever it was broken off by
		id := m.Bytes(m.ID)
		follower.Finish(wire.ResultAnswer(id, bridge.Unlistened(id)))
	case outcome == peers.Answered, follower.Resumes() && s.replica.peers.Closed():
	case e.repeats():
		follower.Finish(s.refusal(m, &unserved{code: policy.StoreUnavailable, text: "The process that served this is gone, or answers no more. Nothing was done; try again."}))
	default:
		follower.Finish(s.refusal(m, e.unknown()))
	}
	return peers.Answered
}

// askAll has a request served by whoever of the other processes knows what it is about. again tells that surely none does.
func (s *service) askAll(w http.ResponseWriter, r *http.Request, e errand) (again bool, no *unserved) {
	httpserver.Keep(w)
	for {
		all, err := s.replica.others(r.Context())
		sure, lost := err == nil, false
		for _, to := range all {
			outcome := s.pass(w, r, to, &e)
			switch {
			case outcome == peers.Answered:
				return false, nil
			case outcome == peers.Cancelled:
				return false, waitsNot()
			case outcome == peers.Lost && !e.repeats():
				if lost = true; !e.sole {
					return false, e.unknown()
				}
			}
			sure = sure && outcome == peers.Declined
		}
		switch {
		case lost:
			return false, e.unknown()
		case sure && (e.declined == nil || e.declined() == nil):
			return true, nil
		case s.replica.peers.Closed():
			return false, endsBefore()
		case time.Since(e.since) > s.patience():
			return false, &unserved{code: policy.StoreUnavailable, text: "A process that may have " + e.about + " cannot be reached just now. Nothing was done; try again later."}
		case !lookAgain(r.Context(), e.since):
			return false, waitsNot()
		}
	}
}

// unknown is for a request that went to somebody who has not answered: they may have gone, or be cut off from this process alone.
func (e *errand) unknown() *unserved {
	to := "the process that has this run"
	if e.at.Anywhere {
		to = "a process that may have " + e.about
	}
	what, again := "The request", "send"
	if m := e.message; m != nil && m.Kind == wire.Request {
		if k, name, ok := refusal.AskedFor(m); ok {
			what = refusal.Called(k, name)
		}
		if m.Method == "tools/call" {
			again = "call"
		}
	}
	return &unserved{code: policy.OutcomeUnknown, text: what + " was passed on to " + to + ", and no answer came back; it may have happened: look before you " + again + " it again."}
}

// readTasks has this process go on with the tasks of runs that nobody has, unless it has looked for them since a time. It
// looks once in a quarter of the lease at most, however many ask.
func (r *replica) readTasks(ctx context.Context, all *runs.Registry, since time.Time) error {
	ctx, stop := context.WithTimeout(ctx, r.lease)
	defer stop()
	select {
	case r.reading <- struct{}{}:
		defer func() { <-r.reading }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if r.read.After(since) {
		return nil
	}
	timer := time.NewTimer(time.Until(r.read.Add(r.lease / 4)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	r.read = time.Now()
	return all.ReadTasks(ctx)
}

// lookAgain waits until it is to be looked again where a request is to be served that waits since a time. It reports false where nobody waits any more.
func lookAgain(ctx context.Context, since time.Time) bool {
	timer := time.NewTimer(min(max(time.Since(since)/4, looksFirst), looksLast))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// inAnyOrder are the other processes, as far as they can be found out, in random order: so they share what nobody has.
func (r *replica) inAnyOrder(ctx context.Context) []journal.Peer {
	all, _ := r.others(ctx)
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// others are the other processes that take requests.
func (r *replica) others(ctx context.Context) ([]journal.Peer, error) {
	ctx, stop := context.WithTimeout(ctx, r.lease)
	defer stop()
	all, err := r.all(ctx)
	hash := r.key.Hash()
	return slices.DeleteFunc(all, func(p journal.Peer) bool { return p.Key == hash || p.Address == "" }), err
}

// repeatable reports whether a request may be served once more though it may have been served before: it does nothing to a run.
func repeatable(p *policy.Policy, r *http.Request, m *wire.Message) bool {
	if m == nil {
		return r.Method == http.MethodGet
	}
	switch m.Method {
	case "resources/read":
		return p.Steady(policy.Resource, m.P.URI, true)
	case "prompts/get":
		return p.Steady(policy.Prompt, m.P.Name, true)
	}
	return m.Repeats()
}

// patience is for how long it is looked again where a request is to be served.
func (s *service) patience() time.Duration {
	if s.relay.Draining() {
		return s.cfg.Timeouts.Drain + looksBeyond
	}
	return s.cfg.Store.lease() + looksBeyond
}

// refuses answers a request that nobody serves, or of which nobody knows what became.
func (s *service) refuses(w http.ResponseWriter, p streamhttp.Passed, no *unserved) {
	var answer []byte
	switch m := p.Message; {
	case no.over:
	case m != nil && m.Kind == wire.Request:
		answer = s.refusal(m, no)
	case m == nil && wire.IsBatch(p.Body):
		answer = s.refusals(p.Body, no)
	}
	status := http.StatusOK
	switch {
	case answer == nil && no.code == policy.OutcomeUnknown: // it must not be sent again by itself
		status = http.StatusBadGateway
	case answer == nil, no.ending && p.Message != nil && (p.Message.Method == "initialize" || p.Message.Era() == wire.Modern): // outside of a session
		status = http.StatusServiceUnavailable
		w.Header().Set("Retry-After", "1")
	}
	if answer == nil {
		http.Error(w, no.text, status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(answer)
}

// refusal is the response to a request that nobody serves, or of which nobody knows what became.
func (s *service) refusal(m *wire.Message, no *unserved) []byte {
	r := refusal.Refusal{Error: no.code.String(), Message: no.text}
	q := refusal.Request{ID: m.Bytes(m.ID), Client: bridge.ClientOf(m.Era()), Form: s.cfg.Refusals, Result: m.Method == "tools/call", Schema: true, Lost: true}
	if k, name, ok := refusal.AskedFor(m); ok {
		q.Kind, r.Kind, r.Requested = k, k.String(), wire.Clip(name)
	}
	return r.Answer(q)
}

// refusals is the response to a batch: to each of its requests, and to what cannot be read; nil: none is due.
func (s *service) refusals(batch []byte, no *unserved) []byte {
	limits := s.cfg.Limits.wire()
	members, _ := limits.Split(batch) // whoever has it passed on has split it
	var all [][]byte
	for _, raw := range members {
		m, err := limits.Read(raw, wire.FromClient)
		if bad, is := errors.AsType[*wire.Error](err); is {
			all = append(all, bad.Answer())
		} else if m.Kind == wire.Request {
			all = append(all, s.refusal(m, no))
		}
	}
	return wire.Batch(all)
}

// shares reports whether the store is one that several processes can write.
func (f *Store) shares() bool { return f.lasts() && !stores.IsSQLite(f.URL) }

// lease is for how long a database is this process's without another word.
func (f *Store) lease() time.Duration { return cmp.Or(f.Lease, journal.DefaultLease) }

// replicas is what the metrics tell of the processes that share the store; nil: none does.
func (s *service) replicas(store journal.Store) *telemetry.Replicas {
	shared, ok := store.(interface {
		journal.Shared
		Fenced() uint64
	})
	if !ok || s.replica.l == nil {
		return nil
	}
	return &telemetry.Replicas{
		Count: func() int {
			ctx, stop := context.WithTimeout(context.Background(), 500*time.Millisecond)
			defer stop()
			all, _ := shared.Peers(ctx)
			return len(all)
		},
		Trusted:   func() bool { return shared.Trusts(shared.Lease()) },
		Takeovers: func() uint64 { return s.store.Takeovers() },
		Fenced:    shared.Fenced,
	}
}

// holders are the processes that share the store, for people, by their leases; nil: none does, or they cannot be found out.
func (r *replica) holders(ctx context.Context) map[int64]string {
	if r.l == nil {
		return nil
	}
	all, _ := r.all(ctx)
	return journal.Holders(all)
}
