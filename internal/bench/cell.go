package main

import (
	"context"
	"math"
	"time"
)

// contestant is a subject that is asked one kind of question.
type contestant struct {
	subject  subject
	question questionKind
}

// label is the subject's name, with the question if it is no call.
func (c contestant) label() string {
	if c.question == askCall {
		return c.subject.name
	}
	return c.subject.name + " " + c.question.String()
}

// cell is one path at one number of callers, measured through several
// contestants side by side.
type cell struct {
	path    path
	callers int
	rows    []*row
}

// row is what one contestant showed: a sample for each round, or why not.
type row struct {
	contestant
	samples []sample
	err     error

	running *running
	load    load
}

// plan says how a cell is measured.
type plan struct {
	rounds int
	warmUp time.Duration
	window window
}

// measure starts every contestant, lets each take its turn in every round, and
// ends them. What goes wrong with one stands in its row.
func measure(ctx context.Context, c *cell, s site, p plan) error {
	s.path = c.path
	upstream, err := startUpstream(s)
	if err != nil {
		return err
	}
	defer upstream.stop()
	s.upstream = upstream
	for _, r := range c.rows {
		r.open(ctx, s, c.callers)
		defer r.shut()
		r.turn(window{settle: p.warmUp}, s)
		r.samples = nil
	}
	for range p.rounds {
		for _, r := range c.rows {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			r.turn(p.window, s)
		}
	}
	return nil
}

func (r *row) open(ctx context.Context, s site, callers int) {
	if r.running, r.err = r.subject.start(ctx, s); r.err != nil {
		return
	}
	opened, err := r.running.load(s, callers)
	if err != nil {
		r.err = r.running.explain(err)
		return
	}
	r.load = opened
}

// turn measures one window, unless the contestant has failed before.
func (r *row) turn(w window, s site) {
	if r.err != nil {
		return
	}
	one, err := r.load.run(w, newQuestion(r.question, cannedText(s.payload), s.modern), r.running.cpu)
	if err != nil {
		r.err = r.running.explain(err)
		return
	}
	r.samples = append(r.samples, one)
}

func (r *row) shut() {
	if r.load != nil {
		r.load.close() // the subject is about to end
	}
	r.running.stop()
}

// median is the median of a figure over the rounds, NaN for who failed.
func (r *row) median(figure func(sample) float64) float64 {
	if r == nil || r.err != nil {
		return math.NaN()
	}
	return medianOf(r.samples, figure)
}

// row finds a contestant by its label, nil if it did not take part.
func (c *cell) row(label string) *row {
	for _, r := range c.rows {
		if r.label() == label {
			return r
		}
	}
	return nil
}

// ratio is the median over the rounds of one contestant's figure by another's,
// NaN where either is missing. Both were measured a moment apart, so that it
// says more than the ratio of two medians.
func (c *cell) ratio(of, by string, figure func(sample) float64) float64 {
	a, b := c.row(of), c.row(by)
	if a == nil || b == nil || a.err != nil || b.err != nil {
		return math.NaN()
	}
	var ratios []float64
	for i := range min(len(a.samples), len(b.samples)) {
		ratios = append(ratios, figure(a.samples[i])/figure(b.samples[i]))
	}
	return median(ratios)
}

// addedRatio compares what two contestants add to the direct connection's p50.
func (c *cell) addedRatio(of, by string) float64 {
	base := c.row(direct).median(sample.p50Micros)
	added := c.row(by).median(sample.p50Micros) - base
	if added <= 0 {
		return math.NaN()
	}
	return (c.row(of).median(sample.p50Micros) - base) / added
}
