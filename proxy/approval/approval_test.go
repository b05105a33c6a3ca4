package approval

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// naive is what a table is to say, as a reader of the docs would do it: facts with their times, looked through each time.
type naive struct {
	asked, until map[string]time.Time // by digest: until when a question is open, a yes waits
	no, late     map[string]bool
}

func newNaive() *naive {
	return &naive{asked: map[string]time.Time{}, until: map[string]time.Time{}, no: map[string]bool{}, late: map[string]bool{}}
}

func (n *naive) pass(now time.Time) {
	for d, at := range n.asked {
		if !now.Before(at) {
			delete(n.asked, d)
			n.late[d] = true
		}
	}
	for d, at := range n.until {
		if !now.Before(at) {
			delete(n.until, d)
		}
	}
}

func (n *naive) state(d string) string {
	_, open := n.asked[d]
	_, yes := n.until[d]
	switch {
	case open:
		return "open"
	case yes:
		return "yes"
	case n.no[d]:
		return "no"
	case n.late[d]:
		return "late"
	}
	return "nothing"
}

var words = map[State]string{Open: "open", Allowed: "yes", Denied: "no", Unanswered: "late"}

// A table says of each call what the naive reading says, and tells of each question once that it is open no more.
func TestTableAgainstNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var table Table
		var principals Principals
		n, now, made := newNaive(), time.Unix(1000, 0), 0
		told, done := map[string]int{}, 0
		digests := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"})
		find := func(d string) *Question { return table.Find(Key{Digest: d}, nil, now) }
		t.Repeat(map[string]func(*rapid.T){
			"time passes": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(1, 40).Draw(t, "seconds")) * time.Second)
				n.pass(now)
			},
			"ask": func(t *rapid.T) {
				d := digests.Draw(t, "call")
				if find(d) != nil {
					t.Skip("known")
				}
				made++
				q := &Question{Key: Key{Digest: d}, ID: fmt.Sprint(made), Expires: now.Add(time.Minute), Patience: time.Minute}
				room := len(n.asked) < MaxOpen
				if table.Ask(q, &principals, now) != room {
					t.Fatalf("%d are open, and there is room: %v", len(n.asked), !room)
				}
				if room {
					n.asked[d] = q.Expires
				}
			},
			"answer": func(t *rapid.T) {
				d, allow := digests.Draw(t, "call"), rapid.Bool().Draw(t, "allow")
				q := find(d)
				if q == nil || q.State() != Open {
					t.Skip("not open")
				}
				delete(n.asked, d)
				if table.Answer(q, map[bool]State{true: Allowed, false: Denied}[allow], now); allow {
					n.until[d] = now.Add(time.Minute)
				} else {
					n.no[d] = true
				}
			},
			"use": func(t *rapid.T) {
				d := digests.Draw(t, "call")
				q := find(d)
				if q == nil || q.State() != Allowed && q.State() != Unanswered {
					t.Skip("nothing to use")
				}
				table.Use(q)
				back := q.State() == Allowed && rapid.Bool().Draw(t, "given back")
				if back {
					table.GiveBack(q)
				} else {
					delete(n.until, d)
					delete(n.late, d)
				}
			},
			"leave": func(t *rapid.T) {
				table.Close()
				n = newNaive()
			},
			"": func(t *rapid.T) {
				open := 0
				for _, d := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"} {
					got := "nothing"
					if q := find(d); q != nil {
						got = words[q.State()]
					}
					if want := n.state(d); got != want {
						t.Fatalf("%s is %s, want %s", d, got, want)
					}
					if got == "open" {
						open++
					}
				}
				for _, q := range table.Told() {
					if told[q.ID]++; told[q.ID] > 1 || q.State() == Open || q.Arguments != nil {
						t.Fatalf("%s is told of %d times as %v", q.ID, told[q.ID], q.State())
					}
					done++
				}
				if len(principals.open[""]) != open || len(table.Open(now)) != open {
					t.Fatalf("%d are open, %d counted", open, len(principals.open[""]))
				}
			},
		})
	})
}

// A principal has 32 open questions in all of its runs, and those that nobody has looked at since their time was over do
// not count.
func TestPrincipalsRoom(t *testing.T) {
	var principals Principals
	now := time.Unix(1000, 0)
	tables := make([]Table, 6)
	ask := func(table *Table, principal string, i int) bool {
		q := &Question{Key: Key{Digest: fmt.Sprint(i), Principal: principal}, Expires: now.Add(time.Minute)}
		return table.Ask(q, &principals, now)
	}
	n := 0
	for i := range tables {
		for j := range 10 {
			if ask(&tables[i], "ann", 10*i+j) {
				n++
			}
		}
	}
	if n != MaxPerPrincipal {
		t.Fatalf("%d are open, want %d", n, MaxPerPrincipal)
	}
	if !ask(&tables[5], "bob", 1) {
		t.Error("another's room is taken")
	}
	now = now.Add(time.Minute)
	if !ask(&tables[5], "ann", 1) {
		t.Error("what is over takes room")
	}
	for i := range tables {
		tables[i].Close()
	}
	if len(principals.open) != 0 {
		t.Errorf("%v is left", principals.open)
	}
}

// What is remembered of a visit is bounded: late questions make room, a no never does.
func TestAnswersAreBounded(t *testing.T) {
	var table Table
	var principals Principals
	now := time.Unix(1000, 0)
	ask := func(i int) *Question {
		q := &Question{Key: Key{Digest: fmt.Sprint(i)}, Expires: now.Add(time.Second), Arguments: []byte("{}")}
		if !table.Ask(q, &principals, now) {
			return nil
		}
		return q
	}
	for i := range 1000 {
		if ask(i) == nil {
			t.Fatalf("no room for %d", i)
		}
		now = now.Add(time.Second)
	}
	if len(table.all) != MaxKept {
		t.Errorf("%d are kept", len(table.all))
	}
	denied := 0
	for i := 1000; i < 2000; i++ {
		q := ask(i)
		if q == nil {
			break
		}
		table.Answer(q, Denied, now)
		denied++
	}
	if denied != MaxKept || table.Find(Key{Digest: "1000"}, nil, now).State() != Denied {
		t.Errorf("%d were denied, of which the first is forgotten, or the room has no end", denied)
	}
}

// A call that is sent once more has its yes still, whatever another one like it has asked meanwhile, and though nobody has
// answered that.
func TestYesBeforeAnothersQuestion(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, later := range map[string]time.Duration{"open": 0, "unanswered": time.Hour} {
		var table Table
		var principals Principals
		ask := func() *Question {
			q := &Question{Patience: time.Minute, Expires: now.Add(time.Minute)}
			if !table.Ask(q, &principals, now) {
				t.Fatal("no room")
			}
			return q
		}
		own := ask()
		table.Answer(own, Allowed, now)
		table.Use(own)
		others := ask()
		table.GiveBack(own)
		if table.Find(Key{}, own, now.Add(later)) != own {
			t.Errorf("%s: its yes is not found", name)
		}
		table.Use(own)
		if table.Find(Key{}, nil, now.Add(later)) != others {
			t.Errorf("%s: what the other has asked is not found", name)
		}
	}
}
