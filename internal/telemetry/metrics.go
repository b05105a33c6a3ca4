package telemetry

import (
	"maps"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fsm-proxy/fsm-proxy/internal/lock"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

// Transport is how messages travel on one side, as OpenTelemetry's
// network.transport says it.
type Transport uint8

// The transports.
const (
	Pipe Transport = iota // standard input and output
	TCP                   // HTTP
)

// String returns the transport in OpenTelemetry's word.
func (t Transport) String() string {
	if t == TCP {
		return "tcp"
	}
	return "pipe"
}

// About is what the process is, for whoever reads its telemetry.
type About struct {
	Version        string    // of fsm-proxy
	Server, Client Transport // towards clients, and towards the upstream
}

// Metrics are the process's metrics, in a registry of their own. It is safe for
// concurrent use, and a [observe.Meter].
type Metrics struct {
	about    About
	registry *prometheus.Registry
	handler  http.Handler
	sources  atomic.Pointer[Sources]

	mu        sync.Mutex             // guards what follows
	tools     map[string]bool        // that have labels of their own
	revisions map[string]*operations // by protocol revision

	serverOperations, clientOperations *prometheus.HistogramVec
	serverSessions                     *prometheus.HistogramVec
	clientSessions, overhead           prometheus.Histogram
	decisions
	store store // zero: there is none
}

// decisions are counted.
type decisions struct {
	transitions, refusals, shadow *prometheus.CounterVec
	definitions, runsRefused      *prometheus.CounterVec
	restarts, authentication      prometheus.Counter
	runsExpired                   prometheus.Counter
}

// seconds are the buckets that OpenTelemetry gives for the durations of MCP, in
// seconds; micros those of what the proxy itself takes.
var (
	seconds = []float64{0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300}
	micros  = []float64{5e-6, 10e-6, 20e-6, 50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 50e-3, 0.1, 1}
)

// The labels that OpenTelemetry names.
const (
	labelMethod    = "mcp_method_name"
	labelTool      = "gen_ai_tool_name"
	labelError     = "error_type"
	labelTransport = "network_transport"
	labelVersion   = "mcp_protocol_version"
)

// NewMetrics returns metrics that count from zero.
func NewMetrics(about About) *Metrics {
	m := &Metrics{about: about, registry: prometheus.NewRegistry(), tools: map[string]bool{}, revisions: map[string]*operations{}}
	m.registerOperations()
	m.registerDecisions()
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "fsm_proxy_build_info", Help: "The version of fsm-proxy, and of Go that it was built with.",
		ConstLabels: prometheus.Labels{"version": about.Version, "goversion": runtime.Version()},
	})
	build.Set(1)
	m.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		build,
		collector{m},
	)
	m.handler = promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry, MaxRequestsInFlight: 4})
	return m
}

// Handler serves the metrics in Prometheus's formats.
func (m *Metrics) Handler() http.Handler { return m.handler }

func (m *Metrics) registerOperations() {
	labels := []string{labelMethod, labelTool, labelError, labelTransport, labelVersion}
	m.serverOperations = m.histograms("mcp_server_operation_duration_seconds", "Duration of requests of clients, from their arrival to their answer.", seconds, labels...)
	m.clientOperations = m.histograms("mcp_client_operation_duration_seconds", "Duration of requests to the upstream, from sending to its answer.", seconds, labels...)
	m.serverSessions = m.histograms("mcp_server_session_duration_seconds", "Duration of clients' sessions, at their end.", seconds, labelTransport, labelVersion)
	m.clientSessions = m.histograms("mcp_client_session_duration_seconds", "Duration of connections to the upstream, at their end.", seconds, labelTransport).
		WithLabelValues(m.about.Client.String()).(prometheus.Histogram)
	m.overhead = m.histograms("fsm_proxy_overhead_seconds", "What requests took in the proxy itself: without the upstream, and without waiting for a turn, a connection or a list.", micros).
		WithLabelValues().(prometheus.Histogram)
}

