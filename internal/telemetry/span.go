package telemetry

import (
	"context"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy"
)

// The attributes of both spans, by the semantic conventions for MCP.
const (
	attrMethod    = "mcp.method.name"
	attrTool      = "gen_ai.tool.name"
	attrPrompt    = "gen_ai.prompt.name"
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

// Send implements proxy.Span.
func (s *span) Send(m *wire.Message) *wire.Message {
	var ctx context.Context
	ctx, s.client = s.traces.tracer.Start(s.ctx, methodLabel(m.Method), trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String(attrMethod, clip(m.Method)),
		attribute.String("network.transport", s.traces.about.Client.String())))
	onward := carrier(wire.TraceContext{})
	propagator.Inject(ctx, onward)
	return m.WithTrace(onward.TraceContext)
}

// Answered implements proxy.Span.
func (s *span) Answered() { s.answered = time.Now() }

// End implements proxy.Span.
func (s *span) End(op *proxy.Operation) {
	shared := ending(op)
	if s.client != nil {
		s.close(s.client, op, shared, trace.WithTimestamp(s.answered))
	}
	s.server.SetAttributes(decisions(op)...)
	s.close(s.server, op, shared)
}

func (s *span) close(span trace.Span, op *proxy.Operation, shared []attribute.KeyValue, options ...trace.SpanEndOption) {
	if target := spanTarget(op); target != "" {
		span.SetName(methodLabel(op.Message.Method) + " " + target)
	}
	span.SetAttributes(shared...)
	if fault := errorType(op.Fault); fault != "" {
		span.SetAttributes(attribute.String(attrError, fault))
		span.SetStatus(codes.Error, fault)
	}
	span.End(options...)
}

// spanTarget is what stands behind the method in a span's name: few, and so none that
// a client has made up, and no URI.
func spanTarget(op *proxy.Operation) string {
	if !op.Familiar || op.Kind == policy.Resource {
		return ""
	}
	return clip(op.Name)
}

// ending is what is known at the end, and the same of both spans.
func ending(op *proxy.Operation) (all []attribute.KeyValue) {
	if op.Named {
		all = append(all, attribute.String(nameAttribute(op.Kind), clip(op.Name)))
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
	return all
}

// decisions are what the policy made of an operation.
func decisions(op *proxy.Operation) (all []attribute.KeyValue) {
	if op.To != "" {
		all = append(all, attribute.String("fsm_proxy.state.from", op.From), attribute.String("fsm_proxy.state.to", op.To))
	}
	if op.Outcome != 0 {
		all = append(all, attribute.String("fsm_proxy.outcome", op.Outcome.String()))
	}
	if op.Fault.Refusal() {
		all = append(all, attribute.String("fsm_proxy.refusal", op.Fault.Code.String()))
	}
	return all
}

func nameAttribute(k policy.Kind) string {
	switch k {
	case policy.Resource:
		return attrResource
	case policy.Prompt:
		return attrPrompt
	}
	return attrTool
}

// methodLabel is the method, or other for one that a client has made up.
func methodLabel(method string) string {
	if !methods[method] {
		return other
	}
	return method
}

// maxText is how many bytes of a client's text are told.
const maxText = 256

// clip cuts a client's text, and makes it valid UTF-8.
func clip(text string) string {
	if len(text) > maxText {
		text = text[:maxText] + "…"
	}
	return strings.ToValidUTF8(text, "")
}
