package telemetry_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
	"github.com/fsm-proxy/fsm-proxy/internal/telemetry"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
)

// measured is a rig with metrics.
func measured(t *testing.T) (*rig, *telemetry.Metrics) {
	m := telemetry.NewMetrics(telemetry.About{Version: "v1", Server: telemetry.TCP, Client: telemetry.Pipe})
	r := newRig(t, observe.Telemetry{Meter: m})
	m.Watch(telemetry.Sources{
		Policy: r.proxy.Policy, Census: r.proxy.Census, Draining: r.proxy.Draining,
		Mode: r.proxy.Runs.Mode,
		Reloads: func() telemetry.Reloads {
			return telemetry.Reloads{Succeeded: 5, Failed: 6, Current: true, Since: time.UnixMilli(1500)}
		},
		Noise:   func() uint64 { return 3 },
		Silent:  func() uint64 { return 5 },
		Audited: func() uint64 { return 4 },
	})
	return r, m
}

// has fails the test unless each line is among the metrics.
func has(t *testing.T, m *telemetry.Metrics, lines ...string) {
	t.Helper()
	all := scrape(t, m.Handler(), "fsm_proxy_", "mcp_")
	for _, line := range lines {
		if !slices.Contains(all, line) {
			t.Errorf("there is no\n%s\namong\n%s", line, strings.Join(all, "\n"))
			return
		}
	}
}

func TestOperationsAreMeasured(t *testing.T) {
	r, m := measured(t)
	c, _ := r.open()
	c.Call("tools/list", "")
	c.Tool("look", "")
	c.Tool("look", "")
	c.Tool("read_b", "")
	c.Tool("hidden", "")
	c.Tool("no such", "")
	c.Tool("fail", "")
	c.Call("resources/read", `{"uri":"w://shown"}`)
	c.Call("odd/method", "")
	c.Call("server/discover", "")
	server := func(method, tool, fault string, n int) string {
		return fmt.Sprintf(`mcp_server_operation_duration_seconds_count{error_type=%q,gen_ai_tool_name=%q,mcp_method_name=%q,mcp_protocol_version="2025-11-25",network_transport="tcp"} %d`, fault, tool, method, n)
	}
	client := func(method, tool, fault string, n int) string {
		return strings.Replace(strings.Replace(server(method, tool, fault, n), "mcp_server", "mcp_client", 1), `"tcp"`, `"pipe"`, 1)
	}
	has(t, m,
		server("initialize", "", "", 1), server("tools/list", "", "", 1),
		server("tools/call", "look", "", 2), client("tools/call", "look", "", 2),
		server("tools/call", "read_b", "_other", 1), client("tools/call", "read_b", "_other", 1),
		server("tools/call", "hidden", "unknown_action", 1),
		server("tools/call", "_other", "unknown_action", 1),
		server("tools/call", "fail", "tool_error", 1),
		server("resources/read", "", "invalid_transition", 1),
		server("_other", "", "-32601", 1), server("server/discover", "", "-32601", 1),
		`fsm_proxy_refusals_total{reason="unknown_action"} 2`,
		`fsm_proxy_refusals_total{reason="invalid_transition"} 1`,
		`fsm_proxy_transitions_total{from="start",outcome="error",to="after"} 1`,
		`fsm_proxy_overhead_seconds_count 11`,
	)
	for _, line := range scrape(t, m.Handler(), "mcp_client_operation_duration_seconds_count") {
		if strings.Contains(line, "unknown_action") || strings.Contains(line, "tools/list") {
			t.Errorf("what was never sent is measured as sent: %s", line)
		}
	}
}

func TestWhatThereIsNow(t *testing.T) {
	r, m := measured(t)
	c, web := r.open()
	r.open()
	c.Tool("fail", "")
	has(t, m,
		`fsm_proxy_sessions 2`, `fsm_proxy_runs{state="start"} 1`, `fsm_proxy_runs{state="after"} 1`, `fsm_proxy_runs_stranded 0`,
		`fsm_proxy_policy_info{digest="`+r.proxy.Policy().Digest()+`",name="deploy"} 1`,
		`fsm_proxy_draining 0`, `fsm_proxy_mode{mode="enforce"} 1`,
		`fsm_proxy_upstream_noise_lines_total 3`, `fsm_proxy_upstream_silent_total 5`, `fsm_proxy_audit_lines_total 4`,
	)
	web.Delete()
	r.proxy.Reload(parse(t, strings.ReplaceAll(plan, "start", "begin")))
	has(t, m, `fsm_proxy_runs_stranded 1`, `fsm_proxy_runs{state="start"} 1`, `fsm_proxy_runs{state="begin"} 0`)
	r.proxy.Close()
	has(t, m, `fsm_proxy_sessions 0`, `fsm_proxy_draining 1`, `fsm_proxy_runs{state="begin"} 0`,
		`mcp_server_session_duration_seconds_count{mcp_protocol_version="2025-11-25",network_transport="tcp"} 2`)
	// Connections end on goroutines of their own, which nobody waits for.
	ended := `mcp_client_session_duration_seconds_count{network_transport="pipe"} 2`
	mcptest.Await(t, "the connections end", func() bool { return slices.Contains(scrape(t, m.Handler(), "mcp_client_session"), ended) })
}

