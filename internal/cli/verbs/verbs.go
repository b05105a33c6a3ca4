// Package verbs is the commands by which operators do something to a run of a running proxy, whatever its policy says.
package verbs

import (
	"cmp"
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fsm-proxy/fsm-proxy/internal/admin"
	"github.com/fsm-proxy/fsm-proxy/internal/admin/client"
	"github.com/fsm-proxy/fsm-proxy/internal/cli/arguments"
	"github.com/fsm-proxy/fsm-proxy/internal/exit"
)

// Console is where commands print, and how they are told which proxy they ask.
type Console struct {
	Out io.Writer
	Add func(cmd *cobra.Command, to *client.Client) // adds the flags that say that
}

// adminTime is how long the proxy may take to answer.
const adminTime = 30 * time.Second

// flags are those of all verbs.
type flags struct {
	client.Client
	json bool
}

func (f *flags) add(c *Console, cmd *cobra.Command) {
	c.Add(cmd, &f.Client)
	cmd.Flags().BoolVar(&f.json, "json", false, "print the proxy's answer as it is")
}

// OfRuns are the commands below runs.
func OfRuns(c Console) []*cobra.Command {
	return []*cobra.Command{newStart(&c), newReset(&c), newEnd(&c), newFork(&c), newAnnotate(&c), newAccept(&c), newRelease(&c)}
}

const verbWhere = " --admin ADDR|unix:PATH --admin-bearer-file FILE"

// newStart begins runs.
func newStart(c *Console) *cobra.Command {
	f, said := &flags{}, admin.Start{}
	cmd := &cobra.Command{
		Use:   "start" + verbWhere,
		Short: "Begin a run before its first client comes",
		Long: "Begin a run before its first client comes. With the key handle it prints the handle, with path the\n" +
			"end of the URL, which stand nowhere else; those of principal and header are told by who comes.",
		Example:           "  fsm-proxy runs start --key path --reason 'ticket 12' \\\n    --admin unix:/run/fsm-proxy/admin.sock --admin-bearer-file ~/.fsm-proxy-token",
		Args:              arguments.AsUsed,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			body, err := json.Marshal(&said)
			if err != nil {
				return exit.Usagef("what is said is no text: %w", err)
			}
			return f.ask(cmd.Context(), c, "/v1/runs", string(body), client.Words[admin.Started])
		},
	}
	f.add(c, cmd)
	cmd.Flags().StringVar(&said.Key, "key", "path", "the `KIND` of its key: path, handle, principal, header or process, as --run-key has it")
	cmd.Flags().StringVar(&said.Value, "value", "", "of header: the `TEXT` that the gateway sends")
	cmd.Flags().StringVar(&said.Issuer, "issuer", "", "who says whose run it is: an `ISSUER`, or tokens")
	cmd.Flags().StringVar(&said.Subject, "subject", "", "the `SUBJECT` whose run it is")
	cmd.Flags().StringVar(&said.Reason, "reason", "", "a `TEXT` for the record: why")
	return cmd
}

// newReset begins runs anew.
func newReset(c *Console) *cobra.Command {
	return newVerb(c, "reset", &cobra.Command{
		Short: "Have a run begin anew, as the operator whose token is in a file",
		Long: "Have a run begin anew, at the initial state of the policy in force. A call under way comes to\n" +
			"its end, and moves nothing. The run keeps its key, its clients and its entries.",
	}, "The run begins anew.")
}

// newEnd ends runs.
func newEnd(c *Console) *cobra.Command {
	return newVerb(c, "end", &cobra.Command{
		Short: "End a run for good, as the operator whose token is in a file",
		Long: "End a run for good: nobody finds it any more, and the sessions on it are closed. A call under\n" +
			"way comes to its end, and moves nothing. Where its key begins runs, the next request begins another.",
	}, "The run has ended.")
}

// newFork forks runs.
func newFork(c *Console) *cobra.Command {
	f, said, at := &flags{}, admin.Fork{}, uint64(0)
	cmd := &cobra.Command{
		Use:   "fork RUN" + verbWhere,
		Short: "Begin a run that is what another one was after one of its entries, as the operator whose token is in a file",
		Long: "Begin a run that is what another one was after one of its entries: in its state, with what it\n" +
			"remembered. It prints the handle, or the end of the URL, that finds it, which stands nowhere else,\n" +
			"and which calls of the other run were not over by then: they have happened all the same. The\n" +
			"other one goes on, unchanged. Behind a call that is irreversible there is no fork.",
		Example:           "  fsm-proxy runs fork DMTFEK --at 7 --reason 'ticket 12' \\\n    --admin unix:/run/fsm-proxy/admin.sock --admin-bearer-file ~/.fsm-proxy-token",
		Args:              arguments.AsUsed,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("at") {
				if said.At = &at; at == 0 {
					return exit.Usagef("--at 0 is before the first entry: entries are numbered from 1 on, as 'fsm-proxy runs tail' shows them")
				}
			}
			body, err := json.Marshal(&said)
			if err != nil {
				return exit.Usagef("what is said is no text: %w", err)
			}
			return f.ask(cmd.Context(), c, "/v1/runs/"+url.PathEscape(args[0])+"/fork", string(body), client.Words[admin.Forked])
		},
	}
	f.add(c, cmd)
	cmd.Flags().Uint64Var(&at, "at", 0, "the `SEQ` of the entry (default the last one)")
	cmd.Flags().StringVar(&said.Reason, "reason", "", "a `TEXT` for the record: why")
	return cmd
}

