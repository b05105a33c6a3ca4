package run_test

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/guard"
	"github.com/fsm-proxy/fsm-proxy/proxy/approval"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// answering has calls that somebody has to approve, some of them in each state by one rule. %s is what a reload changes.
const answering = `version: 1
initial: a
on_complete: restart
everywhere:
  tools:
    pay: {approve: {by: operator, timeout: 1m}}
    user: {approve: {by: client, timeout: 1m}}
states:
  a:
    after: {10m: b}
    tools:
      note: {at_most: 1000, approve: {by: operator, timeout: 3m}}
      move: {approve: {by: operator, timeout: 2m}, on_success: b, on_unknown: stay, on_error: stay}
      go: b
  b: {tools: {back: a, end: {on_any: {to: a, terminal: true}}}}
%s`

// said is an answer as the docs have it, of which the text of an entry tells.
type said struct {
	what  string
	no    bool
	until time.Time
	used  bool
}

// reading is what holds of the answers that durable entries tell of, read naively from their text: to which calls there is
// a no, and to which how many yeses.
func (k *kept) reading() map[string]string {
	all, usedBy, inForce := map[uint64]*said{}, map[uint64]*said{}, ""
	digest := ""
	for i := range k.written[:k.durable] {
		text, err := k.written[i].AppendJSON(nil)
		if err != nil {
			k.Fatal(err)
		}
		var e struct {
			Type, Name string
			Changed    bool
			Begun, Yes uint64
			To         struct{ Policy string }
			Answer     struct {
				Said, Digest, Policy, Next string
				Until                      time.Time
				Principal                  struct{ Subject string }
			}
		}
		if err := json.Unmarshal(text, &e); err != nil {
			k.Fatal(err)
		}
		digest = e.To.Policy
		switch seq := uint64(i + 1); {
		case e.Changed, e.Type == "moved", e.Type == "stranded", e.Type == "reset":
			clear(all)
		case e.Type == "answered":
			next := e.Answer.Next
			if next == "" {
				next = e.Answer.Policy
			}
			if next != inForce {
				clear(all)
			}
			inForce = next
			x := &said{what: e.Name + e.Answer.Digest + e.Answer.Principal.Subject, no: e.Answer.Said == "deny", until: e.Answer.Until}
			before := false
			for other, y := range all {
				before = before || y.what == x.what && y.no
				if x.no && y.what == x.what && !y.used && !y.no {
					delete(all, other)
				}
			}
			if !before {
				all[seq] = x
			}
		case e.Type == "begun" && e.Yes != 0:
			if all[e.Yes] == nil || all[e.Yes].used {
				for _, e := range k.written {
					text, _ := e.AppendJSON(nil)
					k.Logf("%d %s", e.Seq, text)
				}
				k.Fatalf("entry %d: %s goes by entry %d, which is no yes to it", seq, e.Name, e.Yes)
			}
			usedBy[seq] = all[e.Yes]
			all[e.Yes].used = true
		case e.Type == "unsent" && e.Yes != 0:
			usedBy[e.Begun].used = false
		}
	}
	out := map[string]string{}
	if free := k.inForce.Digest(); inForce != free && (k.inForce.OnReload() != policy.ReloadPin || inForce != digest) {
		return out
	}
	for _, seq := range slices.Sorted(maps.Keys(all)) {
		switch x := all[seq]; {
		case x.no:
			out[x.what] = "no"
		case !x.used && k.now.Before(x.until) && out[x.what] != "no":
			out[x.what] += "yes"
		}
	}
	return out
}

// holds is what a run holds of the calls there may be, by what becomes of them.
func (k *kept) holds(r *run.Run) map[string]string {
	out := map[string]string{}
	for _, name := range []string{"pay", "note", "move"} {
		for _, x := range []string{`{}`, `{"x":0}`, `{"x":1}`} { // a task has no arguments any more
			for _, who := range []string{"ann", "bob"} {
				digest, _ := guard.Digest([]byte(x))
				what := name + digest + who
				var used []*run.Call
				for denied := 0; ; {
					c := wanting(name, x, who)
					a, _ := r.Enter(c, 0, k.now)
					if a == run.Admitted {
						out[what] += "yes"
						if used = append(used, c); !c.Verdict.Turn {
							continue
						}
					}
					if denied++; a == run.Refused && c.Verdict.Code == policy.ApprovalDenied {
						if denied == 1 { // which may be that nobody has answered in time, and is told once
							continue
						}
						out[what] = "no"
					}
					break
				}
				for _, c := range used {
					r.Leave(c, k.now)
				}
			}
		}
	}
	return out
}

// once is a reading in which of calls that take the turn one yes is seen, of however many.
func once(held map[string]string) map[string]string {
	for what, x := range held {
		if what[:4] == "move" && x != "no" {
			held[what] = "yes"
		}
	}
	return held
}

func wanting(name, arguments, who string) *run.Call {
	return &run.Call{Request: run.Request{Kind: policy.Tool, Name: name, Arguments: splitArgs(arguments), Listed: true, Known: true, Who: &guard.Who{Issuer: "i", Subject: who}}}
}

// folds checks that what the run is by its entries holds the answers that they tell of.
func (k *kept) folds() {
	k.goOn(k.r.Expire(k.now))
	k.disk(len(k.written))
	k.r.Inspect(k.now)
	k.took()
	k.disk(len(k.written))
	again := k.replay(k.whicheverWay(), k.inForce, 0)
	k.sameAnswers("read again", &again)
}

