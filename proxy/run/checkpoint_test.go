package run_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// What a checkpoint says is read after a restart, and by other versions: it is as it is here.
func TestCheckpointAsItIsKept(t *testing.T) {
	k := &walk{T: t, now: time.Unix(1000, 0)}
	p := parse(t, fmt.Sprintf(lasting, ""))
	k.Run = run.New(run.Config{Policy: p, Lasts: true, Shared: &run.Shared{Checkpoint: 5}}, k.now)
	step := func(name, arguments string, ends bool) {
		c := &run.Call{Request: run.Request{Kind: policy.Tool, Name: name, Arguments: splitArgs(arguments), Listed: true, Known: true}}
		if a, _ := k.Enter(c, 3, k.now); a != run.Admitted {
			t.Fatalf("%s: %v", name, a)
		}
		p, ok := k.Begin(c, k.now)
		if !ok {
			t.Fatal(name)
		}
		k.Durable(p, k.now)
		if ends {
			e, _, err := k.Settle(c, run.End{Outcome: policy.Success, Result: []byte(`{"structuredContent":{"id":"p1"}}`)}, k.now)
			if err != nil {
				t.Fatal(err)
			}
			k.Durable(e.Pending(), k.now)
			k.Pass(c, k.now)
		}
		k.now = k.now.Add(time.Second)
	}
	step("read", `{"path":"a"}`, true)
	step("plan", `{}`, false) // it has the turn still
	step("count", `{}`, false)
	made := k.Made()
	if len(made) != 6 || made[5].Type != run.Checkpoint || made[5].Seq != 6 {
		t.Fatalf("%d entries: %+v", len(made), made)
	}
	text, err := made[5].AppendJSON(nil)
	want := `{"type":"checkpoint","time":"1970-01-01T00:16:42Z","from":"work","to":{"state":"work","policy":"DIGEST"},"remembers":{"moved":3,` +
		`"memory":{"began":"1970-01-01T00:16:40Z","entered":"1970-01-01T00:16:40Z","registers":{"reads":["a"],"plan":null,"calls":0},` +
		`"counts":{"time":"1970-01-01T00:16:42Z","counters":[{"limit":"work\u0000tool\u0000read\u0000\u00000","span":"run","at_most":6,"count":1},{"limit":"","span":"hour","at_most":40,"ages":[2000000000,1000000000,0]}],` +
		`"taken":[{"counters":[1],"age":1000000000},{"counters":[1]}]}},` +
		`"open":[{"seq":4,"entry":{"type":"begun","time":"1970-01-01T00:16:41Z","kind":"tool","name":"plan","turn":true,"rule":"test.yaml:15:7","from":"work","to":{"state":"work","policy":"DIGEST"},"set_unknown":[{"register":"calls","operation":"add","values":[1]}],"counted":[{"limit":"","span":"hour","at_most":40}]}},` +
		`{"seq":5,"entry":{"type":"begun","time":"1970-01-01T00:16:42Z","kind":"tool","name":"count","rule":"test.yaml:16:7","from":"work","to":{"state":"work","policy":"DIGEST"},"counted":[{"limit":"","span":"hour","at_most":40}]}}]}}`
	if want = strings.ReplaceAll(want, "DIGEST", p.Digest()); err != nil || string(text) != want {
		t.Errorf("%s, %v\n%s", text, err, want)
	}
	policies := func(string) *policy.Policy { return p }
	for _, x := range [][2]string{
		{`"remembers"`, `"forgets"`}, {`"seq":4`, `"seq":5`}, {`"seq":4`, `"seq":0`}, {`"type":"begun"`, `"type":"ended"`}, {`"counters":[1]`, `"counters":[2]`}, {`"counters":[1]`, `"counters":[-1]`},
		{`"hour"`, `"week"`}, {`"count":1`, `"count":-1`}, {`[2000000000,`, `[0,`}, {`,0]`, `,-1]`}, {`,{"counters":[1]}`, ``}, {`"reads":["a"]`, `"writes":["a"]`}, {`"reads":["a"]`, `"reads":[1]`}, {`"calls":0`, `"calls":"x"`},
	} {
		bad := strings.Replace(string(text), x[0], x[1], 1)
		if e, err := run.ReadEntry([]byte(bad), policies); err == nil || bad == string(text) {
			t.Errorf("%s: %+v", bad, e)
		}
	}
}

// TestWhatIsUnderWayAtAReset begins a run anew while calls are under way, and loses it: nothing comes of them, whether or
// not a checkpoint has told of them before.
func TestWhatIsUnderWayAtAReset(t *testing.T) {
	for _, every := range []int{0, 1, 2, 3, 4} {
		p := parse(t, fmt.Sprintf(lasting, ""))
		now := time.Unix(1000, 0)
		r := run.New(run.Config{Policy: p, Lasts: true, Shared: &run.Shared{Checkpoint: every}}, now)
		c := &run.Call{Request: run.Request{Kind: policy.Tool, Name: "plan", Arguments: splitArgs("{}"), Listed: true, Known: true}}
		r.Enter(c, 3, now)
		r.Begin(c, now)
		r.Restart(now)
		made := reread(t, r.Made())
		from := 0
		for i, e := range made {
			if e.Type == run.Checkpoint {
				from = i
			}
		}
		if (from > 0) != (every > 0 && every <= 3) {
			t.Errorf("every %d: %d entries, the last checkpoint %d", every, len(made), from)
		}
		for _, way := range [][]run.Entry{made, made[from:]} {
			again := run.Replay(run.Config{Policy: p, Lasts: true}, slices.Values(way), now)
			for _, e := range again.Made() {
				if e.Step.Changed || e.Set != nil {
					t.Errorf("every %d: %+v", every, e)
				}
				again.Durable(e.Pending(), now)
			}
			if got := string(again.Registers().AppendJSON(nil)); again.Standing().State() != "work" || got != `{"reads":[],"plan":null,"calls":0}` {
				t.Errorf("every %d: in %s, %s", every, again.Standing().State(), got)
			}
		}
	}
}
