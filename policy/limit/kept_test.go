package limit_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fsm-proxy/fsm-proxy/policy/limit"
)

// store is what is kept of principals.
type store map[string]string

// save keeps what some have taken.
func (s store) save(p *limit.Principals, now time.Time, some ...string) {
	_ = p.Save(now, func(of func(string) []byte) error {
		for _, who := range some {
			if text := of(who); text == nil {
				delete(s, who)
			} else {
				s[who] = string(text)
			}
		}
		return nil
	})
}

// read returns a table of what is kept.
func (s store) read(t interface{ Fatal(...any) }, now time.Time) *limit.Principals {
	p := limit.NewPrincipals(0)
	for who, text := range s {
		if err := p.Restore(who, []byte(text), now); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// However calls come and are given back, a table that is saved and read again counts as one that was there all the time;
// one whose last returns were not saved counts no fewer.
func TestPrincipalsLimitsAreKept(t *testing.T) {
	limits := []limit.Limit{at("a\x00é", limit.Minute, 3), at("b", limit.Minute, 2), at("a\x00é", limit.Hour, 5), at("b", limit.Day, 6)}
	people := []string{"ann", "bob", ""}
	rapid.Check(t, func(t *rapid.T) {
		type call struct {
			who         string
			left, right *limit.Taken
		}
		all, kept, keeps, now, open := limit.NewPrincipals(0), limit.NewPrincipals(0), store{}, noon, []call(nil)
		show := func(p *limit.Principals) (out []string) {
			for _, who := range people {
				out = append(out, who+string(p.AppendJSON(nil, who, now)))
			}
			return out
		}
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				who, some := rapid.SampledFrom(people).Draw(t, "who"), []limit.Limit(nil)
				for _, l := range limits {
					if rapid.Bool().Draw(t, "counts") {
						some = append(some, l)
					}
				}
				left, full := all.Take(who, now, some...)
				right, other := kept.Take(who, now, some...)
				if fmt.Sprint(full) != fmt.Sprint(other) || full != nil && !full.Free.Equal(other.Free) {
					t.Fatalf("%v, and %v by what was kept", full, other)
				}
				if left != nil {
					open = append(open, call{who, left, right})
					keeps.save(kept, now, who)
				}
			},
			"give back": func(t *rapid.T) {
				if len(open) == 0 {
					t.Skip("nothing is taken")
				}
				i := rapid.IntRange(0, len(open)-1).Draw(t, "call")
				all.GiveBack(open[i].who, open[i].left)
				kept.GiveBack(open[i].who, open[i].right)
				open = slices.Delete(open, i, i+1)
			},
			"pass": func(t *rapid.T) {
				now = now.Add(rapid.SampledFrom([]time.Duration{1, time.Second, 30 * time.Second, time.Minute - 1, 30 * time.Minute, 12 * time.Hour}).Draw(t, "time"))
			},
			"restart": func(*rapid.T) {
				keeps.save(kept, now, kept.Unsaved(now)...)
				kept, open = keeps.read(t, now), nil
				keeps.save(kept, now, kept.Unsaved(now)...)
				if len(keeps) != all.Len(now) {
					t.Fatalf("of %v anything is kept, and %d have taken something", slices.Collect(maps.Keys(keeps)), all.Len(now))
				}
			},
			"crash": func(*rapid.T) { // and the table is thrown away: nothing was kept of that
				crashed := keeps.read(t, now)
				for _, who := range people {
					was, is := takenOf(kept.AppendJSON(nil, who, now)), takenOf(crashed.AppendJSON(nil, who, now))
					for l, n := range was {
						if is[l] < n {
							t.Fatalf("%q has taken %d of %s, of which %d are kept", who, n, l, is[l])
						}
					}
				}
			},
			"": func(t *rapid.T) {
				for i, one := range show(all) {
					if other := show(kept)[i]; !sameList(one[strings.Index(one, "["):], other[strings.Index(other, "["):]) {
						t.Fatalf("%s, and %s by what was kept", one, other)
					}
				}
			},
		})
	})
}

// takenOf reads how much is taken of each limit.
func takenOf(list []byte) map[string]int {
	out := map[string]int{}
	for one := range strings.SplitSeq(string(list), "},{") {
		name, number, found := strings.Cut(one, `"taken":`)
		if n := 0; found {
			_, _ = fmt.Sscanf(number, "%d", &n)
			out[strings.TrimLeft(name, "[{")] = n
		}
	}
	return out
}

