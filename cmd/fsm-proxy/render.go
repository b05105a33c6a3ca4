package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fsm-proxy/fsm-proxy/policy"
)

const renderFormats = "text|mermaid|dot|json"

func newRender(c *console) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "render FILE",
		Short: "Draw a policy: " + renderFormats,
		Args:  exactly(1, "FILE [--format "+renderFormats+"]"),
		RunE: func(_ *cobra.Command, args []string) error {
			draw := drawing(format)
			if draw == nil {
				return usagef("--format %q is none of %s", format, renderFormats)
			}
			p, _, err := loadPolicy(args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(c.out, strings.TrimRight(draw(p), "\n"))
			return err
		},
	}
	cmd.Flags().StringVar(&format, "format", "text", "the `FORMAT` to draw in: "+renderFormats)
	return cmd
}

// drawing is what draws in a format, nil for one that there is not.
func drawing(format string) func(*policy.Policy) string {
	switch format {
	case "text":
		return (*policy.Policy).Text
	case "mermaid":
		return (*policy.Policy).Mermaid
	case "dot":
		return (*policy.Policy).DOT
	case "json":
		return func(p *policy.Policy) string { return string(p.JSON()) }
	}
	return nil
}
