// Package limit counts calls against the limits of a policy (at_most). It does no I/O and
// reads no clock; [Principals] alone has a lock, since it is of many runs.
package limit

import (
	"encoding/json/jsontext"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Span is what a limit counts over.
type Span uint8

const (
	Run   Span = iota // a run, from where it begins to where it begins anew
	Visit             // a visit of a state
	Minute
	Hour
	Day
)

// String returns the span as a policy names it.
func (s Span) String() string {
	switch s {
	case Run:
		return "run"
	case Visit:
		return "state"
	case Minute:
		return "minute"
	case Hour:
		return "hour"
	case Day:
		return "day"
	}
	return fmt.Sprintf("Span(%d)", uint8(s))
}

// SpanOf returns the span of a name, as [Span.String] writes it.
func SpanOf(name string) (Span, bool) {
	for s := Run; s <= Day; s++ {
		if s.String() == name {
			return s, true
		}
	}
	return 0, false
}

// window returns how long a window is; 0 for what is none.
func (s Span) window() time.Duration {
	switch s {
	case Minute:
		return time.Minute
	case Hour:
		return time.Hour
	case Day:
		return 24 * time.Hour
	}
	return 0
}

// A Limit is one number of one place in the policy file. Key names the place, and is the same in the next version
// of the file; one key has at most one limit of each span.
type Limit struct {
	Key  string
	Span Span
	Most int
}

// A Full says which limit a call has reached, and when it is free again: nothing for runs and visits.
type Full struct {
	Limit
	Free    time.Time
	Crowded bool // there are more principals than are counted for
}

// Error implements error.
func (f *Full) Error() string {
	return fmt.Sprintf("at most %d a %s (%s)", f.Most, f.Span, f.Key)
}

// counter is of one limit.
type counter struct {
	Limit
	count int             // of a run or a visit
	times []time.Duration // of a window: when it was taken, the oldest first
}

// Counts is what one run, or one principal, has taken of limits. The zero value has taken nothing, and a limit that
// is not used costs nothing. It is not safe for concurrent use.
type Counts struct {
	counters []*counter // few: those that count anything, but for windows that are over
	clock    clock
}

// A Taken is what one call has taken, to give it back: from the very counters that it was taken of. One that has gone
// with its run, its visit or its place is nobody's.
type Taken struct {
	counters []*counter
	at       time.Duration

	// What follows is of [Principals] alone, and guarded by their lock.
	of   *Counts
	wall int64 // when it was taken, in nanoseconds since 1970
	kept bool  // it is in a shared store
}

// Take counts a call against all these limits, which differ, or against none if one of them is reached. Of several
// that are, it tells of the one that is free last.
func (c *Counts) Take(now time.Time, limits ...Limit) (*Taken, *Full) {
	if full := c.Full(now, limits...); full != nil || len(limits) == 0 {
		return nil, full
	}
	return c.take(limits), nil
}

// Count counts a call that has gone, whether or not there was room for it.
func (c *Counts) Count(now time.Time, limits ...Limit) *Taken {
	if len(limits) == 0 {
		return nil
	}
	c.clock.tell(now)
	return c.take(limits)
}

func (c *Counts) take(limits []Limit) *Taken {
	t := &Taken{counters: make([]*counter, len(limits)), at: c.clock.passed}
	for i, l := range limits {
		x := c.find(l)
		if x == nil {
			x = &counter{Limit: l}
			c.counters = append(c.counters, x)
		}
		x.Most = l.Most
		if l.Span.window() == 0 {
			x.count++
		} else {
			x.times = append(x.times, t.at)
		}
		t.counters[i] = x
	}
	return t
}

// Full says which of these limits is reached, nil if none is.
func (c *Counts) Full(now time.Time, limits ...Limit) (full *Full) {
	if len(limits) == 0 {
		return nil
	}
	c.clock.tell(now)
	for _, l := range limits {
		f := c.reached(l)
		if f == nil || full != nil && (full.Free.IsZero() || !f.Free.IsZero() && !f.Free.After(full.Free)) {
			continue
		}
		full = f
	}
	return full
}

// reached says when a limit is free, nil if it is.
func (c *Counts) reached(l Limit) *Full {
	x := c.find(l)
	if x == nil {
		x = &counter{Limit: l}
	}
	x.pass(c.clock.passed)
	window := l.Span.window()
	switch {
	case window == 0 && x.count < l.Most, window != 0 && len(x.times) < l.Most:
		return nil
	case window == 0 || l.Most < 1:
		return &Full{Limit: l}
	}
	return &Full{Limit: l, Free: c.clock.last.Add(x.times[len(x.times)-l.Most] + window - c.clock.passed)}
}

// find returns a limit's counter, nil if it is not used.
func (c *Counts) find(l Limit) *counter {
	for _, x := range c.counters {
		if x.Key == l.Key && x.Span == l.Span {
			return x
		}
	}
	return nil
}

// pass forgets what is no longer in a window: what was taken at 12:00:00 is free at 12:01:00.
func (x *counter) pass(now time.Duration) {
	window := x.Span.window()
	if window == 0 {
		return
	}
	n := 0
	for n < len(x.times) && now-x.times[n] >= window {
		n++
	}
	x.drop(0, n)
}

// drop forgets some of what was taken of a window.
func (x *counter) drop(from, to int) {
	x.times = slices.Delete(x.times, from, to)
	if len(x.times) == 0 {
		x.times = nil
	}
}

// GiveBack undoes what a call has taken, as if it had never been; of a run, a visit or a window that is over, nothing
// is left to undo. It is given back once, and a second time is nothing.
func (c *Counts) GiveBack(t *Taken) {
	if t == nil {
		return
	}
	for _, x := range t.counters {
		if x.Span.window() == 0 {
			x.count--
		} else if i, ok := slices.BinarySearch(x.times, t.at); ok {
			x.drop(i, i+1)
		}
	}
	t.counters = nil
	c.tidy()
}

// Counted returns the limits against which a call counts still that has taken this: under the keys that they have now.
func (c *Counts) Counted(t *Taken) (limits []Limit) {
	for _, x := range t.counters {
		if slices.Contains(c.counters, x) {
			limits = append(limits, x.Limit)
		}
	}
	return limits
}

// tidy forgets the counters that count nothing.
func (c *Counts) tidy() {
	c.counters = slices.DeleteFunc(c.counters, func(x *counter) bool { return x.count == 0 && len(x.times) == 0 })
	if len(c.counters) == 0 {
		c.counters = nil
	}
}

// Forget forgets what is no longer in any window, and says whether anything is counted still.
func (c *Counts) Forget(now time.Time) bool {
	c.clock.tell(now)
	for _, x := range c.counters {
		x.pass(c.clock.passed)
	}
	c.tidy()
	return len(c.counters) > 0
}

// Enter begins a visit of a state.
func (c *Counts) Enter() { c.end(Visit) }

// Begin begins the run anew. Windows go on.
func (c *Counts) Begin() {
	c.end(Run)
	c.end(Visit)
}

// end ends what is counted over a span.
func (c *Counts) end(span Span) {
	c.counters = slices.DeleteFunc(c.counters, func(x *counter) bool { return x.Span == span })
	c.tidy()
}

// Adopt has counts go on under the keys that their places have in another policy, each one of its own; those of a
// place that is gone are forgotten. What calls under way have taken is given back where it is now.
func (c *Counts) Adopt(moved func(key string) (string, bool)) {
	c.counters = slices.DeleteFunc(c.counters, func(x *counter) bool {
		key, ok := moved(x.Key)
		x.Key = key
		return !ok
	})
	c.tidy()
}

// AppendJSON appends what is counted, as a list: of each limit its place, its span, its number, how many are taken and,
// of a full window, when it is free.
func (c *Counts) AppendJSON(to []byte, now time.Time) []byte {
	c.Forget(now)
	to = append(to, '[')
	for i, x := range c.counters {
		if i > 0 {
			to = append(to, ',')
		}
		place := strings.Join(strings.FieldsFunc(x.Key, func(c rune) bool { return c == 0 }), " ") // keys have parts
		to, _ = jsontext.AppendQuote(append(to, `{"limit":`...), place)
		to = append(append(append(to, `,"span":"`...), x.Span.String()...), `","at_most":`...)
		to = append(strconv.AppendInt(to, int64(x.Most), 10), `,"taken":`...)
		to = strconv.AppendInt(to, int64(x.count+len(x.times)), 10)
		if f := c.reached(x.Limit); f != nil && !f.Free.IsZero() {
			to = append(f.Free.UTC().AppendFormat(append(to, `,"free":"`...), time.RFC3339Nano), '"')
		}
		to = append(to, '}')
	}
	return append(to, ']')
}

// A clock tells how much time has passed since it was first told one. Where times go back it stands: a clock that is
// set back neither frees a window nor keeps it full.
type clock struct {
	last   time.Time
	passed time.Duration
}

// tell tells a clock the time.
func (c *clock) tell(now time.Time) {
	if c.last.IsZero() {
		c.last = now
	}
	d := now.Sub(c.last)
	switch {
	case d > 0:
		c.passed += d
	case monotonic(now) && monotonic(c.last):
		return // who told it was overtaken by another
	}
	c.last = now
}

// monotonic reports whether a time has a reading of the monotonic clock.
func monotonic(t time.Time) bool { return t != t.Round(0) }