func (m *Metrics) registerDecisions() {
	m.transitions = m.counters("fsm_proxy_transitions_total", "Steps that changed a run's configuration.", "from", "to", "outcome")
	m.refusals = m.counters("fsm_proxy_refusals_total", "Calls that were refused.", "reason")
	m.shadow = m.counters("fsm_proxy_shadow_refusals_total", "Requests that would have been refused, but for the shadow mode.", "reason")
	m.definitions = m.counters("fsm_proxy_definition_changes_total", "What was found to differ from the lock file, once for each difference of a tool.", "kind")
	m.restarts = m.counters("fsm_proxy_upstream_restarts_total", "Lost connections to the upstream that were made anew.").WithLabelValues()
	m.authentication = m.counters("fsm_proxy_authentication_failures_total", "HTTP requests refused for their token, certificate, Host or Origin, or since the issuer's keys are not known.").WithLabelValues()
	m.runsExpired = m.counters("fsm_proxy_runs_expired_total", "Runs that ended since nobody used them for too long, or that were too old.").WithLabelValues()
	m.runsRefused = m.counters("fsm_proxy_runs_refused_total", "Runs that were not begun since there are too many.", "reason")
	for _, reason := range []string{"all", "principal"} {
		m.runsRefused.WithLabelValues(reason)
	}
	for code := policy.InvalidTransition; code <= policy.RunExpired; code++ {
		if (observe.Fault{Code: code}).Refusal() {
			m.refusals.WithLabelValues(code.String()) // so that the first one is an increase
		}
	}
	for _, change := range lock.AllChanges {
		m.definitions.WithLabelValues(change.String())
	}
}

func (m *Metrics) histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	m.registry.MustRegister(v)
	return v
}

func (m *Metrics) counters(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.registry.MustRegister(v)
	return v
}

// AuthenticationFailed tells of an HTTP request that was refused for its bearer
// token, its Host or its Origin.
func (m *Metrics) AuthenticationFailed() { m.authentication.Inc() }

// Stepped implements observe.Meter.
func (m *Metrics) Stepped(from, to, outcome string) {
	m.transitions.WithLabelValues(from, to, outcome).Inc()
}

// ShadowRefused implements observe.Meter.
func (m *Metrics) ShadowRefused(why policy.Code) { m.shadow.WithLabelValues(why.String()).Inc() }

// DefinitionChanged implements observe.Meter.
func (m *Metrics) DefinitionChanged(change lock.Change) {
	m.definitions.WithLabelValues(change.String()).Inc()
}

// SessionEnded implements observe.Meter.
func (m *Metrics) SessionEnded(version string, lasted time.Duration) {
	m.serverSessions.WithLabelValues(m.about.Server.String(), version).Observe(lasted.Seconds())
}

// ConnectionEnded implements observe.Meter.
func (m *Metrics) ConnectionEnded(lasted time.Duration) { m.clientSessions.Observe(lasted.Seconds()) }

// RunsExpired implements observe.Meter.
func (m *Metrics) RunsExpired(n int) { m.runsExpired.Add(float64(n)) }

// RunRefused implements observe.Meter.
func (m *Metrics) RunRefused(reason string) { m.runsRefused.WithLabelValues(reason).Inc() }

// Reconnected implements observe.Meter.
func (m *Metrics) Reconnected() { m.restarts.Inc() }

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

