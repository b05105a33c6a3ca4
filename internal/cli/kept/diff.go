package kept

import (
	"context"
	"fmt"
	"iter"

	"github.com/spf13/cobra"

	"github.com/fsm-proxy/fsm-proxy/internal/cli/arguments"
	"github.com/fsm-proxy/fsm-proxy/internal/cli/screen"
	"github.com/fsm-proxy/fsm-proxy/internal/exit"
	"github.com/fsm-proxy/fsm-proxy/internal/journal"
)

func newDiff(console Console) *cobra.Command {
	c := &command{Console: console}
	return c.colored(c.asJSON(&cobra.Command{
		Use:   "diff RUN RUN --store STORE|--admin ADDR",
		Short: "Compare what has happened in two runs",
		Long: "Compare what has happened in two runs of a store, as diff -u compares files: which calls came\n" +
			"to which outcomes and states, whenever that was; of a run and a fork of it, since then. Where\n" +
			"something is different the exit status is 1.\n" +
			"With --json each entry is a line, also those that both have.",
		Example: "  fsm-proxy runs diff DMTFEK 7LJ2QZ --store sqlite:runs.db",
		Args:    arguments.AsUsed,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.read(cmd.Context(), func(s journal.Reader) error { return c.diff(cmd.Context(), s, args[0], args[1]) })
		},
	}))
}

// event is what an entry tells of, whenever that was.
type event struct {
	Type     string `json:"type"`
	Kind     string `json:"kind,omitzero"`
	Name     string `json:"name,omitzero"`
	Case     string `json:"case,omitzero"`
	Outcome  string `json:"outcome,omitzero"`
	Refusal  string `json:"refusal,omitzero"`
	Resumed  bool   `json:"resumed,omitzero"`
	From     string `json:"from"`
	To       string `json:"to"`
	Complete bool   `json:"complete,omitzero"`
}

// entry is the event as it is printed.
func (e *event) entry() *entry {
	x := &entry{Type: e.Type, Kind: e.Kind, Name: e.Name, Case: e.Case, Outcome: e.Outcome, Refusal: e.Refusal, Resumed: e.Resumed, From: e.From}
	x.To.State, x.To.Complete = e.To, e.Complete
	return x
}

// happening is what has happened in a run, each event by its number among all of them.
type happening struct {
	run    string
	parent string // that it is a fork of, at an entry
	fork   uint64
	seqs   []uint64
	events []int
}

// events are all that there are in runs, each once.
type events struct {
	all   []event
	known map[event]int
}

// read reads what has happened in a run.
func (v *events) read(ctx context.Context, s journal.Reader, prefix string) (h happening, err error) {
	r, err := find(ctx, s, prefix)
	if err != nil {
		return h, err
	}
	err = journal.Whole(ctx, s, r, func(r *journal.Row, records iter.Seq2[journal.Record, error]) error {
		h = happening{run: r.ID, parent: r.Parent, fork: r.Fork}
		for record, err := range records {
			if err != nil || record.Seq > r.Last.Seq { // written since
				return err
			}
			e, err := read(&record)
			if err != nil {
				return fmt.Errorf("run %s, entry %d: %w", r.ID, record.Seq, err)
			}
			what := event{e.Type, e.Kind, e.Name, e.Case, e.Outcome, e.Refusal, e.Resumed, e.From, e.To.State, e.To.Complete}
			n, known := v.known[what]
			if !known {
				n = len(v.all)
				v.all, v.known[what] = append(v.all, what), n
			}
			h.seqs, h.events = append(h.seqs, record.Seq), append(h.events, n)
		}
		return nil
	})
	return h, err
}

// apart leaves out what a run and a fork of it have in common: what has become of the run up to the entry that it was forked
// at, which the first entry of the fork stands for.
func (h *happening) apart(fork *happening) {
	if fork.parent != h.run {
		return
	}
	n := 0
	for n < len(h.seqs) && h.seqs[n] <= fork.fork {
		n++
	}
	h.seqs, h.events = h.seqs[n:], h.events[n:]
	if len(fork.seqs) > 0 && fork.seqs[0] == 1 {
		fork.seqs, fork.events = fork.seqs[1:], fork.events[1:]
	}
}

