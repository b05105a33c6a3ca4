package run_test

import (
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/guard"
	"github.com/fsm-proxy/fsm-proxy/policy/limit"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

const limited = `
version: 1
initial: work
at_most: {hour: 12}
everywhere:
  tools: {look: {at_most: {run: 6}}}
states:
  work:
    at_most: 5
    tools:
      send: {at_most: 3, because: Three letters are enough.}
      go: rest
      pay:
        at_most: {minute: 2}
        by: what
        cases: {a: stay, b: {at_most: 1}}
      "read_*": {at_most: 2}
    signals: {over: {to: rest, at_most: 1}}
  rest: {tools: {back: work}, signals: {again: work}}
`

// TestSixtyFourAtOnceAgainstThree counts when a call is let go, not when it ends.
func TestSixtyFourAtOnceAgainstThree(t *testing.T) {
	w := begin(t, limited)
	var sent []*run.Call
	for range 64 {
		c, a := w.enterWith("send", "{}")
		switch {
		case a == run.Admitted:
			sent = append(sent, c)
		case c.Verdict.Code != policy.LimitReached || len(c.Verdict.Because()) != 1:
			t.Fatal(c.Verdict)
		}
	}
	if len(sent) != 3 {
		t.Fatalf("%d were sent", len(sent))
	}
	w.Leave(sent[0], w.now) // it never went: another may
	w.result(w.with("send", "{}", policy.CodeNone), policy.Unknown, "")
	w.result(sent[1], policy.Error, "{}")
	w.with("send", "{}", policy.LimitReached)
}

// TestLimitsOfPlaces counts each place for itself, and all that hold.
func TestLimitsOfPlaces(t *testing.T) {
	w := begin(t, limited)
	stay := func(name string, code policy.Code) {
		t.Helper()
		if c := w.with(name, "{}", code); code == policy.CodeNone {
			w.result(c, policy.Success, "{}")
		}
	}
	stay("read_a", policy.CodeNone)
	stay("read_b", policy.CodeNone)
	stay("read_c", policy.LimitReached) // a glob's names together
	stay("look", policy.CodeNone)
	stay("look", policy.CodeNone)
	stay("look", policy.CodeNone)           // the fifth of the visit
	stay("send", policy.LimitReached)       // since what is refused counts nowhere, it has all three
	w.with("go", "{}", policy.LimitReached) // a way out by a call is a call
	signal := &run.Call{Request: run.Request{Kind: policy.Signal, Name: "over", Listed: true, Known: true}}
	if a, _ := w.Enter(signal, 0, w.now); a != run.Admitted { // and a signal is none
		t.Fatal(signal.Verdict)
	}
	w.ends(signal, policy.Success)
	w.in("rest")
	stay("look", policy.CodeNone)
	w.does("back")
	stay("send", policy.CodeNone) // another visit
	stay("look", policy.CodeNone)
	stay("look", policy.CodeNone)
	stay("look", policy.LimitReached) // everywhere's states together
	stay("send", policy.CodeNone)
	stay("send", policy.CodeNone) // the visit's fifth, and the hour's twelfth
	if c := w.with("send", "{}", policy.LimitReached); c.Free() != (time.Time{}) && c.Free().Sub(w.now) != time.Hour {
		t.Error(c.Free())
	}
	w.now = w.now.Add(time.Hour)
	w.Restart(w.now)
	stay("send", policy.CodeNone)
}

// TestWindowsAreNotReset begins the run anew within a window.
func TestWindowsAreNotReset(t *testing.T) {
	w := begin(t, limited)
	for range 2 {
		for range 3 {
			w.result(w.with("send", "{}", policy.CodeNone), policy.Success, "{}")
		}
		w.result(w.with("look", "{}", policy.CodeNone), policy.Success, "{}")
		w.Restart(w.now)
		for range 2 {
			w.result(w.with("send", "{}", policy.CodeNone), policy.Success, "{}")
		}
		w.Restart(w.now)
	}
	c := w.with("send", "{}", policy.LimitReached)
	if free := c.Free().Sub(w.now); free != time.Hour {
		t.Errorf("free in %v", free)
	}
	w.now = w.now.Add(time.Hour)
	w.with("send", "{}", policy.CodeNone)
}

// TestLimitsOfCases holds what stands beside by for every case.
func TestLimitsOfCases(t *testing.T) {
	w := begin(t, limited)
	pay := func(what string) policy.Code {
		c := &run.Call{Request: run.Request{Kind: policy.Tool, Name: "pay", Arguments: split(what), Listed: true, Known: true}}
		if a, _ := w.Enter(c, 0, w.now); a != run.Admitted {
			return c.Verdict.Code
		}
		w.Settle(c, run.End{Outcome: policy.Success}, w.now)
		return policy.CodeNone
	}
	if pay("b") != policy.CodeNone || pay("b") != policy.LimitReached || pay("a") != policy.CodeNone || pay("a") != policy.LimitReached {
		t.Error("b once, and two in all")
	}
	w.now = w.now.Add(time.Minute)
	if pay("b") != policy.LimitReached || pay("a") != policy.CodeNone {
		t.Error("b once in a run, a twice in a minute")
	}
}

// split are arguments whose every member is one text.
type split string

func (s split) JSON() []byte { return []byte("{}") }

func (s split) At([]string) (policy.Argument, bool) { return policy.Text(string(s)), false }

// TestReloadKeepsCounts moves a run to a policy that calls its state by another name.
func TestReloadKeepsCounts(t *testing.T) {
	w := begin(t, limited)
	for range 3 {
		w.result(w.with("send", "{}", policy.CodeNone), policy.Success, "{}")
	}
	w.reload("version: 1\ninitial: desk\nrenamed: {work: desk}\nstates: {desk: {tools: {send: {at_most: 4}, look: {at_most: 1}}}}\n")
	w.result(w.with("send", "{}", policy.CodeNone), policy.Success, "{}")
	w.with("send", "{}", policy.LimitReached)
	w.with("look", "{}", policy.CodeNone)
	w.reload("version: 1\ninitial: desk\nstates: {desk: {tools: {send: stay}}}\n")
	w.reload("version: 1\ninitial: desk\nstates: {desk: {tools: {send: {at_most: 1}}}}\n")
	w.with("send", "{}", policy.CodeNone) // what was not counted for a while begins anew
}

// TestCountOfACallAgain sends a call once more that its client was asked for: it counts once.
func TestCountOfACallAgain(t *testing.T) {
	w := begin(t, "version: 1\ninitial: a\nstates: {a: {tools: {x: {exclusive: true, at_most: 1}}}}\n")
	c := w.with("x", "{}", policy.CodeNone)
	if a, held, _ := w.Keeps(c, w.now); a != run.Admitted || !held {
		t.Fatal(a, held)
	}
	w.result(c, policy.Success, "{}")
	w.with("x", "{}", policy.LimitReached)
}

// TestLimitsOfPrincipals counts what one principal does in all of its runs, and not what another does.
func TestLimitsOfPrincipals(t *testing.T) {
	p := parse(t, "version: 1\ninitial: a\nat_most: {principal: {day: 3}}\nstates: {a: {tools: {x: {at_most: {principal: {hour: 2}}}, y: }}}\n")
	shared, now := &run.Shared{Principals: limit.NewPrincipals(0)}, time.Unix(1000, 0)
	first, second := run.New(run.Config{Policy: p, Shared: shared}, now), run.New(run.Config{Policy: p, Shared: shared}, now)
	does := func(r *run.Run, name, subject string) policy.Code {
		c := &run.Call{Request: run.Request{Kind: policy.Tool, Name: name, Listed: true, Known: true, Who: &guard.Who{Issuer: "i", Subject: subject}}}
		if a, _ := r.Enter(c, 0, now); a != run.Admitted {
			return c.Verdict.Code
		}
		r.Settle(c, run.End{Outcome: policy.Success}, now)
		return policy.CodeNone
	}
	for i, x := range []struct {
		r             *run.Run
		name, subject string
		code          policy.Code
	}{
		{&first, "x", "ann", policy.CodeNone}, {&second, "x", "ann", policy.CodeNone},
		{&first, "x", "ann", policy.LimitReached}, {&first, "x", "bob", policy.CodeNone},
		{&second, "y", "ann", policy.CodeNone}, {&second, "y", "ann", policy.LimitReached}, {&first, "y", "bob", policy.CodeNone},
	} {
		if code := does(x.r, x.name, x.subject); code != x.code {
			t.Errorf("%d: %s of %s: %v", i, x.name, x.subject, code)
		}
	}
	now = now.Add(time.Hour)
	if code := does(&first, "x", "bob"); code != policy.CodeNone {
		t.Error(code)
	}
}