// toolLabel returns the label of a tool.
func (m *Metrics) toolLabel(tool string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.tools[tool] && len(m.tools) >= maxTools {
		return other
	}
	m.tools[tool] = true
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

// Operations implements observe.Meter. There is one for each revision.
func (m *Metrics) Operations(version string) observe.Operations {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.revisions[version]
	if o == nil {
		o = &operations{m: m, version: version}
		o.found.Store(&map[target]*series{})
		m.revisions[version] = o
	}
	return o
}

// Ended implements observe.Operations.
func (o *operations) Ended(op *observe.Operation) {
	if op.Fault.Refusal() {
		o.m.refusals.WithLabelValues(op.Fault.Code.String()).Inc()
	}
	s := o.series(op)
	s.server.Observe(op.Total.Seconds())
	if s.client != nil {
		s.client.Observe(op.Upstream.Seconds())
	}
	o.m.overhead.Observe(max(op.Total-op.Upstream-op.Waited, 0).Seconds())
}

// series returns the series of an operation. Those of operations that failed are rare, and looked up each time.
func (o *operations) series(op *observe.Operation) *series {
	t := target{method: op.Message.Method, sent: op.Sent}
	if op.Named && op.Kind == policy.Tool {
		t.tool = other
		if op.Familiar {
			t.tool = op.Name
		}
	}
	succeeded := op.Fault == observe.Fault{}
	if s := (*o.found.Load())[t]; s != nil && succeeded {
		return s
	}
	t.method = methodLabel(t.method)
	if t.tool != "" && t.tool != other {
		t.tool = o.m.toolLabel(t.tool)
	}
	if !succeeded {
		return o.histograms(t, errorType(op.Fault))
	}
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

// errorType returns the label of a fault: JSON-RPC errors that no specification names
// have one together.
func errorType(f observe.Fault) string {
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

// Sources are asked when the metrics are read. They must not block. None may be nil.
type Sources struct {
	Policy   func() *policy.Policy // in force
	Census   func() proxy.Census
	Reloads  func() Reloads
	Draining func() bool
	Mode     func() runs.Mode
	Noise    func() uint64 // what the upstream sent that is no message
	Silent   func() uint64 // processes that were ended since they said nothing more
	Audited  func() uint64 // lines of the audit that were written
}

// Reloads is what has become of the policy's file, and of the configuration's, since the start.
type Reloads struct {
	Succeeded, Failed uint64
	Current           bool      // what was read last is in force
	Since             time.Time // the policy is in force
}

// Watch has the metrics that tell what is there now read from s.
func (m *Metrics) Watch(s Sources) { m.sources.Store(&s) }

// collector collects what is there at the moment.
type collector struct{ m *Metrics }

// Describe implements prometheus.Collector. It describes nothing: there is nothing before [Metrics.Watch].
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector. Of a state without runs it tells that there are none.
func (c collector) Collect(out chan<- prometheus.Metric) {
	s := c.m.sources.Load()
	if s == nil {
		return
	}
	p, census, reloads := s.Policy(), s.Census(), s.Reloads()
	for _, state := range p.States() {
		if !state.Terminal {
			census.Runs[state.Name] += 0
		}
	}
	o := output(out)
	for state, n := range census.Runs {
		o.gauge("fsm_proxy_runs", "Runs, by the state that they are in.", n, "state", state)
	}
	o.gauge("fsm_proxy_runs_stranded", "Runs whose state a reload took away.", census.Stranded)
	o.gauge("fsm_proxy_sessions", "Sessions of clients.", census.Sessions)
	o.gauge("fsm_proxy_policy_info", "The policy in force.", 1, "name", p.Name(), "digest", p.Digest())
	const help = "Reloads of the policy, and of the configuration file."
	o.counter("fsm_proxy_reloads_total", help, reloads.Succeeded, "result", "success")
	o.counter("fsm_proxy_reloads_total", help, reloads.Failed, "result", "failure")
	o.gauge("fsm_proxy_policy_last_reload_successful", "Whether the policy's file and the configuration's, as they were last read, are in force.", one(reloads.Current))
	o.add(prometheus.GaugeValue, "fsm_proxy_policy_last_reload_success_timestamp_seconds", "When the policy in force was read.", float64(reloads.Since.UnixMilli())/1000)
	o.gauge("fsm_proxy_draining", "Whether the proxy is ending and takes nothing new.", one(s.Draining()))
	o.gauge("fsm_proxy_mode", "Whether the policy is enforced, or only compared with what happens.", 1, "mode", s.Mode().String())
	o.counter("fsm_proxy_upstream_noise_lines_total", "What the upstream sent that is no MCP message.", s.Noise())
	o.counter("fsm_proxy_upstream_silent_total", "Processes of the upstream that were ended since they answered nothing, not even a ping.", s.Silent())
	o.counter("fsm_proxy_audit_lines_total", "Lines of the audit that were written.", s.Audited())
}

// output is where metrics go that are collected.
type output chan<- prometheus.Metric

func (o output) gauge(name, help string, n int, labels ...string) {
	o.add(prometheus.GaugeValue, name, help, float64(n), labels...)
}

func (o output) counter(name, help string, n uint64, labels ...string) {
	o.add(prometheus.CounterValue, name, help, float64(n), labels...)
}

// add adds a metric. labels are names and values in turn.
func (o output) add(kind prometheus.ValueType, name, help string, v float64, labels ...string) {
	var names, values []string
	for pair := range slices.Chunk(labels, 2) {
		names, values = append(names, pair[0]), append(values, pair[1])
	}
	o <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, names, nil), kind, v, values...)
}

// one is 1 for true.
func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

var _ observe.Meter = (*Metrics)(nil)
