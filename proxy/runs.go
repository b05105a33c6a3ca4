package proxy

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/deadline"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// keyed is what a run is found by, and how long it lives. A run of a session has
// none of it but the kind.
type keyed struct {
	key   RunKey
	id    string         // what the key says; "" for runs that are not found by it
	name  string         // of the run, for people; no secret
	owner wire.Principal // whose it is
	born  time.Duration  // as deadline.Now
	used  atomic.Int64   // when it was found last, as deadline.Now
	free  bool           // guarded by Proxy.mu: it is the first principal's who comes
	aside bool           // it is nobody's: where requests without a run go
	// Written under Proxy.mu:
	ended   atomic.Bool             // it is found no more
	session atomic.Pointer[session] // of its stateless requests; nil: none yet
}

// registry holds the runs that outlive connections. Proxy.mu guards it.
type registry struct {
	found     map[runID]*liveRun
	gone      map[runID]wire.Principal // whose run it was that has expired
	order     []runID                  // of gone, oldest first
	owned     map[wire.Principal]int
	taskRuns  handleTasks
	process   atomic.Pointer[liveRun] // nil: not begun yet; written under the lock
	catalogue *session                // where requests without a run go; nil: none came yet
	stop      chan struct{}
	stopped   chan struct{} // nil: the sweeper does not run
}

// runID tells apart what keys of different kinds say.
type runID struct {
	kind KeyKind
	id   string
}

// maxGone is how many expired runs are remembered, so that their owners learn what
// became of them.
const maxGone = 10_000

// noRun is why a request has no run.
type noRun struct {
	code policy.Code
	text string
}

var (
	errNotFound = &noRun{policy.RunNotFound, "There is no such run."}
	errExpired  = &noRun{policy.RunExpired, "This run has ended: it was not used for too long, or has reached its maximum age."}
	// errGuessable is for an id that no run has, since none begins with it.
	errGuessable = &noRun{policy.RunNotFound, "There is no such run, and none begins with an id that can be guessed: take 22 to 128 random letters, digits, '-' or '_'."}
	// errNoURL is for the URL of a run, asked by a client whose runs have none.
	errNoURL   = &noRun{policy.RunNotFound, "There is no such run: in this era of the protocol runs have no URL of their own here. Leave /runs/ID out of it."}
	errTooMany = &noRun{policy.Busy, "There are too many runs: wait until some have ended, or have the limit raised (--max-runs; before a command --max-upstreams, or --share-upstream)."}
)

// NewRunID returns an id that cannot be guessed: 130 random bits in 26 letters and
// digits.
func NewRunID() string { return rand.Text() }

// unguessable reports whether an id that a client chose is long enough to be one
// that nobody guesses.
func unguessable(id string) bool {
	if len(id) < 22 || len(id) > 128 {
		return false
	}
	seen := map[rune]bool{}
	for _, c := range id {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '-' && c != '_' {
			return false
		}
		seen[c] = true
	}
	return len(seen) >= 8
}

// name is what a run is called where its id must not be told.
func (at runID) name() string { return nameOf(at.kind.String() + "\x00" + at.id) }

// nameOf is what something is called whose id must not be told.
func nameOf(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:8])
}

// besideRun is why a request is not served whose URL names a run, as those of other
// clients have one, where its own key finds none by that: whoever is let in at that URL may
// be let in there alone.
func (p *Proxy) besideRun(of bridge.Client, from *observe.Peer) *noRun {
	if from.Run != "" && p.cfg.key(of).Kind != KeyPath && p.cfg.key(of.Other()).Kind == KeyPath {
		return errNoURL
	}
	return nil
}

// find returns the run that a request belongs to. create has one begun where the
// key allows that. Without a run and without a reason the request brings no handle.
func (p *Proxy) find(of bridge.Client, from *observe.Peer, handle string, create bool) (*liveRun, *noRun) {
	key := p.cfg.key(of)
	switch key.Kind {
	case KeyPrincipal:
		if !from.Principal.Known() {
			return nil, &noRun{policy.RunNotFound, "Runs belong to who is asking here, and nobody has said who that is: authenticate."}
		}
		return p.lookup(key, from.Principal.Issuer+"\x00"+from.Principal.Subject, from.Principal, create)
	case KeyHeader:
		id, why := p.fromHeader(key.Header, from)
		if why != nil {
			return nil, why
		}
		return p.lookup(key, id, from.Principal, create)
	case KeyPath:
		if from.Run == "" {
			return nil, &noRun{policy.RunNotFound, "Each run has a URL of its own here, which ends in /runs/ID: an operator hands them out."}
		}
		begins := p.cfg.PathCreate && unguessable(from.Run)
		r, why := p.lookup(key, from.Run, from.Principal, begins)
		if why == errNotFound && p.cfg.PathCreate && !begins {
			why = errGuessable
		}
		return r, why
	case KeyHandle:
		if handle == "" {
			return nil, nil
		}
		return p.lookup(key, handle, from.Principal, false)
	}
	return p.processRun(), nil
}

