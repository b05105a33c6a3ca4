package limit_test

import (
	"bytes"
	"slices"
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
				if s := of("ann", one...); !s.Same() {
					waits[table] = append(waits[table], handed{s, c})
				} else if c != nil {
					waits[table] = append(waits[table], handed{nil, c}) // as a begin that swaps nothing
				}
				return nil
			})
		}
		reread := func(table int) {
			if err := tables[table].Reread("ann", bytes.Clone(kept), now); err != nil {
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
				if tables[table].IsStale("ann") {
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
		for range 4 {
			for i := range tables {
				for len(waits[i]) > 0 {
					settle(i)
				}
				if tables[i].IsStale("ann") {
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
			if n < 0 {
				t.Fatalf("%d calls that were sent are not kept of %s", -n, name)
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
	if err := b.Reread("ann", kept, noon); err != nil || b.IsStale("ann") {
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
	if err := a.Reread("ann", kept, noon); err != nil || len(a.Unsaved(noon)) != 1 || !swap(a) {
		t.Fatal("what was given back is not kept", err)
	}
	b.GiveBack("ann", second)
	if swap(b) || b.Reread("ann", kept, noon) != nil || !swap(b) || kept != nil {
		t.Errorf("%s is kept", kept)
	}
}
