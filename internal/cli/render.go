package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fsm-proxy/fsm-proxy/internal/cli/arguments"
	"github.com/fsm-proxy/fsm-proxy/internal/config"
	"github.com/fsm-proxy/fsm-proxy/internal/exit"
	"github.com/fsm-proxy/fsm-proxy/internal/play"
	"github.com/fsm-proxy/fsm-proxy/internal/policyfile"
	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/report"
)

const renderFormats = "text|mermaid|dot|json"

func newRender(c *console) *cobra.Command {
	var format string
	var only []string
	cmd := &cobra.Command{
		Use:   "render FILE|FOLDER",
		Short: "Draw a policy: " + renderFormats,
		Example: "  fsm-proxy render files.yaml\n" +
			"  fsm-proxy render files.yaml --state review\n" +
			"  fsm-proxy render files.yaml --format mermaid",
		Args:              arguments.AsUsed,
		ValidArgsFunction: policiesThenCommand(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return render(c, args[0], format, only)
		},
	}
	cmd.Flags().StringVar(&format, "format", "text", "the `FORMAT` to draw in: "+renderFormats)
	cmd.Flags().StringArrayVar(&only, "state", nil, "draw this `STATE` only, as text; may be repeated")
	return cmd
}

// render draws the policies that path stands for; only are the states to draw, all if it
// is empty.
func render(c *console, path, format string, only []string) error {
	draw := drawing(format)
	if draw == nil {
		return exit.Usagef("--format %q is none of %s", format, renderFormats)
	}
	if len(only) > 0 && format != "text" {
		return exit.Usagef("--state is for --format text; leave one of them out")
	}
	files, err := policyfile.Files(path)
	if err != nil {
		return err
	}
	if len(files) > 1 && (format != "text" || len(only) > 0) {
		return exit.Usagef("%s holds %d policies, which only --format text without --state draws together; name one of them: %s", path, len(files), files[0])
	}
	for i, file := range files {
		p, _, err := policyfile.Load(file)
		if err != nil {
			return err
		}
		if len(only) > 0 {
			states, err := statesOf(p, only)
			if err != nil {
				return err
			}
			draw = func(p *policy.Policy) string { return report.TextOf(p, states...) }
		}
		if i > 0 {
			fmt.Fprintln(c.out)
		}
		if _, err := fmt.Fprintln(c.out, strings.TrimRight(draw(p), "\n")); err != nil {
			return err
		}
	}
	return nil
}

// statesOf are the states of these names.
func statesOf(p *policy.Policy, names []string) ([]policy.State, error) {
	var states []policy.State
	for _, name := range names {
		s, ok := p.StateByName(name)
		if !ok {
			var known []string
			for _, info := range p.States() {
				known = append(known, info.Name)
			}
			return nil, exit.Usagef("--state %q is no state of the policy; the states are %s", name, strictyaml.Listed(known))
		}
		if !slices.Contains(states, s) {
			states = append(states, s)
		}
	}
	return states, nil
}

// drawing is what draws in a format, nil for one that there is not.
func drawing(format string) func(*policy.Policy) string {
	switch format {
	case "text":
		return report.Text
	case "mermaid":
		return report.Mermaid
	case "dot":
		return report.DOT
	case "json":
		return func(p *policy.Policy) string { return string(report.JSON(p)) }
	}
	return nil
}

func newSchema(c *console) *cobra.Command {
	return &cobra.Command{
		Use:               "schema [policy|test|config]",
		Short:             "Print the JSON Schema of policy files, of their tests, or of the configuration file",
		ValidArgsFunction: firstOf("policy", "test", "config"),
		RunE: func(_ *cobra.Command, args []string) error {
			schema := policy.Schema
			switch strings.Join(args, " ") {
			case "", "policy":
			case "test":
				schema = play.Schema
			case "config":
				schema = config.Schema
			default:
				return exit.Usagef("no schema of %q; it is 'fsm-proxy schema policy', 'fsm-proxy schema test' or 'fsm-proxy schema config'", strings.Join(args, " "))
			}
			_, err := c.out.Write(schema())
			return err
		},
	}
}
