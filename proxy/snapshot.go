package proxy

import (
	"slices"
	"strings"
	"time"
)

// SessionInfo is one session at a moment, for people.
type SessionInfo struct {
	Peer     Peer
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
}

// Sessions returns the sessions there are, ordered by name. Each is looked at by
// itself, while the others go on.
func (p *Proxy) Sessions() []SessionInfo {
	all := p.open()
	infos := make([]SessionInfo, len(all))
	for i, s := range all {
		infos[i] = s.info()
	}
	slices.SortFunc(infos, func(a, b SessionInfo) int { return strings.Compare(a.Peer.Session, b.Peer.Session) })
	return infos
}

func (s *session) info() SessionInfo {
	i := SessionInfo{Peer: s.peer, Began: s.began, Run: s.run.info()}
	if h := s.hello.Load(); h != nil {
		i.Client, i.Version, i.Protocol = clip(h.client), h.release, h.version
	}
	s.mu.Lock()
	i.InFlight = len(s.calls)
	s.mu.Unlock()
	return i
}

func (r *run) info() RunInfo {
	r.mu.Lock()
	defer r.mu.Unlock()
	return RunInfo{
		State: r.policy.StateName(r.at.State), Complete: r.at.Complete, Policy: r.policy.Digest(),
		Stranded: r.stranded, Refused: r.placeLocked().shut, TurnHeld: r.holder != nil, Queued: len(r.queue),
	}
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
	all := p.open()
	done := Migrated{Runs: len(all)}
	for _, s := range all {
		if moved, ok := s.run.migrate(); ok {
			done.Restarted++
			s.changed.Mark(s.differing(moved))
		}
	}
	return done
}

// migrate begins a stranded run anew.
func (r *run) migrate() (moved shift, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stranded.IsZero() {
		return moved, false
	}
	moved.from = r.placeLocked()
	r.restartLocked()
	moved.to = r.placeLocked()
	return moved, true
}
