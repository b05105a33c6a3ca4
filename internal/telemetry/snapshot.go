package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy"
)

// Sources are asked when the metrics are read. They must not block. None may be
// nil.
type Sources struct {
	Policy   func() *policy.Policy // in force
	Census   func() proxy.Census
	Reloads  func() Reloads
	Draining func() bool
	Mode     func() proxy.Mode
	Noise    func() uint64 // what the upstream sent that is no message
	Silent   func() uint64 // processes that were ended since they said nothing more
	Audited  func() uint64 // lines of the audit that were written
}

// Reloads is what has become of the policy's file, and of the configuration's,
// since the start.
type Reloads struct {
	Succeeded, Failed uint64
	Current           bool      // what was read last is in force
	Since             time.Time // the policy is in force
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
	descReloads  = describe("fsm_proxy_reloads_total", "Reloads of the policy, and of the configuration file.", "result")
	descCurrent  = describe("fsm_proxy_policy_last_reload_successful", "Whether the policy's file and the configuration's, as they were last read, are in force.")
	descSince    = describe("fsm_proxy_policy_last_reload_success_timestamp_seconds", "When the policy in force was read.")
	descDraining = describe("fsm_proxy_draining", "Whether the proxy is ending and takes nothing new.")
	descMode     = describe("fsm_proxy_mode", "Whether the policy is enforced, or only compared with what happens.", "mode")
	descNoise    = describe("fsm_proxy_upstream_noise_lines_total", "What the upstream sent that is no MCP message.")
	descSilent   = describe("fsm_proxy_upstream_silent_total", "Processes of the upstream that were ended since they answered nothing, not even a ping.")
	descAudited  = describe("fsm_proxy_audit_lines_total", "Lines of the audit that were written.")
)

// Describe implements prometheus.Collector.
func (snapshot) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descRuns, descStranded, descSessions, descPolicy, descReloads, descCurrent, descSince,
		descDraining, descMode, descNoise, descSilent, descAudited} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (s snapshot) Collect(out chan<- prometheus.Metric) {
	src := s.m.sources.Load()
	if src == nil {
		return
	}
	o := output(out)
	o.runs(src)
	o.reloads(src.Reloads())
	o.gauge(descDraining, truth(src.Draining()))
	o.gauge(descMode, 1, src.Mode().String())
	o.counter(descNoise, src.Noise())
	o.counter(descSilent, src.Silent())
	o.counter(descAudited, src.Audited())
}

// output is where metrics go that are collected.
type output chan<- prometheus.Metric

func (o output) gauge(d *prometheus.Desc, v float64, labels ...string) {
	o <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (o output) counter(d *prometheus.Desc, n uint64, labels ...string) {
	o <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}

// runs tells of the sessions and their runs; of a state without any, that there
// are none.
func (o output) runs(src *Sources) {
	p, census := src.Policy(), src.Census()
	for _, state := range p.States() {
		if !state.Terminal {
			census.Runs[state.Name] += 0
		}
	}
	for state, n := range census.Runs {
		o.gauge(descRuns, float64(n), state)
	}
	o.gauge(descStranded, float64(census.Stranded))
	o.gauge(descSessions, float64(census.Sessions))
	o.gauge(descPolicy, 1, p.Name(), p.Digest())
}

func (o output) reloads(r Reloads) {
	o.counter(descReloads, r.Succeeded, "success")
	o.counter(descReloads, r.Failed, "failure")
	o.gauge(descCurrent, truth(r.Current))
	o.gauge(descSince, float64(r.Since.UnixMilli())/1000)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
