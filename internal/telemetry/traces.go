package telemetry

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/hashicorp/go-hclog"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/proxy"
)

// Traces follow each operation with two spans, one towards the client and one
// towards the upstream, and send them to a collector. It is safe for concurrent
// use, and a [proxy.Tracer].
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
	exporter, err := newExporter(ctx, protocol)
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

// tracesProtocol is how the environment wants traces to be sent, "" for not.
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
	protocol := env("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
	if protocol == "" {
		protocol = env("OTEL_EXPORTER_OTLP_PROTOCOL")
	}
	switch protocol {
	case "", overHTTP:
		return overHTTP, nil
	case overGRPC:
		return overGRPC, nil
	}
	return "", fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL is %q: set it to %s or %s", protocol, overHTTP, overGRPC)
}

// newExporter makes what sends spans. All else is in the environment.
func newExporter(ctx context.Context, protocol string) (*otlptrace.Exporter, error) {
	if protocol == overGRPC {
		return otlptracegrpc.New(ctx)
	}
	return otlptracehttp.New(ctx)
}

// Shutdown sends what is not sent yet, until ctx ends.
func (t *Traces) Shutdown(ctx context.Context) error { return t.provider.Shutdown(ctx) }

// Begin implements proxy.Tracer. Pings are not followed.
func (t *Traces) Begin(m *wire.Message, session string, header func(name string) string) proxy.Span {
	if m.Method == "ping" {
		return nil
	}
	ctx := propagator.Extract(context.Background(), carrier(contextOf(m, header)))
	ctx, server := t.tracer.Start(ctx, methodLabel(m.Method), trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(t.beginning(m, session)...))
	return &span{traces: t, ctx: ctx, server: server}
}

// contextOf is where a request stands in its client's trace: by its _meta, or
// else by the headers that it came with.
func contextOf(m *wire.Message, header func(name string) string) wire.TraceContext {
	t := m.Trace()
	if t.Parent == "" && header != nil {
		t = wire.TraceContext{Parent: header("Traceparent"), State: header("Tracestate")}
	}
	return t
}

func (t *Traces) beginning(m *wire.Message, session string) []attribute.KeyValue {
	all := append(make([]attribute.KeyValue, 0, 5),
		attribute.String(attrMethod, clip(m.Method)),
		attribute.String("jsonrpc.request.id", clip(m.IDKey())),
		attribute.String("network.transport", t.about.Server.String()))
	if session != "" {
		all = append(all, attribute.String("fsm_proxy.session", session))
	}
	return all
}

var propagator = propagation.TraceContext{}

// carry is a trace context as OpenTelemetry reads and writes it.
type carry struct{ wire.TraceContext }

func carrier(t wire.TraceContext) *carry { return &carry{t} }

// Get implements propagation.TextMapCarrier.
func (c *carry) Get(key string) string {
	switch key {
	case "traceparent":
		return c.Parent
	case "tracestate":
		return c.State
	}
	return ""
}

// Set implements propagation.TextMapCarrier.
func (c *carry) Set(key, value string) {
	switch key {
	case "traceparent":
		c.Parent = value
	case "tracestate":
		c.State = value
	}
}

// Keys implements propagation.TextMapCarrier.
func (c *carry) Keys() []string { return []string{"traceparent", "tracestate"} }
