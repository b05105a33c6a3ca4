package cli

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/fsm-proxy/fsm-proxy/internal/cli/screen"
	"github.com/fsm-proxy/fsm-proxy/internal/exit"
	"github.com/fsm-proxy/fsm-proxy/internal/explain"
	"github.com/fsm-proxy/fsm-proxy/internal/policyfile"
)

// explainFlags are the flags of explain.
type explainFlags struct {
	explain.Asked
	format string
	color  colorFlag
}

const explainUsage = "FILE NAME [ARGUMENTS] [--state STATE] [--registers JSON] [--who JSON] [--now TIME]"

func newExplain(c *console) *cobra.Command {
	f := &explainFlags{}
	cmd := &cobra.Command{
		Use:   "explain FILE NAME [ARGUMENTS]",
		Short: "Say what a policy does with one call, and by which of its lines",
		Long: "Say what a policy does with one call, without a server: the verdict, and every rule\n" +
			"that led to it, with its line. ARGUMENTS is a JSON object. Nothing was called\n" +
			"before: limits are told, and not counted.",
		Example: "  fsm-proxy explain files.yaml --state review edit_file '{\"path\": \"a.go\"}'\n" +
			"  fsm-proxy explain files.yaml --state review --registers '{\"reads\": [\"a.go\"]}' edit_file '{\"path\": \"a.go\"}'\n" +
			"  fsm-proxy explain deploy.yaml --state planned --from operator approved",
		ValidArgsFunction: policyThenName,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 || len(args) > 3 {
				return exit.Usagef("explain takes a policy, a name and perhaps its arguments, got %s; usage: fsm-proxy explain %s", count(len(args), "argument"), explainUsage)
			}
			return f.run(c, args[0], args[1], append(args, "")[2])
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.State, "state", "", "the `STATE` in which the call comes; the initial one if it is left out")
	flags.StringVar(&f.Kind, "kind", "", "the `KIND` of the name: tool, resource, prompt or signal; the first that the policy binds if it is left out")
	flags.StringVar(&f.From, "from", "", "the `SENDER` of a signal: agent (which it is if it is left out) or operator")
	flags.StringVar(&f.Registers, "registers", "", "the run's registers, a `JSON` object; what is not in it is as it begins")
	flags.StringVar(&f.Who, "who", "", "who asks, a `JSON` object with subject, issuer, scopes and claims; nobody is known if it is left out")
	flags.StringVar(&f.Now, "now", "", "the `TIME` of the call, such as 2025-01-31T12:00:00Z; this moment if it is left out")
	flags.StringVar(&f.format, "format", "text", "the `FORMAT` to print in: text or json")
	f.color.register(flags)
	return cmd
}

func (f *explainFlags) run(c *console, path, name, arguments string) error {
	if f.format != "text" && f.format != "json" {
		return exit.Usagef("--format %q is none of text, json", f.format)
	}
	s, err := f.color.page(c.out)
	if err != nil {
		return err
	}
	files, err := policyfile.Files(path)
	switch {
	case err != nil:
		return err
	case len(files) != 1:
		return exit.Usagef("%s holds %d policies; name one of them", path, len(files))
	}
	p, _, err := policyfile.Load(files[0])
	if err != nil {
		return err
	}
	q, err := f.Question(p, name, arguments)
	if err != nil {
		return exit.Usagef("%v", err)
	}
	x, err := explain.Explain(p, q)
	switch {
	case err != nil:
		return exit.Usagef("explaining %s: %v", name, err)
	case f.format == "json":
		return writeIndented(c.out, x)
	}
	looks := [...]screen.Style{explain.Good: screen.Green, explain.Bad: screen.Red, explain.Quiet: screen.Faint}
	_, err = io.WriteString(s.Out, x.Text(func(look explain.Look, text string) string {
		if look == explain.Plain {
			return text
		}
		return s.Paint(looks[look], text)
	}))
	return err
}
