package limit_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy/limit"
	"pgregory.net/rapid"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func at(key string, span limit.Span, most int) limit.Limit {
	return limit.Limit{Key: key, Span: span, Most: most}
}

func show(c *limit.Counts, now time.Time) string { return string(c.AppendJSON(nil, now)) }

func TestAWindowSlides(t *testing.T) {
	for span, window := range map[limit.Span]time.Duration{limit.Minute: time.Minute, limit.Hour: time.Hour, limit.Day: 24 * time.Hour} {
		var c limit.Counts
		l := at("refund", span, 2)
		for i, x := range []struct {
			after time.Duration
			free  time.Duration // when the next is, if it is full
		}{
			{0, 0}, {window / 2, 0}, {window/2 + 1, window}, {window - 1, window}, // its edge:
			{window, 0}, {window + 1, window + window/2}, {window + window/2 - 1, window + window/2}, {window + window/2, 0}, {window + window/2, 2 * window},
		} {
			_, full := c.Take(noon.Add(x.after), l)
			switch {
			case (full != nil) != (x.free != 0):
				t.Errorf("%s, %d: %v", span, i, full)
			case full != nil && !full.Free.Equal(noon.Add(x.free)):
				t.Errorf("%s, %d: free after %s, not %s", span, i, full.Free.Sub(noon), x.free)
			}
		}
	}
}

func TestRunsAndVisits(t *testing.T) {
	var c limit.Counts
	run, visit, minute := at("shell", limit.Run, 3), at("shell", limit.Visit, 1), at("shell", limit.Minute, 10)
	take := func(want string) {
		t.Helper()
		got := ""
		if _, full := c.Take(noon, run, visit, minute); full != nil {
			got = full.Span.String()
		}
		if got != want {
			t.Errorf("%q is full, not %q", got, want)
		}
	}
	take("")
	take("state")
	c.Enter()
	take("")
	c.Enter()
	take("")
	c.Enter()
	take("run")
	c.Begin()
	take("")
	if got, want := show(&c, noon), `[{"limit":"shell","span":"run","at_most":3,"taken":1},{"limit":"shell","span":"state","at_most":1,"taken":1},{"limit":"shell","span":"minute","at_most":10,"taken":4}]`; !sameList(got, want) {
		t.Errorf("%s, not %s", got, want)
	}
}

// sameList compares lists whose order does not matter.
func sameList(a, b string) bool {
	var x, y []any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	key := func(v any) string { return fmt.Sprint(v) }
	sorted := func(all []any) (out []string) {
		for _, v := range all {
			out = append(out, key(v))
		}
		slices.Sort(out)
		return out
	}
	return slices.Equal(sorted(x), sorted(y))
}

func TestAllLimitsOrNone(t *testing.T) {
	var c limit.Counts
	a, b := at("a", limit.Run, 5), at("b", limit.Hour, 1)
	if _, full := c.Take(noon, a, b); full != nil {
		t.Fatal(full)
	}
	before := show(&c, noon)
	_, full := c.Take(noon, a, b, at("c", limit.Minute, 1))
	if full == nil || full.Key != "b" || !full.Free.Equal(noon.Add(time.Hour)) || full.Error() != "at most 1 a hour (b)" {
		t.Errorf("%+v", full)
	}
	if got := show(&c, noon); got != before {
		t.Errorf("a call that is refused counts: %s", got)
	}
	// Of several, the one that is free last.
	c.Take(noon, at("m", limit.Minute, 1))
	for _, order := range [][]limit.Limit{{b, at("m", limit.Minute, 1)}, {at("m", limit.Minute, 1), b}} {
		if full := c.Full(noon, order...); full == nil || full.Key != "b" {
			t.Errorf("%+v", full)
		}
	}
	if full := c.Full(noon, b, at("never", limit.Run, 0), at("m", limit.Minute, 1)); full == nil || full.Key != "never" || !full.Free.IsZero() {
		t.Errorf("%+v", full)
	}
	if full := c.Full(noon, at("none", limit.Day, 0)); full == nil || !full.Free.IsZero() {
		t.Errorf("none a day: %+v", full)
	}
}

