package run_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/approval"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// lasting has what a run can remember: %s is what a reload changes.
const lasting = `
version: 1
initial: work
at_most: {hour: 40}
registers:
  reads: {set: text, max: 8}
  plan: text
  calls: counter
states:
  work:
    after: {2h: {to: lost, set: {calls: {add: 10}}}}
    tools:
      read: {at_most: 6, set: {reads: {add: args.path}}}
      edit: {when: args.path in registers.reads, at_most: {minute: 3}}
      plan: {on_success: {to: planned, set: {plan: result.structuredContent.id}}, on_unknown: {to: lost, set: {calls: {add: 1}}}}
      count: {set: {calls: {add: 1}}}
      pick: {by: what, cases: {a: [{when: size(registers.reads) > 2, on_any: planned}, {on_any: lost}], b: stay}}
      push: {irreversible: true, at_most: {hour: 3}}
  planned:
    at_most: 9
    tools:
      apply: {on_success: {to: work, set: {reads: none}}, on_unknown: lost, on_error: stay}
      end: {on_any: {to: work, terminal: true}}
      read: {set: {reads: {add: args.path}}}
  lost: {tools: {back: work, again: {exclusive: true}}}
%s`

// plain is that policy with nothing to remember.
const plain = `
version: 1
initial: work
states:
  work: {tools: {read: , edit: , plan: {on_success: planned, on_unknown: lost}, count: , pick: {on_any: lost}}}
  planned: {tools: {apply: {on_success: work, on_unknown: lost, on_error: stay}, end: {on_any: {to: work, terminal: true}}, read: }}
  lost: {tools: {back: work, again: {exclusive: true}}}
`

// kept is a run that lasts, with a journal whose disk is slow, and the calls that were made of it.
type kept struct {
	*rapid.T
	r                                 run.Run
	now                               time.Time
	parsed                            map[string]*policy.Policy
	inForce                           *policy.Policy
	written                           []run.Entry // that the run has made, in order
	durable                           int         // how many of those
	before                            int         // how many there were when the process began
	every                             int         // of how many entries a checkpoint is made; 0: never
	pending                           []*run.Pending
	beginning, sent, settling, queued []*run.Call
	refused                           uint64 // how often calls were, of which no crash has lost that

	tasks  map[uint64][]byte  // what is kept of calls that tasks have come of, by the entries by which they began
	isTask map[*run.Call]bool // those of sent that tasks have come of: none comes of a task

	settings []string
	source   string                           // %s is what a reload changes
	asked    map[*run.Call]*approval.Question // what a call waits for, or has waited for
	made     int
}

func (k *kept) policy(settings string) *policy.Policy {
	source := fmt.Sprintf(k.source, settings)
	if settings == plain {
		source = plain
	}
	if k.parsed[source] == nil {
		k.parsed[source] = parse(k, source)
	}
	return k.parsed[source]
}

// took takes what the run has made since.
func (k *kept) took() {
	for _, e := range k.r.Made() {
		if n := uint64(len(k.written) + 1); e.Seq != n {
			k.Fatalf("entry %d has the number %d", n, e.Seq)
		}
		if n := len(k.written); n > 0 && k.written[n-1].To != e.From {
			k.Fatalf("entry %d begins at %v, and the one before ended at %v", e.Seq, e.From, k.written[n-1].To)
		}
		if p := e.Pending(); p != nil {
			k.pending = append(k.pending, p)
		}
		if e.Call != nil { // which may be decided once more
			c := *e.Call
			e.Call = &c
		}
		k.written = append(k.written, e)
	}
}

func without(calls []*run.Call, c *run.Call) []*run.Call {
	return slices.DeleteFunc(calls, func(x *run.Call) bool { return x == c })
}

func (k *kept) goOn(e run.Effects) {
	k.took()
	for _, c := range e.Ready {
		k.queued = without(k.queued, c)
		if !k.r.Holds(c) {
			k.enter(c)
			continue
		}
		a, e := k.r.Granted(c, k.now)
		k.decided(c, a)
		k.goOn(e)
		if a == run.ApprovalWanted {
			k.enter(c)
		}
	}
}

func (k *kept) enter(c *run.Call) {
	k.made++
	a, asked, e := k.r.Ask(c, &approval.Question{ID: fmt.Sprint(k.made), Done: make(chan struct{}), By: c.Tag}, k.asked[c], 3, k.now)
	if delete(k.asked, c); asked != nil {
		k.asked[c] = asked
	}
	k.decided(c, a)
	k.goOn(e)
}

