package host

import (
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

// Process 1 of a container is given the orphans: what a child started, and left
// behind. Nobody else can reap them.
//
// What tells them from the children that os/exec waits for is the thread. A
// child belongs to the thread that started it; the kernel gives an orphan to the
// first thread of process 1 (find_new_reaper in kernel/exit.c). So the first
// thread starts nothing, as no goroutine but main's may run on it, and waits
// for its own children alone (__WNOTHREAD). A wait for any child would steal
// what os/exec is to learn; a list of pids to spare would be late for a child
// that dies as it starts; a second process to be process 1 would have to pass on
// signals and exit codes, and cost as much memory again.
func init() {
	if isInit() {
		runtime.LockOSThread() // main's goroutine stays on the first thread
	}
}

func isInit() bool { return os.Getpid() == 1 }

// reaping runs work and returns what it does. As process 1 it reaps orphans
// meanwhile.
func reaping(work func() int) int {
	if !isInit() {
		return work()
	}
	deaths := make(chan os.Signal, 1)
	signal.Notify(deaths, syscall.SIGCHLD)
	code := make(chan int, 1)
	go func() { code <- work() }()
	for {
		reapOrphans()
		select {
		case <-deaths:
		case code := <-code:
			return code
		}
	}
}

// reapOrphans reaps those that are dead. It is to be called on the first thread.
func reapOrphans() {
	const noThread = 0x20000000 // __WNOTHREAD
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG|noThread, nil)
		if pid <= 0 && err != syscall.EINTR {
			return
		}
	}
}
