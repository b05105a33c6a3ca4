package kept

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fsm-proxy/fsm-proxy/internal/days"
	"github.com/fsm-proxy/fsm-proxy/internal/exit"
	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/stores"
	"github.com/fsm-proxy/fsm-proxy/proxy/durable"
)

func newCollect(console Console) *cobra.Command {
	c := &collector{command: &command{Console: console}}
	var completed, idle time.Duration
	cmd := c.flags(&cobra.Command{
		Use:   "gc --store STORE",
		Short: "Remove runs of a store that no proxy has, which have ended or are used no more",
		Long: "Remove whole runs of a store that no proxy has: those that ended, or were used last, longer ago\n" +
			"than is said; and then the policies that no run names any more. With --dry-run it says which that\n" +
			"would be, also while a proxy has the store. A running proxy removes runs by itself\n" +
			"(--keep-completed, --keep-idle), and no policies.",
		Example: "  fsm-proxy runs gc --dry-run --keep-completed 30d --store sqlite:runs.db",
		Args:    atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if completed < 0 || idle < 0 || completed == 0 && idle == 0 {
				return exit.Usagef("gc removes nothing without --keep-completed or --keep-idle: give one")
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
	cmd.Flags().BoolVar(&c.dry, "dry-run", false, "say what would be removed, and remove nothing")
	c.lines(cmd)
	return cmd
}

// collector removes runs of stores, and the policies that none names any more, or says which it would.
type collector struct {
	*command
	queries        []journal.Query // for the runs
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
		return one.read(ctx, func(s journal.Reader) error { return c.each(ctx, s, func(journal.Change) error { return nil }) })
	}
	return c.write(ctx, stores.Config{URL: url, Holder: "removes runs", Existing: true}, func(s journal.Store) error {
		return c.each(ctx, s, func(change journal.Change) error { return remove(ctx, s, change) })
	})
}

// each has what is to go removed from a store, and prints it.
func (c *collector) each(ctx context.Context, s journal.Reader, remove func(journal.Change) error) error {
	gone := map[string]bool{}
	for _, q := range c.queries {
		for r, err := range journal.Rows(ctx, s, q) {
			if err == nil {
				err = remove(journal.Change{Run: r.ID, Remove: true})
			}
			if err != nil {
				return err
			}
			c.runs++
			gone[r.ID] = true
			if err := c.say(listedOf(&r), fmt.Sprintf("%s  in %s, used %s", r.ID, r.State, ago(r.Used))); err != nil {
				return err
			}
		}
	}
	policies, err := durable.Unnamed(ctx, s, gone)
	for _, p := range policies {
		if err := remove(journal.Change{Objects: []journal.Object{{Kind: p.Kind, Name: p.Name}}}); err != nil {
			return err
		}
		c.policies++
		if err := c.say(unnamed{p.Name}, "policy "+p.Name+"  named by no run"); err != nil {
			return err
		}
	}
	return err
}

// say prints a line, for programs or for people.
func (c *collector) say(x any, text string) error {
	if c.json {
		return c.line(x)
	}
	_, err := fmt.Fprintln(c.Out, text)
	return err
}

// remove makes a change of a store that this process has alone.
func remove(ctx context.Context, s journal.Store, c journal.Change) error {
	if c.Run != "" {
		if _, err := s.Take(ctx, c.Run); err != nil {
			return err
		}
	}
	each, err := s.Commit(ctx, []journal.Change{c})
	if err = errors.Join(append(each, err)...); err != nil && c.Run != "" {
		return fmt.Errorf("removing run %s: %w", c.Run, err)
	} else if err != nil {
		return fmt.Errorf("removing policy %s: %w", c.Objects[0].Name, err)
	}
	return nil
}