func (k *kept) decided(c *run.Call, a run.Admission) {
	if c.Snapshot.Shadow { // which sends whatever was decided
		c.Overlooked = c.Verdict.Code
		p, ok := k.r.Begin(c, k.now)
		if alternative := c.Verdict.Alternative; !ok || alternative != nil && alternative.Irreversible && p == nil {
			k.Fatalf("%s is not told of before it is sent", c.Name)
		}
		if p != nil {
			k.beginning = append(k.beginning, c)
		} else {
			k.sent = append(k.sent, c)
		}
		k.took()
		return
	}
	switch a {
	case run.Admitted:
		switch p, ok := k.r.Begin(c, k.now); {
		case !ok:
			k.leave(c)
			k.enter(c)
		case p != nil:
			k.beginning = append(k.beginning, c)
		case c.Verdict.Turn || c.Verdict.Alternative.Approve != nil && c.Verdict.Alternative.Approve.By == policy.ByOperator:
			k.Fatalf("%s can move the run, or uses an answer, and nobody is told of it", c.Name)
		default:
			k.sent = append(k.sent, c)
		}
		k.took()
	case run.Queued:
		k.queued = append(k.queued, c)
	case run.Refused:
		was := k.state(&k.r)
		k.r.Decline(c, c.Verdict.Code, k.now)
		if is := k.state(&k.r); is != was || c.Told() == 0 {
			k.Fatalf("a refusal has moved the run from\n%s to\n%s, or nothing tells of it: %d", was, is, c.Told())
		}
		k.refused++
		k.took()
	}
}

// told is how many refusals the entries tell of.
func told(entries []run.Entry) (n uint64) {
	for _, e := range entries {
		if e.Type == run.Declined {
			n += max(e.Said.Times, 1)
		}
	}
	return n
}

// disk makes the next entries durable.
func (k *kept) disk(n int) {
	for range n {
		if k.durable == len(k.written) {
			return
		}
		e := k.written[k.durable]
		k.durable++
		if len(k.pending) == 0 || k.pending[0].Seq != e.Seq {
			continue
		}
		p := k.pending[0]
		k.pending = k.pending[1:]
		effects := k.r.Durable(p, k.now)
		switch {
		case e.Type == run.Begun && slices.Contains(k.beginning, p.Call):
			k.beginning = without(k.beginning, p.Call)
			k.sent = append(k.sent, p.Call)
		case e.Type == run.Ended && slices.Contains(k.settling, p.Call):
			k.settling = without(k.settling, p.Call)
			if p.Call.Verdict.Turn {
				effects.Ready = append(effects.Ready, k.r.Pass(p.Call, k.now).Ready...)
			}
		}
		k.goOn(effects)
	}
}

func (k *kept) settle(c *run.Call, o policy.Outcome) {
	var result []byte
	if o == policy.Success {
		result = []byte(`{"structuredContent":{"id":"p"}}`)
	}
	k.sent = without(k.sent, c)
	e, shift, err := k.r.Settle(c, run.End{Outcome: o, Result: result}, k.now)
	if err != nil {
		k.Fatal(err)
	}
	if e.Pending() != nil && shift.From != shift.To {
		k.Fatalf("%s has moved the run before that was durable", c.Name)
	}
	if was := k.state(&k.r); e.Seq == 0 {
		e = k.r.Stay(c, run.End{Outcome: o, Took: time.Second}, k.now)
		if is := k.state(&k.r); is != was || e.Pending() != nil || e.Seq == 0 && c.Told() == 0 {
			k.Fatalf("a call that stays has moved the run from\n%s to\n%s, or is waited for, or nothing tells of it: %+v", was, is, e)
		}
	}
	k.took()
	if e.Pending() != nil {
		k.settling = append(k.settling, c)
	} else if c.Verdict.Turn {
		k.goOn(k.r.Pass(c, k.now))
	}
}

func (k *kept) leave(c *run.Call) { k.goOn(k.r.Leave(c, k.now)) }

func (k *kept) any(of []*run.Call) *run.Call {
	if len(of) == 0 {
		return nil
	}
	return rapid.SampledFrom(of).Draw(k.T, "call")
}

