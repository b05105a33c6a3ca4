//go:build unix && !linux

package process

import "syscall"

// groupAttr puts the child into a process group of its own.
func groupAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// awaitExit does nothing: there is no dependable way to wait for a death
// without reaping.
func awaitExit(int) {}

// killRest kills what is left of a dead child's group.
func killRest(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }
