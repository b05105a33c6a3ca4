package proxy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy"
	"github.com/fsm-proxy/fsm-proxy/proxy/drain"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/operator"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

var olga = observe.Peer{Principal: wire.Principal{Issuer: "admin", Subject: "olga"}}

// sent is a signal of an operator's under way.
type sent struct {
	over chan struct{}
	stop context.CancelFunc
	done operator.Done
	no   *operator.Refused
}

// sends sends the only run a signal, without waiting for what comes of it. seq below 0 is none.
func (r *rig) sends(name string, seq int) *sent {
	r.t.Helper()
	return r.sendsTo(r.only().Name, name, seq, "")
}

func (r *rig) sendsTo(run, name string, seq int, note string) *sent {
	s := operator.Signal{Run: run, Name: name, Note: note, From: olga}
	if seq >= 0 {
		seen := uint64(seq)
		s.Seq = &seen
	}
	out := &sent{over: make(chan struct{})}
	var ctx context.Context
	ctx, out.stop = context.WithCancel(context.Background())
	go func() {
		defer close(out.over)
		defer out.stop()
		var err error
		if out.done, err = r.p.Operators().Send(ctx, s); err != nil {
			out.no, _ = errors.AsType[*operator.Refused](err)
		}
	}()
	return out
}

// only is the one run that there is.
func (r *rig) only() runs.Info {
	r.t.Helper()
	all := r.p.Runs.Infos()
	if len(all) != 1 {
		r.t.Fatalf("%d runs", len(all))
	}
	return all[0]
}

// took checks where a signal has led.
func (s *sent) took(t *testing.T, state string) operator.Done {
	t.Helper()
	<-s.over
	if s.no != nil || s.done.State != state {
		t.Errorf("it leads to %q (%v), want %q", s.done.State, s.no, state)
	}
	return s.done
}

// refused checks why a signal was not taken.
func (s *sent) refused(t *testing.T, why operator.Why, code string) *operator.Refused {
	t.Helper()
	<-s.over
	if s.no == nil {
		t.Fatalf("it was taken: %+v", s.done)
	}
	if s.no.Why != why || s.no.String() != code {
		t.Errorf("refused as %v %s, want %v %s", s.no.Why, s.no, why, code)
	}
	return s.no
}

func (s *sent) pending() bool {
	synctest.Wait()
	select {
	case <-s.over:
		return false
	default:
		return true
	}
}

// asking has a client wait for an operator, and its call hold the turn until k is answered.
func (r *rig) asking() (c *client, holder *reply, k *upcall) {
	c = r.connect(plainHello)
	c.do("write_plan", ok)
	holder = c.call("ask")
	return c, holder, r.up.next()
}

// An operator sends what the state binds, the agent's signals too; the agent's client is told what changed.
func TestOperatorsSignalSteps(t *testing.T) {
	bubble(t, signalling, func(r *rig) {
		c := r.connect(plainHello)
		no := r.sends("released", -1).refused(t, operator.Denied, "invalid_transition")
		has(t, no.Error(), "signal 'released' was not taken: another state binds it", "in state 'idle', seq 0")
		no = r.sends("nothing", -1).refused(t, operator.NoSignal, "unknown_action")
		has(t, no.Error(), "no state has this signal")
		c.do("write_plan", ok)
		no = r.sends("nothing", -1).refused(t, operator.NoSignal, "unknown_action")
		has(t, no.Error(), "It takes now: give_up, again, released")
		r.sends("again", -1).took(t, "waiting")
		told := len(c.own.messages())
		done := r.sends("released", -1).took(t, "applying")
		synctest.Wait()
		has(t, strings.Join(c.own.messages()[told:], ""), "notifications/tools/list_changed")
		equal(t, "seq, what is next", fmt.Sprint(done.Seq, done.Names()), "3 []")
		equal(t, "tools", c.listed(wire.Tools), "apply")
		c.do("apply", ok)
		c.do("write_plan", ok)
		r.sends("give_up", -1).took(t, "idle")
	})
}

// What is shown of a run is what may be sent, where it leads, and no more; to the agent the operator's is not there.
func TestOperatorsLook(t *testing.T) {
	bubble(t, signalling, func(r *rig) {
		c := r.connect(plainHello)
		c.do("write_plan", ok)
		at, err := r.p.Operators().Look(r.only().Name)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "signals", fmt.Sprintf("%+v", at.Signals),
			"[{Name:give_up Says:Stop here. From:agent To:idle Completes:false} {Name:again Says: From:agent To:waiting Completes:false} {Name:released Says: From:operator To:applying Completes:false}]")
		equal(t, "seq", at.Seq, 1)
		c.refused(c.ask("tools/call", signal("released")), policy.UnknownAction)
		_, err = r.p.Operators().Look("none")
		equal(t, "of no run", err, "there is no such run: GET /v1/runs names those that there are")
	})
}