func TestWhatIsGivenBackWasNever(t *testing.T) {
	var c limit.Counts
	all := []limit.Limit{at("x", limit.Run, 2), at("x", limit.Visit, 2), at("x", limit.Minute, 2), at("x", limit.Day, 2)}
	first, _ := c.Take(noon, all...)
	before := show(&c, noon)
	second, _ := c.Take(noon.Add(time.Second), all...)
	c.GiveBack(second)
	c.GiveBack(second)
	c.GiveBack(nil)
	if got := show(&c, noon.Add(time.Second)); got != before {
		t.Errorf("%s, not %s", got, before)
	}
	// Of what is over nothing is left: neither is there credit, nor less than nothing.
	c.Enter()
	third, _ := c.Take(noon.Add(2*time.Second), all...)
	c.GiveBack(first)
	if got, want := show(&c, noon.Add(2*time.Second)), `[{"limit":"x","span":"run","at_most":2,"taken":1},{"limit":"x","span":"state","at_most":2,"taken":1},{"limit":"x","span":"minute","at_most":2,"taken":1},{"limit":"x","span":"day","at_most":2,"taken":1}]`; !sameList(got, want) {
		t.Errorf("%s, not %s", got, want)
	}
	c.Begin()
	c.Take(noon.Add(2*time.Minute), all[0], all[1], all[2])
	c.GiveBack(third)
	if got, want := show(&c, noon.Add(2*time.Minute)), `[{"limit":"x","span":"run","at_most":2,"taken":1},{"limit":"x","span":"state","at_most":2,"taken":1},{"limit":"x","span":"minute","at_most":2,"taken":1}]`; !sameList(got, want) {
		t.Errorf("%s, not %s", got, want)
	}
}

func TestAClockThatIsSetBackNeitherFreesNorBlocks(t *testing.T) {
	var c limit.Counts
	l := at("x", limit.Minute, 1)
	c.Take(noon, l)
	c.Full(noon.Add(30*time.Second), l)
	back := noon.Add(-24 * time.Hour)
	if full := c.Full(back, l); full == nil || !full.Free.Equal(back.Add(30*time.Second)) {
		t.Errorf("set back: %+v", full)
	}
	if full := c.Full(back.Add(30*time.Second-1), l); full == nil {
		t.Error("free too early")
	}
	if full := c.Full(back.Add(30*time.Second), l); full != nil {
		t.Errorf("full for longer: %+v", full)
	}
}

// Calls tell the time before they have the lock, and may overtake each other there.
func TestTimesThatOvertakeEachOtherAddNothing(t *testing.T) {
	var c limit.Counts
	now := time.Now() // with its monotonic reading
	l := at("x", limit.Minute, 1)
	c.Take(now, l)
	for range 100 {
		c.Full(now.Add(time.Second), l)
		c.Full(now, l)
	}
	if full := c.Full(now.Add(time.Minute-1), l); full == nil || !full.Free.Equal(now.Add(time.Minute)) {
		t.Errorf("%+v", full)
	}
	if full := c.Full(now.Add(time.Minute), l); full != nil {
		t.Errorf("%+v", full)
	}
}

func TestCountsMoveWithTheirPlaces(t *testing.T) {
	var c limit.Counts
	c.Take(noon, at("idle/shell", limit.Run, 5), at("gone", limit.Run, 5))
	under, _ := c.Take(noon, at("idle/shell", limit.Run, 5))
	c.Adopt(func(key string) (string, bool) {
		return strings.Replace(key, "idle", "waiting", 1), key != "gone"
	})
	if got, want := show(&c, noon), `[{"limit":"waiting/shell","span":"run","at_most":5,"taken":2}]`; got != want {
		t.Error(got)
	}
	if full := c.Full(noon, at("waiting/shell", limit.Run, 2)); full == nil {
		t.Error("a smaller number is not reached")
	}
	c.GiveBack(under)
	if got, want := show(&c, noon), `[{"limit":"waiting/shell","span":"run","at_most":5,"taken":1}]`; got != want {
		t.Error(got)
	}
}

