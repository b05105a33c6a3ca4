// Package cli is the command line of fsm-proxy: its commands and flags, and what
// they print.
package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fsm-proxy/fsm-proxy/internal/cli/arguments"
	"github.com/fsm-proxy/fsm-proxy/internal/cli/kept"
	"github.com/fsm-proxy/fsm-proxy/internal/exit"
)

// Main executes a command line and returns its exit code. ctx ends with the
// process's first SIGINT, SIGTERM or SIGHUP. stamped is the version of a release
// build, "" of any other.
func Main(ctx context.Context, stamped string, args []string) int {
	c := &console{args: args, version: versionOf(stamped), in: os.Stdin, out: os.Stdout, err: os.Stderr}
	return c.execute(ctx)
}

// console is what a command was given, and where it reads and writes.
type console struct {
	args     []string // the command line, without the program
	version  string
	in       io.Reader
	out, err io.Writer
}

func (c *console) execute(ctx context.Context) int {
	root := newRoot(c)
	root.SetArgs(c.args)
	return exit.Report(c.err, root.ExecuteContext(ctx))
}

// newRoot is the command tree.
func newRoot(c *console) *cobra.Command {
	root := &cobra.Command{
		Use:   "fsm-proxy",
		Short: "A state machine in front of any MCP server",
		Long: "fsm-proxy stands between an MCP client and an unmodified MCP server, and lets a\n" +
			"policy file decide which tools, resources and prompts may be used right now,\n" +
			"and where each result leads.\n\n" +
			"Every flag can also be given as an environment variable: --call-timeout as\n" +
			"FSM_PROXY_CALL_TIMEOUT. The flag wins.\n\n" +
			"Exit codes: 0 all went well, 1 a policy, a configuration or the run failed,\n" +
			"2 the command line was wrong.",
		Version:       c.version,
		SilenceErrors: true,
		SilenceUsage:  true,

		Args: func(cmd *cobra.Command, args []string) error { return unknownCommand(cmd, args) },
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if strings.HasPrefix(cmd.Name(), cobra.ShellCompRequestCmd) {
				return nil // a shell asks what completes the line
			}
			if err := checkEnvironment(cmd.Root(), os.Environ()); err != nil {
				return err
			}
			return bindEnvironment(cmd, nil)
		},
	}
	root.SetIn(c.in)
	root.SetOut(c.out)
	root.SetErr(c.err)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return advised(cmd, err, c.args)
	})
	root.SetHelpCommand(newHelp())
	root.SetVersionTemplate(c.versionLine())
	root.AddCommand(newRun(c), newCheck(c), newRender(c), newTest(c), newExplain(c), newInit(c), newLock(c), newDemo(c), newSchema(c), newDrain(c), newAdmin(c), newRuns(c), newApprovals(c), newCompletion(c), newMan(), newVersion(c), newCrossroads(c))
	root.AddCommand(kept.OfStore(kept.Console{In: c.in, Out: c.out})...)
	complete(root)
	return root
}

func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := "see 'fsm-proxy --help'"
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = fmt.Sprintf("did you mean '%s'?", strings.Join(near, "' or '"))
	}
	return exit.Usagef("unknown command %q; %s", args[0], hint)
}

// newHelp is cobra's help command, except that an unknown command is an error.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Print the help of a command",
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var names []string
			for _, sub := range cmd.Root().Commands() {
				if sub.IsAvailableCommand() && len(args) == 0 {
					names = append(names, cobra.CompletionWithDesc(sub.Name(), sub.Short))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		PersistentPreRun: func(*cobra.Command, []string) {},
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return unknownCommand(cmd.Root(), args)
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}

func newVersion(c *console) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  arguments.AsUsed,
		RunE: func(*cobra.Command, []string) error {
			_, err := io.WriteString(c.out, c.versionLine())
			return err
		},
	}
}

// versionLine is what version and --version print.
func (c *console) versionLine() string {
	return fmt.Sprintf("fsm-proxy %s %s %s/%s\n", c.version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// versionOf is the stamped version, else the module's, else the revision that
// was built.
func versionOf(stamped string) string {
	if stamped != "" {
		return stamped
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return "devel-" + s.Value[:min(12, len(s.Value))]
		}
	}
	return "devel"
}
