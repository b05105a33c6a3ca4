package cli

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// terminal opens a pseudo-terminal and returns both sides of it.
func terminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = master.Close() })
	var number, unlocked uint32
	for _, request := range []struct {
		code uintptr
		arg  *uint32
	}{{syscall.TIOCGPTN, &number}, {syscall.TIOCSPTLCK, &unlocked}} {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, master.Fd(), request.code, uintptr(unsafe.Pointer(request.arg))); errno != 0 {
			t.Fatal(errno)
		}
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = slave.Close() })
	return master, slave
}

// The terminal that it was started in has gone: that ends it in order, with all
// that it started.
func TestHangUpOfTheTerminal(t *testing.T) {
	t.Parallel()
	u := mcptest.Stdio(t, "stubborn")
	args := mcptest.RunStdio(t, mcptest.WritePolicy(t, plainPolicy), u.Command()...)
	ctx, cancel := context.WithTimeout(t.Context(), mcptest.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	_, cmd.Stderr = terminal(t)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(stdin, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	if _, err := stdout.Read(make([]byte, 4096)); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	u.AwaitLive(t, 0)
}

// Tests that are started with signals ignored, as nohup and a shell's "&" do, don't pass that on to what they start.
func TestHangUpReachesWhatTestsUnderNohupStart(t *testing.T) {
	t.Parallel()
	binary := mcptest.Proxy(t) // to build it takes its time, and the other test process builds none
	ctx, cancel := context.WithTimeout(t.Context(), 2*mcptest.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", `trap "" HUP INT; exec "$0" -test.run '^TestHangUpOfTheTerminal$' -test.v`, os.Args[0])
	cmd.Env = append(os.Environ(), "MCPTEST_PROXY="+binary)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestHangUpOfTheTerminal") {
		t.Errorf("with SIGHUP ignored: %v\n%s", err, out)
	}
}
