package kept

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/fsm-proxy/fsm-proxy/internal/cli/arguments"
	"github.com/fsm-proxy/fsm-proxy/internal/days"
	"github.com/fsm-proxy/fsm-proxy/internal/exit"
	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/stores"
	"github.com/fsm-proxy/fsm-proxy/internal/service"
	"github.com/fsm-proxy/fsm-proxy/proxy/durable"
)

func newCollect(console Console) *cobra.Command {
	c := &collector{command: &command{Console: console}}
	var completed, idle time.Duration
	cmd := c.flags(&cobra.Command{
		Use:   "gc --store STORE",
		Short: "Remove runs of a store that no proxy has, which have ended or are used no more",
		Long: "Remove whole runs of a store that no proxy has: those that ended, or were used last, longer ago\n" +
			"than is said; then, where the store keeps more than is said, those that ended first; and then\n" +
			"the policies that no run names any more. With --dry-run it says which that would be, also while\n" +
			"a proxy has the store. A running proxy removes runs by itself, by flags of the same names, and\n" +
			"no policies.",
		Example: "  fsm-proxy runs gc --dry-run --keep-completed 30d --store sqlite:runs.db",
		Args:    arguments.AsUsed,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch most := c.bounds; {
			case completed < 0 || idle < 0 || most.Runs < 0 || completed == 0 && idle == 0 && most == (durable.Bounds{}):
				return exit.Usagef("gc removes nothing without --keep-completed, --keep-idle, --max-stored-runs or --max-store-size: give one")
			case most.Size > 0 && c.url != "" && !stores.IsSQLite(c.url):
				return exit.Usagef("--max-store-size bounds a file of SQLite: how much PostgreSQL takes hangs on when it vacuums; bound runs by --max-stored-runs")
			}
			now := time.Now()
			if completed > 0 {
				c.queries = append(c.queries, journal.Query{EndedBefore: now.Add(-completed)})
			}
			if idle > 0 {
				c.queries = append(c.queries, journal.Query{UsedBefore: now.Add(-idle)})
			}
			return c.collect(cmd.Context())
		},
	})
	cmd.Flags().VarPF((*days.Value)(&completed), "keep-completed", "", "how long a run is kept that has ended").DefValue = "0"
	cmd.Flags().VarPF((*days.Value)(&idle), "keep-idle", "", "how long a run is kept that nobody uses").DefValue = "0"
	cmd.Flags().IntVar(&c.bounds.Runs, "max-stored-runs", 0, "how many runs are kept in each file or database")
	cmd.Flags().Var((*service.Size)(&c.bounds.Size), "max-store-size", "what each file of SQLite may take; with --dry-run it is reckoned by what is in the entries")
	cmd.Flags().BoolVar(&c.dry, "dry-run", false, "say what would be removed, and remove nothing")
	c.lines(cmd)
	return cmd
}

// collector removes runs of stores, and the policies that none names any more, or says which it would.
type collector struct {
	*command
	queries        []journal.Query // for runs
	bounds         durable.Bounds  // of each store
	dry            bool
	runs, policies int // so many were removed
}

// unnamed is a policy as it is printed.
type unnamed struct {
	Policy string `json:"policy"`
}

// collect goes through the stores. What cannot be removed of one of a folder keeps it from no other.
func (c *collector) collect(ctx context.Context) error {
	urls, err := c.urls()
	for _, url := range urls {
		err = errors.Join(err, c.store(ctx, url))
	}
	if c.json || err != nil && c.runs+c.policies == 0 {
		return err
	}
	said, what := "Removed: %s.\n", count(c.runs)
	if c.dry {
		said = "It would remove %s.\n"
	}
	if c.policies > 0 {
		what += " and " + number(c.policies, "policy", "policies")
	}
	_, wrote := fmt.Fprintf(c.Out, said, what)
	return errors.Join(err, wrote)
}

