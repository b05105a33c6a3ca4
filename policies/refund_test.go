package policies_test

import (
	"testing"
	"time"

	steps "github.com/fsm-proxy/fsm-proxy/internal/play"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/approval"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// A refund above 100 goes with an operator's yes to that order and that amount, once.
func TestLargeRefundsAreApproved(t *testing.T) {
	p, findings := policy.Parse("support-refund", source(t, "support-refund"))
	if p == nil {
		t.Fatal(findings)
	}
	now := time.Unix(1000, 0)
	r := run.New(run.Config{Policy: p, Shared: &run.Shared{Patience: time.Hour}}, now)
	call := func(name, object string) *run.Call {
		arguments, err := steps.Arguments([]byte(object))
		if err != nil {
			t.Fatal(err)
		}
		return &run.Call{Request: run.Request{Kind: policy.Tool, Name: name, Listed: true, Known: true, Arguments: arguments}}
	}
	ask := func(object string) (run.Admission, *run.Call, *approval.Question) {
		c := call("refund", object)
		a, q, _ := r.Ask(c, &approval.Question{ID: object, Done: make(chan struct{})}, nil, 0, now)
		return a, c, q
	}
	does := func(c *run.Call) {
		if _, _, err := r.Settle(c, run.End{Outcome: policy.Success, Result: []byte("{}")}, now); err != nil {
			t.Fatal(err)
		}
		r.Pass(c, now)
	}
	is := func(object string, want run.Admission) (*run.Call, *approval.Question) {
		t.Helper()
		a, c, q := ask(object)
		if a != want {
			t.Fatalf("%s: %v, %v, want %v", object, a, c.Verdict.Code, want)
		}
		return c, q
	}
	is(`{"order":"o1","amount":500}`, run.Refused)
	for _, order := range []string{"o1", "o2"} {
		c := call("find_order", `{"order":"`+order+`"}`)
		r.Enter(c, 0, now)
		does(c)
	}
	_, q := is(`{"order":"o1","amount":500}`, run.ApprovalWanted)
	if q.Message == "" || string(q.Arguments) != `{"order":"o1","amount":500}` {
		t.Fatalf("%+v", q)
	}
	r.Answer(q, approval.Allowed, now)
	is(`{"order":"o1","amount":501}`, run.ApprovalWanted)
	is(`{"order":"o2","amount":500}`, run.ApprovalWanted)
	is(`{"order":"o1","amount":1001}`, run.Refused)
	is(`{"order":"o1","amount":5e2}`, run.ApprovalWanted) // numbers as they are written
	c, _ := is(`{"amount":500, "order":"o1"}`, run.Admitted)
	does(c)
	is(`{"order":"o1","amount":500}`, run.Refused) // it is refunded
}
