package telemetry

import (
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

func TestMain(m *testing.M) {
	mcptest.Main(m, mcptest.Servers{"world": world()})
}

const plan = `version: 1
name: watched
initial: start
states:
  start:
    tools: {look: , move: after, fail: }
    resources: {"w://a": }
    prompts: {ask: }
  after:
    tools: [look]
`

func world() mcptest.Server {
	return mcptest.Script{
		Tools: map[string]func(*mcptest.Exchange){
			"look": nil, "move": nil, "hidden": nil, "apply": nil, "wait": func(*mcptest.Exchange) {},
			"fail": func(e *mcptest.Exchange) { e.Fail(-32000, "broken") },
		},
		Methods: map[string]func(*mcptest.Exchange){
			"prompts/get": func(e *mcptest.Exchange) { e.Result(`{"messages":[]}`) },
		},
	}.Server()
}

// rig is a client before the real binary before a counting upstream.
type rig struct {
	*mcptest.Session
	upstream *mcptest.Upstream
	process  *mcptest.Process
}

// overStdio starts the proxy with stdio on both sides.
func overStdio(t *testing.T, env []string, flags ...string) *rig {
	t.Helper()
	r := &rig{upstream: mcptest.Stdio(t, "world")}
	args := append([]string{mcptest.Proxy(t), "run", "--policy", mcptest.WritePolicy(t, plan)}, flags...)
	r.Session, r.process = mcptest.DialIn(t, env, append(append(args, "--"), r.upstream.Command()...)...)
	r.Initialize()
	return r
}

// end ends the process, and fails the test unless that went well.
func (r *rig) end(t *testing.T) {
	t.Helper()
	r.Close()
	if code := r.process.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// A call makes two spans, in the trace that its client is in, and the upstream is
// told of the second.
func TestTraces(t *testing.T) {
	t.Parallel()
	s := collect(t)
	r := overStdio(t, s.environment())
	r.Call("tools/call", `{"name":"move","_meta":{"traceparent":"`+parent+`","tracestate":"v=1","baggage":"k=v","progressToken":1}}`)
	r.Call("ping", "")
	r.Tool("hidden", "")
	r.end(t)
	spans := s.await(4)
	if len(spans) != 4 {
		t.Fatalf("%d spans", len(spans))
	}
	opened, server, client, refused := spans[0], spans[1], spans[2], spans[3]
	named(t, opened, "initialize", trace.Span_SPAN_KIND_SERVER, nil)
	named(t, server, "tools/call move", trace.Span_SPAN_KIND_SERVER, map[string]string{
		"mcp.method.name": "tools/call", "gen_ai.tool.name": "move", "gen_ai.operation.name": "execute_tool", "jsonrpc.request.id": "2",
		"mcp.protocol.version": "2025-11-25", "network.transport": "pipe",
		"fsm_proxy.state.from": "start", "fsm_proxy.state.to": "after", "fsm_proxy.outcome": "success",
	})
	named(t, client, "tools/call move", trace.Span_SPAN_KIND_CLIENT, map[string]string{"mcp.method.name": "tools/call", "gen_ai.tool.name": "move"})
	named(t, refused, "tools/call", trace.Span_SPAN_KIND_SERVER, map[string]string{
		"gen_ai.tool.name": "hidden", "error.type": "unknown_action", "fsm_proxy.refusal": "unknown_action",
	})
	if got := place(server.TraceId, server.ParentSpanId); got != parent {
		t.Errorf("the server span is in %s", got)
	}
	if got := place(client.TraceId, client.ParentSpanId); got != place(server.TraceId, server.SpanId) {
		t.Errorf("the client span is in %s", got)
	}
	if refused.Status.GetCode() != trace.Status_STATUS_CODE_ERROR || server.Status.GetCode() == trace.Status_STATUS_CODE_ERROR {
		t.Errorf("%v %v", refused.Status, server.Status)
	}
	sent := r.upstream.Received()[slices.IndexFunc(r.upstream.Received(), func(m mcptest.Message) bool { return m.Name == "move" })]
	if want := `"_meta":{"traceparent":"` + place(client.TraceId, client.SpanId) + `","tracestate":"v=1","baggage":"k=v","progressToken":`; !strings.Contains(sent.String(), want) {
		t.Errorf("the upstream got %s, not %s", sent, want)
	}
	if s.resource["service.name"] != "fsm-proxy" || s.resource["service.version"] == "" {
		t.Errorf("%v", s.resource)
	}
}

func place(id, span []byte) string {
	return "00-" + hex.EncodeToString(id) + "-" + hex.EncodeToString(span) + "-01"
}

func named(t *testing.T, s *trace.Span, name string, kind trace.Span_SpanKind, attributes map[string]string) {
	t.Helper()
	got := texts(s.Attributes)
	if s.Name != name || s.Kind != kind {
		t.Errorf("a span %q of kind %v, not %q", s.Name, s.Kind, name)
	}
	for key, want := range attributes {
		if got[key] != want {
			t.Errorf("%s: %s is %q, want %q", name, key, got[key], want)
		}
	}
}

func TestTracesOverGRPC(t *testing.T) {
	t.Parallel()
	s := collectGRPC(t)
	r := overStdio(t, append(s.environment(), "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_SERVICE_NAME=mine", "OTEL_RESOURCE_ATTRIBUTES=a=b"))
	r.Tool("look", "")
	r.end(t)
	named(t, s.await(3)[2], "tools/call look", trace.Span_SPAN_KIND_CLIENT, nil)
	if s.resource["service.name"] != "mine" || s.resource["a"] != "b" {
		t.Errorf("%v", s.resource)
	}
}

// Over HTTP the header counts where _meta says nothing.
func TestTraceparentInTheHeader(t *testing.T) {
	t.Parallel()
	s := collect(t)
	_, upstream := mcptest.HTTP(t, world())
	address := mcptest.FreeAddress(t)
	p := mcptest.Start(t, s.environment(), mcptest.Proxy(t), "run", "--listen", address, "--policy", mcptest.WritePolicy(t, plan), "--upstream", upstream)
	p.AwaitListening(address)
	c, web := mcptest.DialWeb(t, "http://"+address+"/mcp")
	c.Initialize()
	web.Header.Set("Traceparent", parent)
	c.Tool("look", "")
	spans := s.await(3)
	if got := place(spans[1].TraceId, spans[1].ParentSpanId); got != parent {
		t.Errorf("the span is in %s", got)
	}
	if got := texts(spans[1].Attributes)["network.transport"]; got != "tcp" {
		t.Errorf("transport %s", got)
	}
}

// Without the variables no byte is another one.
func TestNoTracesNoEdits(t *testing.T) {
	t.Parallel()
	for _, env := range [][]string{
		{"OTEL_TRACES_EXPORTER=none", "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1"},
		{"OTEL_SDK_DISABLED=true", "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1"},
		{},
	} {
		r := overStdio(t, env)
		r.Call("tools/call", `{"_meta":{"traceparent":"x"},"name":"look"}`)
		got := r.upstream.Received()
		if last := got[len(got)-1]; string(last.Params) != `{"_meta":{"traceparent":"x"},"name":"look"}` {
			t.Errorf("%v: %s", env, last)
		}
	}
}

func TestTracesThatCannotBe(t *testing.T) {
	t.Parallel()
	for variable, want := range map[string]string{
		"OTEL_TRACES_EXPORTER=zipkin":                `OTEL_TRACES_EXPORTER is "zipkin": set it to otlp or none`,
		"OTEL_EXPORTER_OTLP_PROTOCOL=http/json":      `OTEL_EXPORTER_OTLP_PROTOCOL is "http/json": set it to http/protobuf or grpc`,
		"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=unknown": `set it to http/protobuf or grpc`,
	} {
		env := []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", variable}
		p := mcptest.Start(t, env, mcptest.Proxy(t), "run", "--policy", mcptest.WritePolicy(t, plan), "--", os.Args[0])
		if code := p.ExitCode(); code != 1 || !strings.Contains(p.Log().String(), want) {
			t.Errorf("%s: exit code %d, %s", variable, code, p.Log())
		}
	}
}

// What Prometheus reads, at the address for probes.
func TestMetricsOfTheBinary(t *testing.T) {
	t.Parallel()
	health := mcptest.FreeAddress(t)
	r := overStdio(t, nil, "--health", health, "--audit", filepath.Join(t.TempDir(), "audit"))
	r.Call("tools/list", "")
	r.Tool("move", "")
	r.Tool("fail", "")
	text := ""
	for _, line := range []string{
		`mcp_server_operation_duration_seconds_count{error_type="",gen_ai_tool_name="move",mcp_method_name="tools/call",mcp_protocol_version="2025-11-25",network_transport="pipe"} 1`,
		`mcp_client_operation_duration_seconds_count{error_type="",gen_ai_tool_name="move",mcp_method_name="tools/call",mcp_protocol_version="2025-11-25",network_transport="pipe"} 1`,
		`fsm_proxy_transitions_total{from="start",outcome="success",to="after"} 1`,
		`fsm_proxy_refusals_total{reason="invalid_transition"} 1`,
		`fsm_proxy_runs{state="after"} 1`, `fsm_proxy_runs{state="start"} 0`, `fsm_proxy_sessions 1`,
		`fsm_proxy_mode{mode="enforce"} 1`, `fsm_proxy_draining 0`, `fsm_proxy_overhead_seconds_count 4`,
		`fsm_proxy_reloads_total{result="success"} 0`, `fsm_proxy_policy_last_reload_successful 1`,
		`fsm_proxy_upstream_noise_lines_total 0`, `fsm_proxy_upstream_silent_total 0`, `fsm_proxy_upstream_restarts_total 0`, `fsm_proxy_authentication_failures_total 0`,
		`go_info{`, `process_cpu_seconds_total`, `fsm_proxy_build_info{`, `fsm_proxy_policy_info{digest="`, `fsm_proxy_audit_lines_total `,
	} {
		mcptest.Await(t, line, func() bool { // what a call took is counted once its answer is on the way
			text = metrics(t, health)
			return strings.Contains(text, "\n"+line)
		})
	}
	if problems, err := promlint.New(strings.NewReader(text)).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}

// metrics is what /metrics tells.
func metrics(t *testing.T, health string) string {
	t.Helper()
	answer, err := http.Get("http://" + health + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// The lines of an audit, of both fronts.
func TestAuditOfTheBinary(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "audit.log")
	r := overStdio(t, nil, "--audit", path, "--audit-arguments")
	r.Tool("look", `{"q":"\u001b[31m"}`)
	r.Tool("a\nb", "")
	r.Send(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"look","name":"look"}}`)
	r.Next()
	r.end(t)
	got := lines(t, path)
	for i, want := range []string{
		`"decision":"allow","method":"initialize"`,
		`"decision":"allow","method":"tools/call","kind":"tool","name":"look","state":"start"`,
		`"event":"outcome","of":2,"outcome":"success"`,
		`"decision":"refuse","reason":"unknown_action","method":"tools/call","kind":"tool","name":"a\u000ab"`,
		`"decision":"refuse","reason":"-32600"`,
	} {
		if i >= len(got) || !strings.Contains(got[i], want) {
			t.Fatalf("line %d has no %s:\n%s", i+1, want, strings.Join(got, "\n"))
		}
	}
	if !strings.Contains(got[1], `"arguments":{"q":"\u001b[31m"}`) {
		t.Errorf("no arguments: %s", got[1])
	}
}

var (
	example  = regexp.MustCompile("(?s)```json\n(.*?)```")
	variable = regexp.MustCompile(`("(?:instance|time|microseconds|upstream_microseconds)":)("[^"]*"|[0-9]+)`)
	ruleFile = regexp.MustCompile(`"rule":"[^"]*/`)
)

// The lines in docs/telemetry.md are what is written.
func TestDocumentedAudit(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile(filepath.Join(mcptest.Root(), "docs", "telemetry.md"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	r := overStdio(t, nil, "--audit", path)
	r.Tool("move", "")
	r.Tool("move", "")
	r.end(t)
	want := ruleFile.ReplaceAllString(variable.ReplaceAllString(example.FindStringSubmatch(string(doc))[1], "${1}0"), `"rule":"`)
	got := strings.Join(lines(t, path), "\n") + "\n"
	if got = ruleFile.ReplaceAllString(variable.ReplaceAllString(got, "${1}0"), `"rule":"`); got != want {
		t.Errorf("got\n%s, documented is\n%s", got, want)
	}
}

func TestAuditOfRefusedRequests(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path, token := filepath.Join(folder, "audit.log"), filepath.Join(folder, "token")
	if err := os.WriteFile(token, []byte("right\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	health := mcptest.FreeAddress(t)
	_, upstream := mcptest.HTTP(t, world())
	url, p := mcptest.Listen(t, "--policy", mcptest.WritePolicy(t, plan), "--upstream", upstream, "--bearer-file", token,
		"--audit", path, "--health", health)
	post := func(header ...string) {
		_, web := mcptest.DialWeb(t, url)
		web.Header.Set("Authorization", "Bearer right")
		for i := 0; i < len(header); i += 2 {
			web.Header.Set(header[i], header[i+1])
			if header[i+1] == "" {
				web.Header.Del(header[i])
			}
		}
		web.Post(t.Context(), mcptest.Request(1, "tools/list", ""))
	}
	post("Authorization", "")
	post("Authorization", "Bearer wrong")
	post("Host", "evil.example")
	post("Origin", "http://evil.example")
	post("Mcp-Session-Id", "made-up")
	post()
	mcptest.Await(t, "four denials are counted", func() bool {
		return strings.Contains(metrics(t, health), "\nfsm_proxy_authentication_failures_total 4\n")
	})
	_ = p.Process.Signal(os.Interrupt)
	p.ExitCode()
	got := lines(t, path)
	want := []string{"bearer_missing", "bearer_wrong", "host_not_allowed", "origin_not_allowed", "session_unknown", "session_missing"}
	if len(got) != len(want) {
		t.Fatal(strings.Join(got, "\n"))
	}
	for i, reason := range want {
		if !strings.Contains(got[i], `"event":"denial","decision":"refuse","reason":"`+reason+`","remote":"127.0.0.1:`) {
			t.Errorf("line %d is %s", i+1, got[i])
		}
	}
	if all := strings.Join(got, ""); strings.Contains(all, "wrong\"}") || strings.Contains(all, "made-up") {
		t.Error("it tells what was given for a secret")
	}
}

func TestAuditToStderr(t *testing.T) {
	t.Parallel()
	r := overStdio(t, nil, "--audit", "stderr", "--log-level", "off")
	r.Tool("look", "")
	r.end(t)
	for line := range strings.Lines(r.process.Log().String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("%q", line)
		}
	}
	r.process.Log().Await(t, `"event":"outcome"`)
}

func TestAuditFlagsThatMeanNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		flags []string
		code  int
		want  string
	}{
		{[]string{"--audit-arguments"}, 2, "--audit-arguments belongs to --audit"},
		{[]string{"--audit", filepath.Join(t.TempDir(), "no", "audit")}, 1, "no such file or directory; make its folder first"},
	} {
		args := append([]string{mcptest.Proxy(t), "run", "--policy", mcptest.WritePolicy(t, plan)}, c.flags...)
		p := mcptest.Start(t, nil, append(args, "--", os.Args[0])...)
		if code := p.ExitCode(); code != c.code || !strings.Contains(p.Log().String(), c.want) {
			t.Errorf("%v: exit code %d, %s", c.flags, code, p.Log())
		}
	}
}

func lines(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}
