package limit

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Snapshot is all that counts are, and what calls under way have taken of them: those that [Snapshot.Counts] makes of
// it count on as they do.
type Snapshot struct {
	Time     time.Time         `json:"time,omitzero"` // that the clock was told last
	Counters []CounterSnapshot `json:"counters,omitzero"`
	Taken    []TakenSnapshot   `json:"taken,omitzero"`
}

// CounterSnapshot is what is taken of one limit.
type CounterSnapshot struct {
	Limit  string  `json:"limit"`
	Span   string  `json:"span"`
	AtMost int     `json:"at_most"`
	Count  int     `json:"count,omitzero"` // of a run or a visit
	Ages   []int64 `json:"ages,omitzero"`  // of a window: how many nanoseconds ago it was taken, the oldest first
}

// TakenSnapshot is what one call has taken.
type TakenSnapshot struct {
	Counters []int `json:"counters,omitzero"` // by their places in the snapshot
	Age      int64 `json:"age,omitzero"`
}

// Snapshot returns what is counted, and of that what some calls have taken; nil for one that has taken nothing.
func (c *Counts) Snapshot(taken ...*Taken) Snapshot {
	s := Snapshot{Time: c.clock.last}
	for _, x := range c.counters {
		counter := CounterSnapshot{Limit: x.Key, Span: x.Span.String(), AtMost: x.Most, Count: x.count}
		for _, at := range x.times {
			counter.Ages = append(counter.Ages, int64(c.clock.passed-at))
		}
		s.Counters = append(s.Counters, counter)
	}
	for _, t := range taken {
		var x TakenSnapshot
		if t != nil && t.counters != nil {
			x.Age = int64(c.clock.passed - t.at)
			for _, of := range t.counters {
				if i := slices.Index(c.counters, of); i >= 0 { // or it is nobody's any more
					x.Counters = append(x.Counters, i)
				}
			}
		}
		s.Taken = append(s.Taken, x)
	}
	return s
}

// Counts returns counts that go on as those of the snapshot, and what calls have taken, in the order in which it was
// told of them. The error says what no counts are.
func (s *Snapshot) Counts() (*Counts, []*Taken, error) {
	c := &Counts{clock: clock{last: s.Time}}
	for _, x := range s.Counters {
		span, ok := SpanOf(x.Span)
		if !ok {
			return nil, nil, fmt.Errorf("there is no span %q", x.Span)
		}
		counter := &counter{Limit: Limit{Key: x.Limit, Span: span, Most: x.AtMost}, count: x.Count}
		for _, age := range x.Ages {
			counter.times = append(counter.times, -time.Duration(age))
		}
		if x.Count < 0 || !slices.IsSorted(counter.times) || len(counter.times) > 0 && counter.times[len(counter.times)-1] > 0 {
			return nil, nil, fmt.Errorf("limit %q was taken less than never, or later than now", x.Limit)
		}
		c.counters = append(c.counters, counter)
	}
	var taken []*Taken
	for _, x := range s.Taken {
		t := &Taken{at: -time.Duration(x.Age)}
		for _, i := range x.Counters {
			if i < 0 || i >= len(c.counters) {
				return nil, nil, errors.New("a call has taken something of a limit that is not there")
			}
			t.counters = append(t.counters, c.counters[i])
		}
		taken = append(taken, t)
	}
	return c, taken, nil
}
