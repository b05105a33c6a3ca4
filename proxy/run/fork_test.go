package run_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// final is lasting with calls that cannot be undone: one that sets nothing, one that is counted, and one that moves the run.
var final = strings.NewReplacer("      count:", "      note: {irreversible: true}\n      count:", "edit: {", "edit: {irreversible: true, ", "apply: {", "apply: {irreversible: true, ").Replace(lasting)

// past is what the run was after an entry, by those that are kept from a number on.
func (k *kept) past(n int, from int) *run.Past {
	entries := reread(k.T, k.written)
	past := run.NewPast(run.Origin{Run: "PARENT", Seq: uint64(n)}, &run.Shared{Checkpoint: k.every})
	for i := from; i < len(entries); i++ {
		entries[i].Seq = uint64(i + 1)
		past.Add(&entries[i])
	}
	return past
}

// passed are the calls that were not over after an entry, and what of them, or after it, is irreversible: as who looks on
// from outside sees them.
func (k *kept) passed(n int) (sent []string, final bool) {
	over := map[uint64]run.Entry{}
	for _, e := range k.written {
		over[e.Begun] = e
	}
	for _, e := range k.written {
		last := e
		switch {
		case e.Type == run.Begun && over[e.Seq].Type == run.Unsent, e.Type == run.Ended && e.Begun != 0:
			continue
		case e.Type == run.Begun:
			if end := over[e.Seq]; end.Seq != 0 {
				last = end
			}
		case e.Type != run.Stayed && e.Type != run.Ended:
			continue
		}
		if last.Type == run.Begun || last.Seq > uint64(n) {
			outcome := last.Outcome.String()
			if last.Type == run.Begun {
				outcome = ""
			}
			sent = append(sent, fmt.Sprintf("%04d %s %s", last.Seq, e.Call.Name, outcome))
			final = final || slices.Contains([]string{"note", "edit", "apply"}, e.Call.Name)
		}
	}
	slices.Sort(sent)
	return sent, final
}

// TestForkOfAnyPrefix forks a run at any of its entries: what it is then is what the entries up to that one come to, it goes
// on as a run that was read of them, and so does what is read of its own entries. Behind what cannot be undone it is not
// forked.
func TestForkOfAnyPrefix(t *testing.T) {
	parsed := map[string]*policy.Policy{}
	forked, refused := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		k := &kept{T: rt, now: time.Unix(1000, 0), parsed: parsed, every: rapid.SampledFrom([]int{0, 1, 2, 3, 5}).Draw(rt, "every"),
			source: final, settings: []string{"", "on_reload: pin\n", "on_complete: restart\n"}}
		k.begin()
		names := []string{"read", "read", "edit", "plan", "plan", "count", "note", "pick", "apply", "end", "back", "again"}
		call := func(rt *rapid.T) {
			name := rapid.SampledFrom(names).Draw(rt, "tool")
			arguments := fmt.Sprintf(`{"path":%q}`, rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "path"))
			k.enter(&run.Call{Request: run.Request{Kind: policy.Tool, Name: name, Arguments: splitArgs(arguments), Listed: true, Known: true}})
		}
		rt.Repeat(k.actions(call))
		k.disk(len(k.written))
		n := rapid.IntRange(1, len(k.written)).Draw(rt, "at")
		from := 0
		for i, e := range k.written[:n] {
			if e.Type == run.Checkpoint && rapid.Bool().Draw(rt, "from a checkpoint on") {
				from = i
			}
		}
		past := k.past(n, from)
		k.told(past, n)
		if err := past.Check(); err != nil {
			refused++
			return
		}
		forked++
		k.forks(past, n)
	})
	t.Logf("%d were forked, %d refused", forked, refused)
	if forked < 20 || refused < 3 {
		t.Errorf("%d were forked, %d refused", forked, refused)
	}
}

