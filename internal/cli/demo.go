package cli

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fsm-proxy/fsm-proxy/internal/cli/arguments"
	"github.com/fsm-proxy/fsm-proxy/internal/config"
	"github.com/fsm-proxy/fsm-proxy/internal/crossroads"
	"github.com/fsm-proxy/fsm-proxy/internal/demo"
	"github.com/fsm-proxy/fsm-proxy/internal/host"
	"github.com/fsm-proxy/fsm-proxy/internal/service"
	"github.com/fsm-proxy/fsm-proxy/policies"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/surface"
)

func newDemo(c *console) *cobra.Command {
	var once bool
	f := &config.Run{}
	cmd := &cobra.Command{
		Use:   "demo [--once]",
		Short: "Serve and play the Crossroads walk on this machine",
		Args:  arguments.AsUsed,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := config.Check(cmd.Flags(), true); err != nil {
				return err
			}
			run := &config.Run{}
			config.Register(pflag.NewFlagSet("run", pflag.ContinueOnError), run, "") // for what is built in
			run.Listen.Address, run.LogLevel = f.Listen.Address, f.LogLevel
			return demonstrate(cmd.Context(), c, run, once)
		},
	}
	cmd.Flags().StringVar(&f.Listen.Address, "listen", "127.0.0.1:0", "the `ADDR` at which the proxy listens")
	cmd.Flags().BoolVar(&once, "once", false, "exit after the walk")
	config.Register(cmd.Flags(), f, "", "log-level")
	registerDefault(cmd.Flags(), "log-level", "warn")
	return cmd
}

// demonstrate wraps the Crossroads server, which is this very binary, and plays a
// client to the proxy.
func demonstrate(ctx context.Context, c *console, f *config.Run, once bool) (err error) {
	if f.Policy, err = crossroadsPolicy(); err != nil {
		return err
	}
	f.Log, f.Version = newLogger(f, c.err), c.version
	f.Server.Command, f.Annotate = []string{ownPath(), "crossroads"}, surface.AnnotateMeta
	serving, cancel := context.WithCancel(ctx)
	defer cancel()
	played := make(chan error, 1)
	f.Ready = func(url string) {
		go func() {
			err := demo.Play(serving, url, demo.Options{Out: c.out, Colour: coloured(c.out)})
			played <- err
			if once || err != nil {
				cancel()
				return
			}
			fmt.Fprintf(c.out, demoHint, url, url)
		}()
	}
	if err := service.Serve(serving, f.Config); err != nil {
		return err
	}
	if err := <-played; err != nil && (once || ctx.Err() == nil) {
		return fmt.Errorf("playing the walk: %w", err)
	}
	return nil
}

const demoHint = `The proxy stays up. Every session has a door of its own; try it:

  npx -y @modelcontextprotocol/inspector --cli %s --transport http --method tools/list
  claude mcp add --transport http crossroads %s

Ctrl-C ends it.
`

func crossroadsPolicy() (*policy.Policy, error) {
	const name = "crossroads.yaml"
	src, err := policies.Files.ReadFile(name)
	if err != nil {
		return nil, err
	}
	p, findings := policy.Parse(name, src)
	return p, findings.Err()
}

// coloured reports whether out is a terminal whose user has nothing against
// colours.
func coloured(out io.Writer) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && host.IsTerminal(out)
}

// newCrossroads is the server that `demo` wraps, as a process of its own. It is
// hidden: an example, not a part of the proxy.
func newCrossroads(c *console) *cobra.Command {
	var key string
	cmd := &cobra.Command{
		Use:    "crossroads",
		Short:  "Serve the demo's upstream over standard input and output",
		Hidden: true,
		Args:   arguments.AsUsed,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg := crossroads.Config{KeyID: key, Version: c.version}
			err := crossroads.Serve(cmd.Context(), cfg, c.in, c.out)
			if cmd.Context().Err() != nil {
				return nil
			}
			return err
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "the id of the key that fits (default: one that nobody can guess)")
	return cmd
}
