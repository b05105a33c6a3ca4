package upstream

import (
	"strconv"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// minHold is how long a list is kept at least: each call looks at one.
const minHold = time.Second

// maxHold is how long a list is kept at most, however long the upstream says.
const maxHold = 24 * time.Hour

// holdOf is how long a list may be kept as its pages say (ttlMs), 0 where not all of
// them say so, or say 0: then the connection decides by itself (2026-07-28,
// server/utilities/caching).
func holdOf(pages []*wire.Message) (hold time.Duration) {
	for _, page := range pages {
		ms, err := strconv.ParseFloat(string(page.Bytes(page.R.TTL)), 64)
		if err != nil || ms <= 0 {
			return 0
		}
		d := max(minHold, time.Duration(min(ms, float64(maxHold/time.Millisecond)))*time.Millisecond)
		if hold == 0 || d < hold {
			hold = d
		}
	}
	return hold
}
