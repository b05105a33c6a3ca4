package proxy

import (
	"slices"
	"strings"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/deadline"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
)

// SessionInfo is one session at a moment, for people.
type SessionInfo struct {
	Peer     observe.Peer
	Client   string // the name that it gave itself, escaped and cut; "" before initialize
	Version  string // of the client, as it says
	Protocol string // the negotiated revision, "" before
	Began    time.Time
	InFlight int // requests under way
	Run      RunInfo
}

// RunInfo is where a run stands at a moment.
type RunInfo struct {
	State    string
	Complete bool
	Policy   string    // the digest of the policy that steps it
	Stranded time.Time // since when its state is gone; zero: it is not
	Refused  bool      // nothing is allowed until it moves
	TurnHeld bool      // by a call under way
	Queued   int       // calls that wait for the turn
	Name     string    // "" where the session's stands for it
	Key      KeyKind   // by which it is found
	Owner    wire.Principal
	Sessions int           // that are on it, its own among them
	Age      time.Duration // since it began, Idle since it was found last; 0 for those of sessions
	Idle     time.Duration
}

// Runs returns the runs there are, ordered by name.
func (p *Proxy) Runs() []RunInfo {
	var infos []RunInfo
	for _, r := range p.allRuns() {
		if !r.aside {
			infos = append(infos, r.info())
		}
	}
	slices.SortFunc(infos, func(a, b RunInfo) int { return strings.Compare(a.Name, b.Name) })
	return infos
}

// Sessions returns the sessions there are, ordered by name. Each is looked at by
// itself, while the others go on.
func (p *Proxy) Sessions() []SessionInfo {
	var infos []SessionInfo
	for _, s := range p.open() {
		if !s.ofRun { // a run's own is nobody's
			infos = append(infos, s.info())
		}
	}
	slices.SortFunc(infos, func(a, b SessionInfo) int { return strings.Compare(a.Peer.Session, b.Peer.Session) })
	return infos
}

func (s *session) info() SessionInfo {
	i := SessionInfo{Peer: s.peer, Began: s.began, Run: s.run.info()}
	if h := s.hello.Load(); h != nil {
		i.Client, i.Version, i.Protocol = wire.Clip(h.client), h.release, h.version
	}
	s.mu.Lock()
	i.InFlight = len(s.calls)
	s.mu.Unlock()
	return i
}

func (r *liveRun) info() RunInfo {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.core.Standing()
	holder, _ := r.core.Holder()
	i := RunInfo{Name: r.name, Key: r.key.Kind, Owner: r.owner, Sessions: len(r.members),
		State: at.State(), Complete: at.At.Complete, Policy: at.Policy.Digest(), Stranded: at.Stranded,
		Refused: r.core.Snapshot(time.Now()).Refused, TurnHeld: holder != nil, Queued: r.core.Waiting(),
	}
	if r.born != 0 {
		now := deadline.Now()
		i.Age, i.Idle = now-r.born, now-time.Duration(r.used.Load())
	}
	return i
}

// Migrated says what [Proxy.Migrate] did.
type Migrated struct {
	Runs      int // that there are
	Restarted int // that were stranded, and begin anew
}

// Migrate has the runs that a reload has stranded begin anew at once, in the
// policy in force. A call under way that holds such a run's turn comes to its
// end, and steps nothing. Clients are told of the lists whose shown bytes
// changed.
func (p *Proxy) Migrate() Migrated {
	p.reloading.Lock()
	defer p.reloading.Unlock()
	all := p.allRuns()
	var done Migrated
	for _, r := range all {
		if !r.aside {
			done.Runs++
		}
		if moved, ok := r.migrate(); ok {
			done.Restarted++
			r.tell(nil, moved)
		}
	}
	return done
}

// Census is who is there at a moment.
type Census struct {
	Sessions int
	Runs     map[string]int // by the name of their state
	Stranded int            // of the runs: whose state a reload took
}

// Census counts the sessions, and their runs.
func (p *Proxy) Census() Census {
	c := Census{Sessions: p.clients(), Runs: make(map[string]int)}
	for _, r := range p.allRuns() {
		if r.aside {
			continue
		}
		state, stranded := r.standing()
		c.Runs[state]++
		if stranded {
			c.Stranded++
		}
	}
	return c
}

// standing is the name of the run's state, and whether it is stranded there.
func (r *liveRun) standing() (state string, stranded bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.core.Standing()
	return at.State(), !at.Stranded.IsZero()
}
