package main

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"time"
)

// report is everything that a run has measured.
type report struct {
	config   config
	builds   []string // fsm-proxy's, by name
	cells    []*cell
	idle     []idleFigure
	sidecars []sidecarFigure

	stores   []storeFigure
	replicas []replicasFigure
	remarks  []string // what was not asked for

	crowd    *runsFigure // nil: not measured
	reloads  []reloadFigure
	runBytes float64  // what a session with its run holds, in those
	notes    []string // what could not be measured, and why
}

// write prints the report in Markdown.
func (r *report) write(w io.Writer) error {
	var b strings.Builder
	r.head(&b)
	r.measures().write(&b) // a strings.Builder takes all
	if goals := r.goals(); len(goals.rows) > 0 {
		b.WriteString("\n")
		goals.write(&b)
	}
	for _, note := range append(r.allNotes(), r.remarks...) {
		fmt.Fprintf(&b, "\n- %s", note)
	}
	b.WriteString("\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *report) head(b *strings.Builder) {
	cpu, kernel := machineFacts()
	parts := []string{fmt.Sprintf("%d × %s", runtime.NumCPU(), cpu), kernel, runtime.Version()}
	if v := nginxVersion(); v != "" {
		parts = append(parts, v)
	}
	p := r.config.plan
	fmt.Fprintf(b, "%s. %d interleaved rounds of %s windows, medians; %d bytes of text a call. "+
		"Load and upstream (over HTTP: %s) run on the same machine, with GOMAXPROCS=%d each. "+
		"CPU is the proxy process' own; for %q, which has none, the upstream's.\n\n",
		strings.Join(parts, ", "), p.rounds, p.window.measure, r.config.payload, r.config.upstream(), r.config.procs, direct)
}

// upstream is what the HTTP upstream is made of.
func (c *config) upstream() string {
	if c.bare {
		return bareUpstream + " connections"
	}
	return standardUpstream
}

func (r *report) measures() *table {
	t := &table{columns: []column{
		{"path", false}, {"callers", true}, {"through", false}, {"calls/s", true},
		{"p50 µs", true}, {"p99 µs", true}, {"CPU µs/call", true},
	}}
	for _, c := range r.cells {
		for _, row := range c.rows {
			t.add(c.path.String(), fmt.Sprint(c.callers), row.label(), number(row.median(sample.rate)),
				number(row.median(sample.p50Micros)), number(row.median(sample.p99Micros)), number(row.median(sample.cpuPerCall)))
		}
	}
	return t
}

// goals has a line for each target and build, and says whether it is met; the
// last columns show the figure at the other numbers of callers.
func (r *report) goals() *table {
	t := &table{columns: []column{{"path", false}, {"through", false}, {"figure", false}, {"seen", true}, {"goal", true}, {"met", false}}}
	for _, n := range r.callers() {
		t.columns = append(t.columns, column{fmt.Sprintf("at %d", n), true})
	}
	for _, g := range goals() {
		for _, build := range r.builds {
			r.addGoal(t, g, build)
		}
	}
	for _, f := range r.idle {
		r.addIdle(t, f)
	}
	r.addSidecars(t)
	r.addReloads(t)
	r.addRuns(t)
	r.addStores(t)
	r.addReplicas(t)
	return t
}

// addGoal leaves out goals whose path was not measured.
func (r *report) addGoal(t *table, g goal, build string) {
	seen, known := math.NaN(), false
	var others []string
	for _, n := range r.callers() {
		v := math.NaN()
		if c := r.cell(g, n); c != nil {
			v, known = g.figure(c, build), true
		}
		if n == g.callers {
			seen = v
		}
		others = append(others, number(v))
	}
	if known {
		what := fmt.Sprintf("%s, callers: %d", g.what, g.callers)
		t.add(append([]string{g.path.String(), build, what, number(seen), targetText(g.target, g.atLeast), verdict(seen, g.target, g.atLeast)}, others...)...)
	}
}

func (r *report) addIdle(t *table, f idleFigure) {
	what := fmt.Sprintf("bytes an idle %v (%s)", f.kind, thousands(int64(f.count)))
	row := []string{httpToJSON.String(), f.build, what, number(f.bytes), targetText(f.kind.target(), false), verdict(f.bytes, f.kind.target(), false)}
	t.add(append(row, make([]string, len(r.callers()))...)...)
}

// addReloads adds what a reload takes, and what it does to calls meanwhile.
func (r *report) addReloads(t *table) {
	add := func(what string, seen, target float64) {
		row := []string{reloadSection, fsmProxy, what, number(seen), targetText(target, false), verdict(seen, target, false)}
		t.add(append(row, make([]string, len(r.callers()))...)...)
	}
	for _, f := range r.reloads {
		if f.err == nil {
			what := fmt.Sprintf("ms for %s runs, %s", thousands(int64(f.runs)), f.what)
			add(what, milliseconds(f.took), milliseconds(maxReload))
			add("longest ms of a call meanwhile (p99 "+number(milliseconds(f.p99))+")", milliseconds(f.longest), milliseconds(maxHeldUp))
		}
	}
	if len(r.reloads) > 0 {
		add("bytes a session with its run", r.runBytes, idleSession.target())
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// callers are the numbers of callers measured, ascending.
func (r *report) callers() []int {
	var all []int
	for _, c := range r.cells {
		all = append(all, c.callers)
	}
	slices.Sort(all)
	if all = slices.Compact(all); len(all) == 0 {
		return []int{1}
	}
	return all
}

// cell is the one that g is judged by at n callers: the lists' and the calls'
// cells of a path are two. Nil if it was not measured.
func (r *report) cell(g goal, n int) *cell {
	for _, c := range r.cells {
		if c.path == g.path && c.callers == n && c.asksOnlyCalls() == !g.lists {
			return c
		}
	}
	return nil
}

func (c *cell) asksOnlyCalls() bool {
	return !slices.ContainsFunc(c.rows, func(r *row) bool { return r.question != askCall })
}

func (r *report) allNotes() []string {
	notes := slices.Clone(r.notes)
	for _, c := range r.cells {
		for _, row := range c.rows {
			if row.err != nil {
				notes = append(notes, fmt.Sprintf("%s, %d callers, %s: %v", c.path, c.callers, row.label(), row.err))
			}
		}
	}
	for _, f := range r.reloads {
		if f.err != nil {
			notes = append(notes, fmt.Sprintf("reload, %s: %v", f.what, f.err))
		}
	}
	if r.crowd != nil && r.crowd.failed != nil {
		notes = append(notes, fmt.Sprintf("%d runs: %v", r.crowd.runs, r.crowd.failed))
	}
	for _, f := range r.sidecars {
		if f.err != nil {
			notes = append(notes, fmt.Sprintf("sidecar, %s: %v", f.build, f.err))
		}
	}
	for _, f := range r.stores {
		if f.err != nil {
			notes = append(notes, fmt.Sprintf("store, %s: %v", f.name, f.err))
		}
	}
	for _, f := range r.replicas {
		if f.err != nil {
			notes = append(notes, fmt.Sprintf("replicas, %d callers: %v", f.callers, f.err))
		}
	}
	for _, f := range r.idle {
		if f.err != nil {
			notes = append(notes, fmt.Sprintf("idle sessions, %s: %v", f.build, f.err))
		}
	}
	return notes
}

// complete is false if something was to be measured and could not be. A
// missing nginx is no failure.
func (r *report) complete() bool { return len(r.allNotes()) == 0 }
