package process

import (
	"syscall"
	"unsafe"
)

// groupAttr puts the child into a process group of its own, and has the kernel
// kill it when the proxy dies without a chance to do so.
func groupAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitExit waits for the child's death without reaping it, and kills what is
// left of its group: as long as the leader is not reaped its number is nobody
// else's.
func awaitExit(pid int) {
	const (
		pPID    = 1
		exited  = 0x4
		noWait  = 0x1000000
		infoLen = 128
	)
	var info [infoLen / 8]uint64
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, pPID, uintptr(pid), uintptr(unsafe.Pointer(&info)), exited|noWait, 0, 0)
		if errno != syscall.EINTR {
			break
		}
	}
	_ = syscall.Kill(-pid, syscall.SIGKILL)
}

// killRest has nothing left to do: see awaitExit.
func killRest(int) {}
