//go:build unix

package process

import (
	"os"
	"syscall"
)

// terminate asks the child's process group to end.
func terminate(pid int) { _ = syscall.Kill(-pid, syscall.SIGTERM) }

// kill ends the child's process group.
func kill(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }
