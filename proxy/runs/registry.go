// Package runs is the runs that a proxy has: how requests find theirs, and how they begin, move
// with a reload, and end.
package runs

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/deadline"
	"github.com/fsm-proxy/fsm-proxy/internal/handle"
	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/approval"
	"github.com/fsm-proxy/fsm-proxy/proxy/durable"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
	"github.com/fsm-proxy/fsm-proxy/proxy/tasks"
)

// Config is what a Registry works with.
type Config struct {
	Policy          *policy.Policy // in force, until a [Registry.Reload]
	Mode            Mode           // in force, until a [Registry.SetMode]
	MaxStranded     time.Duration  // for a run whose state a reload took
	MaxRegisters    int            // bytes that the registers of a run may hold; 0: 256 KiB
	Keys            [2]Key         // how requests find their run, by [bridge.Client.Index]
	PathCreate      bool           // an unknown id in the path begins a run, if nobody can guess it
	Idle            time.Duration  // until a run that nobody uses expires
	Age             time.Duration  // until a run expires
	Max             int            // runs that are found by a key
	MaxPerPrincipal int            // of those
	Store           *durable.Store // where runs are kept; nil: nowhere
	Process         string         // what the run of the process is called in the store
	Forgets         bool           // what is wrapped has forgotten a run that is read from the store: it begins anew
	KeepEnded       time.Duration  // how long a run is kept that has ended; 0: for ever
	KeepIdle        time.Duration  // how long one is kept that nobody uses; 0: for ever
	SessionIdle     time.Duration  // how long a session that is kept waits for its client to come back; 0: for ever
	Tasks           *Tasks         // that outlive the proxy; nil: none does
	IdleEnds        bool           // a run that nobody uses ends though it is kept; else it leaves memory alone
	Log             hclog.Logger
	Telemetry       *observe.Telemetry
}

// Registry is the runs there are. It is safe for concurrent use. Its lock is taken before any
// run's, and before those of sessions.
type Registry struct {
	cfg    Config
	shared run.Shared                    // by all runs
	policy atomic.Pointer[policy.Policy] // in force; written under mu
	// ByTask finds the runs of tasks whose clients bring no handle.
	ByTask    tasks.Index[*Run]
	process   atomic.Pointer[Run] // nil: not begun yet; written under mu
	reloading sync.Mutex          // held through a Reload, so that all runs go through them in one order

	mu      sync.RWMutex // guards what follows
	mode    Mode
	all     map[*Run]struct{}
	found   map[runID]*Run
	apart   map[runID]*Run           // that are kept, and that no request finds: of sessions, and of processes by another name
	gone    map[runID]wire.Principal // whose run it was that has expired
	order   []runID                  // of gone, oldest first
	owned   map[wire.Principal]int
	loading map[runID]*loading // that are being read from the store
	damaged map[runID]damage   // that were read last, and are not what was written
	away    map[runID]away     // that other processes have
	closed  bool
	stop    chan struct{}
	stopped chan struct{} // nil: the sweeper does not run
}

// New returns a Registry without runs.
func New(c Config) *Registry {
	g := &Registry{cfg: c, shared: run.Shared{Patience: c.MaxStranded, MaxRegisters: cmp.Or(c.MaxRegisters, 256<<10), Principals: c.limits(), Asking: &approval.Principals{}},
		mode: c.Mode, all: make(map[*Run]struct{}), found: make(map[runID]*Run), apart: make(map[runID]*Run),
		gone: make(map[runID]wire.Principal), owned: make(map[wire.Principal]int), loading: make(map[runID]*loading), damaged: make(map[runID]damage), away: make(map[runID]away)}
	if c.Store != nil {
		g.shared.Checkpoint = c.Store.Checkpoint()
		secret := c.Store.Recording().Redact
		g.shared.Secret = func(_ policy.Symbol, arguments []byte) bool { return secret.Takes(arguments) }
	}
	g.policy.Store(c.Policy)
	if c.Mode == Shadow {
		g.sayMode(Shadow)
	}
	return g
}

// Key is how requests of a client find their run.
func (g *Registry) Key(of bridge.Client) Key { return g.cfg.Keys[of.Index()] }

// Policy is the policy in force.
func (g *Registry) Policy() *policy.Policy { return g.policy.Load() }

// Beginning is where new runs begin.
func (g *Registry) Beginning() run.Snapshot {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return run.Snapshot{Policy: g.Policy(), At: g.Policy().Initial(), Shadow: g.mode == Shadow}
}

// newLocked returns a run at its beginning, of what is in force. lasts tells that it is to be kept.
func (g *Registry) newLocked(lasts bool) *Run { return g.newByLocked(lasts, run.Remark{}) }

func (g *Registry) newByLocked(lasts bool, by run.Remark) *Run {
	c := g.configLocked(by)
	c.Lasts = lasts
	r := g.newOfLocked(run.New(c, time.Now()))
	r.windLocked()
	return r
}

// configLocked is what a run begins with that somebody has begin.
func (g *Registry) configLocked(by run.Remark) run.Config {
	return run.Config{Policy: g.Policy(), Shadow: g.mode == Shadow, Shared: &g.shared, By: by}
}

// newOfLocked returns a run whose clock is not wound yet.
func (g *Registry) newOfLocked(core run.Run) *Run {
	r := &Run{of: g, core: core}
	r.shadow.Store(g.mode == Shadow)
	g.all[r] = struct{}{}
	return r
}

// OfSession begins the run of a client's session, which has its name and ends with it.
func (g *Registry) OfSession(name string) *Run {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.newLocked(false)
	r.Key.Kind, r.Name = Session, name
	return r
}

// OfClient is OfSession for a session that is kept where runs are, or goes on.
func (g *Registry) OfClient(from *observe.Peer) (*Run, *Missing) {
	if g.cfg.Store == nil || from.ID == "" {
		return g.OfSession(from.Session), nil
	}
	if from.Resumed {
		return g.ofSession(g.at(Session, from.ID))
	}
	switch {
	case g.cfg.Store.Down() != nil:
		return nil, errStore
	case g.cfg.Store.Full():
		return nil, g.full()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.newLocked(true)
	r.Key.Kind, r.Name, r.at = Session, from.Session, g.at(Session, from.ID)
	g.apart[r.at] = r
	r.used.Store(int64(deadline.Now()))
	g.beginKept(r, Session, from.ID, from.Principal)
	return r, nil
}

// BeginForRunless begins the run for requests without one. runless tells that no request
// needs another.
func (g *Registry) BeginForRunless(runless bool) *Run {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.newLocked(false)
	r.ForRunless, r.core.Runless = true, runless
	return r
}

// Runless reports whether of the run nothing is to be noted.
func (r *Run) Runless() bool { return r.core.Runless }

// Join makes a session one of those on a run, or returns why that is not found any more.
func (g *Registry) Join(r *Run, m Member) *Missing {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.ended.Load() {
		return r.over()
	}
	r.join(m)
	return nil
}

// Part ends that: the session has ended, and the run that is a session's with it. Where the proxy is ending, or the session
// could not go on just now, both go on when they are asked for again. Whoever asks waits until what was handed over of the
// run is written: what they get is all that there is of it, or nothing.
func (g *Registry) Part(r *Run, m Member, ending bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r.part(m)
	if r.Key.Kind == Session && !ending {
		g.endLocked(r, asked, run.Remark{})
	}
	r.endQuestions(func(q *approval.Question) bool { return q.By == m })
	if ending && g.apart[r.at] == r && r.Tasks.Running() {
		return // it is asked about, and its end is written: whoever comes back finds this run
	}
	if r.Key.Kind == Session || r.ended.Load() && len(r.on()) == 0 {
		r.unwind()
		delete(g.all, r)
		if g.apart[r.at] == r {
			delete(g.apart, r.at)
			g.settleLocked(r.at, r.handedOver())
		}
	}
}

// Serve returns the session of a run's requests of clients without sessions, which begin makes
// where there is none yet, and joins to it, or why the run is not found any more.
func (g *Registry) Serve(r *Run, begin func() Member) (Member, *Missing) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.ended.Load() {
		return nil, r.over()
	}
	if m := r.serving(); m != nil {
		return m, nil
	}
	m := begin()
	r.join(m)
	r.server.Store(&m)
	return m, nil
}

