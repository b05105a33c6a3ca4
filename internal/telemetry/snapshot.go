package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy"
)

// Sources are asked when the metrics are read. They must not block. None may be
// nil.
type Sources struct {
	Policy   func() *policy.Policy // in force
	Census   func() proxy.Census
	Draining func() bool
	Mode     func() proxy.Mode
	Noise    func() uint64 // what the upstream sent that is no message
	Audited  func() uint64 // lines of the audit that were written
}

// Watch has the metrics that tell what is there now read from s.
func (m *Metrics) Watch(s Sources) { m.sources.Store(&s) }

// snapshot collects what is there at the moment.
type snapshot struct{ m *Metrics }

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	descRuns     = describe("fsm_proxy_runs", "Runs, by the state that they are in.", "state")
	descStranded = describe("fsm_proxy_runs_stranded", "Runs whose state a reload took away.")
	descSessions = describe("fsm_proxy_sessions", "Sessions of clients.")
	descPolicy   = describe("fsm_proxy_policy_info", "The policy in force.", "name", "digest")
	descDraining = describe("fsm_proxy_draining", "Whether the proxy is ending and takes nothing new.")
	descMode     = describe("fsm_proxy_mode", "Whether the policy is enforced, or only compared with what happens.", "mode")
	descNoise    = describe("fsm_proxy_upstream_noise_lines_total", "What the upstream sent that is no MCP message.")
	descAudited  = describe("fsm_proxy_audit_lines_total", "Lines of the audit that were written.")
)

// Describe implements prometheus.Collector.
func (snapshot) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descRuns, descStranded, descSessions, descPolicy, descDraining, descMode, descNoise, descAudited} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (s snapshot) Collect(out chan<- prometheus.Metric) {
	src := s.m.sources.Load()
	if src == nil {
		return
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	p, census := src.Policy(), src.Census()
	for _, state := range p.States() {
		if !state.Terminal {
			census.Runs[state.Name] += 0
		}
	}
	for state, n := range census.Runs {
		gauge(descRuns, float64(n), state)
	}
	gauge(descStranded, float64(census.Stranded))
	gauge(descSessions, float64(census.Sessions))
	gauge(descPolicy, 1, p.Name(), p.Digest())
	gauge(descDraining, truth(src.Draining()))
	gauge(descMode, 1, src.Mode().String())
	out <- prometheus.MustNewConstMetric(descNoise, prometheus.CounterValue, float64(src.Noise()))
	out <- prometheus.MustNewConstMetric(descAudited, prometheus.CounterValue, float64(src.Audited()))
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
