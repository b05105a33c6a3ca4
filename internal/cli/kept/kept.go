// Package kept is the commands that read a store of runs, or write one that no proxy has: they list and print what is
// there, verify it, and carry it elsewhere.
package kept

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/fsm-proxy/fsm-proxy/internal/admin/client"
	"github.com/fsm-proxy/fsm-proxy/internal/cli/arguments"
	"github.com/fsm-proxy/fsm-proxy/internal/cli/screen"
	"github.com/fsm-proxy/fsm-proxy/internal/exit"
	"github.com/fsm-proxy/fsm-proxy/internal/host"
	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/stores"
	"github.com/fsm-proxy/fsm-proxy/internal/policyfile"
	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
	"github.com/fsm-proxy/fsm-proxy/proxy/durable"
)

// Console is where commands read and print.
type Console struct {
	In  io.Reader
	Out io.Writer
}

// command is one that is about a store.
type command struct {
	Console
	url, key, anchors string
	json, follow      bool
	color             screen.Flag
	admin             client.Client // of a running proxy that is asked instead of a store
}

func (c *command) flags(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(&c.url, "store", "", "the `STORE`: sqlite:PATH, sqlite:FOLDER/, or postgres://HOST/DATABASE")
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	return cmd
}

// Instead is the annotation of a flag that names the one in whose place it is given.
const Instead = "instead"

// reads is for what reads a store, or asks the proxy that has it.
func (c *command) reads(cmd *cobra.Command) *cobra.Command {
	c.flags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&c.admin.Address, "admin", "", "ask the running proxy at `ADDR`, or unix:PATH, instead of a store")
	flags.StringVar(&c.admin.BearerFile, "admin-bearer-file", "", "a `FILE` that holds the bearer token for it")
	flags.Lookup("admin").Annotations = map[string][]string{Instead: {"store"}}
	flags.Lookup("store").Annotations = map[string][]string{Instead: {"admin"}}
	return cmd
}

func (c *command) asJSON(cmd *cobra.Command) *cobra.Command {
	c.lines(cmd)
	return c.reads(cmd)
}

func (c *command) lines(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&c.json, "json", false, "print a line of JSON for each")
}

// colored is for what people read at a terminal.
func (c *command) colored(cmd *cobra.Command) *cobra.Command {
	c.color.Register(cmd.Flags(), "")
	return cmd
}

// printer is where a command prints for people.
type printer struct {
	screen.Screen
	out *bufio.Writer
}

func (c *command) print(do func(p *printer)) error {
	s, err := c.color.Screen(c.Out)
	if err != nil {
		return err
	}
	p := &printer{s, bufio.NewWriter(s.Out)}
	do(p)
	return p.out.Flush()
}

// OfRuns are the commands below runs.
func OfRuns(console Console) []*cobra.Command {
	return []*cobra.Command{newList(console), newShow(console), newTail(console), newDiff(console), newExport(console), newImport(console), newCollect(console)}
}

// OfStore are those that stand alone.
func OfStore(console Console) []*cobra.Command {
	return []*cobra.Command{newVerify(console), newAnchor(console), newReport(console)}
}

// read opens the store to read, or has a running proxy read it.
func (c *command) read(ctx context.Context, do func(s journal.Reader) error) (err error) {
	switch {
	case c.admin.Address != "" && c.url != "":
		return exit.Usagef("a store is read, or a running proxy is asked: give one of --store and --admin")
	case c.admin.Address != "":
		j := client.NewJournal(&c.admin)
		defer j.Close()
		return do(j)
	case c.url == "":
		return exit.Usagef("no store is named: give --store, or set FSM_PROXY_STORE; or give --admin, to ask a running proxy")
	}
	urls, err := c.urls()
	if err != nil {
		return err
	}
	all := &folder{}
	defer func() {
		for _, m := range all.stores {
			err = errors.Join(err, m.Reader.(journal.Store).Close())
		}
	}()
	for _, url := range urls {
		s, err := stores.OpenReader(ctx, stores.Config{URL: url})
		if err != nil {
			return err
		}
		all.stores = append(all.stores, member{url, s})
	}
	if len(urls) == 1 {
		return do(all.stores[0].Reader)
	}
	return do(all)
}

