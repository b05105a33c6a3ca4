package stdio

import (
	"sync"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// batchVersion is the one protocol revision that has batches.
const batchVersion = "2025-03-26"

// batch starts the members of a JSON-RPC batch: one after the other, each with
// its answer before the next is handed on.
func (s *server) batch(raw []byte) {
	if v := s.session.Version(); v != batchVersion {
		s.unreadable(s.out, &wire.Error{Code: wire.CodeInvalidRequest,
			Message: "JSON-RPC batches belong to protocol revision " + batchVersion + " alone: send the messages one by one"})
		return
	}
	members, err := s.cfg.Limits.Split(raw)
	if err != nil {
		s.unreadable(s.out, err)
		return
	}
	s.calls.Go(func() { s.members(members) })
}

func (s *server) members(members [][]byte) {
	g := &gathered{stream: s.out}
	for _, raw := range members {
		s.member(raw, g)
	}
	if all := g.close(); all != nil {
		s.out.Answer(all)
	}
}

func (s *server) member(raw []byte, g *gathered) {
	m, err := s.cfg.Limits.Read(raw, wire.FromClient)
	if err == nil {
		err = m.MemberFault()
	}
	if err != nil {
		s.unreadable(g, err)
		return
	}
	if p := s.session.Handle(m, g); p != nil {
		p.Wait()
	}
}

// gathered is the stream of a batch: answers are kept for the one array that
// answers it, all else goes out at once.
type gathered struct {
	*stream
	mu     sync.Mutex
	all    []byte // guarded by mu: the array, not yet closed
	closed bool   // guarded by mu: answers come too late
}

func (g *gathered) Answer(msg []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || msg == nil {
		return
	}
	if g.all == nil {
		g.all = append(g.all, '[')
	} else {
		g.all = append(g.all, ',')
	}
	g.all = append(g.all, msg...)
}

// close returns the array of answers, nil if there are none.
func (g *gathered) close() []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	if g.all == nil {
		return nil
	}
	return append(g.all, ']')
}
