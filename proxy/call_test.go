package proxy

import (
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/lock"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/catalogue"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

// TestLockBetweenLookAndDecision: a call is decided by the lock that is in force then, and not
// by the one that it was compared with before.
func TestLockBetweenLookAndDecision(t *testing.T) {
	const tool = `{"name":"deploy","inputSchema":{"type":"object"}}`
	page, err := wire.Read([]byte(`{"jsonrpc":"2.0","id":1,"result":{"tools":[`+tool+`]}}`), wire.FromUpstream)
	if err != nil {
		t.Fatal(err)
	}
	list, err := wire.NewList(wire.Tools, []*wire.Message{page})
	if err != nil {
		t.Fatal(err)
	}
	locked, err := lock.Define([]byte(tool))
	if err != nil {
		t.Fatal(err)
	}
	parsed, findings := policy.Parse("p.yaml", []byte("version: 1\ninitial: s\npin: refuse\nstates: {s: {tools: [deploy]}}\n"))
	if parsed == nil {
		t.Fatal(findings)
	}
	p := &Proxy{}
	r := runs.New(runs.Config{Policy: parsed}).OfSession("")
	p.lists.Pins.Store(catalogue.NewPins(&lock.Lock{Tools: map[string]lock.Definition{"deploy": locked}}))
	c := &call{s: &session{p: p, run: r}, definition: definition{offer: list}}
	c.Kind, c.Name, c.Listed, c.Known = policy.Tool, "deploy", true, true
	c.compare()
	if a := r.Enter(c, 1); a != run.Admitted {
		t.Fatalf("as it was locked: %v %v", a, c.Verdict.Code)
	}
	p.lists.Pins.Store(catalogue.NewPins(nil))
	if a := r.Enter(c, 1); a != run.Refused || c.Verdict.Code != policy.DefinitionChanged {
		t.Errorf("by the lock that came meanwhile: %v %v", a, c.Verdict.Code)
	}
}
