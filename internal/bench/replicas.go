package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/fsm-proxy/fsm-proxy/internal/bench/kept"
)

// replicasFigure is what steps take where two processes share a database, at a number of callers.
type replicasFigure struct {
	callers int
	owner   float64 // µs of a step that is sent to the owner of its run, p50
	passed  float64 // p50 of a step that is sent to the other process ÷ of one that is sent to the owner
	beside  float64 // p50 of one that is sent to the owner ÷ of one in a process that has its database alone
	err     error
}

// The design's limits for replicas.
const (
	maxPassedOn = 1.5
	maxAtOwner  = 1.1
)

// Who takes steps, where replicas are measured.
const (
	aloneProcess = "alone"
	ownerProcess = "owner"
	otherProcess = "other"
)

// measureReplicas measures steps that are kept in PostgreSQL, by each number of callers in new databases.
func (b *bench) measureReplicas(ctx context.Context) {
	c := &b.report.config
	if c.postgres == "" {
		b.report.remarks = append(b.report.remarks, "replicas were not measured: name a database of PostgreSQL by -postgres URL")
		return
	}
	if len(b.builds) == 0 {
		return
	}
	for _, n := range c.callers {
		fmt.Fprintf(b.progress, "replicas, %d callers …\n", n)
		f := replicasFigure{callers: n}
		f.err = b.inDatabases(ctx, &f)
		b.report.replicas = append(b.report.replicas, f)
	}
}

// inDatabases measures in two databases of their own, and has it be an error if a run changed hands: its steps would not
// have been passed on.
func (b *bench) inDatabases(ctx context.Context, f *replicasFigure) (err error) {
	shared, err := kept.NewDatabase(ctx, b.report.config.postgres)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shared.Drop()) }()
	single, err := kept.NewDatabase(ctx, b.report.config.postgres)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, single.Drop()) }()
	if err := b.compareReplicas(ctx, f, shared.URL, single.URL); err != nil {
		return err
	}
	runs, moved, err := shared.Runs(ctx)
	if err == nil && (runs < 2*f.callers || moved > 0) {
		err = fmt.Errorf("%d of %d runs were taken over while they were measured", moved, runs)
	}
	return err
}

// compareReplicas measures steps in a process that has a database alone, and in two that share another one: runs are all
// begun in the first of those, and so are its own.
func (b *bench) compareReplicas(ctx context.Context, f *replicasFigure, shared, single string) error {
	build, err := b.stepping()
	if err != nil {
		return err
	}
	alone, replica := build, build
	alone.name, alone.flags = aloneProcess, append([]string{"--store", single}, build.flags...)
	replica.flags = append([]string{"--store", shared, "--peer-listen", "127.0.0.1:0"}, build.flags...)
	var owner *running
	c := &cell{path: httpToJSON, callers: f.callers, rows: []*row{
		{contestant: contestant{alone.subject(), askCall}},
		{contestant: contestant{subject{ownerProcess, func(ctx context.Context, s site) (_ *running, err error) {
			owner, err = replica.start(ctx, s, nil)
			return owner, err
		}}, askCall}},
		{contestant: contestant{subject{otherProcess, func(ctx context.Context, s site) (*running, error) {
			if owner == nil {
				return nil, errors.New("there is no owner to pass on to")
			}
			r, err := replica.start(ctx, s, nil)
			if err == nil {
				r.opener = owner.addr
			}
			return r, err
		}}, askCall}},
	}}
	if err := measure(ctx, c, b.site, b.report.config.plan); err != nil {
		return err
	}
	for _, r := range c.rows {
		if r.err != nil {
			return fmt.Errorf("%s: %w", r.label(), r.err)
		}
	}
	f.owner = c.row(ownerProcess).median(sample.p50Micros)
	f.passed, f.beside = c.ratio(otherProcess, ownerProcess, sample.p50Micros), c.ratio(ownerProcess, aloneProcess, sample.p50Micros)
	return nil
}

// addReplicas adds what passing on costs.
func (r *report) addReplicas(t *table) {
	add := func(what string, callers int, seen, target float64) {
		what = fmt.Sprintf("%s, callers: %d", what, callers)
		row := []string{replicasSection, fsmProxy, what, number(seen), targetText(target, false), verdict(seen, target, false)}
		t.add(append(row, make([]string, len(r.callers()))...)...)
	}
	for _, f := range r.replicas {
		if f.err == nil {
			add("p50 of a step passed on ÷ at its owner ("+number(f.owner)+" µs)", f.callers, f.passed, maxPassedOn)
		}
	}
	for _, f := range r.replicas {
		if f.err == nil {
			add("p50 of a step at its owner ÷ in a process alone", f.callers, f.beside, maxAtOwner)
		}
	}
}
