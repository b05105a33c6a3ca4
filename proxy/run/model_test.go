package run_test

import (
	"flag"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

var (
	states = []string{"entry", "crossroad", "door_left", "door_right", "rollback_left", "rollback_right"}
	tools  = []string{"open_door", "press_button", "choose_left_path", "choose_right_path", "pick_up_key", "open_door_with_key", "go_back", "explode"}
)

// generation is the policy of the crossroads with other names for its states, which are
// renamed from those of the generation before. A lost one knows none of those.
func generation(source string, n int, settings string, lost bool) string {
	var names, renamed []string
	for _, state := range states {
		names = append(names, "  "+state+":", fmt.Sprintf("  %s.%d:", state, n), ": "+state+"\n", fmt.Sprintf(": %s.%d\n", state, n),
			": "+state+",", fmt.Sprintf(": %s.%d,", state, n), ": "+state+"}", fmt.Sprintf(": %s.%d}", state, n))
		before := fmt.Sprintf("%s.%d", state, n-1)
		if n == 1 {
			before = state
		}
		renamed = append(renamed, fmt.Sprintf("  %s: %s.%d\n", before, state, n))
	}
	source = strings.NewReplacer(names...).Replace(source[strings.Index(source, "version: 1"):])
	if !lost {
		source += "renamed:\n" + strings.Join(renamed, "")
	}
	return source + settings
}

// original is the name that a state has in the first generation.
func original(state string) string {
	name, _, _ := strings.Cut(state, ".")
	return name
}

// world is a run with the calls that were made of it, and what its entries tell.
type world struct {
	*rapid.T
	r       run.Run
	now     time.Time
	first   *policy.Policy
	source  string
	parsed  map[string]*policy.Policy // of generations, in whatever world
	n       int                       // of the policy in force
	entries []run.Entry
	folded  run.Standing

	queued, sent []*run.Call
	left         []*run.Call // of those that a task has come of
	adrift       bool        // the reference does not know where the run is: a reload has taken its state
	state        string      // where it is by the reference
}

// keep takes entries into the fold. Each begins where the last one ended.
func (w *world) keep(entries ...run.Entry) {
	for _, e := range entries {
		if e.Type == 0 {
			continue
		}
		if e.From != w.folded {
			w.Fatalf("an entry begins at %v, and the one before ended at %v", e.From, w.folded)
		}
		w.entries, w.folded = append(w.entries, e), e.To
		if e.Type == run.Reset {
			w.state = "entry"
		}
	}
}

// goOn does what effects say: their calls are off the queue.
func (w *world) goOn(e run.Effects) {
	w.keep(e.Entries...)
	for _, c := range e.Ready {
		w.queued = slices.DeleteFunc(w.queued, func(q *run.Call) bool { return q == c })
		if !w.r.Holds(c) {
			w.enter(c)
			continue
		}
		a, e := w.r.Granted(c, w.now)
		w.decided(c, a)
		w.goOn(e)
	}
}

func (w *world) enter(c *run.Call) {
	a, e := w.r.Enter(c, 3, w.now)
	w.keep(e.Entries...)
	w.decided(c, a)
}

// decided checks that what is let go is allowed, and alone if it can move the run.
func (w *world) decided(c *run.Call, a run.Admission) {
	holder, task := w.r.Holder()
	switch a {
	case run.Admitted:
		w.sent = append(w.sent, c)
		if c.Snapshot.Shadow {
			return
		}
		if !c.Verdict.Allowed || !w.folded.Stranded.IsZero() && c.Snapshot.Gate == nil {
			w.Fatalf("%s is let go: %+v", c.Name, c.Verdict)
		}
		if c.Verdict.Turn != (holder == c) {
			w.Fatalf("%s takes the turn: %v; has it: %v", c.Name, c.Verdict.Turn, holder == c)
		}
		at := policy.Configuration{State: w.stateNamed(w.state)}
		if v := w.first.Decide(at, &policy.Request{Kind: policy.Tool, Name: c.Name, Listed: true}); !w.adrift && !v.Allowed {
			w.Fatalf("%s is let go in %s", c.Name, w.state)
		}
	case run.Queued:
		w.queued = append(w.queued, c)
		if holder == nil || holder == c || task {
			w.Fatalf("%s waits for nobody", c.Name)
		}
	case run.TaskRunning:
		if !task {
			w.Fatalf("%s is told of a task, and there is none", c.Name)
		}
	case run.Refused:
		if holder == c || c.Verdict.Allowed {
			w.Fatalf("%s is refused, and goes on: %+v", c.Name, c.Verdict)
		}
	}
}

func (w *world) stateNamed(name string) policy.State {
	s, ok := w.first.StateByName(name)
	if !ok {
		w.Fatalf("no state %s", name)
	}
	return s
}

// ends settles a call, and passes its turn on; o is zero where it never went upstream.
func (w *world) ends(c *run.Call, o policy.Outcome) {
	w.sent = slices.DeleteFunc(w.sent, func(s *run.Call) bool { return s == c })
	if o == 0 {
		w.goOn(w.r.Leave(c, w.now))
		return
	}
	e, _, err := w.r.Settle(c, run.End{Outcome: o}, w.now)
	if err != nil {
		w.Fatal(err)
	}
	if e.Type != 0 && e.Step.Changed {
		step, err := w.first.Next(policy.Configuration{State: w.stateNamed(w.state)}, c.Verdict.Symbol, o)
		if !w.adrift && (err != nil || w.first.StateName(step.Entered) != original(e.By.StateName(e.Step.Entered))) {
			w.Fatalf("%s led to %s from %s: %v", c.Name, e.By.StateName(e.Step.Entered), w.state, err)
		}
		w.state = w.first.StateName(step.To.State)
	}
	w.keep(e)
	w.goOn(w.r.Pass(c, w.now))
}

func (w *world) reload(settings string, lost bool) {
	w.n++
	w.adrift = w.adrift || lost
	source := generation(w.source, w.n, settings, lost)
	p := w.parsed[source]
	if p == nil {
		p = parse(w, source)
		w.parsed[source] = p
	}
	held, _ := w.r.Holder()
	fate, e := w.r.Reload(p, w.now)
	if (fate == run.WaitsForTurn) != (held != nil) {
		w.Fatalf("reloaded: %v while the turn is taken: %v", fate, held != nil)
	}
	if e.Entries != nil {
		w.Fatal("a reload is no entry")
	}
	w.goOn(e)
}

// any draws one of some calls, nil where there are none.
func (w *world) any(of []*run.Call) *run.Call {
	if len(of) == 0 {
		return nil
	}
	return rapid.SampledFrom(of).Draw(w.T, "call")
}

// useful calls what is allowed, so that runs get somewhere.
func (w *world) useful() {
	s := w.r.Snapshot(w.now)
	names := slices.DeleteFunc(s.Exact(policy.Tool), func(name string) bool {
		return !s.Decide(&policy.Request{Kind: policy.Tool, Name: name, Listed: true}).Turn
	})
	if len(names) > 0 {
		w.enter(&run.Call{Request: run.Request{Kind: policy.Tool, Name: rapid.SampledFrom(names).Draw(w.T, "tool"), Listed: true, Known: true}})
	}
}

// goFar takes steps that succeed.
func (w *world) goFar(steps int) {
	for range steps {
		if w.useful(); len(w.sent) > 0 {
			w.ends(w.sent[len(w.sent)-1], policy.Success)
		}
	}
}

func (w *world) deeds(strands bool) map[string]func(*rapid.T) {
	all := map[string]func(*rapid.T){
		"call": func(rt *rapid.T) {
			w.enter(&run.Call{Request: run.Request{Kind: policy.Tool, Name: rapid.SampledFrom(tools).Draw(rt, "tool"), Listed: true, Known: true}})
		},
		"useful call": func(*rapid.T) { w.useful() },
		"burst":       func(*rapid.T) { w.useful(); w.useful(); w.useful() },
		"go on":       func(*rapid.T) { w.goFar(1) },
		"go far":      func(*rapid.T) { w.goFar(4) },
		"answer": func(rt *rapid.T) {
			if c := w.any(w.sent); c != nil {
				w.ends(c, rapid.SampledFrom([]policy.Outcome{policy.Success, policy.Success, policy.Error, policy.Unknown, 0}).Draw(rt, "outcome"))
			}
		},
		"give up": func(*rapid.T) {
			if c := w.any(w.queued); c != nil {
				w.queued = slices.DeleteFunc(w.queued, func(q *run.Call) bool { return q == c })
				w.goOn(w.r.Leave(c, w.now))
			}
		},
		"send again": func(*rapid.T) {
			c := w.any(w.sent)
			if c == nil {
				return
			}
			a, held, e := w.r.Keeps(c, w.now)
			w.sent = slices.DeleteFunc(w.sent, func(s *run.Call) bool { return s == c })
			if held {
				w.decided(c, a)
			}
			w.goOn(e)
			if !held {
				w.enter(c)
			}
		},
		"task": func(*rapid.T) {
			c := w.any(w.sent)
			if c == nil || slices.Contains(w.left, c) {
				return
			}
			left := c.Remains()
			if ok, e := w.r.HandOver(c, &left); ok {
				w.sent = append(slices.DeleteFunc(w.sent, func(s *run.Call) bool { return s == c }), &left)
				w.left = append(w.left, &left)
				w.goOn(e)
			}
		},
		"reload": func(rt *rapid.T) {
			w.reload(rapid.SampledFrom([]string{"", "on_reload: pin\n"}).Draw(rt, "settings"), false)
		},
		"restart": func(*rapid.T) { w.goOn(w.r.Restart(w.now)) },
		"lose":    func(*rapid.T) { w.goOn(w.r.RestartUnasked(w.now)) },
		"wait":    func(*rapid.T) { w.now = w.now.Add(20 * time.Minute) },
		"":        func(*rapid.T) { w.check() },
	}
	if strands {
		all["strand"] = func(rt *rapid.T) {
			w.reload(rapid.SampledFrom([]string{"", "stranded: restart\n", "stranded: refuse\n", "on_reload: pin\n"}).Draw(rt, "settings"), true)
		}
		all["shadow"] = func(rt *rapid.T) {
			w.adrift = true
			w.goOn(w.r.SetShadow(rapid.Bool().Draw(rt, "shadow"), w.now))
		}
		all["migrate"] = func(*rapid.T) {
			e, _ := w.r.Migrate(w.now)
			w.goOn(e)
		}
	}
	return all
}

// check looks for what holds always.
func (w *world) check() {
	holder, _ := w.r.Holder()
	if w.r.Waiting() != len(w.queued) || holder == nil && w.r.Waiting() > 0 {
		w.Fatalf("%d calls wait, of %d", w.r.Waiting(), len(w.queued))
	}
	s := w.r.Snapshot(w.now)
	for _, tool := range tools {
		if allowed := s.Decide(&policy.Request{Kind: policy.Tool, Name: tool, Listed: true}).Allowed; !s.Shadow && allowed != s.Visible(policy.Tool, tool) {
			w.Fatalf("%s is allowed: %v, and shown otherwise", tool, allowed)
		}
	}
	if state := w.r.Standing().State(); !w.adrift && original(state) != w.state {
		w.Fatalf("the run is in %s, the reference in %s", state, w.state)
	}
}

// replayed checks that the run, when it is used, is what its entries tell.
func (w *world) replayed() {
	w.enter(&run.Call{Request: run.Request{Kind: policy.Tool, Name: "explode", Known: true}})
	if w.r.Standing() != w.folded {
		w.Fatalf("the run stands at %v, by its entries at %v", w.r.Standing(), w.folded)
	}
	again := run.Replay(run.Config{Policy: w.folded.Policy}, slices.Values(reread(w.T, w.entries)), w.now)
	if n := uint64(len(w.entries)); w.r.Seq() != n || again.Seq() != n {
		w.Fatalf("of %d entries the last has the number %d, and %d by them alone", n, w.r.Seq(), again.Seq())
	}
	want := w.folded
	want.Stranded = time.Time{} // under the policy of that state
	if again.Standing() != want {
		w.Fatalf("of its entries a run is made that stands at %v, not %v", again.Standing(), want)
	}
}

// reread are entries as a journal gives them back.
func reread(t rapid.TB, entries []run.Entry) (again []run.Entry) {
	known := map[string]*policy.Policy{}
	for _, e := range entries {
		known[e.To.Policy.Digest()] = e.To.Policy
		if a := e.Answer; a != nil {
			known[a.Policy.Digest()], known[a.Next.Digest()] = a.Policy, a.Next
		}
	}
	for _, e := range entries {
		text, err := e.AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		read, err := run.ReadEntry(text, func(digest string) *policy.Policy { return known[digest] })
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if read.To.At != e.To.At || read.To.Policy != e.To.Policy || !read.To.Stranded.Equal(e.To.Stranded) || !read.Time.Equal(e.Time) || !reflect.DeepEqual(read.Set, e.Set) || !reflect.DeepEqual(read.Counted, e.Counted) || read.Yes != e.Yes {
			t.Fatalf("%s\n%+v\nwas\n%+v", text, read, e)
		}
		read.Seq = e.Seq
		again = append(again, read)
	}
	return again
}

func explore(t *testing.T, strands bool) {
	t.Helper()
	source := crossroads(t)
	first, parsed := parse(t, source), make(map[string]*policy.Policy)
	defer func(old string) { _ = flag.Set("rapid.checks", old) }(flag.Lookup("rapid.checks").Value.String())
	if err := flag.Set("rapid.checks", "300"); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{
			T: rt, r: run.New(run.Config{Policy: first, Shared: &run.Shared{Patience: time.Hour}}, time.Unix(1000, 0)), now: time.Unix(1000, 0), first: first, source: source, parsed: parsed,
			folded: run.Standing{Policy: first, At: first.Initial()}, state: "entry",
		}
		rt.Repeat(w.deeds(strands))
		w.replayed()
		for i := 0; len(w.sent) > 0; i++ { // and every turn is given back
			w.ends(w.sent[0], policy.Unknown)
		}
		w.check()
		if holder, _ := w.r.Holder(); holder != nil || len(w.queued) > 0 {
			w.Fatalf("%d calls wait for a turn that nobody gives back", len(w.queued))
		}
		w.replayed()
	})
}

// TestModel plays calls, failures, reloads that rename, restarts and tasks, and compares with
// what the first policy says.
func TestModel(t *testing.T) { explore(t, false) }

// TestReplay plays shadow and reloads that strand as well: the entries are the run.
func TestReplay(t *testing.T) { explore(t, true) }
