//go:build long

package pod

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// nodeVariable is set in the process that has the namespaces of the node.
const nodeVariable = "MCPTEST_POD_NODE"

// onNode are tests that run in network, process and mount namespaces of their own: the node on which pods are. When
// they end, however they do, all that is in the namespaces ends.
type onNode struct{ tests mcptest.Tests }

// Run runs the tests in a child, and in that child, runs them.
func (n onNode) Run() int {
	if os.Getenv(nodeVariable) == "" {
		return enterNode()
	}
	if err := beNode(); err != nil {
		fmt.Fprintf(os.Stderr, "FAIL: making the namespaces of a node: %v\n", err)
		return 1
	}
	return leakless(n.tests)
}

func enterNode() int {
	runtime.LockOSThread() // the child dies with this thread
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAIL:", err)
		return 1
	}
	node := exec.Command(self, os.Args[1:]...)
	node.Stdin, node.Stdout, node.Stderr = os.Stdin, os.Stdout, os.Stderr
	node.Env = append(os.Environ(), nodeVariable+"=1")
	node.SysProcAttr = namespaces(unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWNS)
	node.SysProcAttr.Pdeathsig = syscall.SIGKILL
	err = node.Run()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		fmt.Fprintf(os.Stderr, "FAIL: a simulated pod needs namespaces of its own for network, processes and mounts, which were denied: %v.\n"+
			"Run the tests as root (a container needs the capability SYS_ADMIN), or allow unprivileged user namespaces:\n"+
			"sysctl kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0 user.max_user_namespaces=10000\n", err)
		return 1
	}
	return node.ProcessState.ExitCode()
}

// namespaces are those of the flags; who is not root is root in a user namespace besides.
func namespaces(flags uintptr) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Cloneflags: flags}
	if os.Geteuid() != 0 {
		attr.Cloneflags |= unix.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	return attr
}

// beNode gives the process its own /proc and loopback.
func beNode() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keeping mounts to itself: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	return up("lo")
}