// crash loses what is not durable, and reads the run again.
func (k *kept) crash() {
	k.written, k.pending = slices.Clone(k.written[:k.durable]), nil
	k.beginning, k.sent, k.settling, k.queued = nil, nil, nil, nil
	clear(k.asked)
	open := map[uint64]bool{}
	turn := uint64(0) // that had it, of this run and no earlier one
	for _, e := range k.written {
		switch e.Type {
		case run.Begun:
			if open[e.Seq] = true; e.Turn {
				turn = e.Seq
			}
		case run.Ended, run.Unsent:
			delete(open, e.Begun)
		}
		if e.Type == run.Reset || e.Type == run.Finished || e.Step.Restarted {
			turn = 0
		}
	}
	k.refused = told(k.written)
	if rapid.Bool().Draw(k.T, "tasks are gone") {
		clear(k.tasks)
	}
	k.r = k.replay(k.whicheverWay(), k.inForce, k.every)
	made := len(k.written)
	k.took()
	holder, isTask := k.r.Holder()
	if want := k.tasks[turn] != nil && open[turn]; isTask != want || want && holder.Begun() != turn {
		k.Fatalf("a task has the turn after a crash: %v, want %v, that of %d", isTask, want, turn)
	}
	if isTask {
		delete(open, turn)
		k.sent, k.isTask[holder] = append(k.sent, holder), true
		if left := k.left(holder); !bytes.Equal(left, k.tasks[turn]) {
			k.Fatalf("%s is kept of it, and before it was %s", left, k.tasks[turn])
		}
	}
	for _, e := range k.written[made:] {
		if e.Type == run.Ended && (!e.Resumed || !open[e.Begun]) {
			k.Fatalf("a call is ended that was not open: %+v", e)
		}
		delete(open, e.Begun)
	}
	if len(open) > 0 {
		k.Fatalf("calls have no end: %v", open)
	}
	k.before = len(k.written)
	k.disk(len(k.written))
}

// left is what is kept of a call that a task has come of, nil for nothing.
func (k *kept) left(c *run.Call) []byte {
	left := k.r.Left(c)
	if left == nil {
		return nil
	}
	text, err := json.Marshal(left)
	if err != nil {
		k.Fatal(err)
	}
	return text
}

// replay makes a run of what a journal gives back.
func (k *kept) replay(entries []run.Entry, p *policy.Policy, every int) run.Run {
	left := map[uint64]*run.Left{}
	for begun, text := range k.tasks {
		left[begun] = new(run.Left)
		if err := json.Unmarshal(text, left[begun]); err != nil {
			k.Fatal(err)
		}
	}
	return run.Replay(run.Config{Policy: p, Lasts: true, Shadow: k.r.Shadow, Kept: left, Shared: &run.Shared{Checkpoint: every}}, slices.Values(entries), k.now)
}

// whicheverWay is what the run is read of: its entries from the first on, or from a checkpoint on. They come to the same,
// whatever the policy is by then.
func (k *kept) whicheverWay() []run.Entry {
	entries := reread(k.T, k.written)
	ways := [][]run.Entry{entries}
	for i, e := range entries {
		if e.Type == run.Checkpoint {
			ways = append(ways, entries[i:])
		}
	}
	for _, p := range []*policy.Policy{k.inForce, k.policy("on_reload: pin\n"), k.policy("stranded: restart\nrenamed: {}\n")} {
		first := k.replay(entries, p, 0)
		want := k.observe(&first)
		for _, way := range ways[1:] {
			for _, every := range []int{0, k.every} {
				r := k.replay(way, p, every)
				if got := k.observe(&r); got != want {
					for _, e := range k.written {
						text, _ := e.AppendJSON(nil)
						k.Logf("%d %s", e.Seq, text)
					}
					k.Fatalf("from entry %d on (checkpoints every %d) the run is\n%s\nand from the first on\n%s", way[0].Seq, every, got, want)
				}
			}
		}
	}
	return rapid.SampledFrom(ways).Draw(k.T, "way")
}

// observe is all that there is to see of a run that was read, once all that it has made of that counts.
func (k *kept) observe(r *run.Run) string {
	var out strings.Builder
	for _, e := range r.Made() {
		if text, err := e.AppendJSON(nil); err != nil {
			k.Fatal(err)
		} else if e.Type != run.Checkpoint {
			fmt.Fprintf(&out, "%s\n", text)
		}
		if p := e.Pending(); p != nil {
			r.Durable(p, k.now)
		}
	}
	moved := 0
	for !(moved > len(k.written)) && r.MovedSince(uint64(moved)) {
		moved++
	}
	s := r.Snapshot(k.now)
	if holder, isTask := r.Holder(); isTask {
		fmt.Fprintf(&out, "%d has the turn", holder.Begun())
	}
	return fmt.Sprint(out.String(), k.state(r), moved, s.Refused, s.Holds, s.Gate != nil, r.Standing().Stranded.UTC())
}