func TestReloads(t *testing.T) {
	_, m := measured(t)
	m.AuthenticationFailed()
	m.Reconnected()
	has(t, m, `fsm_proxy_reloads_total{result="success"} 5`, `fsm_proxy_reloads_total{result="failure"} 6`,
		`fsm_proxy_policy_last_reload_successful 1`, `fsm_proxy_policy_last_reload_success_timestamp_seconds 1.5`,
		`fsm_proxy_authentication_failures_total 1`, `fsm_proxy_upstream_restarts_total 1`)
}

// A signal is no tool: neither its name, nor one that is guessed, nor what is none is a tool's label.
func TestSignalsAreNoLabels(t *testing.T) {
	r, m := measured(t)
	r.proxy.Reload(parse(t, strings.Replace(plan, "  after:\n", "  after:\n    signals: {back: start, look: stay}\n", 1)))
	c, _ := r.open()
	c.Tool("move", "")
	for i := range 20 {
		c.Tool("fsm_signal", fmt.Sprintf(`{"name":"made-up-%d"}`, i))
		c.Tool("fsm_signal", fmt.Sprintf(`{"made-up-%d":"back"}`, i))
		c.Call("tools/call", fmt.Sprintf(`{"name":"fsm_signal","arguments":{"name":"made-up-%d"},"task":{}}`, i))
	}
	c.Tool("fsm_signal", `{"name":"look"}`)
	c.Tool("fsm_signal", `{"name":"back"}`)
	const calls = `mcp_server_operation_duration_seconds_count{error_type=%q,gen_ai_tool_name=%q,mcp_method_name="tools/call",mcp_protocol_version="2025-11-25",network_transport="tcp"} %d`
	want := []string{fmt.Sprintf(calls, "", "", 2), fmt.Sprintf(calls, "unknown_action", "", 20), fmt.Sprintf(calls, "-32602", "", 40), fmt.Sprintf(calls, "", "move", 1)}
	var got []string
	for _, line := range scrape(t, m.Handler(), "mcp_server_operation_duration_seconds_count") {
		if strings.Contains(line, "tools/call") {
			got = append(got, line)
		}
	}
	slices.Sort(want)
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A client, or an upstream that lists other names each time, makes no more series than there is room for.
func TestLabelsAreBounded(t *testing.T) {
	r, m := measured(t)
	c, _ := r.open()
	for i := range 50 {
		c.Tool(fmt.Sprint("made-up-", i), "")
		c.Call(fmt.Sprint("made/up", i), "")
	}
	if n := len(scrape(t, m.Handler(), "mcp_server_operation_duration_seconds_count")); n != 3 {
		t.Errorf("%d series of operations", n)
	}
	ops := m.Operations("2025-11-25")
	look := operation("look")
	for i := range 1100 {
		look.Name = fmt.Sprint("listed-", i)
		ops.Ended(look)
	}
	if n := len(scrape(t, m.Handler(), "mcp_server_operation_duration_seconds_count")); n != 3+1000+1 {
		t.Errorf("%d series of operations", n)
	}
}

// What is exposed is what promtool finds nothing in.
func TestExpositionIsClean(t *testing.T) {
	r, m := measured(t)
	c, _ := r.open()
	c.Tool("look", "")
	c.Tool("nope", "")
	c.Tool("fail", "")
	problems, err := promlint.New(strings.NewReader(strings.Join(scrape(t, m.Handler(), ""), "\n") + "\n")).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}

func operation(tool string) *observe.Operation {
	return &observe.Operation{Message: message(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"look"}}`),
		Named: true, Familiar: true, Kind: policy.Tool, Name: tool, Sent: true, Total: 100, Upstream: 50}
}

// What measuring one call costs, apart from the clock.
func BenchmarkEnded(b *testing.B) {
	ops := telemetry.NewMetrics(telemetry.About{}).Operations("2025-11-25")
	op := operation("look")
	b.ReportAllocs()
	for b.Loop() {
		ops.Ended(op)
	}
}