func (c *command) diff(ctx context.Context, s journal.Reader, one, other string) error {
	v := &events{known: map[event]int{}}
	a, err := v.read(ctx, s, one)
	if err != nil {
		return err
	}
	b, err := v.read(ctx, s, other)
	if err != nil {
		return err
	}
	a.apart(&b)
	b.apart(&a)
	pairs, differ := align(a.events, b.events), false
	for _, p := range pairs {
		differ = differ || !p.both()
	}
	if c.json {
		err = c.aligned(v, &a, &b, pairs)
	} else if differ {
		err = c.print(func(p *printer) { p.unified(v, &a, &b, pairs) })
	}
	if err == nil && differ {
		return exit.ErrReported
	}
	return err
}

// lined is an entry of two runs, or of one, as it is printed.
type lined struct {
	In     string `json:"in"`
	First  uint64 `json:"first,omitzero"`  // its number
	Second uint64 `json:"second,omitzero"` // likewise
	event
}

func (c *command) aligned(v *events, a, b *happening, pairs []pair) error {
	for _, p := range pairs {
		x := lined{In: "both"}
		if p.second >= 0 {
			x.Second, x.event = b.seqs[p.second], v.all[b.events[p.second]]
		} else {
			x.In = "first"
		}
		if p.first >= 0 {
			x.First, x.event = a.seqs[p.first], v.all[a.events[p.first]]
		} else {
			x.In = "second"
		}
		if err := c.line(x); err != nil {
			return err
		}
	}
	return nil
}

// around is how much that is the same is shown around what is not.
const around = 3

// unified prints what is different, in hunks.
func (p *printer) unified(v *events, a, b *happening, pairs []pair) {
	fmt.Fprintf(p.out, "%s\n%s\n", p.Paint(screen.Bold, "--- run "+a.run), p.Paint(screen.Bold, "+++ run "+b.run))
	for at := 0; at < len(pairs); {
		begin, end := hunk(pairs, at)
		if begin == end {
			return
		}
		fmt.Fprintln(p.out, p.Paint(where, "@@ -"+a.span(pairs[begin:end], false)+" +"+b.span(pairs[begin:end], true)+" @@"))
		for _, x := range pairs[begin:end] {
			p.change(v, a, b, x)
		}
		at = end
	}
}

// hunk is the next part with something different in it, from a place on, with what is around.
func hunk(pairs []pair, at int) (begin, end int) {
	for begin = at; begin < len(pairs) && pairs[begin].both(); begin++ {
	}
	end = begin
	for n := begin; n < len(pairs) && n <= end+2*around; n++ {
		if !pairs[n].both() {
			end = n + 1
		}
	}
	if begin == len(pairs) {
		return begin, begin
	}
	return max(begin-around, at), min(end+around, len(pairs))
}

// span says which entries of a run are in a hunk: the number of the first, and how many.
func (h *happening) span(pairs []pair, second bool) string {
	n, first := 0, uint64(0)
	for _, p := range pairs {
		i := p.first
		if second {
			i = p.second
		}
		if i < 0 {
			continue
		}
		if n++; n == 1 {
			first = h.seqs[i]
		}
	}
	return fmt.Sprintf("%d,%d", first, n)
}

// change prints an entry with the sign of whose it is.
func (p *printer) change(v *events, a, b *happening, x pair) {
	plain := *p
	plain.Colors = false
	switch {
	case x.both():
		fmt.Fprintln(p.out, " "+p.happened(v.all[a.events[x.first]].entry()))
	case x.first >= 0:
		fmt.Fprintln(p.out, p.Paint(bad, "-"+plain.happened(v.all[a.events[x.first]].entry())))
	default:
		fmt.Fprintln(p.out, p.Paint(good, "+"+plain.happened(v.all[b.events[x.second]].entry())))
	}
}