// urls are those of the stores that --store names: several where it is a folder.
func (c *command) urls() ([]string, error) {
	if c.url == "" {
		return nil, exit.Usagef("no store is named: give --store, or set FSM_PROXY_STORE")
	}
	if err := stores.Check(c.url); err != nil {
		return nil, exit.Usagef("--store: %w", err)
	}
	return stores.Files(c.url)
}

// write has a store be written, which no proxy has meanwhile. instead is what else can be done where one has it.
func (c *command) write(ctx context.Context, config stores.Config, instead string, do func(s journal.Store) error) (err error) {
	config.Holder = fmt.Sprintf("process %d, which %s", os.Getpid(), config.Holder)
	s, err := stores.Open(ctx, config)
	if _, held := errors.AsType[*journal.Held](err); held {
		return fmt.Errorf("%w: this command needs the store for itself: stop each process that has it, and start them again afterwards%s", err, instead)
	}
	if err != nil {
		return err
	}
	if s == nil {
		return exit.Usagef("--store memory keeps nothing")
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return do(s)
}

// maxLike is how many runs are named that an ambiguous prefix may mean.
const maxLike = 5

// find returns the run whose id begins with a text.
func find(ctx context.Context, s journal.Reader, prefix string) (journal.Row, error) {
	prefix = strings.ToUpper(prefix)
	if r, err := s.Row(ctx, prefix); !errors.Is(err, journal.ErrNone) {
		return r, err
	}
	rows, err := s.List(ctx, journal.Query{Prefix: prefix, Limit: maxLike})
	switch {
	case err != nil:
		return journal.Row{}, err
	case len(rows) == 1:
		return rows[0], nil
	case len(rows) == 0:
		return journal.Row{}, fmt.Errorf("the store has no run whose id begins with %q: 'fsm-proxy runs ls' names those that there are", prefix)
	}
	var ids []string
	for i := range rows {
		ids = append(ids, rows[i].ID)
	}
	return journal.Row{}, fmt.Errorf("several runs have ids that begin with %q: %s; give more of it", prefix, strings.Join(ids, ", "))
}

// shortID is how much of an id tables show.
const shortID = 12

func newList(console Console) *cobra.Command {
	c := &command{Console: console}
	owner := ""
	cmd := c.colored(c.asJSON(&cobra.Command{
		Use:     "ls --store STORE|--admin ADDR",
		Short:   "List the runs of a store",
		Example: "  fsm-proxy runs ls --store sqlite:runs.db",
		Args:    arguments.AsUsed,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.read(cmd.Context(), func(s journal.Reader) error { return c.list(cmd.Context(), s, owner) })
		},
	}))
	cmd.Flags().StringVar(&owner, "owner", "", "list those of this `SUBJECT` alone")
	return cmd
}

// listed is a run as it is listed.
type listed struct {
	ID       string    `json:"id"`
	Key      string    `json:"key"`
	Subject  string    `json:"subject,omitzero"`
	State    string    `json:"state"`
	Complete bool      `json:"complete,omitzero"`
	Seq      uint64    `json:"seq"`
	Began    time.Time `json:"began"`
	Used     time.Time `json:"used"`
	Ended    time.Time `json:"ended,omitzero"`
	Parent   string    `json:"parent,omitzero"` // that it is a fork of
	Fork     uint64    `json:"fork,omitzero"`
	Process  string    `json:"process,omitzero"` // which of those that share the store has it
}

func listedOf(r *journal.Row) listed {
	return listed{r.ID, r.Key.Kind, r.Owner.Subject, r.State, r.Complete, r.Last.Seq, r.Began.UTC(), r.Used.UTC(), utc(r.Ended), r.Parent, r.Fork, ""}
}

// sharing says which of the processes that share a store has a run; nil: it is not shared now.
func sharing(ctx context.Context, s journal.Reader) (func(*journal.Row) string, error) {
	switch s := s.(type) {
	case *client.Journal:
		by, err := s.Processes(ctx)
		if by == nil {
			return nil, err
		}
		return func(r *journal.Row) string { return by[r.ID] }, nil
	case journal.Shared:
		by, err := holders(ctx, s)
		if by == nil {
			return nil, err
		}
		return func(r *journal.Row) string { return by[r.Tenure.Lease] }, err
	}
	return nil, nil
}