// state is all that a run remembers.
func (k *kept) state(r *run.Run) string {
	due, ok := r.Due()
	counts := strings.Split(strings.TrimSuffix(strings.Trim(string(r.Counts(k.now)), "[]"), "}"), "},") // in whatever order
	slices.Sort(counts)
	s := r.Standing()
	return fmt.Sprint(s.State(), s.At, s.Policy.Digest()[:8], string(r.Registers().AppendJSON(nil)), counts, due.UTC(), ok)
}

// same checks, where no call is under way, that the run is what is written of it.
func (k *kept) same() {
	for i := 0; len(k.beginning)+len(k.sent)+len(k.settling)+len(k.queued) > 0 || k.durable < len(k.written); i++ {
		if i > 1000 {
			k.Fatalf("calls do not end: %d begin, %d sent, %d settle, %d wait", len(k.beginning), len(k.sent), len(k.settling), len(k.queued))
		}
		if len(k.sent) > 0 {
			k.settle(k.sent[0], policy.Unknown)
		}
		k.disk(len(k.written))
	}
	if holder, _ := k.r.Holder(); holder != nil {
		k.Fatal("somebody has the turn still")
	}
	if e := k.r.Expire(k.now); e.Entries != nil {
		k.goOn(e)
		k.disk(len(k.written))
	}
	k.r.Inspect(k.now) // where a reload has taken it is an entry
	if until := k.r.DeclinedUntil(); !until.IsZero() {
		k.r.Declined(until)
	}
	k.took()
	k.disk(len(k.written))
	again := k.replay(k.whicheverWay(), k.inForce, 0)
	if was, is := k.state(&k.r), k.state(&again); was != is {
		for _, e := range k.written {
			text, _ := e.AppendJSON(nil)
			k.Logf("%d %s", e.Seq, text)
		}
		k.Fatalf("the run is\n%s\nand by its entries\n%s", was, is)
	}
	if n := told(k.written); n != k.refused {
		k.Fatalf("%d calls were refused, and the entries tell of %d", k.refused, n)
	}
	if again.Seq() != k.r.Seq() || k.r.Seq() != uint64(len(k.written)) {
		k.Fatalf("%d entries are numbered to %d, and again to %d", len(k.written), k.r.Seq(), again.Seq())
	}
}

func (k *kept) begin() {
	k.asked, k.tasks, k.isTask = map[*run.Call]*approval.Question{}, map[uint64][]byte{}, map[*run.Call]bool{}
	k.inForce = k.policy("")
	k.r = run.New(run.Config{Policy: k.inForce, Lasts: true, Shared: &run.Shared{Patience: time.Hour, Checkpoint: k.every}}, k.now)
	k.took()
	k.disk(1)
}

// TestWrittenAhead plays a run whose disk is slow, and that is lost at any moment: what was durable is what it is then,
// each call that had begun has an end, and no call goes that nobody would know of.
func TestWrittenAhead(t *testing.T) {
	parsed := map[string]*policy.Policy{}
	rapid.Check(t, func(rt *rapid.T) {
		k := &kept{T: rt, now: time.Unix(1000, 0), parsed: parsed, every: rapid.SampledFrom([]int{0, 1, 2, 3, 5, 11}).Draw(rt, "every"),
			source: lasting, settings: []string{"", "on_reload: pin\n", "on_complete: restart\n", plain}}
		k.begin()
		names := []string{"read", "read", "edit", "plan", "plan", "count", "pick", "apply", "end", "back", "again"}
		call := func(rt *rapid.T) {
			name := rapid.SampledFrom(names).Draw(rt, "tool")
			arguments := fmt.Sprintf(`{"path":%q}`, rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(rt, "path"))
			c := &run.Call{Request: run.Request{Kind: policy.Tool, Name: name, Arguments: splitArgs(arguments), Listed: true, Known: true}}
			k.enter(c)
		}
		rt.Repeat(k.actions(call))
		k.same()
	})
}

