package proxy

import (
	"slices"
	"strings"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/deadline"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

// SessionInfo is one session at a moment, for people.
type SessionInfo struct {
	Peer     observe.Peer
	Client   string // the name that it gave itself, escaped and cut; "" before initialize
	Version  string // of the client, as it says
	Protocol string // the negotiated revision, "" before
	Began    time.Time
	InFlight int // requests under way
	Run      runs.Info
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
	i := SessionInfo{Peer: s.peer, Began: deadline.At(s.began), InFlight: s.inFlight(), Run: s.run.Info()}
	if h := s.shown.Hello.Load(); h != nil {
		i.Client, i.Version, i.Protocol = wire.Clip(h.Client), h.Release, h.Version
	}
	return i
}

// Census is who is there at a moment.
type Census struct {
	Sessions int
	Runs     map[string]int // by the name of their state
	Stranded int            // of the runs: whose state a reload took
}

// Census counts the sessions, and their runs.
func (p *Proxy) Census() Census {
	c := Census{Sessions: len(p.Sessions())}
	c.Runs, c.Stranded = p.Runs.Census()
	return c
}