func TestWhatIsKeptIsRead(t *testing.T) {
	l := at("x", limit.Minute, 1)
	for what, x := range map[string]struct {
		read time.Duration // after it was taken
		free time.Duration // after it is read
	}{
		"at once":                 {0, time.Minute},
		"later":                   {45 * time.Second, 15 * time.Second},
		"when it is over":         {time.Minute, 0},
		"after a thousand years":  {290 * 365 * 24 * time.Hour, 0},
		"by a clock that is late": {-time.Hour, time.Minute},
	} {
		p, keeps := limit.NewPrincipals(0), store{}
		p.Take("ann", noon, l)
		keeps.save(p, noon, "ann")
		now := noon.Add(x.read)
		again := keeps.read(t, now)
		if n := again.Len(now); n != 0 == (x.free == 0) {
			t.Errorf("%s: %d have taken something", what, n)
		}
		if _, full := again.Take("ann", now, l); (full == nil) != (x.free == 0) || full != nil && !full.Free.Equal(now.Add(x.free)) {
			t.Errorf("%s: %+v", what, full)
		}
	}
	for _, text := range []string{
		"", "[]x", `{"limits":[{"limit":"x","span":"year","at_most":1,"times":[1]}]}`, `{"limits":[{"limit":"x","span":"day","at_most":1}]}`,
		`{"limits":[{"limit":"x","span":"day","at_most":1,"count":1}]}`, `{"limits":[{"limit":"x","span":"run","at_most":1,"times":[1]}]}`,
		`{"limits":[{"limit":"x","span":"run","at_most":1,"count":-1}]}`, `{"limits":[{"limit":"x","span":"day","at_most":1,"times":[2,-1]}]}`,
		`{"limits":[{"limit":"x","span":"day","at_most":1,"times":[1]},{"limit":"x","span":"day","at_most":1,"times":[1]}]}`,
	} {
		if c, err := limit.Restore([]byte(text), noon); err == nil {
			t.Errorf("%s is read as %s", text, show(c, noon))
		}
	}
	if c, err := limit.Restore([]byte(`{"limits":[{"limit":"x","span":"day","at_most":1,"times":[-9200000000000000000]}]}`), noon); err != nil || c.Forget(noon) {
		t.Errorf("%v: what was taken centuries ago is counted", err)
	}
	var c limit.Counts
	c.Take(noon, at("x", limit.Run, 3), at("x", limit.Visit, 3), at("x", limit.Day, 3))
	again, err := limit.Restore(c.Keep(noon), noon)
	if err != nil || show(again, noon) != show(&c, noon) {
		t.Errorf("%v %s", err, show(again, noon))
	}
}

// What cannot be handed on is to be kept still, and what is over is kept no longer.
func TestWhatIsNotKeptIsUnsaved(t *testing.T) {
	p, l, keeps := limit.NewPrincipals(0), at("x", limit.Minute, 3), store{}
	first, _ := p.Take("ann", noon, l)
	if some := p.Unsaved(noon); some != nil {
		t.Errorf("%v: nothing is kept of a call that was not sent", some)
	}
	keeps.save(p, noon, "ann")
	p.GiveBack("ann", first)
	if err := p.Save(noon, func(of func(string) []byte) error { return fmt.Errorf("%s", of("ann")) }); err == nil {
		t.Fatal("no error")
	}
	if some := p.Unsaved(noon); !slices.Equal(some, []string{"ann"}) {
		t.Errorf("%v", some)
	}
	keeps.save(p, noon, "ann")
	if some := p.Unsaved(noon); some != nil || len(keeps) != 0 {
		t.Errorf("%v %v", some, keeps)
	}
	p.Take("bob", noon, l)
	keeps.save(p, noon, "bob")
	if some := p.Unsaved(noon.Add(time.Minute)); !slices.Equal(some, []string{"bob"}) {
		t.Errorf("%v", some)
	}
	keeps.save(p, noon.Add(time.Minute), "bob")
	if len(keeps) != 0 {
		t.Error(keeps)
	}
}

// A place that another policy calls otherwise goes on with what was taken under both names.
func TestPrincipalsMoveWithTheirPlaces(t *testing.T) {
	p := limit.NewPrincipals(0)
	p.Take("ann", noon, at("idle/x", limit.Minute, 5))
	p.Take("ann", noon.Add(time.Second), at("waiting/x", limit.Minute, 5), at("gone", limit.Minute, 5)) // by the policy that came
	p.Adopt(func(key string) (string, bool) {
		return strings.Replace(key, "idle", "waiting", 1), key != "gone"
	})
	if got, want := string(p.AppendJSON(nil, "ann", noon.Add(time.Second))),
		`[{"limit":"gone","span":"minute","at_most":5,"taken":1},{"limit":"waiting/x","span":"minute","at_most":5,"taken":2}]`; !sameList(got, want) {
		t.Error(got)
	}
	if got, want := string(p.AppendJSON(nil, "ann", noon.Add(time.Minute))),
		`[{"limit":"gone","span":"minute","at_most":5,"taken":1},{"limit":"waiting/x","span":"minute","at_most":5,"taken":1}]`; !sameList(got, want) {
		t.Errorf("a minute later: %s", got)
	}
}