// holders are the processes that share a store, by their leases; nil: it is not shared now.
func holders(ctx context.Context, shared journal.Shared) (map[int64]string, error) {
	peers, err := shared.Peers(ctx)
	return journal.Holders(peers), err
}

func (c *command) list(ctx context.Context, s journal.Reader, owner string) error {
	process, err := sharing(ctx, s)
	if err != nil {
		return err
	}
	rows := [][]string{{"ID", "KEY", "SUBJECT", "STATE", "ENTRIES", "USED"}}
	if process != nil {
		rows[0] = append(rows[0], "PROCESS")
	}
	for r, err := range journal.Rows(ctx, s, journal.Query{}) {
		if err != nil {
			return err
		}
		if owner != "" && owner != r.Owner.Subject {
			continue
		}
		x := listedOf(&r)
		if process != nil {
			x.Process = process(&r)
		}
		if c.json {
			if err := c.line(x); err != nil {
				return err
			}
			continue
		}
		state := x.State
		if !r.Ended.IsZero() {
			state += " (ended)"
		} else if x.Complete {
			state += " (complete)"
		}
		rows = append(rows, []string{r.ID[:min(shortID, len(r.ID))], x.Key, cmp.Or(x.Subject, "-"), state, fmt.Sprint(x.Seq), ago(r.Used)})
		if process != nil {
			rows[len(rows)-1] = append(rows[len(rows)-1], cmp.Or(x.Process, "-"))
		}
	}
	switch {
	case c.json:
		return nil
	case len(rows) == 1:
		none := "The store has no runs."
		if owner != "" {
			none = "The store has no runs of " + owner + "."
		}
		_, err := fmt.Fprintln(c.Out, none)
		return err
	}
	return c.print(func(p *printer) { p.table(rows) })
}

// table prints rows in columns, the first of them as a heading. Their states are seen at once.
func (p *printer) table(rows [][]string) {
	wide := make([]int, len(rows[0]))
	for _, row := range rows {
		for i := range row {
			row[i] = strictyaml.Printable(row[i])
			wide[i] = max(wide[i], utf8.RuneCountInString(row[i]))
		}
	}
	for n, row := range rows {
		for i, cell := range row {
			look := screen.Style("")
			switch {
			case n == 0:
				look = quiet
			case rows[0][i] == "STATE":
				look = where
			}
			fmt.Fprint(p.out, p.Paint(look, cell), strings.Repeat(" ", wide[i]-utf8.RuneCountInString(cell)+3))
		}
		fmt.Fprintln(p.out)
	}
}

// ago says how long ago something was.
func ago(t time.Time) string {
	d := time.Since(t)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds ago", max(int(d.Seconds()), 0))
	case d < time.Hour:
		return fmt.Sprintf("%dm ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh ago", int(d.Hours()))
	}
	return fmt.Sprintf("%dd ago", int(d.Hours()/24))
}

func (c *command) line(x any) error {
	text, err := json.Marshal(x)
	if err != nil {
		return err
	}
	s := screen.Screen{Terminal: host.IsTerminal(c.Out)}
	_, err = fmt.Fprintf(c.Out, "%s\n", s.JSON(text))
	return err
}

func newTail(console Console) *cobra.Command {
	c := &command{Console: console}
	cmd := c.colored(c.asJSON(&cobra.Command{
		Use:     "tail RUN --store STORE|--admin ADDR",
		Short:   "Print the entries of a run of a store",
		Long:    "Print the entries of a run of a store, whose id begins with RUN. With --follow it waits\nfor those to come, until it is interrupted.",
		Example: "  fsm-proxy runs tail 5C1F0E --follow --store sqlite:runs.db",
		Args:    arguments.AsUsed,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.read(cmd.Context(), func(s journal.Reader) error { return c.tail(cmd.Context(), s, args[0]) })
		},
	}))
	cmd.Flags().BoolVarP(&c.follow, "follow", "f", false, "wait for entries to come")
	return cmd
}

// followEvery is how often a store is asked for more.
const followEvery = 500 * time.Millisecond

