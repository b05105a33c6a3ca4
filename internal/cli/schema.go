package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/fsm-proxy/fsm-proxy/internal/config"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

func newSchema(c *console) *cobra.Command {
	return &cobra.Command{
		Use:               "schema [policy|config]",
		Short:             "Print the JSON Schema of policy files, or of the configuration file",
		ValidArgsFunction: firstOf("policy", "config"),
		RunE: func(_ *cobra.Command, args []string) error {
			schema := policy.Schema
			switch strings.Join(args, " ") {
			case "", "policy":
			case "config":
				schema = config.Schema
			default:
				return usagef("no schema of %q; it is 'fsm-proxy schema policy' or 'fsm-proxy schema config'", strings.Join(args, " "))
			}
			_, err := c.out.Write(schema())
			return err
		},
	}
}