// told checks what is said of calls behind an entry.
func (k *kept) told(past *run.Past, n int) {
	want, final := k.passed(n)
	var got []string
	sent, more := past.Since()
	for _, s := range sent {
		got = append(got, fmt.Sprintf("%04d %s %s", s.Seq, s.Symbol.Name, s.Outcome))
	}
	if !slices.Equal(got, want) || more != 0 {
		k.Fatalf("behind entry %d of %d were sent\n%q\nand it tells of\n%q and %d more", n, len(k.written), want, got, more)
	}
	err := past.Check()
	if _, is := errors.AsType[*run.Irreversible](err); is != final || err != nil && !is {
		k.Fatalf("behind entry %d were sent %q, and it says %v", n, want, err)
	}
}

// forks forks the run, and has the fork and what is read of the prefix go on alike.
func (k *kept) forks(past *run.Past, n int) {
	prefix := reread(k.T, k.written[:n])
	last := k.written[n-1]
	k.now = last.Time
	p := last.To.Policy
	was := k.state(&k.r)
	child := past.Fork(run.Config{Policy: p, Shared: &run.Shared{Checkpoint: k.every}, By: run.Remark{Who: "admin|olga", Text: "why"}}, k.now)
	plain := k.replay(prefix, p, 0)
	task, _ := plain.Holder()
	open := plain.Awaited() != nil || task != nil
	if got, want := remembered(k, &child), remembered(k, &plain); got != want {
		k.Fatalf("forked at entry %d it is\n%s\nand by the entries\n%s", n, got, want)
	}
	first := child.Made()
	if len(first) != 1 || first[0].Type != run.Forked || *first[0].Origin != (run.Origin{Run: "PARENT", Seq: uint64(n)}) || first[0].Remark.Who != "admin|olga" || child.Seq() != 1 || child.Awaited() != nil {
		k.Fatalf("it begins with %+v", first)
	}
	if holder, _ := child.Holder(); holder != nil {
		k.Fatal("somebody has the turn of it")
	}
	of := func() run.Run { return k.replay(reread(k.T, first), p, k.every) }
	if again := of(); k.state(&again) != k.state(&child) || !again.MovedSince(0) || again.MovedSince(1) || !child.MovedSince(0) || child.MovedSince(1) {
		k.Fatalf("forked at entry %d it is\n%s\nand by its entry\n%s", n, k.state(&child), k.state(&again))
	}
	if is := k.state(&k.r); is != was || len(k.r.Made()) > 0 {
		k.Fatalf("the run was\n%s\nand is\n%s", was, is)
	}
	if open { // which a run that is read ends, or a task has its turn
		return
	}
	again := of()
	for range rapid.IntRange(0, 6).Draw(k.T, "goes on") {
		k.now = k.now.Add(time.Duration(rapid.IntRange(1, 3600).Draw(k.T, "seconds")) * time.Second)
		name := rapid.SampledFrom([]string{"read", "edit", "plan", "note", "apply", "end", "back", "count"}).Draw(k.T, "tool")
		o := rapid.SampledFrom([]policy.Outcome{policy.Success, policy.Error, policy.Unknown}).Draw(k.T, "outcome")
		want := k.steps(&plain, name, o)
		for what, r := range map[string]*run.Run{"the fork": &child, "what is read of it": &again} {
			if got := k.steps(r, name, o); got != want {
				k.Fatalf("by %s, %v, %s is\n%s\nand what is read of the prefix\n%s", name, o, what, got, want)
			}
		}
	}
}

// remembered is the state of a run but for its clock, which stands still while somebody has the turn.
func remembered(k *kept, r *run.Run) string {
	all := k.state(r)
	return all[:strings.LastIndex(all, "]")]
}

// steps has a run take a call, and returns what came of it.
func (k *kept) steps(r *run.Run, name string, o policy.Outcome) string {
	durable := func() {
		for _, e := range r.Made() {
			if p := e.Pending(); p != nil {
				r.Durable(p, k.now)
			}
		}
	}
	r.Expire(k.now)
	durable()
	c := &run.Call{Request: run.Request{Kind: policy.Tool, Name: name, Arguments: splitArgs(`{"path":"a"}`), Listed: true, Known: true}}
	a, _ := r.Enter(c, 3, k.now)
	durable()
	if a == run.Admitted {
		r.Begin(c, k.now)
		durable()
		if _, _, err := r.Settle(c, run.End{Outcome: o, Result: []byte(`{"structuredContent":{"id":"p"}}`)}, k.now); err != nil {
			k.Fatal(err)
		}
		durable()
		r.Pass(c, k.now)
		durable()
	}
	return fmt.Sprint(a, c.Verdict.Code, k.state(r))
}

// A call that cannot be undone is written before it is sent, though it moves nothing, sets nothing and is not counted; one
// whose begin is not to be waited for is not.
func TestIrreversibleIsToldAhead(t *testing.T) {
	now := time.Unix(1000, 0)
	p := parse(t, "version: 1\ninitial: a\nstates: {a: {tools: {note: {irreversible: true}, read: stay}}}\n")
	for _, lasts := range []bool{true, false} {
		r := run.New(run.Config{Policy: p, Lasts: lasts}, now)
		for _, name := range []string{"note", "read"} {
			c := &run.Call{Request: run.Request{Kind: policy.Tool, Name: name, Listed: true, Known: true}}
			if a, _ := r.Enter(c, 3, now); a != run.Admitted {
				t.Fatal(a)
			}
			p, ok := r.Begin(c, now)
			if !ok || (p != nil) != (name == "note" && lasts) {
				t.Fatalf("%s: %+v", name, p)
			}
			if p == nil {
				continue
			}
			if text, err := p.AppendJSON(nil); err != nil || !strings.Contains(string(text), `"type":"begun"`) || !strings.Contains(string(text), `"irreversible":true`) {
				t.Errorf("%s, %v", text, err)
			}
			r.Durable(p, now)
			e, _, err := r.Settle(c, run.End{Outcome: policy.Success}, now)
			if err != nil || e.Begun != p.Seq || e.Irreversible {
				t.Errorf("%+v, %v", e, err)
			}
		}
	}
}

// What a fork says of itself is read after a restart, and by other versions: it is as it is here. Its clock has run as long
// as it had then.
func TestForkAsItIsKept(t *testing.T) {
	k := &walk{T: t, now: time.Unix(1000, 0)}
	p := parse(t, fmt.Sprintf(final, ""))
	k.Run = run.New(run.Config{Policy: p, Lasts: true}, k.now)
	past := run.NewPast(run.Origin{Run: "PARENT", Seq: 3}, nil)
	step := func(name string) {
		k.now = k.now.Add(10 * time.Minute)
		c := &run.Call{Request: run.Request{Kind: policy.Tool, Name: name, Arguments: splitArgs(`{"path":"a"}`), Listed: true, Known: true}}
		k.Enter(c, 3, k.now)
		p, _ := k.Begin(c, k.now)
		k.Durable(p, k.now)
		e, _, err := k.Settle(c, run.End{Outcome: policy.Success, Result: []byte(`{"structuredContent":{"id":"p1"}}`)}, k.now)
		if err != nil {
			t.Fatal(err)
		}
		k.Durable(e.Pending(), k.now)
		k.Pass(c, k.now)
	}
	step("read")
	step("plan")
	made := reread(t, k.Made())
	for i := range made {
		made[i].Seq = uint64(i + 1)
		past.Add(&made[i])
	}
	if sent, _ := past.Since(); past.Check() != nil || len(sent) != 1 || sent[0].Symbol.Name != "plan" || sent[0].Outcome != "success" || sent[0].Seq != 5 {
		t.Fatalf("%v %+v", past.Check(), sent)
	}
	now := k.now.Add(24 * time.Hour) // long after the clock of work was due
	child := past.Fork(run.Config{Policy: p, By: run.Remark{Who: "admin|olga", Text: "why"}}, now)
	if due, ok := child.Due(); !ok || !due.Equal(now.Add(110*time.Minute)) || child.Standing().State() != "work" {
		t.Errorf("in %s, due %v at %v", child.Standing().State(), due, now)
	}
	first := child.Made()
	text, err := first[0].AppendJSON(nil)
	want := strings.ReplaceAll(`{"type":"forked","time":"1970-01-02T00:36:40Z","from":"work","to":{"state":"work","policy":"DIGEST"},"parent":"PARENT","fork":3,"remembers":{`+
		`"memory":{"began":"1970-01-02T00:26:40Z","entered":"1970-01-02T00:26:40Z","registers":{"reads":["a"],"plan":null,"calls":0},`+
		`"counts":{"time":"1970-01-01T00:26:40Z","counters":[{"limit":"work\u0000tool\u0000read\u0000\u00000","span":"run","at_most":6,"count":1},{"limit":"","span":"hour","at_most":40,"ages":[0]}]}}},"who":"admin|olga","reason":"why"}`, "DIGEST", p.Digest())
	if err != nil || string(text) != want {
		t.Errorf("%s, %v\n%s", text, err, want)
	}
	policies := func(string) *policy.Policy { return p }
	for _, x := range [][2]string{{`"parent":"PARENT",`, ``}, {`"fork":3,`, ``}, {`"remembers"`, `"forgets"`}, {`"calls":0`, `"calls":"x"`}} {
		bad := strings.Replace(string(text), x[0], x[1], 1)
		if e, err := run.ReadEntry([]byte(bad), policies); err == nil || bad == string(text) {
			t.Errorf("%s: %+v", bad, e)
		}
	}
}

