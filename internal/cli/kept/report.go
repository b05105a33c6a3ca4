package kept

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fsm-proxy/fsm-proxy/internal/cli/arguments"
	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/policyfile"
	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
	"github.com/fsm-proxy/fsm-proxy/internal/visible"
	drawing "github.com/fsm-proxy/fsm-proxy/policy/report"
	"github.com/fsm-proxy/fsm-proxy/proxy/durable"
)

func newReport(console Console) *cobra.Command {
	c := &command{Console: console}
	return c.reads(&cobra.Command{
		Use:   "report RUN --store STORE|--admin ADDR",
		Short: "Tell of a run in Markdown: its steps, its refusals, and its way on the policy's picture",
		Long: "Tell of a run of a store, whose id begins with RUN, in Markdown, as GitHub and others show it:\n" +
			"what is known of it, its steps, what was refused, and a Mermaid diagram of its policy on which\n" +
			"its way is marked.",
		Example: "  fsm-proxy report DMTFEK --store sqlite:runs.db > run.md",
		Args:    arguments.AsUsed,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.read(cmd.Context(), func(s journal.Reader) error { return c.report(cmd.Context(), s, args[0]) })
		},
	})
}

// report is a run as it is told of.
type report struct {
	refusals []string // rows of their table
	refused  int
	ways     []*way            // under each of its policies, in their order
	open     map[uint64]string // rows of calls that have begun and not ended
	final    map[uint64]bool   // which of those are irreversible
}

// way is how a run has gone under one policy.
type way struct {
	policy string // its digest
	at     string // the state that it was in last
	steps  []step
	taken  map[step]*when
}

// step is one of a run's, by the names of states.
type step struct {
	from, to, what string
	complete       bool
}

// when are the numbers of the entries that tell of a step.
type when struct {
	seqs  []uint64
	times int
}

// Bounds of what is told.
const (
	maxRefusals = 1000 // rows
	maxSeqs     = 12   // at an arrow
	maxWays     = 10   // diagrams
	maxCell     = 200  // characters
)

