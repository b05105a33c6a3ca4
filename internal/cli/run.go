package cli

import (
	"context"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fsm-proxy/fsm-proxy/internal/config"
	"github.com/fsm-proxy/fsm-proxy/internal/exit"
	"github.com/fsm-proxy/fsm-proxy/internal/service"
)

// runFlags are the flags of run.
type runFlags struct {
	serverFlags
	configPath string
	file       *configFile // nil where there is none
}

func newRun(c *console) *cobra.Command {
	f := &runFlags{}
	cmd := &cobra.Command{
		Use:   "run (--policy FILE | --config FILE) [flags] [--upstream URL | -- COMMAND ARG...]",
		Short: "Wrap a server: over standard input and output, or at an address with --listen",
		Example: "  fsm-proxy run --policy files.yaml -- npx -y @modelcontextprotocol/server-filesystem /srv\n" +
			"  fsm-proxy run --policy files.yaml --listen 127.0.0.1:8080 --upstream https://example.com/mcp\n" +
			"  fsm-proxy run --config fsm-proxy.yaml",
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkEnvironment(cmd.Root(), os.Environ()); err != nil {
				return err
			}
			return f.bind(cmd)
		},
		ValidArgsFunction: policiesThenCommand(0),
		RunE: func(cmd *cobra.Command, args []string) error {
			front, err := f.take(c, cmd, args)
			if err == nil {
				err = f.check(front)
			}
			if err == nil {
				err = f.run(cmd.Context(), c)
			}
			return f.file.locate(err)
		},
	}
	f.register(cmd.Flags())
	cmd.SetUsageFunc(groupedUsage)
	return cmd
}

func (f *runFlags) register(flags *pflag.FlagSet) {
	flags.SortFlags = false
	config.Register(flags, &f.Run, "")
	flags.StringVar(&f.configPath, "config", "", "a configuration `FILE` for what is not said here or in the environment")
}

func (f *runFlags) check(front []string) error {
	if f.PolicyFile == "" && len(front) == 1 {
		return exit.Usagef("unexpected argument %q; if it is the policy, write '--policy %s'", front[0], front[0])
	}
	if err := f.need(front); err != nil {
		return err
	}
	if f.PolicyFile == "" {
		return exit.Usagef("no policy to enforce; give --policy FILE, or have one written by 'fsm-proxy init'")
	}
	return f.Run.Check()
}

// run serves until the client or ctx ends.
func (f *runFlags) run(ctx context.Context, c *console) error {
	lines := newLogWriter(c.err, f.LogFormat == "json")
	defer lines.Close()
	f.Log, f.Version = newLogger(&f.Run, lines), c.version
	f.In, f.Out, f.Err = c.in, c.out, c.err
	f.Configuration = f.file.followed(f.Log)
	return service.Serve(ctx, f.Config)
}
