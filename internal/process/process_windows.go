package process

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// Windows has no process groups to signal. A child that has to be ended is
// ended with the tree below it (taskkill), at once and not gently; what a child
// that ended by itself has left behind goes on. Nor is the child ended when the
// proxy itself is killed, but by the end of its input.

func groupAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

func awaitExit(int) {}

func killRest(int) {}

// terminate cannot ask: kill follows.
func terminate(int) {}

func kill(p *os.Process) {
	if exec.Command("taskkill", "/T", "/F", "/PID", strconv.Itoa(p.Pid)).Run() != nil {
		_ = p.Kill()
	}
}