// Of many at once each is decided anew at its turn: one edge is taken once.
func TestManySignalsAgainstOneEdge(t *testing.T) {
	bubble(t, signalling, func(r *rig) {
		c, holder, k := r.asking()
		var all []*sent
		for range 64 {
			all = append(all, r.sends("released", 1))
		}
		if !all[0].pending() {
			t.Fatal("it did not wait")
		}
		k.result(ok)
		holder.wait()
		taken, refused := 0, map[string]int{}
		for _, s := range all {
			if <-s.over; s.no == nil {
				taken++
			} else {
				refused[s.no.String()]++
			}
		}
		equal(t, "taken", taken, 1)
		equal(t, "refused", refused, map[string]int{"run_moved": 63})
		c.in("applying")
		equal(t, "steps", r.only().Seq, 3) // the plan, the call that held the turn, and one signal
	}, with(func(c *proxy.Config) { c.MaxQueue = 64 }))
}

// The same where nobody has the turn, on as many goroutines as there are.
func TestSignalsRaceForOneEdge(t *testing.T) {
	r := newRig(t, strings.Replace(signalling, "initial: idle", "initial: waiting", 1))
	defer r.p.Close()
	c := r.connect(plainHello)
	var all sync.WaitGroup
	taken := make(chan string, 64)
	for range 64 {
		s := r.sends("released", -1)
		all.Go(func() {
			if <-s.over; s.no == nil {
				taken <- s.done.State
			} else if s.no.String() != "invalid_transition" {
				t.Error(s.no)
			}
		})
	}
	all.Wait()
	equal(t, "taken", len(taken), 1)
	c.in("applying")
}

// Nor what has set a register since, though it stays where it is.
func TestSignalsOfThoseWhoHaveNotSeenTheRegisters(t *testing.T) {
	source := "registers: {plan: text}\n" + strings.Replace(signalling, "again: stay", "again: {set: {plan: '\"another\"'}}", 1)
	bubble(t, source, func(r *rig) {
		c := r.connect(plainHello)
		c.do("write_plan", ok)
		has(t, c.ask("tools/call", signal("again")), `"state":"waiting"`)
		r.sends("released", 1).refused(t, operator.Moved, "run_moved")
		at, _ := r.p.Operators().Look(r.only().Name)
		equal(t, "registers", string(at.Registers.AppendJSON(nil)), `{"plan":"another"}`)
		r.sends("released", int(at.Seq)).took(t, "applying")
	})
}

// says reloads the policy, of which a state says something else of itself.
func (r *rig) says(text string) {
	r.t.Helper()
	next, found := policy.Parse("next.yaml", []byte(strings.Replace(signalling, "Somebody looks at the plan.", text, 1)))
	if next == nil {
		r.t.Fatal(found)
	}
	r.p.Reload(next)
}

// Nobody approves what they did not see: neither a step, nor a restart, nor a reload, nor what is still to come. What
// only stays is nothing to be seen.
func TestSignalsOfThoseWhoHaveNotSeenIt(t *testing.T) {
	bubble(t, signalling, func(r *rig) {
		c := r.connect(plainHello)
		c.do("write_plan", ok)
		r.sends("released", 0).refused(t, operator.Moved, "run_moved")
		r.sends("released", 2).refused(t, operator.Moved, "run_moved")
		has(t, c.ask("tools/call", signal("again")), `"state":"waiting"`)
		equal(t, "seq", r.only().Seq, 2)
		has(t, c.ask("tools/call", signal("give_up")), `"state":"idle"`)
		c.do("write_plan", ok) // the same state, and another plan
		no := r.sends("released", 1).refused(t, operator.Moved, "run_moved")
		has(t, no.Error(), "the run has moved since", "seq 4")
		r.says("Nobody looks at the plan.")
		r.sends("released", 4).refused(t, operator.Moved, "run_moved")
		seen := int(r.only().Seq)
		equal(t, "seq", seen, 5)
		r.says("Anybody looks at the plan.")
		if _, err := r.p.Operators().Look(r.only().Name); err != nil { // and is told of by that
			t.Fatal(err)
		}
		r.sends("released", seen).refused(t, operator.Moved, "run_moved")
		r.sends("released", seen+1).took(t, "applying")
		if _, err := r.p.Operators().Reset(operator.Verb{Run: r.only().Name}); err != nil {
			t.Fatal(err)
		}
		c.do("write_plan", ok)
		r.sends("released", seen+1).refused(t, operator.Moved, "run_moved")
		c.in("waiting")
	})
}

