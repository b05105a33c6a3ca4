package cli

import (
	"context"
	"encoding/json/v2"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fsm-proxy/fsm-proxy/internal/admin"
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
		Short: "Look at the runs of a running proxy, and send them signals",
		Args:  func(cmd *cobra.Command, args []string) error { return unknownSubcommand(cmd, args) },
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newRunsShow(c), newRunsSignal(c))
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

const showUsage = "RUN --admin ADDR|unix:PATH"

func newRunsShow(c *console) *cobra.Command {
	f := &runsFlags{}
	cmd := &cobra.Command{
		Use:               "show " + showUsage,
		Short:             "Show where a run stands, and which signals it takes",
		Example:           "  fsm-proxy runs show 5c1f0e9b2a7d4486 --admin unix:/run/fsm-proxy/admin.sock",
		Args:              exactly(1, showUsage),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := context.WithTimeout(cmd.Context(), adminTime)
			defer stop()
			return tell(ctx, f, c.out, http.MethodGet, "/v1/runs/"+url.PathEscape(args[0]), "", runText)
		},
	}
	f.add(cmd)
	return cmd
}

func (f *runsFlags) add(cmd *cobra.Command) {
	f.adminFlags.add(cmd)
	cmd.Flags().BoolVar(&f.json, "json", false, "print the proxy's answer as it is")
}

const signalUsage = "RUN NAME --admin ADDR|unix:PATH --admin-bearer-file FILE"

// newRunsSignal has no limit of its own on how long it waits: the proxy's --turn-timeout is one.
func newRunsSignal(c *console) *cobra.Command {
	f := &runsFlags{}
	var note string
	var seq uint64
	cmd := &cobra.Command{
		Use:   "signal " + signalUsage,
		Short: "Send a run a signal, as the operator whose token is in a file",
		Long: "Send a run a signal, as the operator whose token is in a file. It waits until the\n" +
			"call before it has ended. With --seq nothing is done where the run has moved since\n" +
			"it was looked at: 'fsm-proxy runs show' says the seq.",
		Example:           "  fsm-proxy runs signal 5c1f0e9b2a7d4486 approved --seq 7 --note 'plan 12 is fine' \\\n    --admin unix:/run/fsm-proxy/admin.sock --admin-bearer-file ~/.fsm-proxy-token",
		Args:              exactly(2, signalUsage),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			said := map[string]any{}
			if note != "" {
				said["note"] = note
			}
			if cmd.Flags().Changed("seq") {
				said["seq"] = seq
			}
			body, err := json.Marshal(said)
			if err != nil {
				return exit.Usagef("--note is no text: %w", err)
			}
			path := "/v1/runs/" + url.PathEscape(args[0]) + "/signals/" + url.PathEscape(args[1])
			return tell(cmd.Context(), f, c.out, http.MethodPost, path, string(body), signalledText)
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&note, "note", "", "a `TEXT` for the record: why")
	cmd.Flags().Uint64Var(&seq, "seq", 0, "do nothing if the run has moved since this `NUMBER`, which 'runs show' says")
	return cmd
}

// tell prints what the proxy answers, as it is or in words. What it refuses is an error.
func tell[T any](ctx context.Context, f *runsFlags, out io.Writer, method, path, body string, words func(T) string) error {
	answer, err := f.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(io.LimitReader(answer.Body, 16<<20))
	if err != nil {
		return fmt.Errorf("reading the proxy's answer: %w", err)
	}
	if answer.StatusCode >= http.StatusBadRequest {
		if f.json {
			if _, err := out.Write(said); err != nil {
				return err
			}
		}
		return refusedBy(answer.Status, said)
	}
	if f.json {
		_, err = out.Write(said)
		return err
	}
	var told T
	if err := json.Unmarshal(said, &told); err != nil {
		return fmt.Errorf("reading the proxy's answer: %w; is it of this version?", err)
	}
	_, err = io.WriteString(out, words(told))
	return err
}

// refusedBy is the error of an answer that is a refusal.
func refusedBy(status string, said []byte) error {
	var r admin.Refusal
	if json.Unmarshal(said, &r) != nil || r.Text == "" {
		return fmt.Errorf("the proxy refuses it: %s: %s", status, strictyaml.Printable(strings.TrimSpace(string(said[:min(len(said), 4096)]))))
	}
	text := strictyaml.Printable(r.Text)
	if r.Code != "" {
		text += " (" + strictyaml.Printable(r.Code) + ")"
	}
	return fmt.Errorf("%s", text)
}

// runText is a run in lines.
func runText(r admin.RunDetail) string {
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-10s %s\n", name, strictyaml.Printable(value))
		}
	}
	state := r.State
	if r.Complete {
		state += ", complete"
	}
	if r.Refused {
		state += ", which a reload took: nothing is allowed"
	}
	turn := "free"
	if r.TurnHeld {
		turn = fmt.Sprintf("held, %d waiting", r.Queued)
	}
	line("run", r.ID)
	line("key", r.Key)
	line("owner", r.Owner)
	line("state", state)
	line("seq", fmt.Sprint(r.Seq))
	line("turn", turn)
	line("policy", r.Policy)
	if len(r.Signals) == 0 {
		line("signals", "none")
	}
	for i, s := range r.Signals {
		name, text := "", s.Name+" → "+s.To
		if i == 0 {
			name = "signals"
		}
		if s.Completes {
			text += ", complete"
		}
		if s.Description != "" {
			text += ": " + s.Description
		}
		line(name, text)
	}
	return b.String()
}

// signalledText is what a signal has come to, in a line.
func signalledText(s admin.Signalled) string {
	text := "State is now '" + s.State + "', seq " + fmt.Sprint(s.Seq) + "."
	switch {
	case s.Restarted:
		text = "The run was completed and begins again. " + text
	case s.Complete:
		text += " The run is complete."
	}
	if len(s.Next.Signals) > 0 {
		text += " Signals: " + strings.Join(s.Next.Signals, ", ") + "."
	}
	return strictyaml.Printable(text) + "\n"
}
