package run_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/guard"
	"github.com/fsm-proxy/fsm-proxy/proxy/approval"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// asked is a run that lasts, which a call waits in for an operator.
func asked(t *testing.T, c *run.Call, shared *run.Shared) (r run.Run, q *approval.Question) {
	t.Helper()
	r = run.New(run.Config{Policy: parse(t, strings.Replace(answering, "%s", "", 1)), Lasts: true, Shared: shared}, at)
	a, q, _ := r.Ask(c, &approval.Question{ID: "Q", Done: make(chan struct{})}, nil, 0, at)
	if a != run.ApprovalWanted || q == nil {
		t.Fatal(a)
	}
	return r, q
}

var at = time.Unix(1000, 0)

// What stands in a journal of an answer: of the arguments the digest alone.
func TestAnswerAsItIsKept(t *testing.T) {
	r, q := asked(t, wanting("pay", `{"secret":"s"}`, "ann"), nil)
	digest := r.Standing().Policy.Digest()
	if _, ok := r.Answer(q, run.Reply{Answer: approval.Allowed, By: "olga", Note: "as\nagreed"}, at); !ok {
		t.Fatal("it is not taken")
	}
	made := r.Made()
	text, err := made[1].AppendJSON(nil)
	want := `{"type":"answered","time":"1970-01-01T00:16:40Z","kind":"tool","name":"pay","rule":"test.yaml:6:5","from":"a","to":{"state":"a","policy":"DIGEST"},` +
		`"answer":{"approval":"Q","said":"allow","by":"olga","note":"as\nagreed","until":"1970-01-01T00:17:40Z","policy":"DIGEST","pattern":"pay",` +
		`"principal":{"issuer":"i","subject":"ann"},"digest":"ARGUMENTS"}}`
	sum, _ := guard.Digest([]byte(`{"secret":"s"}`))
	want = strings.NewReplacer("DIGEST", digest, "ARGUMENTS", sum).Replace(want)
	if string(text) != want || err != nil {
		t.Errorf("%s, %v\n%s", text, err, want)
	}
	policies := func(string) *policy.Policy { return r.Standing().Policy }
	for _, x := range [][2]string{
		{`"allow"`, `"maybe"`}, {`"allow"`, `"deny"`}, {`"until":"1970-01-01T00:17:40Z",`, ``}, {`test.yaml:6:5`, `test.yaml`}, {`:6:5`, `:x:5`}, {`:6:5`, `:6:x`},
		{`"kind":"tool","name":"pay",`, ``}, {`"answer":`, `"answers":`},
	} {
		bad := strings.Replace(want, x[0], x[1], 1)
		if e, err := run.ReadEntry([]byte(bad), policies); err == nil || bad == want {
			t.Errorf("%s: %+v", bad, e.Answer)
		}
	}
}

// What cannot be kept exactly, or is not to be, is remembered by the process alone: no other call goes by it when the run
// is read again, and no entry tells of the call that does.
func TestAnswersThatAreNotKept(t *testing.T) {
	secret := &run.Shared{Secret: func(s policy.Symbol, arguments []byte) bool {
		return s.Name == "pay" && strings.Contains(string(arguments), "password")
	}}
	for name, x := range map[string]struct {
		who, arguments string
		keeps          bool
	}{
		"kept":             {"ann", `{}`, true},
		"a long principal": {strings.Repeat("a", 16<<10), `{}`, false},
		"no text":          {"ann\xff", `{}`, false},
		"a secret":         {"ann", `{"password":"x"}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			r, q := asked(t, wanting("pay", x.arguments, x.who), secret)
			p, ok := r.Answer(q, run.Reply{Answer: approval.Allowed}, at)
			if !ok || (p != nil) != x.keeps {
				t.Fatalf("%v, %v", p, ok)
			}
			if p != nil {
				r.Durable(p, at)
			}
			c := wanting("pay", x.arguments, x.who)
			if a, _ := r.Enter(c, 0, at); a != run.Admitted {
				t.Fatalf("%v: %v", a, c.Verdict.Unmet)
			}
			if p, ok := r.Begin(c, at); !ok || (p != nil) != x.keeps {
				t.Errorf("it begins by entry %v, %v", p, ok)
			}
			made := r.Made()
			again := run.Replay(run.Config{Policy: r.Policy, Lasts: true}, slices.Values(made[:min(2, len(made))]), at)
			for _, who := range []string{x.who, "ann", x.who[:3], "ann\uFFFD"} {
				if a, _ := again.Enter(wanting("pay", x.arguments, who), 0, at); (a == run.Admitted) != (x.keeps && who == x.who) {
					t.Errorf("a call of %.10q: %v", who, a)
				} else if a == run.Admitted {
					break
				}
			}
		})
	}
}

// A clock that was set back lets no yes hold for longer than it was given for.
func TestYesAndAClockThatIsSetBack(t *testing.T) {
	r, q := asked(t, wanting("pay", `{}`, "ann"), nil)
	r.Answer(q, run.Reply{Answer: approval.Allowed}, at)
	back := at.Add(-time.Hour)
	again := run.Replay(run.Config{Policy: r.Policy, Lasts: true}, slices.Values(r.Made()), back)
	c := wanting("pay", `{}`, "ann")
	if a, _ := again.Enter(c, 0, back.Add(59*time.Second)); a != run.Admitted {
		t.Error(a)
	}
	again.Leave(c, back)
	if a, _ := again.Enter(wanting("pay", `{}`, "ann"), 0, back.Add(61*time.Second)); a != run.ApprovalWanted {
		t.Error(a)
	}
}

// What is remembered of a run is bounded, read again, too.
func TestKeptAnswersAreBounded(t *testing.T) {
	r, q := asked(t, wanting("pay", `{}`, "ann"), nil)
	r.Answer(q, run.Reply{Answer: approval.Denied}, at)
	made := r.Made()
	for i := range 2 * approval.MaxKept {
		e := made[1]
		a := *e.Answer
		a.Digest = strings.Repeat("x", i)
		e.Answer = &a
		made = append(made, e)
	}
	again := run.Replay(run.Config{Policy: r.Policy, Lasts: true}, slices.Values(throughText(t, made)), at)
	if a, _, _ := again.Ask(wanting("pay", `{"x":1}`, "ann"), &approval.Question{Done: make(chan struct{})}, nil, 0, at); a != run.Crowded {
		t.Errorf("%v: more is remembered than there is room for", a)
	}
	if a, _ := again.Enter(wanting("pay", `{}`, "ann"), 0, at); a != run.Refused {
		t.Error(a)
	}
}

// throughText are entries as they are read.
func throughText(t *testing.T, entries []run.Entry) (out []run.Entry) {
	t.Helper()
	for i := range entries {
		text, err := entries[i].AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		e, err := run.ReadEntry(text, func(string) *policy.Policy { return entries[0].To.Policy })
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}
