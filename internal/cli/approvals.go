package cli

import (
	"context"
	"encoding/json/v2"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/fsm-proxy/fsm-proxy/internal/admin"
	"github.com/fsm-proxy/fsm-proxy/internal/admin/client"
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
	cmd.AddCommand(newApprovalsList(c), newApprovalsShow(c), newApprovalsAnswer(c, "allow", "Allow one call to go"), newApprovalsAnswer(c, "deny", "Refuse a call"))
	return cmd
}

const listUsage = "--admin ADDR|unix:PATH"

func newApprovalsList(c *console) *cobra.Command {
	f := &runsFlags{}
	cmd := &cobra.Command{
		Use:               "ls " + listUsage,
		Short:             "List the calls that wait for an approval",
		Example:           "  fsm-proxy approvals ls --admin unix:/run/fsm-proxy/admin.sock",
		Args:              exactly(0, listUsage),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := context.WithTimeout(cmd.Context(), adminTime)
			defer stop()
			return f.tell(ctx, c.out, http.MethodGet, "/v1/approvals?limit=1000", "", client.Words[client.Approvals])
		},
	}
	f.add(cmd)
	return cmd
}

const approvalUsage = "ID --admin ADDR|unix:PATH"

func newApprovalsShow(c *console) *cobra.Command {
	f := &runsFlags{}
	cmd := &cobra.Command{
		Use:               "show " + approvalUsage,
		Short:             "Show a call that waits for an approval, with its arguments, whole",
		Example:           "  fsm-proxy approvals show XKVJ2M4QGZ7W3ACN5TRB6YHD2E --admin unix:/run/fsm-proxy/admin.sock",
		Args:              exactly(1, approvalUsage),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := context.WithTimeout(cmd.Context(), adminTime)
			defer stop()
			return f.tell(ctx, c.out, http.MethodGet, "/v1/approvals/"+url.PathEscape(args[0]), "", client.Words[admin.Approval])
		},
	}
	f.add(cmd)
	return cmd
}

func newApprovalsAnswer(c *console, answer, short string) *cobra.Command {
	f, said := &runsFlags{}, answerFlags{}
	usage := approvalUsage + " --admin-bearer-file FILE"
	cmd := &cobra.Command{
		Use:   answer + " " + usage,
		Short: short + ", as the operator whose token is in a file",
		Long: short + ", as the operator whose token is in a file. With --seq nothing is\n" +
			"done where the run has moved since it was looked at: 'fsm-proxy approvals show' says the seq.",
		Example: "  fsm-proxy approvals " + answer + " XKVJ2M4QGZ7W3ACN5TRB6YHD2E --seq 7 --note 'as agreed' \\\n" +
			"    --admin unix:/run/fsm-proxy/admin.sock --admin-bearer-file ~/.fsm-proxy-token",
		Args:              exactly(1, usage),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			body, err := said.body(cmd)
			if err != nil {
				return err
			}
			ctx, stop := context.WithTimeout(cmd.Context(), adminTime)
			defer stop()
			return f.tell(ctx, c.out, http.MethodPost, "/v1/approvals/"+url.PathEscape(args[0])+"/"+answer, body, client.Words[admin.Approved])
		},
	}
	f.add(cmd)
	said.add(cmd, "approvals show")
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
