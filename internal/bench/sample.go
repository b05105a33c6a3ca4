package main

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// window is one subject's turn in a round.
type window struct {
	settle, measure time.Duration // settle comes first and is not counted
}

// limit is when a load that is stuck is given up.
func (w window) limit() time.Time { return time.Now().Add(w.settle + w.measure + 10*time.Second) }

// meter reads the CPU time that a process has used so far; false where the
// system does not tell.
type meter func() (time.Duration, bool)

// sample is what one window showed.
type sample struct {
	calls    int
	took     time.Duration // the counted time
	p50, p99 time.Duration
	cpu      time.Duration // of the subject's process; negative if unknown
}

func newSample(latencies []time.Duration, took, cpu time.Duration) sample {
	slices.Sort(latencies)
	return sample{
		calls: len(latencies), took: took, cpu: cpu,
		p50: percentile(latencies, 50), p99: percentile(latencies, 99),
	}
}

// rate is calls per second.
func (s sample) rate() float64 { return float64(s.calls) / s.took.Seconds() }

// cpuPerCall is in microseconds, NaN if unknown.
func (s sample) cpuPerCall() float64 {
	if s.cpu < 0 || s.calls == 0 {
		return math.NaN()
	}
	return micros(s.cpu) / float64(s.calls)
}

func (s sample) p50Micros() float64 { return micros(s.p50) }
func (s sample) p99Micros() float64 { return micros(s.p99) }

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// percentile is the p-th percentile of sorted by nearest rank, 0 if empty.
func percentile[T cmp.Ordered](sorted []T, p int) T {
	if len(sorted) == 0 {
		var zero T
		return zero
	}
	rank := (len(sorted)*p + 99) / 100
	return sorted[max(rank, 1)-1]
}

// median leaves values as it is; NaN counts for nothing, and the median of
// nothing is NaN.
func median(values []float64) float64 {
	known := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	if len(known) == 0 {
		return math.NaN()
	}
	slices.Sort(known)
	mid := len(known) / 2
	if len(known)%2 == 1 {
		return known[mid]
	}
	return (known[mid-1] + known[mid]) / 2
}

// medianOf is the median of one figure over samples.
func medianOf(samples []sample, figure func(sample) float64) float64 {
	values := make([]float64, len(samples))
	for i, s := range samples {
		values[i] = figure(s)
	}
	return median(values)
}
