package run

import (
	"encoding/json/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/limit"
	"github.com/fsm-proxy/fsm-proxy/policy/register"
	"github.com/fsm-proxy/fsm-proxy/proxy/approval"
)

// TestKeptIsWhatIsWritten: what AppendJSON writes has the members of kept, all of them, and in its order.
func TestKeptIsWhatIsWritten(t *testing.T) {
	p, findings := policy.Parse("test.yaml", []byte("version: 1\ninitial: work\nregisters: {n: counter}\nstates:\n  work: {tools: {ask: asking}}\n  asking: {tools: {done: {on_success: {return: true}, on_any: stay}}}\n"))
	if err := findings.Err(); err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1000, 5000)
	at, ok := p.Configuration("asking", false, map[string]string{"asking": "work"})
	if !ok {
		t.Fatal("no state")
	}
	call := &Call{Request: Request{Name: "read"}}
	call.Verdict = policy.Verdict{Symbol: policy.Symbol{Name: "read", Case: "c", Alternative: 2}, Rule: policy.Rule{File: "test.yaml", Line: 6, Column: 7}}
	changes := []register.Change{{Register: "n", Operation: register.Add, Values: []any{int64(1)}}}
	e := Entry{Type: Begun, Time: now, Call: call, Begun: 3, Turn: true, Resumed: true, Outcome: policy.Success, Shadow: true, Step: policy.Step{Changed: true, Restarted: true},
		Set: changes, Unknown: changes, Counted: []limit.Limit{{Key: "k", Span: limit.Hour, Most: 4}}, From: Standing{Policy: p, At: at}, To: Standing{Policy: p, At: at, Stranded: now},
		told: &fold{moved: 2}, Details: Details{Irreversible: true, Origin: &Origin{Run: "R", Seq: 3}, Yes: 7, Remark: Remark{Who: "a \"quoted\" \u2028 name", Text: "why"},
			Said:   &Said{Code: policy.GuardFailed, Times: 2, Since: now, Took: time.Millisecond, Issuer: "i", Subject: "s", Noted: Noted{Digest: "d", Arguments: []byte(`{"a": 1}`), Bytes: 9}},
			Answer: &Answer{Answer: approval.Answer{Key: approval.Key{Policy: p}, Said: approval.Allowed, Until: now}, Next: p}}}
	e.To.At.Complete = true
	var seen []string
	for _, kind := range []Type{Begun, Annotated} {
		e.Type = kind
		text, err := e.AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		var k kept
		if err := json.Unmarshal(text, &k, json.RejectUnknownMembers(true)); err != nil {
			t.Fatal(err)
		}
		again, err := json.Marshal(&k, json.Deterministic(true))
		if string(again) != string(text) || err != nil {
			t.Errorf("%s\n%s, %v", text, again, err)
		}
		seen = append(seen, string(text))
	}
	for name := range members(reflect.TypeFor[kept]()) {
		if !strings.Contains(strings.Join(seen, ""), `"`+name+`":`) {
			t.Errorf("%q is never written", name)
		}
	}
}

// members are the names of what a struct has.
func members(of reflect.Type) map[string]bool {
	all := map[string]bool{}
	for f := range of.Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			all[name] = true
		} else {
			for name := range members(f.Type) {
				all[name] = true
			}
		}
	}
	return all
}
