package run_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/guard"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// refusing is a run that lasts, in which calls are refused, and what it has made.
type refusing struct {
	*testing.T
	run.Run
	now  time.Time
	made []run.Entry
}

func refuses(t *testing.T) *refusing {
	w := &refusing{T: t, now: time.Unix(1000, 0)}
	w.Run = run.New(run.Config{Policy: parse(t, remembering), Lasts: true}, w.now)
	w.took()
	w.made = nil
	return w
}

func (w *refusing) took() { w.made = append(w.made, w.Made()...) }

// refuse has a call refused after some time, and returns the number of the entry that tells of it.
func (w *refusing) refuse(after time.Duration, name string) uint64 {
	w.Helper()
	w.now = w.now.Add(after)
	c := &run.Call{Request: run.Request{Kind: policy.Tool, Name: name, Listed: true, Known: true, Who: &guard.Who{Issuer: "i", Subject: "ann"}}}
	if a, _ := w.Enter(c, 1, w.now); a != run.Refused {
		w.Fatalf("%s is %v", name, a)
	}
	w.Decline(c, c.Verdict.Code, w.now)
	w.took()
	return c.Told()
}

// lists are the entries, each in a line: its number, what was refused and why, and how often.
func (w *refusing) lists() string {
	var out strings.Builder
	for _, e := range w.made {
		name := "-"
		if e.Call != nil {
			name = e.Call.Name
		}
		fmt.Fprintf(&out, "%d %s %s %s %d %s\n", e.Seq, e.Type, name, e.Said.Code, e.Said.Times, e.Said.Subject)
	}
	return out.String()
}

func (w *refusing) wants(want string) {
	w.Helper()
	if got := w.lists(); strings.TrimSpace(got) != strings.TrimSpace(want) {
		w.Errorf("the entries are\n%s\nand not\n%s", got, want)
	}
}

// The first refusal is told of at once, those that are alike and follow it by one entry, which has its number from the
// beginning on, and what comes between them ends that.
func TestRefusalsAreCounted(t *testing.T) {
	w := refuses(t)
	if n := w.refuse(0, "gone"); n != 2 {
		t.Error(n)
	}
	w.wants("2 refused gone unknown_action 0 ann")
	if w.MovedSince(1) {
		t.Error("a refusal has moved the run")
	}
	for range 5 {
		if n := w.refuse(10*time.Millisecond, "gone"); n != 3 {
			t.Error(n)
		}
	}
	w.wants("2 refused gone unknown_action 0 ann")
	if until := w.DeclinedUntil(); until != w.now.Add(60*time.Millisecond) {
		t.Error(until)
	}
	w.Declined(w.DeclinedUntil().Add(-1))
	w.took()
	w.wants("2 refused gone unknown_action 0 ann")
	w.Declined(w.DeclinedUntil())
	w.took()
	w.wants("2 refused gone unknown_action 0 ann\n3 refused gone unknown_action 5 ann")
	if e := w.made[1]; e.Said.Since != time.Unix(1000, 1e7) || e.Time != time.Unix(1000, 5e7) || e.From != e.To {
		t.Errorf("%+v %+v", e, e.Said)
	}
	w.made = nil
	w.refuse(time.Second, "gone")
	w.refuse(time.Millisecond, "apply")
	w.refuse(time.Millisecond, "apply")
	w.wants("4 refused gone unknown_action 0 ann")
	w.Restart(w.now)
	w.took()
	if w.made = w.made[:2]; w.Seq() != 5 {
		t.Error(w.Seq())
	}
	w.wants("4 refused gone unknown_action 0 ann\n5 refused apply invalid_transition 2 ann")
	w.made = nil
	w.refuse(time.Second, "apply")
	w.wants("7 refused apply invalid_transition 0 ann")
	w.refuse(time.Second, "apply")
	w.made = nil
	w.refuse(time.Hour, "apply") // which is no more one that follows
	w.wants("8 refused apply invalid_transition 0 ann\n9 refused apply invalid_transition 0 ann")
}

