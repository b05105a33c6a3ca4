package run_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/guard"
	"github.com/fsm-proxy/fsm-proxy/proxy/approval"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// approving has calls that a guard, a limit and the turn let go beside somebody's yes.
const approving = `version: 1
name: v%d
initial: a
registers: {spent: counter}
states:
  a:
    tools:
      pay:
        - {when: 'args.x < 2.0 && registers.spent < 2', approve: {by: operator, timeout: 1m}, set: {spent: {add: 1}}}
        - {when: args.x >= 2.0, approve: {by: client, timeout: 1m}, on_success: b}
      note: {at_most: {run: 3, minute: 2}, approve: {by: operator, timeout: 1m}}
      look:
      go: b
  b: {tools: {back: {on_success: {to: a, set: {spent: none}}}, note: {approve: {by: operator, timeout: 1m}}}}
`

// yes is what somebody has said of a call, in the words of the docs: to which call of whom, in which visit, and until when.
type yes struct {
	what  string
	epoch int
	until time.Time
	used  *run.Call
	order int // of two yeses to the same, which is used first
}

// asks is a run with what is asked in it, read naively: facts with their times, looked through each time.
type asks struct {
	*rapid.T
	r   run.Run
	now time.Time

	state   string
	spent   int
	epoch   int // of the visit and the policy
	version int // of the policy in force
	behind  bool
	life    int

	yeses   []*yes
	mine    *yes                 // which the call has used before that is decided
	open    map[string]time.Time // in this epoch: what is asked, until when
	order   map[string]int       // when it was asked
	no      map[string]bool      // likewise
	late    map[string]bool      // likewise: nobody has answered, and nobody was told
	counted []*count             // of note in a
	sent    []*run.Call
	queued  []*run.Call
	of      map[*run.Call]*asker
	made    int
}

// count is a call that a limit has counted.
type count struct {
	c    *run.Call
	at   time.Time
	life int
}

// asker is a call, and what it waits for.
type asker struct {
	what  string // name, arguments and principal
	x     int
	life  int // in which it was sent
	held  *approval.Question
	epoch int // in which held was asked
}

func (w *asks) move() {
	w.epoch++
	w.open, w.no, w.late = map[string]time.Time{}, map[string]bool{}, map[string]bool{}
}

// pass has what nobody has answered in time be late.
func (w *asks) pass() {
	for what, until := range w.open {
		if !w.now.Before(until) {
			delete(w.open, what)
			w.late[what] = true
		}
	}
}

// allowed says which call may go here if somebody says yes.
func (w *asks) allowed(c *run.Call) policy.Code {
	bound := map[string]string{"a": "pay note look go", "b": "back note"}[w.state]
	switch x := w.of[c].x; {
	case !slices.Contains(strings.Fields(bound), c.Name):
		return policy.InvalidTransition
	case c.Name == "pay" && x < 2 && w.spent >= 2:
		return policy.GuardFailed
	case c.Name == "note" && w.state == "a" && w.full():
		return policy.LimitReached
	}
	return policy.CodeNone
}

func (w *asks) full() bool {
	inRun, inMinute := 0, 0
	for _, n := range w.counted {
		if n.life == w.life {
			inRun++
		}
		if w.now.Sub(n.at) < time.Minute {
			inMinute++
		}
	}
	return inRun >= 3 || inMinute >= 2
}

// yesTo is the one that a call uses.
func (w *asks) yesTo(what string) (first *yes) {
	for _, y := range w.yeses {
		if y.what == what && y.epoch == w.epoch && y.used == nil && (w.now.Before(y.until) || y == w.mine) && (first == nil || y.order < first.order) {
			first = y
		}
	}
	return first
}

func approved(name string) bool { return name == "pay" || name == "note" }

// decided compares what became of a call with the naive reading.
func (w *asks) decided(c *run.Call, a run.Admission) {
	defer func() { w.mine = nil }() // who is decided next has nothing of it
	code, what := w.allowed(c), w.of[c].what
	switch a {
	case run.Admitted:
		if code != policy.CodeNone {
			w.Fatalf("%s is sent in %s, and is to be refused with %s", what, w.state, code)
		}
		w.sent, w.of[c].life = append(w.sent, c), w.life
		if c.Name == "note" && w.state == "a" {
			w.counted = append(w.counted, &count{c, w.now, w.life})
		}
		if !approved(c.Name) {
			return
		}
		y := w.yesTo(what)
		if y == nil || w.no[what] {
			w.Fatalf("%s is sent in %s: yes %v, no %v", what, w.state, y, w.no[what])
		}
		y.used = c
	case run.Refused:
		held := w.of[c].held
		if code == policy.CodeNone && (w.no[what] || w.late[what] || held != nil && held.State() == approval.Unanswered) {
			code = policy.ApprovalDenied
			delete(w.late, what) // it is told once
		}
		if c.Verdict.Code != code {
			w.Fatalf("%s is refused in %s with %s, want %s", what, w.state, c.Verdict.Code, code)
		}
	case run.ApprovalWanted:
		_, open := w.open[what]
		if code != policy.CodeNone || !approved(c.Name) || w.no[what] || w.late[what] || !open && w.yesTo(what) != nil {
			w.Fatalf("%s is asked in %s: %s, yes %v, no %v", what, w.state, code, w.yesTo(what), w.no[what])
		}
	case run.Queued:
		if code != policy.CodeNone || approved(c.Name) && w.yesTo(what) == nil {
			w.Fatalf("%s waits for the turn in %s: %s", what, w.state, code)
		}
		if y := w.yesTo(what); y != nil {
			w.last(y) // it keeps none while it waits
		}
		w.queued = append(w.queued, c)
	case run.Crowded: // with the turn, or with questions
	default:
		w.Fatalf("%s: %v", what, a)
	}
}

