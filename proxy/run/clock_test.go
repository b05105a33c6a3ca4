package run_test

import (
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

const clocked = `
version: 1
initial: idle
registers: {late: counter}
states:
  idle: {tools: {start: building, look: }}
  building:
    after: {30m: {to: idle, set: {late: {add: 1}}}}
    tools: {build: {on_any: stay, exclusive: true}, done: reviewing, look: }
  reviewing:
    after: {1h: {to: idle, terminal: true}}
    tools: {again: {on_success: {to: building}}, back: building}
`

func TestClockOfAState(t *testing.T) {
	w := begin(t, clocked)
	if _, ok := w.Due(); ok {
		t.Error("idle has no clock")
	}
	w.does("start")
	due, ok := w.Due()
	if !ok || due.Sub(w.now) != 30*time.Minute {
		t.Fatal(due, ok)
	}
	w.now = due.Add(-time.Second)
	if e := w.Expire(w.now); e.Entries != nil {
		t.Error("it has gone off early")
	}
	w.does("build") // to stay is no entering
	w.now = due
	e := w.Expire(w.now)
	if w.in("idle"); len(e.Entries) != 1 || e.Entries[0].Type != run.Expired || e.From.State() != "building" || e.To.State() != "idle" {
		t.Fatalf("%+v", e)
	}
	w.registers(`{"late":1}`)
	w.does("start")
	if again, _ := w.Due(); again.Sub(w.now) != 30*time.Minute {
		t.Error("the next visit has a clock of its own")
	}
	w.does("done")
	w.now = w.now.Add(time.Hour)
	w.Expire(w.now)
	w.in("idle") // complete, and begun anew
	w.registers(`{"late":0}`)
}

// TestClockThatNobodyHeard goes off before what is asked for next.
func TestClockThatNobodyHeard(t *testing.T) {
	w := begin(t, clocked)
	w.does("start")
	w.now = w.now.Add(time.Hour)
	c, a, e := w.enter("build")
	if a != run.Refused || c.Verdict.Code != policy.InvalidTransition || e.From.State() != "building" || e.To.State() != "idle" {
		t.Errorf("%v, %v, %+v", a, c.Verdict.Code, e)
	}
}

// TestClockWhileACallHasTheTurn is due in the midst of a call: it goes off when that passes the
// turn on, before those who wait for it, and the outcome of the call is taken first.
func TestClockWhileACallHasTheTurn(t *testing.T) {
	for _, x := range []struct {
		name    string
		outcome policy.Outcome
		in      string
		waiting run.Admission
	}{
		{"build", policy.Success, "idle", run.Refused},
		{"done", policy.Error, "idle", run.Refused},
		{"done", policy.Success, "reviewing", run.Refused}, // another visit, whose clock has just begun
	} {
		w := begin(t, clocked)
		w.does("start")
		holder := w.call(x.name)
		if _, ok := w.Due(); ok {
			t.Error("while a call has the turn no clock goes off")
		}
		waiting, a, _ := w.enter("build")
		if a != run.Queued {
			t.Fatal(a)
		}
		w.now = w.now.Add(31 * time.Minute)
		if e := w.Expire(w.now); e.Entries != nil {
			t.Fatal("it went off beneath a call")
		}
		_, e := w.ends(holder, x.outcome)
		w.in(x.in)
		if len(e.Ready) != 1 || e.Ready[0] != waiting {
			t.Fatalf("%+v", e)
		}
		if a, _ := w.Granted(waiting, w.now); a != x.waiting {
			t.Errorf("%s: %v", x.name, a)
		}
	}
}

// TestClockAndReload keeps the beginning of a visit, and goes by the policy that steps the run.
func TestClockAndReload(t *testing.T) {
	w := begin(t, clocked)
	w.does("start")
	w.now = w.now.Add(10 * time.Minute)
	w.reload("version: 1\ninitial: rest\nrenamed: {building: work}\nstates: {rest: {tools: {start: work}}, work: {after: {15m: rest}, tools: {look: }}}\n")
	if due, ok := w.Due(); !ok || due.Sub(w.now) != 5*time.Minute {
		t.Error(due.Sub(w.now), ok)
	}
	w.now = w.now.Add(5 * time.Minute)
	w.Expire(w.now)
	w.in("rest")

	w = begin(t, clocked)
	w.does("start")
	w.reload("version: 1\ninitial: other\nstates: {other: {tools: {look: }}}\n") // the run is stranded
	w.now = w.now.Add(30 * time.Minute)
	w.Expire(w.now)
	w.in("idle")
}

// TestClockSetBack goes by a clock that nobody sets back where there is one; by another it goes off late, and never
// twice.
func TestClockSetBack(t *testing.T) {
	w := begin(t, clocked)
	w.does("start")
	w.now = w.now.Add(-time.Hour)
	if e := w.Expire(w.now); e.Entries != nil {
		t.Error("it has gone off early")
	}
	w.now = w.now.Add(90 * time.Minute)
	if e := w.Expire(w.now); len(e.Entries) != 1 {
		t.Error(e)
	}
	if e := w.Expire(w.now); e.Entries != nil {
		t.Error("twice")
	}
}

func TestClockInShadow(t *testing.T) {
	w := begin(t, clocked)
	w.does("start")
	w.SetShadow(true, w.now)
	w.now = w.now.Add(30 * time.Minute)
	w.Expire(w.now)
	w.in("idle")
}