// All returns the runs there are.
func (g *Registry) All() []*Run {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.allLocked()
}

func (g *Registry) allLocked() []*Run {
	return slices.AppendSeq(make([]*Run, 0, len(g.all)), maps.Keys(g.all))
}

// runID tells apart what keys of different kinds say.
type runID struct {
	kind Kind
	id   string
}

// at is by which a run is found that its key says this id of. Where runs are kept nobody knows ids whom nobody told:
// there it is the id's hash.
func (g *Registry) at(k Kind, id string) runID {
	if g.cfg.Store != nil {
		hash := keyOf(k, id).Hash
		id = string(hash[:])
	}
	return runID{k, id}
}

// maxGone is how many expired runs are remembered, so that their owners learn what
// became of them.
const maxGone = 10_000

// Missing is why a request has no run.
type Missing struct {
	Code policy.Code
	Text string
	At   *journal.Elsewhere // another process has the run; nil: that is not why
}

var (
	// ErrNotFound is for a run that is not there, or is somebody else's.
	ErrNotFound = &Missing{Code: policy.RunNotFound, Text: "There is no such run."}
	// ErrExpired is for one whose time has run out, which its owner alone learns.
	ErrExpired = &Missing{Code: policy.RunExpired, Text: "This run has ended: it was not used for too long, has reached its maximum age, or an operator has ended it."}
	// errGuessable is for an id that no run has, since none begins with it.
	errGuessable = &Missing{Code: policy.RunNotFound, Text: "There is no such run, and none begins with an id that can be guessed: take 22 to 128 random letters, digits, '-' or '_'."}
	// errNoURL is for the URL of a run, asked by a client whose runs have none.
	errNoURL   = &Missing{Code: policy.RunNotFound, Text: "There is no such run: in this era of the protocol runs have no URL of their own here. Leave /runs/ID out of it."}
	errTooMany = &Missing{Code: policy.Busy, Text: "There are too many runs: wait until some have ended, or have the limit raised (--max-runs; before a command --max-upstreams, or --share-upstream)."}
)

// NewID returns an id that cannot be guessed: 130 random bits in 26 letters and
// digits.
func NewID() string { return rand.Text() }

// Unguessable reports whether an id that a client chose is long enough to be one
// that nobody guesses.
func Unguessable(id string) bool {
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

// NameOf is what something is called whose id must not be told.
func NameOf(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:8])
}

// Beside is why a request is not served whose URL names a run, as those of other
// clients have one, where its own key finds none by that: whoever is let in at that URL may
// be let in there alone.
func (g *Registry) Beside(of bridge.Client, from *observe.Peer) *Missing {
	if from.Run != "" && g.Key(of).Kind != Path && g.Key(of.Other()).Kind == Path {
		return errNoURL
	}
	return nil
}

// Find returns the run that a request belongs to. create has one begun where the
// key allows that. Without a run and without a reason the request brings no handle.
func (g *Registry) Find(of bridge.Client, from *observe.Peer, handle string, create bool) (*Run, *Missing) {
	key := g.Key(of)
	id, why := g.says(key, from, handle)
	switch {
	case why != nil:
		return nil, why
	case key.Kind == Default, key.Kind == Process, key.Kind == Session:
		return g.ofProcess()
	case key.Kind == Handle && id == "":
		return nil, nil
	}
	guessable := key.Kind == Path && !Unguessable(id)
	r, why := g.lookup(key, id, from.Principal, create && key.Begins() || key.Kind == Path && g.cfg.PathCreate && !guessable)
	if why == ErrNotFound && g.cfg.PathCreate && guessable {
		why = errGuessable
	}
	return r, why
}