// ask enters a call, or one that has asked before.
func (w *asks) ask(c *run.Call) {
	w.made++
	q := &approval.Question{ID: fmt.Sprint(w.made), Done: make(chan struct{})}
	x := w.of[c]
	a, asked, e := w.r.Ask(c, q, x.held, 2, w.now)
	w.caughtUp()
	w.decided(c, a)
	if a == run.ApprovalWanted && (asked == nil || asked.State() != approval.Open && asked.State() != approval.Unanswered) {
		w.Fatalf("%s is asked: %+v", x.what, asked)
	}
	if x.held = asked; asked != nil {
		x.epoch = w.epoch
		if _, open := w.open[x.what]; !open {
			w.open[x.what], w.order[x.what] = w.now.Add(time.Minute), w.made
		}
	}
	w.goOn(e)
}

// goOn gives the turn to whom effects say.
func (w *asks) goOn(e run.Effects) {
	for _, c := range e.Ready {
		w.queued = slices.DeleteFunc(w.queued, func(q *run.Call) bool { return q == c })
		a, e := w.r.Granted(c, w.now)
		w.decided(c, a)
		w.goOn(e)
		if a == run.ApprovalWanted {
			w.ask(c)
		}
	}
}

// caughtUp has the reading follow a reload where nobody has the turn.
func (w *asks) caughtUp() {
	if holder, _ := w.r.Holder(); w.behind && holder == nil {
		w.behind = false
		w.move()
	}
}

// free notes that a sent call is under way no more, and passes its turn on.
func (w *asks) free(c *run.Call, pass func() run.Effects) {
	w.sent = slices.DeleteFunc(w.sent, func(s *run.Call) bool { return s == c })
	if w.r.Holds(c) && w.behind {
		w.behind = false
		w.move()
	}
	w.goOn(pass())
}

func (w *asks) any(of []*run.Call) *run.Call {
	if len(of) == 0 {
		w.Skip("none")
	}
	return rapid.SampledFrom(of).Draw(w.T, "call")
}

// asking are the calls that wait for somebody, in an order.
func (w *asks) asking() (all []*run.Call) {
	for c, x := range w.of {
		if x.held != nil {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b *run.Call) int {
		return strings.Compare(w.of[a].held.ID+w.of[a].what, w.of[b].held.ID+w.of[b].what)
	})
	return all
}

