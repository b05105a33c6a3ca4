package proxy

import (
	"crypto/sha256"
	"sync"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// perList is what was read of lists, each content once. Servers show different lists
// to different clients, but not many: beyond a bound all are forgotten. It is safe
// for concurrent use.
type perList[T any] struct {
	most int
	read func(*wire.List) T

	mu   sync.RWMutex // guards what follows
	have map[[sha256.Size]byte]T
}

// of returns what there is to read of a list.
func (p *perList[T]) of(l *wire.List) T {
	p.mu.RLock()
	found, known := p.have[l.Digest]
	p.mu.RUnlock()
	if known {
		return found
	}
	found = p.read(l)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.have == nil || len(p.have) >= p.most {
		p.have = make(map[[sha256.Size]byte]T)
	}
	p.have[l.Digest] = found
	return found
}