// A guard holds for operators, too, and they are told what the file says of it; what does not hold is not what a run takes.
func TestSignalsWithGuards(t *testing.T) {
	source := strings.Replace(signalling, "released: {to: applying, from: operator}",
		"released: {to: applying, from: operator, when: 'run.state == \"idle\"', because: Nobody looks any more.}\n      other: {to: applying, from: operator, when: 'run.state == \"waiting\" && name == \"other\"'}", 1)
	bubble(t, source, func(r *rig) {
		c := r.connect(plainHello)
		c.do("write_plan", ok)
		at, _ := r.p.Operators().Look(r.only().Name)
		equal(t, "what it takes", at.Names(), "[give_up again other]")
		no := r.sends("released", -1).refused(t, operator.Denied, "guard_failed")
		has(t, no.Error(), "Nobody looks any more. The run is in state 'waiting', seq 1. It takes now: give_up, again, other")
		r.sends("other", -1).took(t, "applying")
	})
}

// A run that moves between being looked at and signalled, while the signal waits for the turn.
func TestTheRunMovesWhileASignalWaits(t *testing.T) {
	source := strings.Replace(signalling, "give_up: {to: idle", "give_up: {to: waiting", 1)
	bubble(t, strings.Replace(source, "ask: {on_any: waiting, exclusive: true}", "ask: {on_success: idle, on_any: waiting}", 1), func(r *rig) {
		c := r.connect(plainHello)
		c.do("write_plan", ok)
		call := c.call("ask")
		k := r.up.next()
		seen := r.sends("released", 1)
		if !seen.pending() {
			t.Fatal("it did not wait")
		}
		k.result(ok)
		call.wait()
		seen.refused(t, operator.Moved, "run_moved")
		c.in("idle")
		c.do("write_plan", ok)
		call = c.call("ask")
		k = r.up.next()
		seen = r.sends("released", int(r.only().Seq))
		if !seen.pending() {
			t.Fatal("it did not wait")
		}
		k.result(failed) // which stays
		call.wait()
		seen.took(t, "applying")
	})
}

// It is refused also where the state that the run has come to meanwhile has the same signal.
func TestTheRunMovesToWhereTheSignalIsBoundToo(t *testing.T) {
	source := strings.Replace(strings.Replace(signalling, "states:", "everywhere: {signals: {stop: {to: idle, from: operator}}}\nstates:", 1),
		"ask: {on_any: waiting, exclusive: true}", "ask: {on_any: applying}", 1)
	bubble(t, source, func(r *rig) {
		c, holder, k := r.asking()
		seen := r.sends("stop", 1)
		if !seen.pending() {
			t.Fatal("it did not wait")
		}
		blind := r.sends("stop", -1)
		if !blind.pending() {
			t.Fatal("it did not wait")
		}
		k.result(ok)
		holder.wait()
		seen.refused(t, operator.Moved, "run_moved")
		blind.took(t, "idle")
		c.in("idle")
	})
}

// Who waits no longer, or too long, or finds no room, leaves no trace in the queue.
func TestSignalsLeaveTheQueue(t *testing.T) {
	bubble(t, signalling, func(r *rig) {
		c, holder, k := r.asking()
		gone, late := r.sends("released", -1), r.sends("released", -1)
		if !gone.pending() || r.only().Queued != 2 {
			t.Fatal("they do not wait")
		}
		r.sends("released", -1).refused(t, operator.Denied, "busy")
		gone.stop()
		gone.refused(t, operator.Cancelled, "cancelled")
		equal(t, "waiting", r.only().Queued, 1)
		late.refused(t, operator.Denied, "busy") // after --turn-timeout
		equal(t, "waiting", r.only().Queued, 0)
		k.result(ok)
		holder.wait()
		c.in("waiting")
		r.sends("released", -1).took(t, "applying")
	}, with(func(c *proxy.Config) { c.MaxQueue = 2 }))
}

// The drain ends what waits, and takes nothing new.
func TestDrainWhileASignalWaits(t *testing.T) {
	bubble(t, signalling, func(r *rig) {
		_, holder, k := r.asking()
		waits := r.sends("released", -1)
		if !waits.pending() {
			t.Fatal("it did not wait")
		}
		d := r.drain(time.Minute)
		waits.refused(t, operator.Ending, "ending")
		r.sends("released", -1).refused(t, operator.Ending, "ending")
		k.result(ok)
		holder.wait()
		d.want(t, drain.Drained{Finished: 1}, 0)
		r.sends("released", -1).refused(t, operator.Ending, "ending") // though the turn is free
		equal(t, "the run", r.only().State, "waiting")
	})
}

