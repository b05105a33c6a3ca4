package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/bench/kept"
)

// storeFigure is what one store costs.
type storeFigure struct {
	name string
	runs int
	kept.Figure
	http [len(storeCallers)]float64 // steps a second over HTTP ÷ those of runs in memory, by callers
	err  error
}

// The design's limits for a store.
const (
	maxAddedCommits = 3.0
	minManySQLite   = 4.0
	minManyPostgres = 8.0
	minOfMemory     = 0.4
	maxRestart      = time.Second
)

// storeCallers are how many make steps over HTTP. The limit is for the last.
var storeCallers = [...]int{32, kept.Many}

// measureStores measures SQLite, and PostgreSQL where a database is named.
func (b *bench) measureStores(ctx context.Context) {
	c := &b.report.config
	figures := []storeFigure{{name: "SQLite"}}
	urls := []string{"sqlite:" + filepath.Join(b.site.dir, "runs.db")}
	if c.postgres != "" {
		figures, urls = append(figures, storeFigure{name: "PostgreSQL"}), append(urls, c.postgres)
	} else {
		b.report.remarks = append(b.report.remarks, "PostgreSQL was not measured: name a new database by -postgres URL")
	}
	for i := range figures {
		f := &figures[i]
		fmt.Fprintf(b.progress, "store, %s, %d runs …\n", f.name, c.runs)
		f.runs = c.runs
		done := allProcessors()
		f.Figure, f.err = kept.Measure(ctx, kept.Config{URL: urls[i], Rounds: c.plan.rounds, Window: c.plan.window.measure, Runs: c.runs, Dial: newInstant})
		done()
	}
	for i := range storeCallers {
		b.storesOverHTTP(ctx, figures, urls, i)
	}
	b.report.stores = figures
}

// stepping is the first build, by a policy with which each call is a step.
func (b *bench) stepping() (build proxyBuild, err error) {
	build = b.builds[0]
	build.policy = filepath.Join(b.site.dir, "steps.yaml")
	if err := os.WriteFile(build.policy, []byte(kept.Policy), 0o600); err != nil {
		return build, fmt.Errorf("writing the policy: %w", err)
	}
	return build, nil
}

// storesOverHTTP measures a build's steps in memory and in each store side by side, with the callers of storeCallers[at].
func (b *bench) storesOverHTTP(ctx context.Context, figures []storeFigure, urls []string, at int) {
	if len(b.builds) == 0 {
		return
	}
	build, err := b.stepping()
	if err != nil {
		figures[0].err = err
		return
	}
	c := &cell{path: httpToJSON, callers: storeCallers[at], rows: []*row{{contestant: contestant{build.subject(), askCall}}}}
	for i := range figures {
		stored := build
		stored.name, stored.flags = figures[i].name, append([]string{"--store", urls[i]}, build.flags...)
		c.rows = append(c.rows, &row{contestant: contestant{stored.subject(), askCall}})
	}
	if err := measure(ctx, c, b.site, b.report.config.plan); err != nil {
		figures[0].err = err
		return
	}
	for i := range figures {
		figures[i].http[at] = c.ratio(figures[i].name, build.name, sample.rate)
		for _, r := range []*row{c.rows[0], c.rows[i+1]} {
			if figures[i].err == nil {
				figures[i].err = r.err
			}
		}
	}
}

// addStores adds what stores cost.
func (r *report) addStores(t *table) {
	for _, f := range r.stores {
		if f.err != nil {
			continue
		}
		add := func(what string, seen, target float64, atLeast bool) {
			row := []string{storeSection, f.name, what, number(seen), "–", "–"}
			if target > 0 {
				row[4], row[5] = targetText(target, atLeast), verdict(seen, target, atLeast)
			}
			t.add(append(row, make([]string, len(r.callers()))...)...)
		}
		many := minManySQLite
		if f.name != r.stores[0].name {
			many = minManyPostgres
		}
		add("bare commits of 400 bytes ("+number(micros(f.Bare))+" µs) that a step adds", f.Commits, maxAddedCommits, false)
		add("µs of a step (in memory "+number(micros(f.Memory))+")", micros(f.Step), 0, false)
		add(fmt.Sprintf("steps/s of %d runs at once ÷ of one (%s)", kept.Many, number(f.One)), f.Times, many, true)
		add("bytes a step", f.Bytes, 0, false)
		for i, n := range storeCallers {
			goal := 0.0
			if n == kept.Many {
				goal = minOfMemory
			}
			add(fmt.Sprintf("steps/s over HTTP ÷ in memory, callers: %d", n), f.http[i], goal, true)
		}
		add("ms to the first answer after a restart ("+thousands(int64(f.runs))+" runs)", milliseconds(f.Restart), milliseconds(maxRestart), false)
	}
}