// TestWrittenAheadInShadow is TestWrittenAhead where the mode changes, too. Time stands still: what a call in shadow has taken
// of a window is in that from its decision on, and once the run is read again from its end on.
func TestWrittenAheadInShadow(t *testing.T) {
	parsed := map[string]*policy.Policy{}
	rapid.Check(t, func(rt *rapid.T) {
		k := &kept{T: rt, now: time.Unix(1000, 0), parsed: parsed, every: rapid.SampledFrom([]int{0, 1, 3, 11}).Draw(rt, "every"),
			source: lasting, settings: []string{"", "on_reload: pin\n", "on_complete: restart\n", "stranded: restart\nrenamed: {}\n", plain}}
		k.begin()
		k.r.SetShadow(true, k.now)
		names := []string{"read", "edit", "plan", "plan", "count", "pick", "push", "apply", "end", "back", "again"}
		call := func(rt *rapid.T) {
			name := rapid.SampledFrom(names).Draw(rt, "tool")
			arguments := fmt.Sprintf(`{"path":%q}`, rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "path"))
			k.enter(&run.Call{Request: run.Request{Kind: policy.Tool, Name: name, Arguments: splitArgs(arguments), Listed: true, Known: true}})
		}
		actions := k.actions(call)
		for _, action := range []string{"wait", "moment", "clock"} {
			delete(actions, action)
		}
		actions["mode"] = func(rt *rapid.T) { k.goOn(k.r.SetShadow(rapid.Bool().Draw(rt, "shadow"), k.now)) }
		rt.Repeat(actions)
		k.same()
	})
}

// actions are what may become of a run whose calls are made by call.
func (k *kept) actions(call func(*rapid.T)) map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"call":    call,
		"another": call,
		"calls":   func(rt *rapid.T) { call(rt); call(rt); call(rt) },
		"step": func(rt *rapid.T) {
			call(rt)
			k.disk(100)
			if c := k.any(k.sent); c != nil {
				k.settle(c, policy.Success)
			}
			k.disk(100)
		},
		"disk": func(rt *rapid.T) { k.disk(rapid.IntRange(1, 5).Draw(rt, "n")) },
		"answer": func(rt *rapid.T) {
			if c := k.any(k.sent); c != nil {
				k.settle(c, rapid.SampledFrom([]policy.Outcome{policy.Success, policy.Success, policy.Error, policy.Unknown}).Draw(rt, "outcome"))
			}
		},
		"lost": func(*rapid.T) {
			if c := k.any(k.sent); c != nil {
				k.sent = without(k.sent, c)
				k.leave(c)
			}
		},
		"too slow": func(*rapid.T) {
			if c := k.any(k.beginning); c != nil {
				k.beginning = without(k.beginning, c)
				k.leave(c)
			}
		},
		"give up": func(*rapid.T) {
			if c := k.any(k.queued); c != nil {
				k.queued = without(k.queued, c)
				k.leave(c)
			}
		},
		"late": func(*rapid.T) { // the client was told that nobody knows, and the turn is passed on
			if c := k.any(k.settling); c != nil && c.Verdict.Turn {
				k.settling = without(k.settling, c)
				k.goOn(k.r.Pass(c, k.now))
			}
		},
		"task": func(*rapid.T) {
			if c := k.any(slices.DeleteFunc(slices.Clone(k.sent), func(c *run.Call) bool { return k.isTask[c] })); c != nil {
				left := c.Remains()
				ok, e := k.r.HandOver(c, &left)
				if !ok {
					k.leave(&left)
					return
				}
				k.sent, k.isTask[&left] = append(without(k.sent, c), &left), true
				if text := k.left(&left); text != nil {
					k.tasks[left.Begun()] = text
				}
				k.goOn(e)
			}
		},
		"send again": func(*rapid.T) {
			if c := k.any(k.sent); c != nil {
				k.sent = without(k.sent, c)
				a, held, e := k.r.Keeps(c, k.now)
				if held {
					k.decided(c, a)
				}
				k.goOn(e)
				if !held || a == run.ApprovalWanted {
					k.enter(c)
				}
			}
		},
		"restart": func(*rapid.T) { k.goOn(k.r.RestartBy(run.Remark{Who: "admin|olga", Text: "why"}, k.now)) },
		"annotate": func(rt *rapid.T) {
			was, due := k.r.Standing(), k.r.DueAhead()
			e := k.r.Annotate(run.Remark{Who: "admin|olga", Text: rapid.String().Draw(rt, "text")}, k.now)
			if is := k.r.DueAhead(); len(e.Entries) == 1 && (k.r.Standing() != was || is != due) {
				k.Fatal("an annotation has moved the run")
			}
			k.goOn(e)
		},
		"lose": func(*rapid.T) { k.goOn(k.r.RestartUnasked(k.now)) },
		"wait": func(rt *rapid.T) {
			k.now = k.now.Add(time.Duration(rapid.IntRange(1, 150).Draw(rt, "minutes")) * time.Minute)
		},
		"moment": func(rt *rapid.T) {
			k.now = k.now.Add(time.Duration(rapid.IntRange(1, 3000).Draw(rt, "milliseconds")) * time.Millisecond)
			k.r.Declined(k.now)
		},
		"clock": func(*rapid.T) { k.goOn(k.r.Expire(k.now)) },
		"reload": func(rt *rapid.T) {
			k.inForce = k.policy(rapid.SampledFrom(k.settings).Draw(rt, "settings"))
			_, e := k.r.Reload(k.inForce, k.now)
			k.goOn(e)
		},
		"crash": func(*rapid.T) { k.crash() },
		"":      func(*rapid.T) { k.took() },
	}
}

