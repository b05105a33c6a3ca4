package auth

import (
	"sync"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// maxKnown is how many verified tokens are remembered.
const maxKnown = 10_000

// cache remembers whose verified tokens are, by their SHA-256: a signature costs
// more than all else of a call. It is safe for concurrent use.
type cache struct {
	mu  sync.RWMutex
	all map[[32]byte]known // guarded by mu
}

// known is a token that was verified.
type known struct {
	who   wire.Principal
	until time.Time
	keys  *keySet // by which; others may not have its key any more
}

func (c *cache) init() { c.all = make(map[[32]byte]known) }

// find says whose token it is, if that is known and holds.
func (c *cache) find(sum [32]byte, keys *keySet, now time.Time) (wire.Principal, bool) {
	c.mu.RLock()
	k, ok := c.all[sum]
	c.mu.RUnlock()
	return k.who, ok && k.keys == keys && now.Before(k.until)
}

// put remembers a token, in place of any other where there are too many.
func (c *cache) put(sum [32]byte, k known) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for old := range c.all {
		if len(c.all) < maxKnown {
			break
		}
		delete(c.all, old)
	}
	c.all[sum] = k
}
