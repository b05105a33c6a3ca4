package telemetry

import (
	"net/http"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fsm-proxy/fsm-proxy/internal/lock"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy"
)

// Transport is how messages travel on one side, as OpenTelemetry's
// network.transport says it.
type Transport uint8

// The transports.
const (
	Pipe Transport = iota // standard input and output
	TCP                   // HTTP
)

// String is the transport in OpenTelemetry's word.
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
// concurrent use, and a [proxy.Meter].
type Metrics struct {
	about     About
	registry  *prometheus.Registry
	handler   http.Handler
	names     names
	revisions revisions

	serverOperations, clientOperations *prometheus.HistogramVec
	serverSessions                     *prometheus.HistogramVec
	clientSessions, overhead           prometheus.Histogram
	transitions, refusals, shadow      *prometheus.CounterVec
	definitions, runsRefused           *prometheus.CounterVec
	restarts, authentication           prometheus.Counter
	runsExpired                        prometheus.Counter
	sources                            atomic.Pointer[Sources]
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
	m := &Metrics{about: about, registry: prometheus.NewRegistry(), revisions: revisions{of: map[string]*operations{}}}
	m.registerOperations()
	m.registerDecisions()
	m.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		build(about.Version),
		snapshot{m},
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
		if (proxy.Fault{Code: code}).Refusal() {
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

// build is what the program is.
func build(version string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "fsm_proxy_build_info", Help: "The version of fsm-proxy, and of Go that it was built with.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	})
	g.Set(1)
	return g
}

// AuthenticationFailed tells of an HTTP request that was refused for its bearer
// token, its Host or its Origin.
func (m *Metrics) AuthenticationFailed() { m.authentication.Inc() }

// Stepped implements proxy.Meter.
func (m *Metrics) Stepped(from, to string, o policy.Outcome) {
	m.transitions.WithLabelValues(from, to, o.String()).Inc()
}

// ShadowRefused implements proxy.Meter.
func (m *Metrics) ShadowRefused(why policy.Code) { m.shadow.WithLabelValues(why.String()).Inc() }

// DefinitionChanged implements proxy.Meter.
func (m *Metrics) DefinitionChanged(change lock.Change) {
	m.definitions.WithLabelValues(change.String()).Inc()
}

// SessionEnded implements proxy.Meter.
func (m *Metrics) SessionEnded(version string, lasted time.Duration) {
	m.serverSessions.WithLabelValues(m.about.Server.String(), version).Observe(lasted.Seconds())
}

// ConnectionEnded implements proxy.Meter.
func (m *Metrics) ConnectionEnded(lasted time.Duration) { m.clientSessions.Observe(lasted.Seconds()) }

// RunsExpired implements proxy.Meter.
func (m *Metrics) RunsExpired(n int) { m.runsExpired.Add(float64(n)) }

// RunRefused implements proxy.Meter.
func (m *Metrics) RunRefused(reason string) { m.runsRefused.WithLabelValues(reason).Inc() }

// Reconnected implements proxy.Meter.
func (m *Metrics) Reconnected() { m.restarts.Inc() }

var _ proxy.Meter = (*Metrics)(nil)