// splitArgs are arguments whose member what is "a".
type splitArgs string

func (a splitArgs) JSON() []byte { return []byte(a) }

func (a splitArgs) At([]string) (policy.Argument, bool) { return policy.Text("a"), false }

// TestFinishedWhatever ends a run at any moment: nothing moves it any more, each call that had begun has an end, and so
// it is after a crash.
func TestFinishedWhatever(t *testing.T) {
	parsed := map[string]*policy.Policy{}
	rapid.Check(t, func(rt *rapid.T) {
		k := &kept{T: rt, now: time.Unix(1000, 0), parsed: parsed, every: rapid.SampledFrom([]int{0, 1, 3}).Draw(rt, "every"), source: lasting}
		k.begin()
		call := func() {
			name := rapid.SampledFrom([]string{"read", "plan", "count", "apply", "back", "again"}).Draw(rt, "tool")
			k.enter(&run.Call{Request: run.Request{Kind: policy.Tool, Name: name, Arguments: splitArgs(`{"path":"a"}`), Listed: true, Known: true}})
		}
		for range rapid.IntRange(0, 12).Draw(rt, "calls") {
			call()
			k.disk(rapid.IntRange(0, 3).Draw(rt, "n"))
			if c := k.any(k.sent); c != nil && rapid.Bool().Draw(rt, "answered") {
				k.settle(c, policy.Success)
			}
		}
		k.disk(len(k.written))
		by := run.Remark{Who: "admin|olga", Text: "why"}
		stood := k.r.Standing()
		made := len(k.written)
		k.goOn(k.r.Finish(by, k.now))
		n := slices.IndexFunc(k.written[made:], func(e run.Entry) bool { return e.Type == run.Finished && e.Remark == by })
		if n < 0 || slices.ContainsFunc(k.written[made+n+1:], func(e run.Entry) bool { return e.Type != run.Declined }) {
			k.Fatalf("the last entries are %+v", k.written[made:])
		}
		if len(k.queued) > 0 {
			k.Fatal("calls wait for the turn of a run that has ended")
		}
		if made := len(k.written); k.r.Finish(by, k.now).Entries != nil || len(k.written) != made {
			k.Fatal("it has ended twice")
		}
		under := len(k.sent) + len(k.beginning) // some may have begun, and not be sent yet
		call()
		if len(k.sent)+len(k.beginning)+len(k.queued) > under {
			k.Fatal("a call goes in a run that has ended")
		}
		k.now = k.now.Add(3 * time.Hour)
		if k.disk(len(k.written)); rapid.Bool().Draw(rt, "crash") {
			k.crash()
		} else {
			for len(k.sent) > 0 {
				k.settle(k.sent[0], policy.Success)
				k.disk(len(k.written))
			}
		}
		if due, ok := k.r.Due(); ok || len(k.r.Expire(k.now).Entries) > 0 {
			k.Fatalf("its clock is due at %v", due)
		}
		if k.r.Standing() != stood {
			k.Fatalf("it stood at %v, and stands at %v", stood, k.r.Standing())
		}
		if holder, _ := k.r.Holder(); holder != nil {
			k.Fatal("somebody has the turn still")
		}
	})
}
