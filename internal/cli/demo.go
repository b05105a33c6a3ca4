package cli

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fsm-proxy/fsm-proxy/internal/demo"
	"github.com/fsm-proxy/fsm-proxy/policies"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy"
)

func newDemo(c *console) *cobra.Command {
	var once bool
	f := &runFlags{}
	cmd := &cobra.Command{
		Use:   "demo [--once]",
		Short: "Serve and play the Crossroads walk on this machine",
		Args:  exactly(0, "[--once]"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.demo(cmd.Context(), c, once)
		},
	}
	f.register(pflag.NewFlagSet("run", pflag.ContinueOnError)) // for the defaults
	cmd.Flags().StringVar(&f.listen.address, "listen", "127.0.0.1:0", "the `ADDR` at which the proxy listens")
	cmd.Flags().BoolVar(&once, "once", false, "exit after the walk")
	f.log.registerLevel(cmd.Flags(), "warn")
	return cmd
}

// demo wraps the Crossroads server, which is this very binary, and plays a
// client to the proxy.
func (f *runFlags) demo(ctx context.Context, c *console, once bool) error {
	log, err := f.log.logger(c.err)
	if err != nil {
		return err
	}
	p, err := crossroadsPolicy()
	if err != nil {
		return err
	}
	f.command, f.annotate = []string{ownPath(), "crossroads"}, proxy.AnnotateMeta
	serving, cancel := context.WithCancel(ctx)
	defer cancel()
	played := make(chan error, 1)
	s := &service{flags: f, policy: p, log: log}
	err = s.overHTTP(serving, func(url string) {
		go func() {
			err := demo.Play(serving, url, demo.Options{Out: c.out, Colour: coloured(c.out)})
			played <- err
			if once || err != nil {
				cancel()
				return
			}
			fmt.Fprintf(c.out, demoHint, url, url)
		}()
	})
	if err != nil {
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
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && isTerminal(out)
}
