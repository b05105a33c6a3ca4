package telemetry

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
)

// Traces follow each operation with two spans, one towards the client and one
// towards the upstream, and send them to a collector. It is safe for concurrent
// use, and a [observe.Tracer].
type Traces struct {
	about    About
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

// scope is the instrumentation scope of the spans.
const scope = "github.com/fsm-proxy/fsm-proxy/proxy"

// NewTraces returns traces as the OTEL_ variables of the environment configure
// them, nil where they do not. The collector need not be there: what cannot be
// sent is logged, and lost.
func NewTraces(ctx context.Context, about About, log hclog.Logger) (*Traces, error) {
	protocol, err := tracesProtocol(os.Getenv)
	if err != nil || protocol == "" {
		return nil, err
	}
	client := otlptracehttp.NewClient() // all else is in the environment
	if protocol == overGRPC {
		client = otlptracegrpc.NewClient()
	}
	exporter, err := otlptrace.New(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("configuring traces by the OTEL_ variables: %w", err)
	}
	about.Version = strings.TrimPrefix(about.Version, "v")
	what, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "fsm-proxy"), attribute.String("service.version", about.Version)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		log.Warn("reading OTEL_RESOURCE_ATTRIBUTES", "error", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("sending traces", "error", err) }))
	t := &Traces{about: about, provider: sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(what))}
	t.tracer = t.provider.Tracer(scope, trace.WithInstrumentationVersion(about.Version))
	return t, nil
}

// Protocols of OTLP that are spoken.
const (
	overHTTP = "http/protobuf"
	overGRPC = "grpc"
)