// says is what a request says of the run that it belongs to, or why that is not enough.
func (g *Registry) says(key Key, from *observe.Peer, handle string) (id string, why *Missing) {
	switch key.Kind {
	case Session:
		return from.ID, nil
	case Principal:
		if !from.Principal.Known() {
			return "", &Missing{Code: policy.RunNotFound, Text: "Runs belong to who is asking here, and nobody has said who that is: authenticate."}
		}
		return ofPrincipal(from.Principal), nil
	case Header:
		return g.fromHeader(key.Header, from)
	case Path:
		if from.Run == "" {
			return "", &Missing{Code: policy.RunNotFound, Text: "Each run has a URL of its own here, which ends in /runs/ID: an operator hands them out."}
		}
		return from.Run, nil
	case Handle:
		return handle, nil
	}
	return g.cfg.Process, nil
}

// ofProcess returns the one run of the process, or begins it where none is kept.
func (g *Registry) ofProcess() (*Run, *Missing) {
	if r := g.process.Load(); r != nil && r.begins.Load() == nil {
		return r, nil
	}
	return g.settled(g.at(Process, g.cfg.Process), func() (r *Run, w written, _ *Missing) {
		if r = g.process.Load(); r == nil {
			r, w = g.beginProcessLocked(run.Remark{})
		}
		return r, w, nil
	})
}

// settled returns the run that look finds, or begins, with the lock held, once it is durable what it has handed over, and that the
// run has begun. Where another process has begun one first, it looks again.
func (g *Registry) settled(at runID, look func() (*Run, written, *Missing)) (*Run, *Missing) {
	for range 3 { // of which others may begin the run first each time
		if why := g.lockRead(at); why != nil {
			return nil, why
		}
		r, w, why := look()
		if r != nil && w.ticket == nil {
			w.ticket = r.begins.Load()
		}
		g.mu.Unlock()
		switch {
		case !g.awaits(w):
			return nil, errStore
		case r == nil:
			return nil, why
		case !r.unmade(w):
			r.begins.Store(nil)
			return r, nil
		}
		g.forsake(r)
	}
	return nil, errStore
}

// fromHeader reads the key that a gateway has set: once, and only by a gateway that
// is trusted to.
func (g *Registry) fromHeader(name string, from *observe.Peer) (string, *Missing) {
	var given []string
	if from.Header != nil {
		given = from.Header(name)
	}
	switch {
	case len(given) == 0 || len(given) == 1 && given[0] == "":
		return "", &Missing{Code: policy.RunNotFound, Text: "The header " + name + " says which run this is, and it is missing: the gateway in front has to set it."}
	case !from.Trusted:
		return "", &Missing{Code: policy.RunNotFound, Text: "The header " + name + " is taken from a trusted gateway only, which --trusted-proxies names."}
	case len(given) > 1 || len(given[0]) > 256:
		return "", &Missing{Code: policy.RunNotFound, Text: "The header " + name + " must be there once, with at most 256 bytes."}
	}
	return given[0], nil
}

// lookup finds a run by what its key says, or begins it. Another's run is not
// there; that one has expired only its owner learns.
func (g *Registry) lookup(key Key, id string, owner wire.Principal, create bool) (*Run, *Missing) {
	at := g.at(key.Kind, id)
	if r := g.known(at, owner); r != nil {
		return r, nil
	}
	return g.settled(at, func() (*Run, written, *Missing) { return g.lookupLocked(key, id, owner, create) })
}