// fromHeader reads the key that a gateway has set: once, and only by a gateway that
// is trusted to.
func (p *Proxy) fromHeader(name string, from *observe.Peer) (string, *noRun) {
	var given []string
	if from.Header != nil {
		given = from.Header(name)
	}
	switch {
	case len(given) == 0 || len(given) == 1 && given[0] == "":
		return "", &noRun{policy.RunNotFound, "The header " + name + " says which run this is, and it is missing: the gateway in front has to set it."}
	case !from.Trusted:
		return "", &noRun{policy.RunNotFound, "The header " + name + " is taken from a trusted gateway only, which --trusted-proxies names."}
	case len(given) > 1 || len(given[0]) > 256:
		return "", &noRun{policy.RunNotFound, "The header " + name + " must be there once, with at most 256 bytes."}
	}
	return given[0], nil
}

// lookup finds a run by what its key says, or begins it. Another's run is not
// there; that one has expired only its owner learns.
func (p *Proxy) lookup(key RunKey, id string, owner wire.Principal, create bool) (*liveRun, *noRun) {
	at := runID{key.Kind, id}
	if r := p.known(at, owner); r != nil {
		return r, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.found[at]
	if r != nil && r.free && owner.Known() {
		if p.owned[owner] >= p.cfg.MaxRunsPerPrincipal {
			return nil, p.crowdedLocked("principal")
		}
		r.owner, r.free = owner, false
		p.owned[owner]++
	}
	switch whose, gone := p.gone[at]; {
	case r != nil && r.owner == owner:
		r.used.Store(int64(deadline.Now()))
		return r, nil
	case r == nil && create && (!gone || whose == owner):
		return p.beginLocked(key, id, owner)
	case r == nil && gone && whose == owner:
		return nil, errExpired
	}
	return nil, errNotFound
}

// known returns a run that was found by its owner before, nil where there is none.
func (p *Proxy) known(at runID, owner wire.Principal) *liveRun {
	p.mu.RLock()
	defer p.mu.RUnlock()
	r := p.found[at]
	if r == nil || r.free || r.owner != owner {
		return nil
	}
	r.used.Store(int64(deadline.Now()))
	return r
}

// beginLocked begins a run that is found by a key.
func (p *Proxy) beginLocked(key RunKey, id string, owner wire.Principal) (*liveRun, *noRun) {
	switch {
	case p.closed:
		return nil, errNotFound
	case len(p.found) >= p.cfg.MaxRuns:
		return nil, p.crowdedLocked("all")
	case owner.Known() && p.owned[owner] >= p.cfg.MaxRunsPerPrincipal:
		return nil, p.crowdedLocked("principal")
	}
	r, at := p.newRunLocked(), runID{key.Kind, id}
	r.key, r.id, r.name, r.owner, r.born = key, id, at.name(), owner, deadline.Now()
	r.used.Store(int64(r.born))
	delete(p.gone, at)
	p.found[at] = r
	if owner.Known() {
		p.owned[owner]++
	}
	p.sweeping()
	return r, nil
}

func (p *Proxy) crowdedLocked(whose string) *noRun {
	if m := p.cfg.Telemetry.Meter; m != nil {
		m.RunRefused(whose)
	}
	p.cfg.Log.Warn("a run was refused: there are too many; end some, or raise --max-runs or --max-runs-per-principal", "of", whose, "runs", len(p.found))
	return errTooMany
}

// StartRun begins a run that is found by an id, for a key that is path
// or handle, and returns the id. One that is nobody's belongs to the first principal
// who comes with it. The error says why there is none.
func (p *Proxy) StartRun(of bridge.Client, owner wire.Principal) (id string, err error) {
	id, why := p.startRun(of, owner)
	if why != nil {
		return "", why
	}
	return id, nil
}

func (p *Proxy) startRun(of bridge.Client, owner wire.Principal) (id string, why *noRun) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id = NewRunID()
	r, why := p.beginLocked(p.cfg.key(of), id, owner)
	if r != nil {
		r.free = r.key.Kind == KeyPath && !owner.Known()
	}
	return id, why
}

// Error is the text.
func (s *noRun) Error() string { return s.text }

// EndRun ends a run that is found by an id, and reports whether it was
// there.
func (p *Proxy) EndRun(of bridge.Client, id string, owner wire.Principal) bool {
	p.mu.Lock()
	r := p.found[runID{p.cfg.key(of).Kind, id}]
	if r == nil || r.owner != owner {
		p.mu.Unlock()
		return false
	}
	s := p.endLocked(r, false)
	p.mu.Unlock()
	if s != nil {
		s.Close()
	}
	return true
}