func TestSixtyFourAtOnceAgainstThree(t *testing.T) {
	p := limit.NewPrincipals(0)
	var all sync.WaitGroup
	var went atomic.Int32
	for i := range 64 {
		all.Go(func() {
			taken, full := p.Take("ann", noon, at("x", limit.Minute, 3), at("x", limit.Day, 100))
			if (taken == nil) != (full != nil) {
				t.Error("neither taken nor full")
			}
			if taken != nil {
				went.Add(1)
			}
			p.Take(fmt.Sprint("other", i), noon, at("x", limit.Minute, 3))
		})
	}
	all.Wait()
	if went.Load() != 3 || p.Len(noon) != 65 {
		t.Errorf("%d went, of %d principals", went.Load(), p.Len(noon))
	}
}

func TestPrincipalsWhoseWindowsAreEmptyAreForgotten(t *testing.T) {
	p := limit.NewPrincipals(1000)
	l := at("x", limit.Minute, 3)
	for i := range 5000 {
		if _, full := p.Take(fmt.Sprint(i), noon.Add(time.Duration(i)*time.Second), l); full != nil {
			t.Fatalf("principal %d: %+v", i, full)
		}
	}
	at := noon.Add(4999 * time.Second)
	if got := p.Len(at); got != 60 {
		t.Errorf("%d are left", got)
	}
	taken, _ := p.Take("ann", at, l)
	if got := string(p.AppendJSON(nil, "ann", at)); got != `[{"limit":"x","span":"minute","at_most":3,"taken":1}]` {
		t.Error(got)
	}
	p.GiveBack("ann", taken)
	p.GiveBack("nobody", taken)
	if got := p.Len(at); got != 60 || string(p.AppendJSON(nil, "ann", at)) != "[]" {
		t.Errorf("%d are left", got)
	}
	p.Adopt(func(string) (string, bool) { return "", false })
	if got := p.Len(at); got != 60 {
		t.Errorf("%d are left of a place that is gone, of which runs may take still", got)
	}
	if got := p.Len(at.Add(time.Minute)); got != 0 {
		t.Errorf("%d are left", got)
	}
}

func TestMorePrincipalsThanAreCountedForAreRefused(t *testing.T) {
	p := limit.NewPrincipals(2)
	l := at("x", limit.Minute, 3)
	p.Take("a", noon, l)
	p.Take("b", noon.Add(time.Second), l)
	if taken, full := p.Take("c", noon.Add(time.Second), l); taken != nil || full == nil || !full.Crowded {
		t.Errorf("%+v", full)
	}
	if _, full := p.Take("a", noon.Add(time.Second), l); full != nil {
		t.Errorf("one that is counted for: %+v", full)
	}
	if _, full := p.Take("c", noon.Add(2*time.Minute), l); full != nil {
		t.Errorf("one that comes later: %+v", full)
	}
}

func TestALimitThatIsUsedCostsLittle(t *testing.T) {
	const runs = 10_000
	held := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	all := make([]limit.Counts, runs)
	before := held()
	for i := range all {
		all[i].Take(noon, at("x", limit.Run, 3))
	}
	if each := (held() - before) / runs; each > 150 {
		t.Errorf("a run with a limit takes %d bytes more", each)
	}
	full := held()
	for i := range 100 {
		for n := range 1000 {
			all[i].Take(noon.Add(time.Duration(n)), at("y", limit.Day, 1000))
		}
	}
	if each := (held() - full) / 100; each > 12<<10 {
		t.Errorf("a window of 1,000 takes %d bytes", each)
	}
	runtime.KeepAlive(all)
}

// taken is one call in a naive list of what was taken.
type taken struct {
	limits []limit.Limit
	at     time.Time
	life   int
	visit  int
	back   *limit.Taken
}