// tracesProtocol returns how the environment wants traces to be sent, "" for not.
func tracesProtocol(env func(string) string) (string, error) {
	if strings.EqualFold(env("OTEL_SDK_DISABLED"), "true") {
		return "", nil
	}
	switch exporter := env("OTEL_TRACES_EXPORTER"); {
	case exporter == "none":
		return "", nil
	case exporter == "" && env("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "":
		return "", nil
	case exporter != "" && exporter != "otlp":
		return "", fmt.Errorf("OTEL_TRACES_EXPORTER is %q: set it to otlp or none", exporter)
	}
	protocol := cmp.Or(env("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), env("OTEL_EXPORTER_OTLP_PROTOCOL"))
	switch protocol {
	case "", overHTTP:
		return overHTTP, nil
	case overGRPC:
		return overGRPC, nil
	}
	return "", fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL is %q: set it to %s or %s", protocol, overHTTP, overGRPC)
}

// Shutdown sends what is not sent yet, until ctx ends.
func (t *Traces) Shutdown(ctx context.Context) error { return t.provider.Shutdown(ctx) }

// Begin implements observe.Tracer. Pings are not followed.
func (t *Traces) Begin(m *wire.Message, session string, header func(name string) string) observe.Span {
	if m.Method == "ping" {
		return nil
	}
	attributes := append(make([]attribute.KeyValue, 0, 4),
		attribute.String(attrMethod, clip(m.Method)),
		attribute.String(attrRequest, clip(m.IDKey())),
		attribute.String(attrTransport, t.about.Server.String()))
	if session != "" {
		attributes = append(attributes, attribute.String("fsm_proxy.session", session))
	}
	ctx := propagator.Extract(context.Background(), parentOf(m, header))
	ctx, server := t.tracer.Start(ctx, methodLabel(m.Method), trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attributes...))
	return &span{traces: t, ctx: ctx, server: server}
}

// parentOf returns where a request stands in its client's trace: by its _meta, or else by the headers that it came with.
func parentOf(m *wire.Message, header func(name string) string) propagation.MapCarrier {
	t := m.Trace()
	if t.Parent == "" && header != nil {
		t = wire.TraceContext{Parent: header("Traceparent"), State: header("Tracestate")}
	}
	return propagation.MapCarrier{"traceparent": t.Parent, "tracestate": t.State}
}

var propagator = propagation.TraceContext{}

// The attributes of spans, by the semantic conventions for MCP.
const (
	attrMethod    = "mcp.method.name"
	attrRequest   = "jsonrpc.request.id"
	attrTransport = "network.transport"
	attrTool      = "gen_ai.tool.name"
	attrPrompt    = "gen_ai.prompt.name"
	attrSignal    = "fsm_proxy.signal"
	attrResource  = "mcp.resource.uri"
	attrOperation = "gen_ai.operation.name"
	attrVersion   = "mcp.protocol.version"
	attrError     = "error.type"
	attrStatus    = "rpc.response.status_code"
)

// span is one operation that is followed. It is used by the operation's own way.
type span struct {
	traces   *Traces
	ctx      context.Context
	server   trace.Span
	client   trace.Span // nil: it did not go upstream
	answered time.Time
}

// Send implements observe.Span.
func (s *span) Send(m *wire.Message) *wire.Message {
	var ctx context.Context
	ctx, s.client = s.traces.tracer.Start(s.ctx, methodLabel(m.Method), trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String(attrMethod, clip(m.Method)),
		attribute.String(attrTransport, s.traces.about.Client.String())))
	carrier := propagation.MapCarrier{}
	propagator.Inject(ctx, carrier)
	return m.WithTrace(wire.TraceContext{Parent: carrier["traceparent"], State: carrier["tracestate"]})
}

// Answered implements observe.Span.
func (s *span) Answered() { s.answered = time.Now() }

// End implements observe.Span.
func (s *span) End(op *observe.Operation) {
	name := methodLabel(op.Message.Method)
	if op.Familiar && op.Kind != policy.Resource && op.Name != "" { // names that are few, and no URIs
		name += " " + clip(op.Name)
	}
	failed := errorType(op.Fault)
	shared := sharedAttributes(op, failed)
	end := func(span trace.Span, options ...trace.SpanEndOption) {
		span.SetName(name)
		span.SetAttributes(shared...)
		if failed != "" {
			span.SetStatus(codes.Error, failed)
		}
		span.End(options...)
	}
	if s.client != nil {
		end(s.client, trace.WithTimestamp(s.answered))
	}
	s.server.SetAttributes(decisionAttributes(op)...)
	end(s.server)
}

// sharedAttributes returns what is known at the end, and the same of both spans.
func sharedAttributes(op *observe.Operation, failed string) (all []attribute.KeyValue) {
	if op.Named {
		key := attrTool
		switch op.Kind {
		case policy.Resource:
			key = attrResource
		case policy.Prompt:
			key = attrPrompt
		case policy.Signal:
			key = attrSignal
		}
		all = append(all, attribute.String(key, clip(op.Name)))
	}
	if op.Message.Method == "tools/call" {
		all = append(all, attribute.String(attrOperation, "execute_tool"))
	}
	if op.Version != "" {
		all = append(all, attribute.String(attrVersion, op.Version))
	}
	if op.Fault.RPC != 0 {
		all = append(all, attribute.String(attrStatus, strconv.Itoa(op.Fault.RPC)))
	}
	if failed != "" {
		all = append(all, attribute.String(attrError, failed))
	}
	return all
}

// decisionAttributes returns what the policy made of an operation.
func decisionAttributes(op *observe.Operation) (all []attribute.KeyValue) {
	if op.To != "" {
		all = append(all, attribute.String("fsm_proxy.state.from", op.From), attribute.String("fsm_proxy.state.to", op.To))
	}
	if op.Outcome != "" {
		all = append(all, attribute.String("fsm_proxy.outcome", op.Outcome))
	}
	if op.Fault.Refusal() {
		all = append(all, attribute.String("fsm_proxy.refusal", op.Fault.Code.String()))
	}
	return all
}

// methodLabel returns the method, or other for one that a client has made up.
func methodLabel(method string) string {
	if !methods[method] {
		return other
	}
	return method
}

// maxText is how many bytes of a client's text are recorded.
const maxText = 256

// clip cuts a client's text, and makes it valid UTF-8.
func clip(text string) string {
	if len(text) > maxText {
		text = text[:maxText] + "…"
	}
	return strings.ToValidUTF8(text, "")
}