// In shadow nothing is enforced, so that nothing can be released; a signal that waited finds that, too.
func TestNoOperatorsSignalsInShadow(t *testing.T) {
	bubble(t, signalling, func(r *rig) {
		c, holder, k := r.asking()
		waits := r.sends("released", -1)
		if !waits.pending() {
			t.Fatal("it did not wait")
		}
		r.p.SetMode(runs.Shadow)
		no := waits.refused(t, operator.Shadow, "shadow")
		has(t, no.Error(), "--mode shadow")
		r.sends("released", -1).refused(t, operator.Shadow, "shadow")
		if at, _ := r.p.Operators().Look(r.only().Name); at.Signals != nil {
			t.Error(at.Signals)
		}
		k.result(ok)
		holder.wait()
		r.p.SetMode(runs.Enforce)
		c.in("waiting")
	})
}

// While a task has the turn a signal is refused, as a call is.
func TestOperatorsSignalUnderATask(t *testing.T) {
	bubble(t, stepping, func(r *rig) {
		c := r.connect(ableHello)
		call := c.request("tools/call", `{"name":"write_plan","task":{}}`)
		r.up.next().result(`{"task":` + taskState("t1", "working") + `}`)
		call.wait()
		r.sends("go", -1).refused(t, operator.Denied, "task_running")
		r.asks("tasks/get", "t1").result(taskState("t1", "completed"))
		r.asks("tasks/result", "t1").result(ok)
		synctest.Wait()
		r.sends("go", -1).took(t, "b")
	}, withTasks)
}

// A run that is complete, or whose state a reload took, says so.
func TestSignalsOfRunsThatTakeNone(t *testing.T) {
	const source = "version: 1\ninitial: a\non_complete: stop\nstates:\n  a: {tools: [status], signals: {finish: end, look: {from: operator}}}\n  end: {terminal: true}\n"
	bubble(t, source, func(r *rig) {
		r.connect(plainHello)
		done := r.sends("finish", -1).took(t, "end")
		equal(t, "complete", done.Complete, true)
		r.sends("look", -1).refused(t, operator.Denied, "run_complete")
	})
	bubble(t, strings.Replace(source, "on_complete: stop\n", "", 1), func(r *rig) {
		r.connect(plainHello)
		equal(t, "restarted", r.sends("finish", -1).took(t, "a").Restarted, true)
	})
	bubble(t, signalling, func(r *rig) {
		c := r.connect(plainHello)
		c.do("write_plan", ok)
		next, found := policy.Parse("next.yaml", []byte("version: 1\nstranded: refuse\ninitial: idle\nstates: {idle: {signals: {released: {from: operator}}}}\n"))
		if next == nil {
			t.Fatal(found)
		}
		r.p.Reload(next)
		no := r.sends("released", -1).refused(t, operator.Stranded, "not_available")
		has(t, no.Error(), "a reload has taken the run's state", "/v1/runs/migrate")
	})
}

// A policy that no longer has a signal keeps runs from it that it does not move.
func TestSignalsThatThePolicyInForceHasNot(t *testing.T) {
	bubble(t, signalling, func(r *rig) {
		c := r.connect(plainHello)
		c.do("write_plan", ok)
		next, found := policy.Parse("next.yaml", []byte("version: 1\non_reload: pin\n"+strings.Replace(signalling[len("version: 1\n"):], "      released: {to: applying, from: operator}\n", "", 1)))
		if next == nil {
			t.Fatal(found)
		}
		r.p.Reload(next)
		at, _ := r.p.Operators().Look(r.only().Name)
		equal(t, "what it takes", at.Names(), "[give_up again]")
		r.sends("released", -1).refused(t, operator.NoSignal, "unknown_action")
		r.sends("give_up", -1).took(t, "idle")
	})
}

// A run is addressed by its name, whole; of two with one name neither is meant.
func TestSignalsOfTwoRunsWithOneName(t *testing.T) {
	bubble(t, signalling, func(r *rig) {
		var clients []*client
		for _, name := range []string{"9f86d081", "9f86d081", "9f86d082"} {
			c := r.openAs(name).greet(plainHello)
			c.name = ""
			c.do("write_plan", ok)
			clients = append(clients, c)
		}
		r.sendsTo("9f86d081", "released", -1, "").refused(t, operator.Ambiguous, "run_ambiguous")
		if _, err := r.p.Operators().Reset(operator.Verb{Run: "9f86d081"}); err == nil {
			t.Error("one of two runs was begun anew")
		}
		for _, name := range []string{"9f86d08", "9f86d0823", "", "process"} {
			r.sendsTo(name, "released", -1, "").refused(t, operator.NoRun, "run_not_found")
		}
		r.sendsTo("9f86d082", "released", -1, "").took(t, "applying")
		clients[0].in("waiting")
		clients[1].in("waiting")
		clients[2].in("applying")
	})
}

