package telemetry_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/telemetry"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
)

// page is one section of docs/telemetry.md.
func page(t *testing.T, section string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/telemetry.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n## "+section+"\n")
	within, _, _ := strings.Cut(rest, "\n## ")
	return within
}

var (
	metricRow   = regexp.MustCompile("(?m)^\\| `([a-z_]+_[a-z_]+)` \\| (histogram|counter|gauge) \\|(.*?)\\| ")
	typeLine    = regexp.MustCompile(`(?m)^# TYPE ((?:mcp|fsm_proxy)_\w+) (\w+)$`)
	codeWord    = regexp.MustCompile("`([a-z_]+)`")
	sampleLabel = regexp.MustCompile(`(\w+)="`)
)

// The table has every metric, with its type and its labels, and no other.
func TestEveryMetricIsDocumented(t *testing.T) {
	r, m := measured(t)
	c, web := r.open()
	c.Tool("fail", "")
	web.Delete()
	m.SessionEnded("2025-11-25", time.Second)
	m.ShadowRefused(policy.UnknownAction)
	m.Store(telemetry.StoreSources{Waiting: func() int { return 0 }, Size: func() int64 { return 0 }, Writable: func() bool { return true }, LeftOut: func() uint64 { return 0 },
		Replicas: &telemetry.Replicas{Count: func() int { return 1 }, Trusted: func() bool { return true }, Takeovers: func() uint64 { return 0 }, Fenced: func() uint64 { return 0 }}})
	m.PassedOn("answered")
	documented := map[string]string{}
	for _, row := range metricRow.FindAllStringSubmatch(page(t, "Metrics"), -1) {
		documented[row[1]] = row[2]
		checkLabels(t, m, row[1], row[3])
	}
	exposed := map[string]string{}
	for _, line := range typeLine.FindAllStringSubmatch(strings.Join(scrape(t, m.Handler(), "# TYPE"), "\n"), -1) {
		exposed[line[1]] = line[2]
	}
	if !maps.Equal(documented, exposed) {
		t.Errorf("documented %v\nexposed %v", documented, exposed)
	}
}

// checkLabels compares the labels in a metric's row with those of its samples.
func checkLabels(t *testing.T, m *telemetry.Metrics, name, cell string) {
	t.Helper()
	want := []string{}
	for _, w := range codeWord.FindAllStringSubmatch(cell, -1) {
		want = append(want, w[1])
	}
	if strings.TrimSpace(cell) == "operation" {
		want = []string{"error_type", "gen_ai_tool_name", "mcp_method_name", "mcp_protocol_version", "network_transport"}
	}
	slices.Sort(want)
	got := []string{}
	for _, l := range sampleLabel.FindAllStringSubmatch(scrape(t, m.Handler(), name)[0], -1) {
		if l[1] != "le" {
			got = append(got, l[1])
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s has the labels %v, documented are %v", name, got, want)
	}
}

var fieldRow = regexp.MustCompile("(?m)^\\| (`[a-z_`, ]+`) \\| (all|[a-z, ]+) \\| ")

// The table has every field of an audit, and no other.
func TestEveryFieldIsDocumented(t *testing.T) {
	w := &tape{}
	a := audit(t, telemetry.AuditConfig{Out: w, Instance: "KQ3VDT5XOA7M", Arguments: true})
	everything(t, a)
	shut(t, a)
	written := map[string]bool{}
	for _, line := range read(t, w.String()) {
		for key := range line {
			written[line["event"].(string)+" "+key] = true
		}
	}
	documented := map[string]bool{}
	for _, row := range fieldRow.FindAllStringSubmatch(page(t, "Audit"), -1) {
		events := strings.Split(strings.Replace(row[2], "all", "decision, outcome, denial, verb, entry", 1), ", ")
		for _, field := range codeWord.FindAllStringSubmatch(row[1], -1) {
			for _, event := range events {
				documented[event+" "+field[1]] = true
			}
		}
	}
	if !maps.Equal(written, documented) {
		t.Errorf("written %v\ndocumented %v", slices.Sorted(maps.Keys(written)), slices.Sorted(maps.Keys(documented)))
	}
}

// everything records lines with every field that there is.
func everything(t *testing.T, a *telemetry.Audit) {
	a.Entered(observe.Entry{Peer: observe.Peer{Remote: "192.0.2.1:5", Principal: wire.Principal{Issuer: "admin", Subject: "olga"}}, Verb: "reset", Type: "reset", Run: "5C1F0E9B2A7D4486", Seq: 2, From: "review", To: "plan", Policy: parse(t, plan), Parent: "5C1F0E9B2A7D4487", Fork: 7, Note: "why"})
	a.Entered(observe.Entry{Type: "ended", Run: "5C1F0E9B2A7D4486", Seq: 5, Begun: 3, Named: true, Name: "x", Outcome: "unknown", From: "review", To: "plan", Rule: policy.Rule{File: "p.yaml", Line: 1, Column: 2}, Policy: parse(t, plan)})
	d := refusal("x")
	d.Peer = observe.Peer{Session: "0123abcd", Remote: "192.0.2.1:5", Principal: wire.Principal{Issuer: "tokens", Subject: "ann"}}
	d.Case, d.Note, d.Run, d.Seq, d.Rule, d.Policy = "plan", "why", "5C1F0E9B2A7D4486", 3, policy.Rule{File: "p.yaml", Line: 1, Column: 2}, parse(t, plan)
	for _, arguments := range []string{"1", strings.Repeat("1", 20000)} {
		d.Message = message(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"n":` + arguments + `}}}`)
		a.Decided(d)
	}
	op := operation("look")
	op.Run, op.Seq = d.Run, 4
	op.Outcome, op.Fault, op.From, op.To = policy.Error.String(), observe.Fault{Tool: true}, "a", "b"
	a.End(1, d.Peer, op)
	for range 3 {
		a.Denied(telemetry.Denial{Reason: "x", Request: denied()})
	}
}
