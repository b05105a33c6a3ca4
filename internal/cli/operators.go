package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fsm-proxy/fsm-proxy/internal/admin/client"
	"github.com/fsm-proxy/fsm-proxy/internal/cli/arguments"
	"github.com/fsm-proxy/fsm-proxy/internal/exit"
	"github.com/fsm-proxy/fsm-proxy/internal/host"
)

// adminTime is how long the proxy may take to answer.
const adminTime = 30 * time.Second

// adminFlags say where a proxy's admin interface is. They have the names that
// they have for run, and with them the same environment variables: in a
// container, where run has them from there, nothing has to be said.
type adminFlags struct{ client.Client }

// newAdmin is for images that have no curl.
func newAdmin(c *console) *cobra.Command {
	f := &adminFlags{}
	cmd := &cobra.Command{
		Use:               "admin --admin ADDR|unix:PATH [GET|PUT|POST] PATH [BODY]",
		Short:             "Ask the admin interface of a running proxy",
		Example:           "  fsm-proxy admin --admin unix:/run/fsm-proxy/admin.sock GET /v1/policy",
		ValidArgsFunction: adminRequests,
		RunE: func(cmd *cobra.Command, args []string) error {
			method, path, body, err := adminRequest(args)
			if err != nil {
				return err
			}
			return f.ask(cmd.Context(), c.out, method, path, body)
		},
	}
	f.add(cmd)
	return cmd
}

func (f *adminFlags) add(cmd *cobra.Command) { addAdmin(cmd, &f.Client) }

func addAdmin(cmd *cobra.Command, to *client.Client) {
	cmd.Flags().StringVar(&to.Address, "admin", "", "where the admin interface is: `ADDR`, or unix:PATH")
	cmd.Flags().StringVar(&to.BearerFile, "admin-bearer-file", "", "a `FILE` that holds the bearer token for it")
}

// adminRequest takes the arguments apart.
func adminRequest(args []string) (method, path, body string, err error) {
	given, method := "", http.MethodGet
	if len(args) > 0 && !strings.HasPrefix(args[0], "/") {
		given, method, args = args[0], strings.ToUpper(args[0]), args[1:]
	}
	switch method {
	case http.MethodGet, http.MethodPut, http.MethodPost:
	default:
		return "", "", "", exit.Usagef("%q is neither GET, PUT nor POST, nor a path that begins with /", given)
	}
	if len(args) == 0 || len(args) > 2 || !strings.HasPrefix(args[0], "/") {
		return "", "", "", exit.Usagef("give one path, like /v1/policy, and behind it a body if there is one")
	}
	if len(args) == 2 {
		body = args[1]
	}
	return method, args[0], body, nil
}

// ask prints what the proxy answers.
func (f *adminFlags) ask(ctx context.Context, out io.Writer, method, path, body string) error {
	ctx, stop := context.WithTimeout(ctx, adminTime)
	defer stop()
	answer, err := f.Send(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode >= http.StatusBadRequest {
		said, _ := io.ReadAll(io.LimitReader(answer.Body, 4096))
		return fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, strings.TrimSpace(string(said)))
	}
	_, err = io.Copy(out, answer.Body)
	return err
}

// newDrain is for the preStop hook of a Kubernetes sidecar: the kubelet runs it
// when the pod is told to end, and sends SIGTERM only when the server has ended,
// with which no call can be finished any more. A SIGTERM that comes after it is
// not the second one.
func newDrain(*console) *cobra.Command {
	var pid int
	cmd := &cobra.Command{
		Use:   "drain [--pid N]",
		Short: "Tell the fsm-proxy of this container to end, as SIGTERM does; for a preStop hook",
		Args:  arguments.AsUsed,
		RunE: func(*cobra.Command, []string) error {
			if pid < 1 {
				return exit.Usagef("--pid %d is no process; give a number from 1 on", pid)
			}
			if err := checkProxy(pid); err != nil {
				return err
			}
			p, err := os.FindProcess(pid)
			if err == nil {
				err = p.Signal(host.DrainSignal)
			}
			if err != nil {
				return fmt.Errorf("telling process %d to end: %w; run it as the user that runs the proxy", pid, err)
			}
			return nil
		},
	}
	cmd.Flags().IntVar(&pid, "pid", 1, "the `PROCESS` that is told")
	return cmd
}

// checkProxy refuses to signal a process that does not run this program: where
// the containers of a pod share their processes, process 1 is another one.
func checkProxy(pid int) error {
	own, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w; this needs Linux and /proc", err)
	}
	its, err := os.Stat("/proc/" + strconv.Itoa(pid) + "/exe")
	if err != nil {
		return fmt.Errorf("looking at process %d: %w; run this in the proxy's container, as its user", pid, host.Cause(err))
	}
	if ours, err := os.Stat(own); err != nil || !os.SameFile(ours, its) {
		return fmt.Errorf("process %d is no fsm-proxy; run this in the proxy's container, and do not share its processes with others", pid)
	}
	return nil
}
