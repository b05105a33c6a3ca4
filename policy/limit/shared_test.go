package limit_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fsm-proxy/fsm-proxy/policy/limit"
)

// Tables that share what is kept, each with calls under way and swaps that take their time, count no more than a limit says of
// calls that are sent; and, once all is kept, what those have taken that were not given back, and nothing else.
func TestSharedPrincipals(t *testing.T) {
	limits := []limit.Limit{at("a", limit.Minute, 4), at("b", limit.Hour, 6)}
	rapid.Check(t, func(t *rapid.T) {
		type call struct {
			table int
			taken *limit.Taken
			of    []limit.Limit
			at    time.Time
			sent  bool
		}
		type handed struct {
			swap *limit.Swap
			call *call
		}
		var kept []byte
		now := noon
		var tables [3]*limit.Principals
		var waits [len(tables)][]handed
		var asked [len(tables)]func()
		for i := range tables {
			tables[i] = limit.NewPrincipals(0)
			tables[i].Share()
		}
		var open []*call // that count, or are about to
		leave := func(c *call) {
			tables[c.table].GiveBack("ann", c.taken)
			open = slices.DeleteFunc(open, func(other *call) bool { return other == c })
		}
		hand := func(table int, c *call) {
			var one []*limit.Taken
			if c != nil {
				one = append(one, c.taken)
			}
			_ = tables[table].Swap(now, func(of func(string, ...*limit.Taken) *limit.Swap) error {
				if s := of("ann", one...); !s.Same() || s.Takes() {
					waits[table] = append(waits[table], handed{s, c})
				} else if c != nil {
					waits[table] = append(waits[table], handed{nil, c}) // as a begin that swaps nothing
				}
				return nil
			})
		}
		reread := func(table int) {
			settled, _ := tables[table].Reading("ann")
			if err := tables[table].Reread("ann", bytes.Clone(kept), settled, now); err != nil {
				t.Fatal(err)
			}
		}
		settle := func(table int) {
			h := waits[table][0]
			waits[table] = waits[table][1:]
			if h.swap != nil {
				ok := limit.SameText(kept, h.swap.Was)
				if ok {
					kept = h.swap.Is
				}
				tables[table].Swapped(h.swap, ok)
			}
			switch c := h.call; {
			case c == nil || !slices.Contains(open, c):
			case tables[table].Kept(c.taken):
				c.sent = true
			default:
				if len(tables[table].Stale()) > 0 {
					reread(table)
				}
				leave(c)
			}
		}
		check := func(t *rapid.T) {
			for _, l := range limits {
				n := 0
				for _, c := range open {
					if c.sent && slices.Contains(c.of, l) && now.Sub(c.at) < map[limit.Span]time.Duration{limit.Minute: time.Minute, limit.Hour: time.Hour}[l.Span] {
						n++
					}
				}
				if n > l.Most {
					t.Fatalf("%d were sent of %s", n, l.Key)
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"begin": func(t *rapid.T) {
				table := rapid.IntRange(0, len(tables)-1).Draw(t, "table")
				some := limits[rapid.IntRange(0, 1).Draw(t, "from"):]
				now = now.Add(1)
				if taken, _ := tables[table].Take("ann", now, some...); taken != nil {
					c := &call{table: table, taken: taken, of: some, at: now}
					open = append(open, c)
					if rapid.Bool().Draw(t, "at once") {
						hand(table, c)
					}
				}
			},
			"hand over": func(t *rapid.T) {
				if len(open) == 0 {
					return
				}
				if c := rapid.SampledFrom(open).Draw(t, "call"); !c.sent && !slices.ContainsFunc(waits[c.table], func(h handed) bool { return h.call == c }) {
					hand(c.table, c)
				}
			},
			"settle": func(t *rapid.T) {
				if table := rapid.IntRange(0, len(tables)-1).Draw(t, "table"); len(waits[table]) > 0 {
					settle(table)
				}
			},
			"leave": func(t *rapid.T) {
				if len(open) > 0 {
					c := rapid.SampledFrom(open).Draw(t, "call")
					leave(c)
					hand(c.table, nil)
				}
			},
			"refused": func(t *rapid.T) { reread(rapid.IntRange(0, len(tables)-1).Draw(t, "table")) },
			"is asked for": func(t *rapid.T) { // and is told later
				if table := rapid.IntRange(0, len(tables)-1).Draw(t, "table"); asked[table] == nil {
					was := bytes.Clone(kept)
					settled, _ := tables[table].Reading("ann")
					asked[table] = func() {
						if err := tables[table].Reread("ann", was, settled, now); err != nil {
							t.Fatal(err)
						}
					}
				}
			},
			"is told": func(t *rapid.T) {
				if table := rapid.IntRange(0, len(tables)-1).Draw(t, "table"); asked[table] != nil {
					asked[table]()
					asked[table] = nil
				}
			},
			"pass": func(t *rapid.T) {
				now = now.Add(rapid.SampledFrom([]time.Duration{time.Second, 30 * time.Second, time.Minute, 30 * time.Minute}).Draw(t, "time"))
			},
			"": check,
		})
		for _, c := range slices.Clone(open) { // that were not handed over
			if !c.sent && !slices.ContainsFunc(waits[c.table], func(h handed) bool { return h.call == c }) {
				leave(c)
			}
		}
		for range 8 { // of tables that swap at once one has
			for i := range tables {
				if asked[i] != nil {
					asked[i]()
					asked[i] = nil
				}
				for len(waits[i]) > 0 {
					settle(i)
				}
				if len(tables[i].Stale()) > 0 {
					reread(i)
				}
				if len(tables[i].Unsaved(now)) > 0 {
					hand(i, nil)
				}
			}
		}
		check(t)
		fresh := limit.NewPrincipals(0)
		if kept != nil {
			if err := fresh.Restore("ann", kept, now); err != nil {
				t.Fatal(err)
			}
		}
		taken := takenOf(fresh.AppendJSON(nil, "ann", now))
		for name, n := range taken {
			for _, c := range open {
				for _, l := range c.of {
					window := map[limit.Span]time.Duration{limit.Minute: time.Minute, limit.Hour: time.Hour}[l.Span]
					if c.sent && bytes.Contains([]byte(name), []byte(`"`+l.Key+`"`)) && now.Sub(c.at) < window {
						n--
					}
				}
			}
			if n != 0 {
				t.Fatalf("of %s %d more are kept than calls were sent", name, n)
			}
		}
		if len(taken) == 0 {
			for _, c := range open {
				if c.sent && now.Sub(c.at) < time.Minute {
					t.Fatalf("nothing is kept, and %+v was sent", c)
				}
			}
		}
	})
}

// What is given back is so for all, also where another table has written in between, and the time that it has taken it.
func TestGivenBackInASharedTable(t *testing.T) {
	var kept []byte
	l := at("x", limit.Day, 2)
	a, b := limit.NewPrincipals(0), limit.NewPrincipals(0)
	a.Share()
	b.Share()
	swap := func(p *limit.Principals, taken ...*limit.Taken) (ok bool) {
		var s *limit.Swap
		_ = p.Swap(noon, func(of func(string, ...*limit.Taken) *limit.Swap) error { s = of("ann", taken...); return nil })
		if ok = limit.SameText(s.Was, kept); ok {
			kept = s.Is
		}
		p.Swapped(s, ok)
		return ok
	}
	first, _ := a.Take("ann", noon, l)
	second, _ := b.Take("ann", noon, l)
	if !swap(a, first) || swap(b, second) || !a.Kept(first) || b.Kept(second) || len(b.Stale()) != 1 {
		t.Fatal("of two that were sooner one is")
	}
	reread := func(p *limit.Principals) error {
		settled, _ := p.Reading("ann")
		return p.Reread("ann", kept, settled, noon)
	}
	if err := reread(b); err != nil || len(b.Stale()) > 0 {
		t.Fatal(err)
	}
	b.GiveBack("ann", second)
	second, _ = b.Take("ann", noon, l)
	if !swap(b, second) {
		t.Fatal("it is not the second")
	}
	a.GiveBack("ann", first)
	if swap(a) {
		t.Fatal("what another has written is overwritten")
	}
	if err := reread(a); err != nil || len(a.Unsaved(noon)) != 1 || !swap(a) {
		t.Fatal("what was given back is not kept", err)
	}
	b.GiveBack("ann", second)
	if swap(b) || reread(b) != nil || !swap(b) || kept != nil {
		t.Errorf("%s is kept", kept)
	}
}

// What is given back is so too where the store was read after its taking was handed over, and before that was written: whether it is
// given back sooner or later than that, or the one who has read is slow.
func TestGivenBackThoughTheStoreWasReadBefore(t *testing.T) {
	l := at("x", limit.Day, 2)
	for _, order := range []string{"read, back, written", "read, written, back", "written, read, back", "written, back, read"} {
		p := limit.NewPrincipals(0)
		p.Share()
		var kept []byte
		var s *limit.Swap
		hand := func(taken ...*limit.Taken) {
			_ = p.Swap(noon, func(of func(string, ...*limit.Taken) *limit.Swap) error { s = of("ann", taken...); return nil })
		}
		taken, _ := p.Take("ann", noon, l)
		hand(taken)
		settled, _ := p.Reading("ann")
		for step := range strings.SplitSeq(order, ", ") {
			switch step {
			case "read":
				if err := p.Reread("ann", nil, settled, noon); err != nil {
					t.Fatal(err)
				}
			case "back":
				p.GiveBack("ann", taken)
			case "written":
				kept = s.Is
				p.Swapped(s, true)
			}
		}
		if settled, stale := p.Reading("ann"); stale {
			if err := p.Reread("ann", kept, settled, noon); err != nil {
				t.Fatal(err)
			}
		}
		if len(p.Unsaved(noon)) == 1 {
			if hand(); limit.SameText(s.Was, kept) {
				kept = s.Is
			}
		}
		if kept != nil {
			t.Errorf("%s: %s is kept", order, kept)
		}
	}
}
