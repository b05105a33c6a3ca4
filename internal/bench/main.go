package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == roleWord {
		if err := playRole(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

// run measures what args ask for and prints the report. It returns an error if
// something that was to be measured could not be, after all the rest.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c, err := parseFlags(args, stderr)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "fsm-proxy-bench")
	if err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	defer os.RemoveAll(dir)
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this command: %w", err)
	}
	b := &bench{report: &report{config: c}, site: site{self: self, dir: dir, payload: c.payload, modern: c.modern, procs: c.procs, bare: c.bare}, progress: stderr}
	b.findBuilds(ctx)
	runtime.GOMAXPROCS(c.procs) // the load's share
	if err := b.measureAll(ctx); err != nil {
		return err
	}
	return b.finish(stdout)
}

// bench is one run in the making.
type bench struct {
	report   *report
	site     site
	builds   []proxyBuild
	progress io.Writer
}

// findBuilds builds fsm-proxy, or takes the binaries that were named. Without
// one the rest is measured, and the report says so.
func (b *bench) findBuilds(ctx context.Context) {
	c := &b.report.config
	policy, err := writePolicy(b.site.dir)
	if err == nil && c.binary == "" && c.takes(fsmProxy) {
		c.binary, err = buildProxy(ctx, b.site.dir)
	}
	if err != nil {
		b.report.notes = append(b.report.notes, err.Error())
	}
	if c.binary != "" {
		b.builds = append(b.builds, proxyBuild{fsmProxy, c.binary, policy, c.flags})
	}
	for _, o := range c.others {
		b.builds = append(b.builds, proxyBuild{o.name, o.binary, policy, c.flags})
	}
	for _, build := range b.builds {
		b.report.builds = append(b.report.builds, build.name)
	}
}

func (b *bench) measureAll(ctx context.Context) error {
	for _, c := range b.cells() {
		fmt.Fprintf(b.progress, "%s, %d callers, %d subjects …\n", c.path, c.callers, len(c.rows))
		if err := measure(ctx, c, b.site, b.report.config.plan); err != nil {
			return err
		}
		b.report.cells = append(b.report.cells, c)
	}
	b.measureReload(ctx)
	b.measureRuns(ctx)
	if slices.Contains(b.report.config.paths, storeSection) && b.report.config.takes(fsmProxy) {
		b.measureStores(ctx)
	}
	if slices.Contains(b.report.config.paths, replicasSection) && b.report.config.takes(fsmProxy) {
		b.measureReplicas(ctx)
	}
	if slices.Contains(b.report.config.paths, sidecarSection) {
		fmt.Fprintln(b.progress, "sidecar …")
		b.report.sidecars = measureSidecars(ctx, b.builds, b.site)
	}
	if !slices.Contains(b.report.config.paths, idleSection) {
		return ctx.Err()
	}
	for _, build := range b.builds {
		for _, kind := range []idleKind{idleSession, idleStream, idleConnection} {
			fmt.Fprintf(b.progress, "idle: each %v, %s …\n", kind, build.name)
			b.report.idle = append(b.report.idle, measureIdle(ctx, build, b.site, b.report.config.sessions, kind))
		}
	}
	return ctx.Err()
}

// allProcessors gives this process all of them, for a proxy that is in it, until done is called.
func allProcessors() (done func()) {
	before := runtime.GOMAXPROCS(runtime.NumCPU())
	return func() { runtime.GOMAXPROCS(before) }
}

func (b *bench) measureReload(ctx context.Context) {
	c := &b.report.config
	if !slices.Contains(c.paths, reloadSection) || !c.takes(fsmProxy) {
		return
	}
	fmt.Fprintf(b.progress, "reload, %d runs …\n", c.runs)
	b.report.reloads, b.report.runBytes = measureReload(ctx, c.runs)
}

func (b *bench) measureRuns(ctx context.Context) {
	c := &b.report.config
	if !slices.Contains(c.paths, runsSection) || !c.takes(fsmProxy) {
		return
	}
	fmt.Fprintf(b.progress, "calls in %d runs …\n", c.runs)
	f := measureRuns(ctx, c.runs, time.Duration(c.plan.rounds)*c.plan.window.measure)
	b.report.crowd = &f
}

// cells are what there is to measure, in order.
func (b *bench) cells() []*cell {
	var all []*cell
	c := b.report.config
	for _, p := range allPaths {
		if !slices.Contains(c.paths, p.String()) {
			continue
		}
		for _, n := range c.callers {
			all = append(all, &cell{path: p, callers: n, rows: b.callRows(p)})
		}
	}
	if slices.Contains(c.paths, listsSection) {
		for _, p := range listPaths {
			all = append(all, &cell{path: p, callers: 1, rows: b.listRows(p)})
		}
	}
	return all
}

func (b *bench) callRows(p path) []*row {
	var builds []subject
	for _, build := range b.builds {
		builds = append(builds, build.subject())
	}
	var rows []*row
	for _, s := range subjectsOf(p, builds) {
		if b.report.config.takes(s.name) || slices.Contains(b.report.builds, s.name) {
			rows = append(rows, &row{contestant: contestant{s, askCall}})
		}
	}
	return rows
}

// listRows ask for lists, and for pings to compare them with; the direct
// connection shows what moving the bytes alone takes.
func (b *bench) listRows(p path) []*row {
	var rows []*row
	for _, r := range b.callRows(p) {
		switch {
		case r.subject.name == typedProxy:
			rows = append(rows, &row{contestant: contestant{r.subject, askList}})
		case r.subject.name == direct, slices.Contains(b.report.builds, r.subject.name):
			rows = append(rows, &row{contestant: contestant{r.subject, askList}}, &row{contestant: contestant{r.subject, askPing}})
		}
	}
	return rows
}

// finish prints the report.
func (b *bench) finish(stdout io.Writer) error {
	if err := b.report.write(stdout); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	if file := b.report.config.output; file != "" {
		var text strings.Builder
		b.report.write(&text) // a strings.Builder takes all
		if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
			return fmt.Errorf("writing the report: %w", err)
		}
	}
	if !b.report.complete() {
		return errors.New("some subjects could not be measured; the notes below the tables say why")
	}
	return nil
}