func (c *command) tail(ctx context.Context, s journal.Reader, prefix string) error {
	r, err := find(ctx, s, prefix)
	if err != nil {
		return err
	}
	const page = 1000
	for after := r.Base.Seq; ; {
		records, err := s.Records(ctx, r.ID, after, page)
		switch {
		case c.follow && ctx.Err() != nil: // interrupted
			return nil
		case errors.Is(err, journal.ErrNone):
			return journal.Removed(r.ID)
		case err != nil:
			return err
		}
		if err := c.print(func(p *printer) {
			for i := range records {
				after = records[i].Seq
				if c.json {
					fmt.Fprintf(p.out, "%s\n", p.JSON(records[i].Bytes))
				} else {
					fmt.Fprintln(p.out, p.sentence(&records[i]))
				}
			}
		}); err != nil {
			return err
		}
		switch {
		case len(records) == page:
			continue
		case !c.follow:
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(followEvery):
		}
	}
}

// count is so many runs.
func count(n int) string { return number(n, "run", "runs") }

// number is so many of something.
func number(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n, " ", more)
}

func newExport(console Console) *cobra.Command {
	c := &command{Console: console}
	return c.reads(&cobra.Command{
		Use:     "export [RUN...] --store STORE|--admin ADDR",
		Short:   "Write runs of a store as lines of JSON, with the policies they go by; without RUN all",
		Long:    "Write runs of a store as lines of JSON, with the policies that they go by. Without RUN it is\nall runs, and what is kept of sessions, which a running proxy (--admin) tells nobody.",
		Example: "  fsm-proxy runs export --store sqlite:runs.db > runs.jsonl",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.read(cmd.Context(), func(s journal.Reader) error { return c.export(cmd.Context(), s, args) })
		},
	})
}

func (c *command) export(ctx context.Context, s journal.Reader, prefixes []string) (err error) {
	out := bufio.NewWriter(c.Out)
	defer func() { err = errors.Join(err, out.Flush()) }()
	if len(prefixes) > 0 {
		s = durable.Shown(s) // sessions are of other runs, too
	}
	x := journal.Exporter{From: durable.Exported(s), To: out, Needs: durable.Needs}
	if err := x.Objects(ctx); err != nil {
		return err
	}
	for _, prefix := range prefixes {
		r, err := find(ctx, s, prefix)
		if err == nil {
			err = x.Run(ctx, r.ID)
		}
		if err != nil {
			return err
		}
	}
	if len(prefixes) > 0 {
		return nil
	}
	for r, err := range journal.Rows(ctx, s, journal.Query{}) {
		if err == nil {
			err = x.Run(ctx, r.ID)
		}
		if err != nil && !errors.Is(err, journal.ErrNone) { // it was removed since it was listed
			return err
		}
	}
	return nil
}

func newImport(console Console) *cobra.Command {
	c := &command{Console: console}
	return c.flags(&cobra.Command{
		Use:     "import [FILE] --store STORE",
		Short:   "Take runs into a store that no proxy has, as 'runs export' wrote them",
		Example: "  fsm-proxy runs export --store sqlite:runs.db | fsm-proxy runs import --store postgres://db.internal/runs",
		Args:    arguments.AsUsed,
		RunE: func(cmd *cobra.Command, args []string) error {
			in := c.In
			if len(args) > 0 {
				file, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer file.Close()
				in = file
			}
			if stores.IsFolder(c.url) {
				return exit.Usagef("runs are taken into one file, and --store names a folder: name a file, like sqlite:FOLDER/NAME.db; NAME is the --run of the proxy that is to go on with them")
			} else if _, err := c.urls(); err != nil {
				return err
			}
			return c.write(cmd.Context(), stores.Config{URL: c.url, Holder: "imports runs"}, "", func(s journal.Store) error {
				done, err := journal.Import(cmd.Context(), s, in)
				if err != nil {
					return fmt.Errorf("after %s: %w", count(len(done.Runs)+len(done.There)), err)
				}
				said := ""
				if n := len(done.There); n > 0 {
					said = "; there already: " + count(n)
				}
				_, err = fmt.Fprintf(c.Out, "Taken in: %s%s.\n", count(len(done.Runs)), said)
				return err
			})
		},
	})
}

