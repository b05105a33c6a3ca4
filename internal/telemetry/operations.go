package telemetry

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy"
)

// other is the label of what has no label of its own.
const other = "_other"

// methods are the requests of clients that have labels of their own.
var methods = map[string]bool{
	"initialize": true, "ping": true, "completion/complete": true, "logging/setLevel": true,
	"tools/list": true, "resources/list": true, "prompts/list": true, "resources/templates/list": true,
	"tools/call": true, "resources/read": true, "prompts/get": true,
	"resources/subscribe": true, "resources/unsubscribe": true,
	"server/discover": true, "subscriptions/listen": true,
	"tasks/get": true, "tasks/result": true, "tasks/list": true, "tasks/cancel": true, "tasks/update": true,
}

// maxTools bounds how many tools have labels of their own: an upstream may list
// others every minute.
const maxTools = 1000

// names are the tools that have labels of their own.
type names struct {
	mu    sync.Mutex // guards what follows
	tools map[string]bool
}

// label is the label of a tool.
func (n *names) label(tool string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.tools[tool]:
	case len(n.tools) >= maxTools:
		return other
	case n.tools == nil:
		n.tools = map[string]bool{tool: true}
	default:
		n.tools[tool] = true
	}
	return tool
}

// operations are the series of one protocol revision. A request finds its own
// without a lock, in a map that is copied when one is added.
type operations struct {
	m       *Metrics
	version string

	found atomic.Pointer[map[target]*series]
	mu    sync.Mutex // held while a series is added
}

// target is what an operation is about.
type target struct {
	method string
	tool   string // "" for none
	sent   bool   // it went upstream
}

// series are the histograms of one target's operations with one error type.
type series struct {
	server prometheus.Observer
	client prometheus.Observer // nil where they did not go upstream
}

// Operations implements proxy.Meter. There is one for each revision.
func (m *Metrics) Operations(version string) proxy.Operations {
	m.revisions.mu.Lock()
	defer m.revisions.mu.Unlock()
	o := m.revisions.of[version]
	if o == nil {
		o = &operations{m: m, version: version}
		o.found.Store(&map[target]*series{})
		m.revisions.of[version] = o
	}
	return o
}

// revisions are the operations there are, by protocol revision.
type revisions struct {
	mu sync.Mutex // guards what follows
	of map[string]*operations
}

// Ended implements proxy.Operations.
func (o *operations) Ended(op *proxy.Operation) {
	s := o.series(op)
	s.server.Observe(op.Total.Seconds())
	if s.client != nil {
		s.client.Observe(op.Upstream.Seconds())
	}
	o.m.overhead.Observe(max(op.Total-op.Upstream-op.Waited, 0).Seconds())
}

// series finds the series of an operation.
func (o *operations) series(op *proxy.Operation) *series {
	t := target{method: op.Message.Method, sent: op.Sent}
	if op.Named && op.Kind == policy.Tool {
		t.tool = other
		if op.Familiar {
			t.tool = op.Name
		}
	}
	if op.Fault != (proxy.Fault{}) {
		return o.failed(o.bounded(t), op.Fault)
	}
	if s := (*o.found.Load())[t]; s != nil {
		return s
	}
	return o.add(o.bounded(t))
}

// bounded is the target with the labels that it may have.
func (o *operations) bounded(t target) target {
	t.method = methodLabel(t.method)
	if t.tool != "" && t.tool != other {
		t.tool = o.m.names.label(t.tool)
	}
	return t
}

// add makes the series of a target, unless there are some.
func (o *operations) add(t target) *series {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := *o.found.Load()
	if s := now[t]; s != nil {
		return s
	}
	s := o.histograms(t, "")
	next := maps.Clone(now)
	next[t] = s
	o.found.Store(&next)
	return s
}

func (o *operations) histograms(t target, fault string) *series {
	about := &o.m.about
	s := &series{server: o.m.serverOperations.WithLabelValues(t.method, t.tool, fault, about.Server.String(), o.version)}
	if t.sent {
		s.client = o.m.clientOperations.WithLabelValues(t.method, t.tool, fault, about.Client.String(), o.version)
	}
	return s
}

// failed are the series of operations that went wrong. They are rare, and looked
// up each time.
func (o *operations) failed(t target, f proxy.Fault) *series {
	if f.Refusal() {
		o.m.refusals.WithLabelValues(f.Code.String()).Inc()
	}
	return o.histograms(t, errorType(f))
}

// errorType is the label of a fault: JSON-RPC errors that no specification names
// have one together.
func errorType(f proxy.Fault) string {
	if f.Code == policy.CodeNone && f.RPC != 0 && !specified[f.RPC] {
		return other
	}
	return f.String()
}

// specified are the error codes of JSON-RPC 2.0 and of MCP.
var specified = map[int]bool{
	-32700: true, -32600: true, -32601: true, -32602: true, -32603: true, -32000: true,
	-32002: true, -32042: true, -32020: true, -32021: true, -32022: true,
}