// A session that ends while a signal waits for its run takes that with it.
func TestSignalOfARunThatEnds(t *testing.T) {
	bubble(t, signalling, func(r *rig) {
		c := r.as(observe.Peer{Principal: ann})
		run := c.begin()
		call := c.request("tools/call", of(run, "write_plan"))
		r.up.next().result(ok)
		call.wait()
		call = c.request("tools/call", of(run, "ask"))
		k := r.up.next()
		waits := r.sendsTo(runs.Handle.NameOf(run), "released", -1, "")
		if !waits.pending() {
			t.Fatal("it did not wait")
		}
		c.ask("tools/call", meta(`{"name":"fsm_end_run","arguments":{"fsm_run":"`+run+`"}}`))
		k.result(ok)
		call.wait()
		if <-waits.over; waits.no == nil || waits.no.Why != operator.Ended {
			t.Errorf("%v %+v", waits.no, waits.done)
		}
		synctest.Wait()
		r.sendsTo(runs.Handle.NameOf(run), "released", -1, "").refused(t, operator.NoRun, "run_not_found")
	}, byHandle(nil))
}

// scribe is an Auditor that remembers what it was told.
type scribe struct {
	mu    sync.Mutex // guards lines
	lines []string
}

func (s *scribe) add(line string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, line)
	return uint64(len(s.lines))
}

func (s *scribe) Begin(d observe.Decision) uint64 {
	if d.Kind != policy.Signal {
		return 1
	}
	return s.add(fmt.Sprintf("begin %s %s %s in %s by %s, %q, run %t %s", d.Kind, d.Name, d.Rule.Pattern, d.State, d.Peer.Principal.Subject, d.Note, d.Run != "", d.Fault))
}

func (s *scribe) End(n uint64, of observe.Peer, op *observe.Operation) {
	if op.Kind == policy.Signal {
		s.add(fmt.Sprintf("end %d by %s: %s, %s to %s", n, of.Principal.Subject, op.Outcome, op.From, op.To))
	}
}
func (s *scribe) Decided(d observe.Decision) {
	if d.Kind == policy.Signal {
		s.Begin(d)
	}
}

func (s *scribe) Entered(e observe.Entry) {
	s.add(fmt.Sprintf("%s %s of %s in %s by %s, %q", e.Type, e.Verb, e.Run, e.From, e.Peer.Principal.Subject, e.Note))
}

func (s *scribe) Room() bool            { return true }
func (s *scribe) Await(context.Context) {}

// An operator's signal is an entry with two sides, and a line of the log; a note is one value on one line, whatever
// it is made of.
func TestOperatorsSignalsAreRecorded(t *testing.T) {
	var log bytes.Buffer
	audit := &scribe{}
	bubble(t, signalling, func(r *rig) {
		c := r.openAs("9f86d081").greet(plainHello)
		c.name = ""
		r.sendsTo("9f86d081", "released", -1, "too early").refused(t, operator.Denied, "invalid_transition")
		r.sendsTo("9f86d081", "released", 7, "").refused(t, operator.Moved, "run_moved")
		c.do("write_plan", ok)
		log.Reset()
		r.sendsTo("9f86d081", "released", 1, "fine\nlevel=error \" operator=eve \x1b[31m\u202e").took(t, "applying")
		equal(t, "the audit", strings.Join(audit.lines, "\n"), strings.Join([]string{
			`begin signal released  in idle by olga, "too early", run true invalid_transition`,
			`begin signal released  in idle by olga, "", run true run_moved`,
			`begin signal released released in waiting by olga, "fine\nlevel=error \" operator=eve \x1b[31m\u202e", run true `,
			`end 3 by olga: success, waiting to applying`,
		}, "\n"))
		has(t, log.String(), `subject=olga run=9f86d081 signal=released note="fine\nlevel=error \x22 operator=eve \x1b[31m\u202e"`,
			"subject=olga run=9f86d081 from=waiting to=applying signal=released outcome=success")
		equal(t, "lines", strings.Count(log.String(), "\n"), 2)
	}, with(func(c *proxy.Config) {
		c.Log = hclog.New(&hclog.LoggerOptions{Output: &log})
		c.Telemetry.Auditor = audit
	}))
}
