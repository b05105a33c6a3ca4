package cli

import (
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"
)

// newDrain is for the preStop hook of a Kubernetes sidecar: the kubelet runs it
// when the pod is told to end, and sends SIGTERM only when the server has ended,
// with which no call can be finished any more. A SIGTERM that comes after it is
// not the second one.
func newDrain(*console) *cobra.Command {
	var pid int
	cmd := &cobra.Command{
		Use:   "drain [--pid N]",
		Short: "Tell the fsm-proxy of this container to end, as SIGTERM does; for a preStop hook",
		Args:  exactly(0, "[--pid N]"),
		RunE: func(*cobra.Command, []string) error {
			if pid < 1 {
				return usagef("--pid %d is no process; give a number from 1 on", pid)
			}
			if err := checkProxy(pid); err != nil {
				return err
			}
			p, err := os.FindProcess(pid)
			if err == nil {
				err = p.Signal(drainSignal)
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
		return fmt.Errorf("looking at process %d: %w; run this in the proxy's container, as its user", pid, cause(err))
	}
	if ours, err := os.Stat(own); err != nil || !os.SameFile(ours, its) {
		return fmt.Errorf("process %d is no fsm-proxy; run this in the proxy's container, and do not share its processes with others", pid)
	}
	return nil
}