// Approvals against a naive reading of the docs, through all that moves a run: never more calls go than somebody has said
// yes to, none goes in another visit than that it was asked in, none by another's yes or with other arguments, and none that
// the state, a guard or a limit refuses by then.
func TestApprovalsAgainstNaive(t *testing.T) {
	var versions []*policy.Policy
	for v := range 20 { // a file that is read again is another policy
		versions = append(versions, parse(t, fmt.Sprintf(approving, v)))
	}
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1000, 0)
		w := &asks{T: t, r: run.New(run.Config{Policy: versions[0], Shared: &run.Shared{Patience: time.Hour}}, now), now: now, state: "a",
			of: map[*run.Call]*asker{}, order: map[string]int{}}
		w.move()
		call := func(name string, x int, who string) *run.Call {
			c := &run.Call{Request: run.Request{Kind: policy.Tool, Name: name, Listed: true, Known: true, Arguments: args(fmt.Sprintf(`{"x":%d}`, x)), Who: &guard.Who{Subject: who}}}
			w.of[c] = &asker{what: fmt.Sprint(name, x, who), x: x}
			return c
		}
		some := func(t *rapid.T) *run.Call {
			return call(rapid.SampledFrom([]string{"pay", "pay", "note"}).Draw(t, "name"), rapid.IntRange(0, 2).Draw(t, "x"), rapid.SampledFrom([]string{"ann", "bob"}).Draw(t, "who"))
		}
		t.Repeat(map[string]func(*rapid.T){
			"ask": func(t *rapid.T) { w.T = t; w.ask(some(t)) },
			"ask, yes, and again": func(t *rapid.T) {
				w.T = t
				c := some(t)
				if w.ask(c); w.of[c].held != nil && w.of[c].held.State() == approval.Open {
					w.answer(w.of[c], approval.Allowed)
					if rapid.Bool().Draw(t, "two") {
						w.ask(call(c.Name, w.of[c].x, c.Who.Subject))
					}
					w.ask(c)
				}
			},
			"go on": func(t *rapid.T) {
				w.T = t
				w.ask(w.any(w.asking()))
			},
			"answer": func(t *rapid.T) {
				w.T = t
				open := w.r.Questions(w.now)
				if len(open) == 0 {
					t.Skip("none")
				}
				q := rapid.SampledFrom(open).Draw(t, "question")
				for _, x := range w.of {
					if x.held == q {
						w.answer(x, rapid.SampledFrom([]approval.State{approval.Allowed, approval.Allowed, approval.Denied, approval.Unanswered}).Draw(t, "answer"))
						break
					}
				}
			},
			"settle": func(t *rapid.T) {
				w.T = t
				c := w.any(w.sent)
				w.settle(c, rapid.SampledFrom([]policy.Outcome{policy.Success, policy.Success, policy.Error, policy.Unknown}).Draw(t, "outcome"))
			},
			"send again": func(t *rapid.T) {
				w.T = t
				c := w.any(w.sent)
				if w.of[c].life != w.life || w.behind {
					t.Skip("of the run before, or by the policy before")
				}
				w.sent = slices.DeleteFunc(w.sent, func(s *run.Call) bool { return s == c })
				w.unused(c)
				a, held, e := w.r.Keeps(c, w.now)
				if held {
					w.decided(c, a)
					w.goOn(e)
				}
				if !held || a == run.ApprovalWanted {
					w.ask(c)
				}
			},
			"not sent": func(t *rapid.T) { w.T = t; w.leave(w.any(w.sent)) },
			"cancel while it waits": func(t *rapid.T) {
				w.T = t
				c := w.any(w.queued)
				w.queued = slices.DeleteFunc(w.queued, func(q *run.Call) bool { return q == c })
				w.goOn(w.r.Leave(c, w.now))
			},
			"move": func(t *rapid.T) {
				w.T = t
				w.ask(call(map[string]string{"a": "go", "b": "back"}[w.state], 0, "ann"))
			},
			"look": func(t *rapid.T) { w.T = t; w.ask(call("look", 0, "ann")) },
			"wait": func(t *rapid.T) {
				w.now = w.now.Add(time.Duration(rapid.IntRange(1, 40).Draw(t, "seconds")) * time.Second)
				w.pass()
			},
			"reload": func(t *rapid.T) {
				w.T = t
				if w.behind || w.version+1 == len(versions) {
					t.Skip("one at a time")
				}
				w.version, w.behind = w.version+1, true
				_, e := w.r.Reload(versions[w.version], w.now)
				w.caughtUp()
				if w.behind { // what is decided now is decided by the new policy
					w.move()
				}
				w.goOn(e)
			},
			"restart": func(t *rapid.T) {
				w.T = t
				if w.behind {
					t.Skip("a reload waits")
				}
				w.life, w.state, w.spent = w.life+1, "a", 0
				w.move()
				w.goOn(w.r.Restart(w.now))
			},
			"": func(*rapid.T) {
				if is := w.r.Standing().State(); is != w.state {
					w.Fatalf("in %s, want %s", is, w.state)
				}
				if is, want := string(w.r.Registers().AppendJSON(nil)), fmt.Sprintf(`{"spent":%d}`, w.spent); is != want {
					w.Fatalf("registers %s, want %s", is, want)
				}
			},
		})
	})
}

// answer has somebody answer what a call has asked. In another visit than that, or by another policy, it is of no use.
func (w *asks) answer(x *asker, answer approval.State) {
	w.r.Answer(x.held, run.Reply{Answer: answer}, w.now)
	if x.epoch != w.epoch {
		return
	}
	delete(w.open, x.what)
	switch answer {
	case approval.Allowed:
		w.yeses = append(w.yeses, &yes{what: x.what, epoch: w.epoch, until: w.now.Add(time.Minute), order: w.order[x.what]})
	case approval.Denied:
		w.no[x.what] = true
	case approval.Unanswered:
		w.late[x.what] = true
	}
}

func (w *asks) settle(c *run.Call, o policy.Outcome) {
	_, _, err := w.r.Settle(c, run.End{Outcome: o, Result: []byte("{}")}, w.now)
	if err != nil {
		w.Fatal(err)
	}
	if w.of[c].life == w.life && o == policy.Success {
		switch {
		case c.Name == "pay" && w.of[c].x < 2:
			w.spent++
		case c.Name == "pay", c.Name == "go":
			w.state = "b"
			w.move()
		case c.Name == "back":
			w.state, w.spent = "a", 0
			w.move()
		}
	}
	w.free(c, func() run.Effects { return w.r.Pass(c, w.now) })
}

// leave has a call not be sent: what it has used may be used again.
func (w *asks) leave(c *run.Call) {
	w.unused(c)
	w.mine = nil
	w.free(c, func() run.Effects { return w.r.Leave(c, w.now) })
}

// unused gives back what a call has used, behind what others have said.
func (w *asks) unused(c *run.Call) {
	for _, y := range w.yeses {
		if y.used == c {
			y.used, w.mine = nil, y
			w.last(y)
			break
		}
	}
	w.counted = slices.DeleteFunc(w.counted, func(n *count) bool { return n.c == c })
}

// last has another yes to the same be used first.
func (w *asks) last(y *yes) {
	w.made++
	y.order = w.made
}
