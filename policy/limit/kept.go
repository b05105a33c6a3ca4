package limit

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"slices"
	"time"
)

// kept is what is counted as it is kept: by the time of the wall, so that windows go on where nobody counts meanwhile.
type kept struct {
	Limits []keptCounter `json:"limits"`
}

type keptCounter struct {
	Limit string  `json:"limit"` // its key
	Span  string  `json:"span"`
	Most  int     `json:"at_most"`
	Count int     `json:"count,omitzero"`
	Times []int64 `json:"times,omitzero"` // of a window: nanoseconds since 1970, and of each but the first since the one before
}

// Keep returns what is counted as [Restore] reads it, nil for nothing.
func (c *Counts) Keep(now time.Time) []byte {
	if !c.Forget(now) {
		return nil
	}
	var k kept
	for _, x := range c.counters {
		one := keptCounter{Limit: x.Key, Span: x.Span.String(), Most: x.Most, Count: x.count}
		before := int64(0)
		for _, t := range x.times {
			at := c.clock.last.Add(t - c.clock.passed).UnixNano()
			one.Times = append(one.Times, at-before)
			before = at
		}
		k.Limits = append(k.Limits, one)
	}
	text, _ := json.Marshal(&k, jsontext.AllowInvalidUTF8(true)) // it has texts and numbers alone
	return text
}

// Restore returns the counts of which [Counts.Keep] tells. What lies in the future was taken now: a clock was set back
// since.
func Restore(text []byte, now time.Time) (*Counts, error) {
	var k kept
	if err := json.Unmarshal(text, &k, jsontext.AllowInvalidUTF8(true)); err != nil {
		return nil, err
	}
	c := &Counts{}
	c.clock.tell(now)
	for _, one := range k.Limits {
		span, ok := SpanOf(one.Span)
		x := &counter{Limit: Limit{Key: one.Limit, Span: span, Most: one.Most}, count: one.Count}
		switch {
		case !ok:
			return nil, fmt.Errorf("there is no span %q", one.Span)
		case c.find(x.Limit) != nil:
			return nil, fmt.Errorf("limit %q is there twice for a %s", one.Limit, span)
		case one.Count < 0 || (one.Count == 0) == (len(one.Times) == 0) || (span.window() == 0) != (one.Times == nil):
			return nil, fmt.Errorf("limit %q has no count for a %s", one.Limit, span)
		}
		at := int64(0)
		for i, t := range one.Times {
			if at += t; i > 0 && t < 0 {
				return nil, fmt.Errorf("the times of limit %q are out of order", one.Limit)
			}
			x.times = append(x.times, c.clock.passed+max(min(time.Unix(0, at).Sub(now), 0), -Day.window()))
		}
		c.counters = append(c.counters, x)
	}
	c.Forget(now)
	return c, nil
}

// move has what is counted under a key be counted under the one that its place has in another policy, together with
// what is there already. What has no place there stays: who takes of it still, by the policy before, is not let begin anew.
func (c *Counts) move(moved func(key string) (string, bool)) (any bool) {
	for _, x := range slices.Clone(c.counters) {
		key, ok := moved(x.Key)
		if !ok || key == x.Key {
			continue
		}
		any = true
		there := c.find(Limit{Key: key, Span: x.Span})
		if there == nil {
			x.Key = key
			continue
		}
		there.count += x.count
		there.times = append(there.times, x.times...)
		slices.Sort(there.times)
		c.counters = slices.DeleteFunc(c.counters, func(other *counter) bool { return other == x })
	}
	return any
}
