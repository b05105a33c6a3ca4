package watch

import "time"

// A burst is a row of changes that is delivered as one.
type burst struct {
	since time.Time // its beginning; zero: none is under way
	event time.Time // its last event; zero: a look began it, and no event has come
	seen  [32]byte  // what its last look found
}

func (b *burst) underWay() bool { return !b.since.IsZero() }

// wait is the time until the next look.
func (b *burst) wait(cfg Config, now time.Time) time.Duration {
	limit := cfg.MaxDebounce
	if now.Sub(b.since) >= limit {
		limit *= 2
	}
	left := limit - now.Sub(b.since)
	return min(cfg.Debounce, max(left, time.Millisecond))
}

// settled reports whether what was seen may be taken for what is meant, and not
// for a file half written or a path half swapped.
//
// A file that has rested since its last event is. Where no events came, what was
// seen twice is; so with an empty file and an error, the two halves of a save. If
// events never end, MaxDebounce decides for a file that says something, and twice
// that for everything else. Nothing waits for what is known already.
func (b *burst) settled(cfg Config, s sight, known, blind bool, now time.Time) bool {
	lasted := now.Sub(b.since)
	whole := s.Err == nil && len(s.Content) > 0
	quiet := now.Sub(b.event) >= cfg.Debounce
	switch {
	case lasted >= 2*cfg.MaxDebounce:
		return true
	case known:
		return quiet || lasted >= cfg.MaxDebounce
	case quiet && s.rested(cfg.Debounce):
		return whole && !blind && !b.event.IsZero() || s.Digest == b.seen
	default:
		return lasted >= cfg.MaxDebounce && whole && s.steady
	}
}