func newVerify(console Console) *cobra.Command {
	c := &command{Console: console}
	all := false
	cmd := c.asJSON(&cobra.Command{
		Use:   "verify [RUN...|--all] --store STORE|--admin ADDR",
		Short: "Look whether what a store keeps of runs is what was written; without RUN of all",
		Long: "Look whether what a store keeps of runs is what was written. What is wrong is named, and\n" +
			"where; then the exit status is 1. Without a key (--record-key) and without anchors\n" +
			"(fsm-proxy anchor) whoever can write the store can write it anew unseen.",
		Example: "  fsm-proxy verify --store sqlite:runs.db --record-key /etc/fsm-proxy/key --anchors anchors.jsonl",
		RunE: func(cmd *cobra.Command, args []string) error {
			if all && len(args) > 0 {
				return exit.Usagef("--all is of all runs, and %q names one: give --all, or RUN", args[0])
			}
			return c.read(cmd.Context(), func(s journal.Reader) error { return c.verify(cmd.Context(), s, args) })
		},
	})
	cmd.Flags().BoolVar(&all, "all", false, "verify all runs, as without RUN")
	cmd.Flags().StringVar(&c.key, "record-key", "", "the `FILE` with the key that records were hashed by")
	cmd.Flags().StringVar(&c.anchors, "anchors", "", "a `FILE` of anchors, as 'fsm-proxy anchor' wrote them")
	return cmd
}

// faulty is a fault as it is printed.
type faulty struct {
	Run    string         `json:"run"`
	Seq    uint64         `json:"seq"`
	Damage journal.Damage `json:"damage"`
	Why    string         `json:"why"`
}

func (c *command) verify(ctx context.Context, s journal.Reader, prefixes []string) error {
	key, err := stores.ReadKey(c.key)
	if err != nil {
		return err
	}
	anchors := journal.Anchors{}
	if c.anchors != "" {
		file, err := os.Open(c.anchors)
		if err != nil {
			return err
		}
		defer file.Close()
		if anchors, err = journal.ReadAnchors(file); err != nil {
			return fmt.Errorf("reading %s: %w", c.anchors, err)
		}
	}
	var only []string
	for _, prefix := range prefixes {
		r, err := find(ctx, s, prefix)
		if err != nil {
			return err
		}
		only = append(only, r.ID)
	}
	slices.Sort(only)
	runs, damaged := 0, 0
	tell := func(f *journal.Fault) error {
		damaged++
		if c.json {
			return c.line(faulty{f.Run, f.Seq, f.Damage, f.Why})
		}
		_, err := fmt.Fprintf(c.Out, "run %s, entry %d: %s: %s\n", strictyaml.Printable(f.Run), f.Seq, f.Damage, strictyaml.Printable(f.Why))
		return err
	}
	from := &durable.Reader{Journal: s, Compile: policyfile.Unpack}
	for _, err := range journal.VerifyAll(ctx, s, anchors, from.Verifier(ctx, key), slices.Compact(only)...) {
		fault, damage := errors.AsType[*journal.Fault](err)
		if err != nil && !damage {
			return err
		}
		if runs++; !damage {
			continue
		}
		if err := tell(fault); err != nil {
			return err
		}
	}
	if damaged > 0 {
		return fmt.Errorf("what the store keeps is not what was written: %d of %s", damaged, count(runs))
	}
	if !c.json {
		_, err = fmt.Fprintf(c.Out, "%s: what the store keeps is what was written.\n", count(runs))
	}
	return err
}

func newAnchor(console Console) *cobra.Command {
	c := &command{Console: console}
	return c.reads(&cobra.Command{
		Use:   "anchor --store STORE|--admin ADDR",
		Short: "Print the last entry of each run, to be kept where nobody writes who writes the store",
		Long: "Print the number and the hash of the last entry of each run of a store, as lines of JSON.\n" +
			"Kept where nobody writes who writes the store, they tell 'fsm-proxy verify --anchors' of\n" +
			"entries that were cut off, and of a store that was written anew.",
		Example: "  fsm-proxy anchor --store sqlite:runs.db >> /mnt/elsewhere/anchors.jsonl",
		Args:    arguments.AsUsed,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.read(cmd.Context(), func(s journal.Reader) error {
				out := bufio.NewWriter(c.Out)
				return errors.Join(journal.WriteAnchors(cmd.Context(), s, time.Now(), out), out.Flush())
			})
		},
	})
}
