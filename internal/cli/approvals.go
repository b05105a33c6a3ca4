package cli

import (
	"context"
	"encoding/json/v2"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/fsm-proxy/fsm-proxy/internal/admin"
	"github.com/fsm-proxy/fsm-proxy/internal/admin/client"
	"github.com/fsm-proxy/fsm-proxy/internal/cli/arguments"
	"github.com/fsm-proxy/fsm-proxy/internal/exit"
)

// newApprovals is what operators say of calls that wait for them.
func newApprovals(c *console) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "approvals",
		Short: "Look at the calls that wait for an approval, and answer them",
		Args:  func(cmd *cobra.Command, args []string) error { return unknownSubcommand(cmd, args) },
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	const at, as = " --admin ADDR|unix:PATH", " --admin-bearer-file FILE"
	cmd.AddCommand(
		newApproval(c, "ls"+at, "List the calls that wait for an approval", http.MethodGet, "?limit=1000", client.Words[client.Approvals]),
		newApproval(c, "show ID"+at, "Show a call that waits for an approval, with its arguments, whole", http.MethodGet, "", client.Words[admin.Approval]),
		newApproval(c, "allow ID"+at+as, "Allow a call to go, once, as the operator whose token is in a file", http.MethodPost, "/allow", client.Words[admin.Approved]),
		newApproval(c, "deny ID"+at+as, "Refuse a call, as the operator whose token is in a file", http.MethodPost, "/deny", client.Words[admin.Approved]))
	return cmd
}

// newApproval is a command that asks for, or answers, what behind says of /v1/approvals or one of them.
func newApproval(c *console, usage, short, method, behind string, words func([]byte) (string, error)) *cobra.Command {
	f, said := &runsFlags{}, answerFlags{}
	cmd := &cobra.Command{Use: usage, Short: short, Args: arguments.AsUsed, ValidArgsFunction: cobra.NoFileCompletions}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		path, body := "/v1/approvals", ""
		if len(args) > 0 {
			path += "/" + url.PathEscape(args[0])
		}
		if method == http.MethodPost {
			var err error
			if body, err = said.body(cmd); err != nil {
				return err
			}
		}
		ctx, stop := context.WithTimeout(cmd.Context(), adminTime)
		defer stop()
		return f.tell(ctx, c.out, method, path+behind, body, words)
	}
	f.add(cmd)
	if method == http.MethodPost {
		said.add(cmd, "approvals show")
	}
	return cmd
}

// answerFlags are what comes with what an operator says.
type answerFlags struct {
	note string
	seq  uint64
}

func (f *answerFlags) add(cmd *cobra.Command, says string) {
	cmd.Flags().StringVar(&f.note, "note", "", "a `TEXT` for the record: why")
	cmd.Flags().Uint64Var(&f.seq, "seq", 0, "do nothing if the run has moved since this `NUMBER`, which '"+says+"' says")
}

func (f *answerFlags) body(cmd *cobra.Command) (string, error) {
	said := map[string]any{}
	if f.note != "" {
		said["note"] = f.note
	}
	if cmd.Flags().Changed("seq") {
		said["seq"] = f.seq
	}
	body, err := json.Marshal(said)
	if err != nil {
		return "", exit.Usagef("--note is no text: %w", err)
	}
	return string(body), nil
}