// However calls come, end and are given back, a limit is reached if a list of all calls says so.
func TestCountsAreWhatAListSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c limit.Counts
		var list []taken
		now, life, visit := noon, 0, 0
		keys := []string{"a", "b"}
		draw := func(t *rapid.T) (out []limit.Limit) {
			for _, key := range keys {
				for span := limit.Run; span <= limit.Day; span++ {
					if rapid.IntRange(0, 2).Draw(t, "limit") == 0 {
						out = append(out, at(key, span, rapid.IntRange(1, 3).Draw(t, "most")))
					}
				}
			}
			return out
		}
		// when a limit is free by the list: the zero time is now, never is far.
		never := noon.Add(1 << 60)
		free := func(l limit.Limit) time.Time {
			window := map[limit.Span]time.Duration{limit.Minute: time.Minute, limit.Hour: time.Hour, limit.Day: 24 * time.Hour}[l.Span]
			var in []time.Time
			for _, x := range list {
				counts := slices.ContainsFunc(x.limits, func(o limit.Limit) bool { return o.Key == l.Key && o.Span == l.Span })
				switch l.Span {
				case limit.Run:
					counts = counts && x.life == life
				case limit.Visit:
					counts = counts && x.visit == visit
				default:
					counts = counts && now.Sub(x.at) < window
				}
				if counts {
					in = append(in, x.at)
				}
			}
			switch {
			case len(in) < l.Most:
				return time.Time{}
			case window == 0:
				return never
			}
			return in[len(in)-l.Most].Add(window)
		}
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				all := draw(t)
				var want time.Time
				for _, l := range all {
					if f := free(l); f.After(want) {
						want = f
					}
				}
				back, full := c.Take(now, all...)
				switch {
				case (full != nil) != !want.IsZero():
					t.Fatalf("%+v: %+v, and by the list it is free at %s", all, full, want)
				case full != nil && want.Equal(never) != full.Free.IsZero(), full != nil && !want.Equal(never) && !want.Equal(full.Free):
					t.Fatalf("%+v is free at %s, and not %s", full.Limit, want, full.Free)
				case full == nil:
					list = append(list, taken{all, now, life, visit, back})
				}
			},
			"give back": func(t *rapid.T) {
				if len(list) == 0 {
					t.Skip("nothing is taken")
				}
				i := rapid.IntRange(0, len(list)-1).Draw(t, "call")
				c.GiveBack(list[i].back)
				list = slices.Delete(list, i, i+1)
			},
			"pass": func(t *rapid.T) {
				now = now.Add(rapid.SampledFrom([]time.Duration{1, time.Second, 30 * time.Second, time.Minute - 1, time.Minute, 30 * time.Minute, time.Hour, 12 * time.Hour}).Draw(t, "time"))
			},
			"enter":  func(t *rapid.T) { c.Enter(); visit++ },
			"begin":  func(t *rapid.T) { c.Begin(); life++; visit++ },
			"forget": func(t *rapid.T) { c.Forget(now) },
			"adopt": func(t *rapid.T) {
				was := slices.Clone(keys)
				keys = rapid.SampledFrom([][]string{{"a", "b"}, {"b", "a"}, {"b", "c"}}).Draw(t, "keys")
				moved := func(key string) (string, bool) {
					i := slices.Index(was, key)
					return keys[i], true
				}
				c.Adopt(moved)
				for i := range list {
					for j := range list[i].limits {
						list[i].limits[j].Key, _ = moved(list[i].limits[j].Key)
					}
				}
			},
			"": func(t *rapid.T) {
				var out []struct {
					Limit, Span string
					Taken       int
				}
				if err := json.Unmarshal(c.AppendJSON(nil, now), &out); err != nil {
					t.Fatal(err)
				}
				for _, x := range out {
					if x.Taken <= 0 {
						t.Fatalf("%+v", x)
					}
				}
			},
		})
	})
}
