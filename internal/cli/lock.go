package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fsm-proxy/fsm-proxy/internal/config"
	"github.com/fsm-proxy/fsm-proxy/internal/exit"
	"github.com/fsm-proxy/fsm-proxy/internal/inventory"
	"github.com/fsm-proxy/fsm-proxy/internal/lock"
	"github.com/fsm-proxy/fsm-proxy/internal/policyfile"
	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// lockFlags are the flags of lock.
type lockFlags struct {
	serverFlags
	check bool
}

func newLock(c *console) *cobra.Command {
	f := &lockFlags{}
	cmd := &cobra.Command{
		Use:   "lock FILE|FOLDER [flags] (--upstream URL | -- COMMAND ARG...)",
		Short: "Write down what the tools that a policy binds are, so that a change is noticed",
		Example: "  fsm-proxy lock files.yaml -- npx -y @modelcontextprotocol/server-filesystem /srv\n" +
			"  fsm-proxy lock --check remote.yaml --upstream https://example.com/mcp",
		ValidArgsFunction: policiesThenCommand(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			front, err := f.take(c, cmd, args)
			switch {
			case err != nil:
				return err
			case len(front) != 1:
				return exit.Usagef("lock takes one policy, or a folder of them, got %d; usage: fsm-proxy lock FILE (--upstream URL | -- COMMAND ARG...)", len(front))
			}
			if err := f.need(nil); err != nil {
				return err
			}
			return f.run(cmd.Context(), c, front[0])
		},
	}
	cmd.Flags().SortFlags = false
	config.Register(cmd.Flags(), &f.Run, "", "lock")
	cmd.Flags().BoolVar(&f.check, "check", false, "write nothing, and exit with 1 if something has changed")
	f.register(cmd.Flags(), "The server")
	cmd.SetUsageFunc(groupedUsage)
	return cmd
}

func (f *lockFlags) run(ctx context.Context, c *console, path string) error {
	files, err := policyfile.Files(path)
	if err != nil {
		return err
	}
	if f.LockFile != "" && len(files) > 1 {
		return exit.Usagef("--lock names the lock of one policy, and %s holds %d; name one of them: %s", path, len(files), files[0])
	}
	policies := make([]*policy.Policy, len(files))
	befores := make([]*lock.Lock, len(files))
	for i, file := range files {
		if policies[i], _, _, err = policyfile.Open(file); err != nil {
			return err
		}
		if befores[i], err = f.before(c, policyfile.LockPath(f.LockFile, policies[i].File())); err != nil {
			return err
		}
	}
	inv, err := f.takeInventory(ctx, c, newStatusLine(c.err))
	if err != nil {
		return err
	}
	var changed error
	for i, p := range policies {
		if err := f.lock(c, p, befores[i], inv); errors.Is(err, exit.ErrReported) {
			changed = err
		} else if err != nil {
			return err
		}
	}
	return changed
}

// lock locks one policy, and says what has changed.
func (f *lockFlags) lock(c *console, p *policy.Policy, before *lock.Lock, inv *inventory.Inventory) error {
	path := policyfile.LockPath(f.LockFile, p.File())
	next, err := lock.Take(p, lock.Upstream{Name: inv.Server, Version: inv.Version}, inv.Tools)
	if err != nil {
		return err
	}
	if _, err := c.out.Write([]byte(lockReport(path, before, next))); err != nil {
		return err
	}
	if _, err := c.err.Write([]byte(lockNotes(p, inv.Tools))); err != nil {
		return err
	}
	return f.finish(path, p, before, next)
}

// before reads the lock that there is, nil for none. One that cannot be read is
// written anew.
func (f *lockFlags) before(c *console, path string) (*lock.Lock, error) {
	before, _, err := policyfile.ReadLock(path)
	switch {
	case err == nil || errors.Is(err, fs.ErrNotExist):
		return before, nil
	case f.check:
		return nil, err
	}
	_, err = fmt.Fprintf(c.err, "fsm-proxy: %v\nfsm-proxy: it is written anew\n", err)
	return nil, err
}

// finish writes the lock, if it says something else than the file, or says that it
// would.
func (f *lockFlags) finish(path string, p *policy.Policy, before, next *lock.Lock) error {
	if f.check {
		if before.Same(next) {
			return nil
		}
		return exit.ErrReported
	}
	text, err := next.Format(filepath.Base(p.File()))
	if err != nil {
		return err
	}
	if _, file, err := policyfile.ReadLock(path); err == nil && bytes.Equal(file.Content, text) {
		return nil
	}
	return policyfile.WriteLock(path, text)
}

// lockReport says what has changed, a line for each tool.
func lockReport(path string, before, next *lock.Lock) string {
	var b strings.Builder
	server := strictyaml.Comment(strings.TrimSpace(next.Upstream.Name + " " + next.Upstream.Version))
	what := "changed"
	switch {
	case before == nil:
		what = "new"
	case before.Same(next):
		what = "unchanged"
	}
	fmt.Fprintf(&b, "%s: %s, %s of %s\n", path, what, count(len(next.Tools), "tool"), server)
	for _, d := range before.Differences(next) {
		if before != nil {
			b.WriteString(differenceLine(d))
		}
	}
	return b.String()
}

func differenceLine(d lock.Difference) string {
	name := strictyaml.Comment(d.Tool)
	switch {
	case d.Changes != nil:
		return fmt.Sprintf("  ~ %s: its %s changed\n", name, d.Changes)
	case d.Added && len(d.Globs) > 0:
		return fmt.Sprintf("  + %s: bound by %s\n", name, strings.Join(d.Globs, ", "))
	case d.Added:
		return fmt.Sprintf("  + %s\n", name)
	}
	return fmt.Sprintf("  - %s: not listed, or not bound, any more\n", name)
}

// lockNotes says what a lock cannot do something about.
func lockNotes(p *policy.Policy, tools *wire.List) string {
	var b strings.Builder
	for _, name := range p.Exact(policy.Tool) {
		if !tools.Has(name) {
			fmt.Fprintf(&b, "fsm-proxy: the server lists no tool %s: with 'pin: refuse' it is refused until it does, and is locked\n", strictyaml.Quote(name))
		}
	}
	if p.Pin() == policy.PinOff {
		b.WriteString("fsm-proxy: the policy has no pin, so nothing is compared with the lock: write 'pin: warn' or 'pin: refuse' into it\n")
	}
	return b.String()
}