func (c *collector) store(ctx context.Context, url string) error {
	if c.dry {
		one := *c.command
		one.url = url
		return one.read(ctx, func(s journal.Reader) error { return (&collection{collector: c, s: s.(journal.Store)}).all(ctx) })
	}
	const instead = "; or have them remove runs, by their flags of the same names"
	return c.write(ctx, stores.Config{URL: url, Holder: "removes runs", Existing: true}, instead, func(s journal.Store) error {
		return (&collection{collector: c, s: s}).all(ctx)
	})
}

// collection is what goes of one store.
type collection struct {
	*collector
	s     journal.Store
	gone  map[string]bool // runs that are not removed, and counted as though they were
	bytes int64           // that those take
}

// all removes runs, and then policies.
func (c *collection) all(ctx context.Context) error {
	c.gone = map[string]bool{}
	for _, q := range c.queries {
		for r, err := range journal.Rows(ctx, c.s, q) {
			if err == nil {
				err = c.run(ctx, &r)
			}
			if err != nil {
				return err
			}
		}
	}
	if err := c.bound(ctx); err != nil {
		return err
	}
	policies, err := durable.Unnamed(ctx, c.s, c.gone)
	for _, p := range policies {
		if err := c.remove(ctx, journal.Change{Objects: []journal.Object{{Kind: p.Kind, Name: p.Name}}}); err != nil {
			return fmt.Errorf("removing policy %s: %w", p.Name, err)
		}
		c.policies++
		if err := c.say(unnamed{p.Name}, "policy "+p.Name+"  named by no run"); err != nil {
			return err
		}
	}
	return err
}

// bound removes runs that have ended, those first that ended first, as long as more is kept than may be.
func (c *collection) bound(ctx context.Context) error {
	for c.bounds != (durable.Bounds{}) {
		stock, err := c.s.Stock(ctx)
		if err != nil {
			return err
		}
		stock.Runs -= len(c.gone)
		stock.Used -= c.bytes
		excess := c.bounds.Excess(&stock)
		if excess == 0 {
			break
		}
		ids, err := c.s.Ended(ctx, len(c.gone)+excess)
		if err != nil {
			return err
		}
		ids = slices.DeleteFunc(ids, func(id string) bool { return c.gone[id] })
		if len(ids) == 0 {
			break
		}
		for _, id := range ids[:min(len(ids), excess)] {
			r, err := c.s.Row(ctx, id)
			if errors.Is(err, journal.ErrNone) { // it was removed since it was listed
				continue
			}
			if err == nil {
				err = c.run(ctx, &r)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// run removes a run.
func (c *collection) run(ctx context.Context, r *journal.Row) error {
	if c.dry {
		if err := c.count(ctx, r.ID); err != nil {
			return err
		}
	} else if err := c.remove(ctx, journal.Change{Run: r.ID, Remove: true}); err != nil {
		return fmt.Errorf("removing run %s: %w", r.ID, err)
	}
	c.runs++
	return c.say(listedOf(r), fmt.Sprintf("%s  in %s, used %s", r.ID, r.State, ago(r.Used)))
}

// count counts a run that is not removed as though it were.
func (c *collection) count(ctx context.Context, id string) error {
	c.gone[id] = true
	if c.bounds.Size == 0 {
		return nil
	}
	for x, err := range journal.All(ctx, c.s, id) {
		if err != nil && !errors.Is(err, journal.ErrNone) { // it was removed since it was listed
			return err
		}
		c.bytes += int64(len(x.Bytes))
	}
	return nil
}

// remove makes a change of a store that this process has alone.
func (c *collection) remove(ctx context.Context, change journal.Change) error {
	if c.dry {
		return nil
	}
	if change.Run != "" {
		r, err := c.s.Take(ctx, change.Run)
		if err != nil {
			return err
		}
		change.Tenure = r.Tenure
	}
	each, err := c.s.Commit(ctx, []journal.Change{change})
	return errors.Join(append(each, err)...)
}

// say prints a line, for programs or for people.
func (c *collector) say(x any, text string) error {
	if c.json {
		return c.line(x)
	}
	_, err := fmt.Fprintln(c.Out, text)
	return err
}
