package cli

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/fsm-proxy/fsm-proxy/internal/admin"
	"github.com/fsm-proxy/fsm-proxy/internal/admin/client"
	"github.com/fsm-proxy/fsm-proxy/internal/cli/arguments"
	"github.com/fsm-proxy/fsm-proxy/internal/cli/kept"
	"github.com/fsm-proxy/fsm-proxy/internal/cli/verbs"
	"github.com/fsm-proxy/fsm-proxy/internal/exit"
	"github.com/fsm-proxy/fsm-proxy/internal/strictyaml"
)

// runsFlags are those of the commands that are about one run of a running proxy.
type runsFlags struct {
	adminFlags
	json bool
}

// newRuns is what operators do in runs.
func newRuns(c *console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "runs",
		Short: "Look at the runs of a running proxy, or of a store, and act on them",
		Args:  func(cmd *cobra.Command, args []string) error { return unknownSubcommand(cmd, args) },
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newRunsSignal(c))
	cmd.AddCommand(verbs.OfRuns(verbs.Console{Out: c.out, Add: addAdmin})...)
	cmd.AddCommand(kept.OfRuns(kept.Console{In: c.in, Out: c.out})...)
	return cmd
}

// unknownSubcommand refuses what is none of a command's.
func unknownSubcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, sub := range cmd.Commands() {
		names = append(names, sub.Name())
	}
	return exit.Usagef("%q is no command of %s; it has %s", args[0], cmd.CommandPath(), strictyaml.And(names))
}

func (f *runsFlags) add(cmd *cobra.Command) {
	f.adminFlags.add(cmd)
	cmd.Flags().BoolVar(&f.json, "json", false, "print the proxy's answer as it is")
}

// newRunsSignal has no limit of its own on how long it waits: the proxy's --turn-timeout is one.
func newRunsSignal(c *console) *cobra.Command {
	f := &runsFlags{}
	said := answerFlags{}
	cmd := &cobra.Command{
		Use:   "signal RUN NAME --admin ADDR|unix:PATH --admin-bearer-file FILE",
		Short: "Send a run a signal, as the operator whose token is in a file",
		Long: "Send a run a signal, as the operator whose token is in a file. It waits until the\n" +
			"call before it has ended. With --seq nothing is done where the run has moved since\n" +
			"it was looked at: 'fsm-proxy runs show' says the seq.",
		Example:           "  fsm-proxy runs signal 5c1f0e9b2a7d4486 approved --seq 7 --note 'plan 12 is fine' \\\n    --admin unix:/run/fsm-proxy/admin.sock --admin-bearer-file ~/.fsm-proxy-token",
		Args:              arguments.AsUsed,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			body, err := said.body(cmd)
			if err != nil {
				return err
			}
			path := "/v1/runs/" + url.PathEscape(args[0]) + "/signals/" + url.PathEscape(args[1])
			return f.tell(cmd.Context(), c.out, http.MethodPost, path, body, client.Words[admin.Signalled])
		},
	}
	f.add(cmd)
	said.add(cmd, "runs show")
	return cmd
}

// tell prints what the proxy answers, as it is or in words.
func (f *runsFlags) tell(ctx context.Context, out io.Writer, method, path, body string, words func(said []byte) (string, error)) error {
	said, err := f.Read(ctx, method, path, body)
	text := string(said)
	if err == nil && !f.json {
		text, err = words(said)
	}
	if err == nil || f.json {
		_, wrong := io.WriteString(out, text)
		err = cmp.Or(err, wrong)
	}
	return err
}
