package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fsm-proxy/fsm-proxy/policy"
)

func newSchema(c *console) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of policy files",
		Args:  exactly(0, ""),
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(c.out, "%s\n", policy.Schema())
			return err
		},
	}
}