// lookupLocked is lookup of what is in memory. It returns what is to be durable before its owner has the run.
func (g *Registry) lookupLocked(key Key, id string, owner wire.Principal, create bool) (_ *Run, w written, _ *Missing) {
	at := g.at(key.Kind, id)
	r := g.found[at]
	if r != nil && r.free && owner.Known() {
		if g.owned[owner] >= g.cfg.MaxPerPrincipal {
			return nil, w, g.crowdedLocked("principal")
		}
		var err error
		if w, err = r.own(owner); err != nil {
			return nil, w, errStore
		}
		g.owned[owner]++
	}
	switch whose, gone := g.gone[at]; {
	case r != nil && r.Owner == owner:
		r.used.Store(int64(deadline.Now()))
		if r.id == "" { // it was read before anybody came
			r.id = id
		}
		return r, w, nil
	case r == nil && create && (!gone || whose == owner):
		r, _, why := g.beginLocked(key, id, owner, false, run.Remark{})
		return r, w, why
	case r == nil && gone && whose == owner:
		return nil, w, ErrExpired
	}
	return nil, w, ErrNotFound
}

// lockRead takes the lock, with the run of a key in memory if there is one. With a reason it does not.
func (g *Registry) lockRead(at runID) *Missing {
	for {
		var read *Run
		if g.cfg.Store != nil {
			var why *Missing
			if read, why = g.restore(at); why != nil {
				return why
			}
		}
		g.mu.Lock()
		if g.isStillLocked(at, read) {
			return nil
		}
		g.mu.Unlock()
	}
}

// known returns a run that was found by its owner before, nil where there is none, or it is not durable yet that it has begun.
func (g *Registry) known(at runID, owner wire.Principal) *Run {
	g.mu.RLock()
	defer g.mu.RUnlock()
	r := g.found[at]
	if r == nil || r.free || r.Owner != owner || r.begins.Load() != nil {
		return nil
	}
	r.used.Store(int64(deadline.Now()))
	return r
}

// beginLocked begins a run that is found by a key. free: it is the first principal's who comes.
func (g *Registry) beginLocked(key Key, id string, owner wire.Principal, free bool, by run.Remark) (*Run, written, *Missing) {
	if why := g.roomLocked(owner); why != nil {
		return nil, written{}, why
	}
	r := g.newByLocked(g.cfg.Store != nil, by)
	g.foundLocked(r, key, id, owner, free)
	return r, g.beginKept(r, key.Kind, id, owner), nil
}

// roomLocked says why no run of somebody can begin that is found by a key; nil: it can.
func (g *Registry) roomLocked(owner wire.Principal) *Missing {
	switch {
	case g.closed:
		return ErrNotFound
	case len(g.found) >= g.cfg.Max:
		return g.crowdedLocked("all")
	case owner.Known() && g.owned[owner] >= g.cfg.MaxPerPrincipal:
		return g.crowdedLocked("principal")
	case g.cfg.Store != nil && g.cfg.Store.Down() != nil:
		return errStore
	case g.cfg.Store != nil && g.cfg.Store.Full():
		return g.full()
	}
	return nil
}

// foundLocked has a run that begins now be found by a key.
func (g *Registry) foundLocked(r *Run, key Key, id string, owner wire.Principal, free bool) {
	r.Key, r.id, r.at, r.Name, r.Owner, r.free, r.born = key, id, g.at(key.Kind, id), key.Kind.NameOf(id), owner, free, deadline.Now()
	r.used.Store(int64(r.born))
	g.enterLocked(r)
}

func (g *Registry) crowdedLocked(whose string) *Missing {
	if m := g.cfg.Telemetry.Meter; m != nil {
		m.RunRefused(whose)
	}
	g.cfg.Log.Warn("a run was refused: there are too many; end some, or raise --max-runs or --max-runs-per-principal", "of", whose, "runs", len(g.found))
	return errTooMany
}