// A hundred thousand refusals take less than 50 KB, alike or not, and each is counted; what was asked for may be any text.
func TestManyRefusalsAreFewEntries(t *testing.T) {
	long := strings.Repeat("\xff", 300)
	for title, name := range map[string]func(int) string{
		"alike":     func(int) string { return "gone" },
		"turn":      func(i int) string { return []string{"gone", "apply"}[i%2] },
		"different": func(i int) string { return fmt.Sprint(i, long) },
	} {
		t.Run(title, func(t *testing.T) {
			const all = 100_000
			w := refuses(t)
			for i := range all {
				w.refuse(5*time.Millisecond, name(i))
			}
			w.Restart(w.now)
			w.took()
			bytes, n := 0, uint64(0)
			for i := range w.made {
				if w.made[i].Type == run.Declined {
					n += max(w.made[i].Said.Times, 1)
				}
				text, err := w.made[i].AppendJSON(nil)
				if err != nil {
					t.Fatal(err)
				}
				bytes += len(text)
			}
			if n != all || bytes > 50_000 {
				t.Errorf("%d refusals have %d entries of %d bytes", n, len(w.made), bytes)
			}
		})
	}
}

// An operator, who asks on nobody's behalf, is named.
func TestSentBy(t *testing.T) {
	w := refuses(t)
	c := &run.Call{Request: run.Request{Kind: policy.Signal, From: policy.Operator, Name: "gone", Listed: true, Known: true}}
	c.SentBy("admin", "olga\xff")
	w.Enter(c, 1, w.now)
	w.Decline(c, c.Verdict.Code, w.now)
	w.took()
	text, err := w.made[0].AppendJSON(nil)
	if err != nil || !strings.Contains(string(text), `"issuer":"admin","subject":"olga�"`) {
		t.Errorf("%s, %v", text, err)
	}
}

// A call that changes nothing is told of once, with what became of it; one that had begun is told of by its end. A run
// that does not last tells of neither.
func TestCallsThatStay(t *testing.T) {
	p := parse(t, "version: 1\ninitial: a\nstates: {a: {tools: {look: stay, go: b}}, b: {}}\n")
	for _, lasts := range []bool{true, false} {
		r := run.New(run.Config{Policy: p, Lasts: lasts}, time.Unix(1000, 0))
		r.Made()
		c := &run.Call{Request: run.Request{Kind: policy.Tool, Name: "look", Listed: true, Known: true}}
		if a, _ := r.Enter(c, 1, time.Unix(1000, 0)); a != run.Admitted {
			t.Fatal(a)
		}
		end := run.End{Outcome: policy.Error, Took: 1500 * time.Microsecond}
		e, _, err := r.Settle(c, end, time.Unix(1001, 0))
		if e.Seq != 0 || err != nil {
			t.Fatal(e, err)
		}
		e = r.Stay(c, end, time.Unix(1001, 0))
		if again := r.Stay(c, end, time.Unix(1001, 0)); again.Seq != 0 {
			t.Error("a call has stayed twice")
		}
		if !lasts {
			if made := r.Made(); e.Seq != 0 || len(made) != 0 || r.Seq() != 0 {
				t.Error(e, made)
			}
			continue
		}
		text, err := e.AppendJSON(nil)
		want := `{"type":"stayed","time":"1970-01-01T00:16:41Z","kind":"tool","name":"look","outcome":"error","rule":"test.yaml:3:22","from":"a","to":{"state":"a","policy":"` + p.Digest() + `"},"microseconds":1500}`
		if made := r.Made(); err != nil || string(text) != want || e.Seq != 2 || len(made) != 1 || r.Awaited() != nil {
			t.Errorf("%s %v %+v\n%s", text, err, made, want)
		}
	}
}