func (k *kept) sameAnswers(when string, r *run.Run) {
	want := once(k.reading())
	if r.Standing().State() != "a" { // where notes and moves are none
		maps.DeleteFunc(want, func(what, _ string) bool { return what[:3] != "pay" })
	}
	if _, isTask := r.Holder(); isTask { // then no move goes
		maps.DeleteFunc(want, func(what, x string) bool { return what[:4] == "move" && x != "no" })
	}
	if is := k.holds(r); !maps.Equal(is, want) {
		for _, e := range k.written {
			text, _ := e.AppendJSON(nil)
			k.Logf("%d %s", e.Seq, text)
		}
		k.Fatalf("%s it holds\n%v, and its entries tell of\n%v", when, is, want)
	}
}

// TestAnswersAreTheFold plays a run whose operators and users answer, that moves, is reset and reloaded, and is lost at any
// moment, in mid-call, too: the answers that it has then are the operators' that were durable, and not used; and nobody goes
// without a yes of which it is durable that it is used.
func TestAnswersAreTheFold(t *testing.T) {
	parsed := map[string]*policy.Policy{}
	rapid.Check(t, func(rt *rapid.T) {
		k := &kept{T: rt, now: time.Unix(1000, 0), parsed: parsed, every: rapid.SampledFrom([]int{0, 1, 2, 3, 5, 11}).Draw(rt, "every"), source: answering, settings: []string{"", "# another\n", "on_reload: pin\n"}}
		k.begin()
		sessions := []any{"one", "two"}
		some := func(rt *rapid.T, names ...string) *run.Call {
			c := wanting(rapid.SampledFrom(names).Draw(rt, "tool"), rapid.SampledFrom([]string{`{"x":0}`, `{"x":1}`}).Draw(rt, "arguments"), rapid.SampledFrom([]string{"ann", "bob"}).Draw(rt, "who"))
			c.Tag = rapid.SampledFrom(sessions).Draw(rt, "session")
			return c
		}
		call := func(rt *rapid.T) {
			k.enter(some(rt, "pay", "pay", "note", "move", "move", "user", "go", "back", "end"))
		}
		goOn := func() {
			for _, c := range slices.SortedFunc(maps.Keys(k.asked), func(a, b *run.Call) int {
				return slices.Compare([]string{k.asked[a].ID, a.Name}, []string{k.asked[b].ID, b.Name})
			}) {
				if k.asked[c].State() != approval.Open {
					k.enter(c)
				}
			}
		}
		say := func(rt *rapid.T) {
			open := k.r.Questions(k.now)
			if len(open) == 0 {
				return
			}
			q := rapid.SampledFrom(open).Draw(rt, "question")
			answer := rapid.SampledFrom([]approval.State{approval.Allowed, approval.Allowed, approval.Denied}).Draw(rt, "answer")
			p, ok := k.r.Answer(q, run.Reply{Answer: answer, By: "olga", Note: "so"}, k.now)
			if k.took(); p != nil {
				if _, twice := k.r.Answer(q, run.Reply{Answer: answer}, k.now); twice || q.State() != approval.Open {
					k.Fatal("it is answered twice, or counts before it is durable")
				}
			} else if ok && q.Of == policy.ByOperator {
				k.Fatal("an operator's answer is not kept")
			}
		}
		actions := k.actions(call)
		maps.Copy(actions, map[string]func(*rapid.T){
			"say":     say,
			"say too": say,
			"go on":   func(*rapid.T) { goOn() },
			"ask, yes, and go": func(rt *rapid.T) {
				k.enter(some(rt, "pay", "note", "move"))
				say(rt)
				if k.disk(100); rapid.Bool().Draw(rt, "at once") {
					goOn()
				}
			},
			"another policy, and back": func(*rapid.T) {
				was := k.inForce
				for _, k.inForce = range []*policy.Policy{k.policy("# for a moment\n"), was} {
					_, e := k.r.Reload(k.inForce, k.now)
					k.goOn(e)
				}
			},
			"a session ends": func(rt *rapid.T) {
				gone := rapid.SampledFrom(sessions).Draw(rt, "session")
				k.r.EndQuestions(func(q *approval.Question) bool { return q.By == gone })
				maps.DeleteFunc(k.asked, func(c *run.Call, _ *approval.Question) bool { return c.Tag == gone })
			},
			"wait": func(rt *rapid.T) {
				k.now = k.now.Add(time.Duration(rapid.IntRange(1, 90).Draw(rt, "seconds")) * time.Second)
			},
			"crash": func(*rapid.T) { k.crash(); k.folds() },
		})
		rt.Repeat(actions)
		k.same()
		k.folds()
		k.r.EndQuestions(func(*approval.Question) bool { return true }) // behind which a yes waits that is given back
		k.sameAnswers("as it went on", &k.r)
		for _, who := range []string{"ann", "bob"} { // a user's yes ends with the process
			k.crash()
			if a, _ := k.r.Enter(wanting("user", `{"x":0}`, who), 0, k.now); a != run.ApprovalWanted {
				k.Fatalf("a user's answer is kept: %v", a)
			}
		}
	})
}
