package cli

import (
	"github.com/spf13/cobra"

	"github.com/fsm-proxy/fsm-proxy/internal/crossroads"
)

// newCrossroads is the server that `demo` wraps, as a process of its own. It is
// hidden: an example, not a part of the proxy.
func newCrossroads(c *console) *cobra.Command {
	var key string
	cmd := &cobra.Command{
		Use:    "crossroads",
		Short:  "Serve the demo's upstream over standard input and output",
		Hidden: true,
		Args:   exactly(0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg := crossroads.Config{KeyID: key, Version: versionText()}
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