// endLocked takes a run out of those that are found, and returns its session, which
// is to be closed. remember has its owner told that it expired.
func (p *Proxy) endLocked(r *liveRun, remember bool) *session {
	at := runID{r.key.Kind, r.id}
	if r.ended.Load() || p.found[at] != r {
		return nil
	}
	r.ended.Store(true)
	delete(p.found, at)
	if r.owner.Known() {
		if p.owned[r.owner]--; p.owned[r.owner] == 0 {
			delete(p.owned, r.owner)
		}
	}
	p.taskRuns.drop(r)
	if remember {
		p.rememberLocked(at, r.owner)
	}
	if len(r.on()) == 0 {
		delete(p.runs, r)
	}
	return r.session.Load()
}

func (p *Proxy) rememberLocked(at runID, owner wire.Principal) {
	if len(p.order) >= maxGone {
		delete(p.gone, p.order[0])
		p.order = p.order[1:]
	}
	p.gone[at] = owner
	p.order = append(p.order, at)
}

// RestartRun begins a run anew by its name, as [RunInfo] has it, and reports where it
// stood, and whether it was there. A call under way that holds its turn comes to its
// end, and steps nothing.
func (p *Proxy) RestartRun(name string) (state string, ok bool) {
	for _, r := range p.allRuns() {
		if r.name == name {
			moved := r.does((*run.Run).Restart)
			r.tell(nil, moved)
			return moved.From.State(), true
		}
	}
	return "", false
}

// processRun is the one run of the process.
func (p *Proxy) processRun() *liveRun {
	if r := p.process.Load(); r != nil {
		return r
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.processRunLocked()
}

func (p *Proxy) processRunLocked() *liveRun {
	r := p.process.Load()
	if r == nil {
		r = p.newRunLocked()
		r.key, r.name = RunKey{Kind: KeyProcess}, "process"
		p.process.Store(r)
	}
	return r
}

// sweeping has the sweeper run. It is called with the lock held.
func (p *Proxy) sweeping() {
	if p.stopped == nil {
		p.stop, p.stopped = make(chan struct{}), make(chan struct{})
		go p.sweep(p.stop)
	}
}

// stopSweeping ends the sweeper, if it runs, and waits for that.
func (p *Proxy) stopSweeping() {
	p.mu.Lock()
	stopped := p.stopped
	if stopped != nil && p.stop != nil {
		close(p.stop)
		p.stop = nil
	}
	p.mu.Unlock()
	if stopped != nil {
		<-stopped
	}
}

// sweep ends runs whose time has run out, until the Proxy is closed.
func (p *Proxy) sweep(stop <-chan struct{}) {
	defer close(p.stopped)
	every := min(max(min(p.cfg.RunIdle, p.cfg.RunAge)/16, time.Second), time.Minute)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			p.expireRuns(deadline.Now())
		case <-stop:
			return
		}
	}
}

// expireRuns ends the runs that nobody has used for too long, or that are too old.
func (p *Proxy) expireRuns(now time.Duration) {
	over := p.overdue(now)
	var sessions []*session
	n := 0
	p.mu.Lock()
	for _, r := range over {
		if r.ended.Load() || !r.expired(now, &p.cfg) { // it has been found since
			continue
		}
		n++
		if s := p.endLocked(r, true); s != nil {
			sessions = append(sessions, s)
		}
	}
	p.mu.Unlock()
	for _, s := range sessions {
		s.Close()
	}
	if n > 0 {
		p.cfg.Log.Info("runs have expired", "runs", n)
		if m := p.cfg.Telemetry.Meter; m != nil {
			m.RunsExpired(n)
		}
	}
}

// overdue are the runs whose time seems to have run out. They are looked at without
// the lock: no call waits for that.
func (p *Proxy) overdue(now time.Duration) []*liveRun {
	p.mu.Lock()
	all := slices.AppendSeq(make([]*liveRun, 0, len(p.found)), maps.Values(p.found))
	p.mu.Unlock()
	return slices.DeleteFunc(all, func(r *liveRun) bool { return !r.expired(now, &p.cfg) })
}

// expired reports whether a run's time has run out. One that a client's session is
// on, or that a request or a task is under way for, is in use.
func (r *liveRun) expired(now time.Duration, cfg *Config) bool {
	idle := now-time.Duration(r.used.Load()) > cfg.RunIdle
	if !idle && now-r.born <= cfg.RunAge {
		return false
	}
	if !r.inUse() {
		return true
	}
	if idle {
		r.used.Store(int64(now))
	}
	return false
}

// inUse reports whether anybody is on a run who keeps it.
func (r *liveRun) inUse() bool {
	members := r.on()
	if id, _ := r.runningTask(); id != "" && len(members) > 0 {
		return true
	}
	return slices.ContainsFunc(members, func(s *session) bool { return !s.ofRun || s.busy() })
}

// busy reports whether requests are under way in a run's session. Those that only listen are
// none.
func (s *session) busy() bool {
	return len(s.underWay()) > s.listeners.Len()
}
