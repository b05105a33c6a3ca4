package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/fsm-proxy/fsm-proxy/policy"
)

// initFlags are the flags of init.
type initFlags struct {
	target
	log    logFlags
	output string
	force  bool
}

func newInit(c *console) *cobra.Command {
	f := &initFlags{}
	cmd := &cobra.Command{
		Use:   "init [flags] (--upstream URL | -- COMMAND ARG...)",
		Short: "Draft a policy from what a live server lists",
		Example: "  fsm-proxy init -o files.yaml -- npx -y @modelcontextprotocol/server-filesystem /srv\n" +
			"  fsm-proxy init -o remote.yaml --upstream https://example.com/mcp",
		ValidArgsFunction: policiesThenCommand(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			front, err := f.take(c, cmd, args)
			if err == nil {
				err = f.need(front)
			}
			if err != nil {
				return err
			}
			return f.run(cmd.Context(), c)
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().StringVarP(&f.output, "output", "o", "", "the `FILE` to write (default: standard output)")
	cmd.Flags().BoolVar(&f.force, "force", false, "overwrite the file of -o")
	f.log.register(cmd.Flags(), "warn")
	group(cmd.Flags(), "The server", f.register)
	cmd.SetUsageFunc(groupedUsage)
	return cmd
}

func (f *initFlags) run(ctx context.Context, c *console) error {
	if err := f.free(); err != nil {
		return err
	}
	line := newStatusLine(c.err)
	log, err := f.log.logger(line)
	if err != nil {
		return err
	}
	inv, err := takeInventory(ctx, &f.target, log, line)
	if err != nil {
		return err
	}
	if inv.server == "" {
		inv.server = "mcp-server"
	}
	d := newDraft(inv)
	text := starter(inv, d)
	if _, findings := policy.Parse("the starter policy", []byte(text)); findings.Err() != nil {
		return fmt.Errorf("the server lists what a policy cannot name: %w", findings.Err())
	}
	if err := f.write(c.out, text); err != nil {
		return err
	}
	_, err = io.WriteString(c.err, nextSteps(f, inv, d))
	return err
}

// free reports a file that exists, or a folder that does not, before the server
// is started for nothing.
func (f *initFlags) free() error {
	if f.output == "" {
		return nil
	}
	if _, err := os.Stat(filepath.Dir(f.output)); err != nil {
		return fmt.Errorf("writing %s: %w; make the folder, or choose another -o", absolute(f.output), cause(err))
	}
	if f.force {
		return nil
	}
	if _, err := os.Lstat(f.output); err == nil {
		return fmt.Errorf("writing %s: it exists; choose another -o, or overwrite it with --force", absolute(f.output))
	}
	return nil
}

func (f *initFlags) write(stdout io.Writer, text string) error {
	if f.output == "" {
		_, err := io.WriteString(stdout, text)
		return err
	}
	flags := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if f.force {
		flags = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	}
	file, err := os.OpenFile(f.output, flags, 0o644)
	if err == nil {
		_, err = io.WriteString(file, text)
		err = errors.Join(err, file.Close())
	}
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("writing %s: it exists; choose another -o, or overwrite it with --force", absolute(f.output))
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w; choose another -o", absolute(f.output), cause(err))
	}
	return nil
}

// absolute is the path as it can be given anywhere; itself where that cannot be
// found out.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}