// Start begins a run that is found by an id, for a key that is path
// or handle, and returns the id. One that is nobody's belongs to the first principal
// who comes with it. An error is a [*Missing].
func (g *Registry) Start(of bridge.Client, owner wire.Principal) (id string, err error) {
	id = NewID()
	key := g.Key(of)
	g.mu.Lock()
	r, w, why := g.beginLocked(key, id, owner, key.Kind == Path && !owner.Known(), run.Remark{})
	g.mu.Unlock()
	switch {
	case why != nil:
		return "", why
	case g.begun(r, w) != nil:
		return "", errStore
	}
	return id, nil
}

// Error is the text.
func (m *Missing) Error() string { return m.Text }

// Unwrap is where the run is, nil where it is missing everywhere.
func (m *Missing) Unwrap() error {
	if m.At == nil {
		return nil
	}
	return m.At
}

func (g *Registry) rememberLocked(at runID, owner wire.Principal) {
	if len(g.order) >= maxGone {
		delete(g.gone, g.order[0])
		g.order = g.order[1:]
	}
	g.gone[at] = owner
	g.order = append(g.order, at)
}

// Process is the one run of the process.
func (g *Registry) Process() *Run {
	if r := g.process.Load(); r != nil {
		return r
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.process.Load()
	if r == nil {
		r, _ = g.beginProcessLocked(run.Remark{})
	}
	return r
}

func (g *Registry) beginProcessLocked(by run.Remark) (*Run, written) {
	r := g.newByLocked(g.cfg.Store != nil, by)
	r.Key, r.Name, r.at = Key{Kind: Process}, "process", g.at(Process, g.cfg.Process)
	w := g.beginKept(r, Process, g.cfg.Process, wire.Principal{})
	g.process.Store(r)
	return r, w
}

// Resume reads what principals have taken of limits from the store, and the run of the process, where they are kept and no
// other process has it, and from then on the runs whose state's clock is due though nobody uses them.
func (g *Registry) Resume() error {
	if g.cfg.Store == nil {
		return nil
	}
	if err := g.loadLimits(); err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(context.Background(), g.cfg.Store.Timeout())
	defer stop()
	if err := g.cfg.Store.Count(ctx); err != nil {
		return err
	}
	if err := g.ReadTasks(context.Background()); err != nil {
		return err
	}
	g.mu.Lock()
	g.sweeping()
	g.mu.Unlock()
	if g.cfg.Keys[0].Kind != Process && g.cfg.Keys[1].Kind != Process {
		return nil
	}
	if _, why := g.restore(g.at(Process, g.cfg.Process)); why != nil && why.At == nil {
		return why
	}
	return nil
}

// Close ends the sweeping. No run begins from then on.
func (g *Registry) Close() {
	g.mu.Lock()
	g.closed = true
	for r := range g.all {
		r.unwind()
	}
	g.mu.Unlock()
	g.stopSweeping()
}

// Lifetime is how long a run lasts that is found by a key.
func (g *Registry) Lifetime() handle.Lifetime {
	l := handle.Lifetime{Idle: g.cfg.Idle, Age: g.cfg.Age}
	if g.cfg.Store != nil && !g.cfg.IdleEnds {
		l.Idle = 0
	}
	return l
}

// Expiry is when a run ends at the latest that begins now; zero: never.
func (g *Registry) Expiry() time.Time { return g.expiry(deadline.Now()) }

func (g *Registry) expiry(born time.Duration) (at time.Time) {
	if g.cfg.Age > 0 {
		at = deadline.At(born + g.cfg.Age)
	}
	return at
}

// WayOn is what a client without a run is told further; other reasons say so themselves.
func (g *Registry) WayOn(why *Missing, of bridge.Client) string {
	if why != ErrNotFound && why != ErrExpired {
		return ""
	}
	return " " + g.Key(of).Renews()
}
