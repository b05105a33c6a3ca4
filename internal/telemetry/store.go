package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// commitSeconds are the buckets for commits: a disk takes from below a millisecond to seconds.
var commitSeconds = []float64{100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3, 0.1, 0.2, 0.5, 1, 2, 5, 10}

// store measures the store that runs are kept in.
type store struct {
	commits        prometheus.Histogram
	records, bytes prometheus.Counter
	errors         prometheus.Counter
	passedOn       *prometheus.CounterVec
}

// StoreSources are asked when the metrics are read. They must not block.
type StoreSources struct {
	Waiting  func() int   // changes that wait to be written
	Size     func() int64 // bytes that the store takes, as far as that is known
	Writable func() bool
	LeftOut  func() uint64 // facts that change nothing, for which there was no room
	Replicas *Replicas     // nil: this process has the store alone
}

// Replicas are asked, likewise, where several processes may write the store.
type Replicas struct {
	Count     func() int // processes whose leases go on
	Trusted   func() bool
	Takeovers func() uint64
	Fenced    func() uint64
}

func (m *Metrics) replicas(of *Replicas) {
	gauge, counter := m.gauge, m.counter
	gauge("fsm_proxy_replicas", "Processes that share the store, whose leases go on.", func() float64 { return float64(of.Count()) })
	gauge("fsm_proxy_lease_trusted", "Whether this process may act by its lease of the store: 1, or 0.", func() float64 { return float64(one(of.Trusted())) })
	counter("fsm_proxy_takeovers_total", "Runs that this process has taken over from another one that had not given them away.", of.Takeovers)
	counter("fsm_proxy_fenced_appends_total", "Appends that were refused, since another process has the run.", of.Fenced)
	m.store.passedOn = m.counters("fsm_proxy_passed_on_total", "Requests that this process has passed on to another one, by what became of them.", "outcome")
}

// PassedOn counts a request that was passed on to another process.
func (m *Metrics) PassedOn(outcome string) { m.store.passedOn.WithLabelValues(outcome).Inc() }

func (m *Metrics) gauge(name, help string, of func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, of))
}

func (m *Metrics) counter(name, help string, of func() uint64) {
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(of()) }))
}

// Store measures a store from now on.
func (m *Metrics) Store(of StoreSources) {
	s := &m.store
	s.commits = m.histograms("fsm_proxy_store_commit_seconds", "Duration of commits to the store that succeeded.", commitSeconds).WithLabelValues().(prometheus.Histogram)
	s.records = m.counters("fsm_proxy_store_records_total", "Entries of runs that were written to the store.").WithLabelValues()
	s.bytes = m.counters("fsm_proxy_store_bytes_total", "Bytes of entries that were written to the store.").WithLabelValues()
	s.errors = m.counters("fsm_proxy_store_errors_total", "Commits to the store that failed, and are tried again.").WithLabelValues()
	m.counter("fsm_proxy_store_left_out_total", "Refusals, and calls that changed nothing, that the store had no room for.", of.LeftOut)
	gauge := m.gauge
	gauge("fsm_proxy_store_waiting", "Changes that wait to be written to the store.", func() float64 { return float64(of.Waiting()) })
	gauge("fsm_proxy_store_size_bytes", "Bytes that the store takes.", func() float64 { return float64(of.Size()) })
	gauge("fsm_proxy_store_up", "Whether the store can be written: 1, or 0.", func() float64 { return float64(one(of.Writable())) })
	if of.Replicas != nil {
		m.replicas(of.Replicas)
	}
}

// StoreWrote tells of a commit.
func (m *Metrics) StoreWrote(took time.Duration, records, bytes int, err error) {
	if err != nil {
		m.store.errors.Inc()
		return
	}
	m.store.commits.Observe(took.Seconds())
	m.store.records.Add(float64(records))
	m.store.bytes.Add(float64(bytes))
}