// newAccept has runs go on that are shut.
func newAccept(c *Console) *cobra.Command {
	return newVerb(c, "accept", &cobra.Command{
		Short: "Have a run that is shut go on as the store has it, as the operator whose token is in a file",
		Long: "Have a run that is shut, since the store has something else of it than it has confirmed, go on as\n" +
			"the store has it. What was done since, and is not in the store, may be done again: look first at\n" +
			"what its server says. What was edited is not accepted.",
	}, "The run goes on as the store has it.")
}

// newRelease gives runs away.
func newRelease(c *Console) *cobra.Command {
	f, reason, all := &flags{}, "", false
	cmd := &cobra.Command{
		Use:   "release RUN...|--all" + verbWhere,
		Short: "Have runs go on in another process that shares the store, as the operator whose token is in a file",
		Long: "Have the process that has a run give it away, for another one that shares the store to go on with: the one\n" +
			"that is asked next. A run in which a call is under way stays. With --all the process that is asked gives\n" +
			"away all that it has. It takes them again where no other process does.",
		Example: "  fsm-proxy runs release DMTFEK --reason 'ticket 12' \\\n    --admin unix:/run/fsm-proxy/admin.sock --admin-bearer-file ~/.fsm-proxy-token\n" +
			"  fsm-proxy runs release --all --admin unix:/run/fsm-proxy/admin.sock --admin-bearer-file ~/.fsm-proxy-token",
		ValidArgsFunction: cobra.NoFileCompletions,
		Args: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) > 0) || slices.Contains(args, "") {
				return exit.Usagef("release takes the ids of runs, none of them empty, or --all; usage: %s", strings.TrimSuffix(cmd.CommandPath(), cmd.Name())+cmd.Use)
			}
			return nil
		},
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		said := map[string]string{}
		if reason != "" {
			said["reason"] = reason
		}
		if all {
			body, err := json.Marshal(said)
			if err != nil {
				return exit.Usagef("what is said is no text: %w", err)
			}
			return f.ask(cmd.Context(), c, "/v1/runs/release", string(body), client.Words[admin.Released])
		}
		for _, run := range args {
			if failed := f.operate(cmd.Context(), c, run, "release", said, "The run is given away."); failed != nil {
				err = errors.Join(err, fmt.Errorf("%s: %w", run, failed))
			}
		}
		return err
	}
	f.add(c, cmd)
	cmd.Flags().BoolVar(&all, "all", false, "all runs of the process that is asked")
	cmd.Flags().StringVar(&reason, "reason", "", "a `TEXT` for the record: why")
	return cmd
}

// newVerb is a command that has something be done to a run, with a reason.
func newVerb(c *Console, verb string, cmd *cobra.Command, done string) *cobra.Command {
	f, reason := &flags{}, ""
	cmd.Use = verb + " RUN" + verbWhere
	cmd.Example = "  fsm-proxy runs " + verb + " 5c1f0e9b2a7d4486 --reason 'ticket 12' \\\n    --admin unix:/run/fsm-proxy/admin.sock --admin-bearer-file ~/.fsm-proxy-token"
	cmd.Args, cmd.ValidArgsFunction = arguments.AsUsed, cobra.NoFileCompletions
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		said := map[string]string{}
		if reason != "" {
			said["reason"] = reason
		}
		return f.operate(cmd.Context(), c, args[0], verb, said, done)
	}
	f.add(c, cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "a `TEXT` for the record: why")
	return cmd
}

// newAnnotate says something of runs.
func newAnnotate(c *Console) *cobra.Command {
	f := &flags{}
	cmd := &cobra.Command{
		Use:               "annotate RUN TEXT" + verbWhere,
		Short:             "Write a text into the journal of a run, which changes nothing in it",
		Example:           "  fsm-proxy runs annotate 5c1f0e9b2a7d4486 'stopped for ticket 12' \\\n    --admin unix:/run/fsm-proxy/admin.sock --admin-bearer-file ~/.fsm-proxy-token",
		Args:              arguments.AsUsed,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.operate(cmd.Context(), c, args[0], "annotate", map[string]string{"text": args[1]}, "It is noted.")
		},
	}
	f.add(c, cmd)
	return cmd
}

// operate has a verb done to a run, and prints what has come of it.
func (f *flags) operate(ctx context.Context, c *Console, run, verb string, said map[string]string, done string) error {
	body, err := json.Marshal(said)
	if err != nil {
		return exit.Usagef("what is said is no text: %w", err)
	}
	return f.ask(ctx, c, "/v1/runs/"+url.PathEscape(run)+"/"+verb, string(body), func(answer []byte) (string, error) {
		text, err := client.Words[admin.Stands](answer)
		return done + " " + text, err
	})
}

// ask prints what the proxy answers, as it is or in words.
func (f *flags) ask(ctx context.Context, c *Console, path, body string, words func([]byte) (string, error)) error {
	ctx, stop := context.WithTimeout(ctx, adminTime)
	defer stop()
	answer, err := f.Read(ctx, http.MethodPost, path, body)
	text := string(answer)
	if err == nil && !f.json {
		text, err = words(answer)
	}
	if err == nil || f.json {
		_, wrong := io.WriteString(c.Out, text)
		err = cmp.Or(err, wrong)
	}
	return err
}