// What an operator has said of the run's calls, and what is under way in it, is none of the fork's.
func TestForkTakesNoAnswers(t *testing.T) {
	p := parse(t, fmt.Sprintf(final, ""))
	past := run.NewPast(run.Origin{Run: "PARENT", Seq: 3}, nil)
	const at = `"from":"work","to":{"state":"work","policy":"d"}}`
	for i, text := range []string{
		`{"type":"began","time":"1970-01-01T00:16:40Z",` + at,
		`{"type":"answered","time":"1970-01-01T00:16:40Z","kind":"tool","name":"read","rule":"test.yaml:6:5","answer":{"approval":"Q","said":"allow","until":"1970-01-01T09:17:40Z","policy":"d","pattern":"pay","digest":"0"},` + at,
		`{"type":"begun","time":"1970-01-01T00:16:40Z","kind":"tool","name":"plan","turn":true,"set_unknown":[{"register":"calls","operation":"add","values":[1]}],"counted":[{"limit":"","span":"hour","at_most":40}],` + at,
	} {
		e, err := run.ReadEntry([]byte(text), func(string) *policy.Policy { return p })
		if err != nil {
			t.Fatal(err)
		}
		e.Seq = uint64(i + 1)
		past.Add(&e)
	}
	if sent, _ := past.Since(); past.Check() != nil || len(sent) != 1 || sent[0].Begun != 3 || sent[0].Outcome != "" {
		t.Errorf("%v, %+v", past.Check(), sent)
	}
	child := past.Fork(run.Config{Policy: p}, time.Unix(1001, 0))
	text, err := child.Made()[0].AppendJSON(nil)
	if err != nil || strings.Contains(string(text), `"answers"`) || strings.Contains(string(text), `"open"`) || !strings.Contains(string(text), `"limit":"","span":"hour"`) {
		t.Errorf("%s, %v", text, err)
	}
}

// What is cut off cannot be forked at: what the run was then is told by no checkpoint.
func TestForkOfWhatIsCut(t *testing.T) {
	k := &walk{T: t, now: time.Unix(1000, 0)}
	k.Run = run.New(run.Config{Policy: parse(t, fmt.Sprintf(final, "")), Lasts: true, Shared: &run.Shared{Checkpoint: 3}}, k.now)
	for range 6 {
		k.Annotate(run.Remark{Text: "x"}, k.now)
	}
	made := reread(t, k.Made())
	if made[3].Type != run.Checkpoint {
		t.Fatalf("%+v", made)
	}
	for at, want := range map[uint64]error{2: run.ErrCut, 3: run.ErrCut, 4: nil, 5: nil, 9: nil, 10: run.ErrCut} {
		past := run.NewPast(run.Origin{Run: "PARENT", Seq: at}, nil)
		for i := 1; i < len(made); i++ { // the first is not kept
			made[i].Seq = uint64(i + 1)
			past.Add(&made[i])
		}
		if err := past.Check(); !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("at %d: %v", at, err)
		}
	}
}