func (c *command) report(ctx context.Context, s journal.Reader, prefix string) error {
	r, err := find(ctx, s, prefix)
	if err != nil {
		return err
	}
	from := &durable.Reader{Journal: s, Compile: policyfile.Unpack}
	owner, err := from.Owner(ctx, &r)
	if err != nil {
		return err
	}
	var x report
	out := &bytes.Buffer{} // nothing is told before all is read: it may be read again
	err = journal.Whole(ctx, s, r, func(r *journal.Row, records iter.Seq2[journal.Record, error]) error {
		out.Reset()
		facts(out, r, owner)
		x = report{open: map[uint64]string{}, final: map[uint64]bool{}}
		fmt.Fprint(out, "\n## Steps\n\n| entry | time (UTC) | call | outcome | state | rule |\n|---:|---|---|---|---|---|\n")
		for record, err := range records {
			if err != nil || record.Seq > r.Last.Seq { // written since
				return err
			}
			x.tell(out, &record)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, seq := range slices.Sorted(maps.Keys(x.open)) {
		fmt.Fprint(out, x.open[seq])
	}
	if x.refused > 0 {
		fmt.Fprint(out, "\n## Refusals\n\n| entry | time (UTC) | call | why | in state |\n|---:|---|---|---|---|\n", strings.Join(x.refusals, ""))
		if more := x.refused - len(x.refusals); more > 0 {
			fmt.Fprintf(out, "\nAnd %d more.\n", more)
		}
	}
	fmt.Fprint(out, "\n## Way\n")
	before := max(len(x.ways)-maxWays, 0)
	if before > 0 {
		fmt.Fprintf(out, "\nThat under the first %d of its policies is not drawn.\n", before)
	}
	for _, w := range x.ways[before:] {
		w.draw(ctx, out, from)
	}
	_, err = out.WriteTo(c.Out)
	return cmp.Or(ctx.Err(), err)
}

// facts writes what is known of a run without its entries.
func facts(out io.Writer, r *journal.Row, owner journal.Principal) {
	fmt.Fprintf(out, "# Run %s\n\n| | |\n|---|---|\n", code(r.ID))
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(out, "| %s | %s |\n", name, value)
		}
	}
	state := code(r.State)
	if r.Complete {
		state += ", complete"
	}
	row("state", state)
	row("key", code(r.Key.Kind))
	row("owner", code(owner.Subject))
	row("issuer", code(owner.Issuer))
	if r.Parent != "" {
		row("fork of", fmt.Sprintf("%s, at entry %d", code(r.Parent), r.Fork))
	}
	row("began", stamp(r.Began))
	row("used", stamp(r.Used))
	if !r.Ended.IsZero() {
		row("ended", stamp(r.Ended))
	}
	if !r.Due.IsZero() {
		row("its clock is due", stamp(r.Due))
	}
	row("policy", code(r.Policy))
	row("entries", fmt.Sprintf("%d to %d", r.Base.Seq+1, r.Last.Seq))
	row("hash of the last", code(r.Last.Hash.String()))
}

// tell writes the row of an entry, and notes what is told later.
func (x *report) tell(out io.Writer, record *journal.Record) {
	e, err := read(record)
	if err != nil {
		fmt.Fprintf(out, "| %d | | cannot be read: %s | | | |\n", record.Seq, code(unreadable(err)))
		return
	}
	called := code(e.call())
	if e.Type != "ended" {
		called = strings.TrimSpace(code(e.Type) + " " + called)
	}
	if e.Irreversible || x.final[e.Begun] {
		called += ", irreversible"
	}
	if e.Parent != "" {
		called += fmt.Sprintf(" of %s, at entry %d", code(e.Parent), e.Fork)
	}
	if e.Type == refused {
		if x.refused++; len(x.refusals) < maxRefusals {
			x.refusals = append(x.refusals, fmt.Sprintf("| %d | %s | %s | %s | %s |\n", record.Seq, stamp(e.Time), code(e.call()), code(e.outcome()), code(e.From)))
		}
		return
	}
	state := code(e.From)
	if e.From != e.To.State {
		state += " → " + code(e.To.State)
	}
	if e.To.Complete {
		state += ", complete"
	}
	delete(x.open, e.Begun)
	delete(x.final, e.Begun)
	if e.Type == "begun" {
		x.final[record.Seq] = e.Irreversible
		x.open[record.Seq] = fmt.Sprintf("| %d | %s | %s | has no end yet | %s | %s |\n", record.Seq, stamp(e.Time), strings.TrimPrefix(called, code("begun")+" "), state, code(e.Rule))
		return
	}
	fmt.Fprintf(out, "| %d | %s | %s | %s | %s | %s |\n", record.Seq, stamp(e.Time), called, code(e.outcome()), state, code(e.Rule))
	x.walk(record.Seq, &e)
}

// walk notes a step.
func (x *report) walk(seq uint64, e *entry) {
	n := len(x.ways)
	if e.To.Policy == "" {
		return
	}
	if n == 0 || x.ways[n-1].policy != e.To.Policy {
		x.ways = append(x.ways, &way{policy: e.To.Policy, taken: map[step]*when{}})
		n++
	}
	w := x.ways[n-1]
	w.at = e.To.State
	s := step{e.From, e.To.State, "", e.To.Complete}
	switch {
	case e.Type == "began", e.Type == "forked":
		return
	case e.Restarted:
		s.what = "completes, and begins again"
	case e.Type != "ended" && e.Type != "expired":
		s.what = seen(e.Type)
	}
	if s.what != "" && s.from == s.to {
		return
	}
	t := w.taken[s]
	if t == nil {
		t = &when{}
		w.taken[s], w.steps = t, append(w.steps, s)
	}
	if t.times++; t.times <= maxSeqs {
		t.seqs = append(t.seqs, seq)
	}
}

// String says when it was, as far as there is room.
func (w *when) String() string {
	var all []string
	for _, seq := range w.seqs {
		all = append(all, strconv.FormatUint(seq, 10))
	}
	said := strings.Join(all, ", ")
	if more := w.times - len(w.seqs); more > 0 {
		said += fmt.Sprintf(" and %d more", more)
	}
	return said
}

// draw writes the diagram of a way.
func (w *way) draw(ctx context.Context, out io.Writer, from *durable.Reader) {
	p, err := from.Policy(ctx, w.policy)
	if err != nil {
		fmt.Fprintf(out, "\nThe policy cannot be drawn: %s\n", code(err.Error()))
		return
	}
	at, _ := p.StateByName(w.at)
	walk, names := &drawing.Walk{At: at}, map[drawing.Step]step{}
	for _, s := range w.steps {
		a, known := p.StateByName(s.from)
		b, there := p.StateByName(s.to)
		if !known || !there { // it came from another policy
			continue
		}
		drawn := drawing.Step{From: a, To: b, Complete: s.complete, What: s.what}
		walk.Steps, names[drawn] = append(walk.Steps, drawn), s
	}
	walk.Label = func(s drawing.Step) string { return w.taken[names[s]].String() }
	fmt.Fprintf(out, "\nUnder the policy %s. Numbers behind a ▶ are those of entries.\n\n```mermaid\n%s```\n", code(strings.TrimSpace(p.Name()+" "+w.policy)), drawing.MermaidOf(p, walk))
}

// seen is a text with what people do not see in it escaped, cut where it is long.
func seen(text string) string {
	text = string(visible.JSON([]byte(strictyaml.Printable(text))))
	if runes := []rune(text); len(runes) > maxCell {
		text = string(runes[:maxCell]) + "…"
	}
	return text
}

// code is a text that somebody else may have written as code in Markdown: it is nothing but that, in a table too.
func code(text string) string {
	switch text = seen(text); {
	case text == "":
		return ""
	case !strings.ContainsAny(text, "`|\\") && strings.TrimSpace(text) == text:
		return "`" + text + "`"
	}
	var b strings.Builder
	b.WriteString("<code>")
	for _, r := range text {
		if r > 0x7f || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, "&#%d;", r)
		}
	}
	return b.String() + "</code>"
}
