package cli

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

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
		Version:       versionText(),
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
	root.SetVersionTemplate(versionLine())
	root.AddCommand(newRun(c), newCheck(c), newRender(c), newInit(c), newLock(c), newDemo(c), newSchema(c), newDrain(c), newAdmin(c), newCompletion(c), newMan(), newVersion(c), newCrossroads(c))
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
	return usagef("unknown command %q; %s", args[0], hint)
}

// exactly is cobra's ExactArgs with an error that says what to do.
func exactly(n int, usage string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return usagef("%s takes %s, got %d; usage: %s", cmd.Name(), count(n, "argument"), len(args), strings.TrimSpace(cmd.CommandPath()+" "+usage))
		}
		return nil
	}
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
