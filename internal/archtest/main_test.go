package archtest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
)

// TestMain runs the tests on one processor: go/types of Go 1.27.4 has a data race where packages are checked beside each
// other, as golang.org/x/tools/go/packages does on several, and the race detector finds it now and then.
func TestMain(m *testing.M) {
	if runtime.GOMAXPROCS(0) == 1 {
		os.Exit(m.Run())
	}
	c := exec.Command(os.Args[0], os.Args[1:]...)
	c.Env = append(os.Environ(), "GOMAXPROCS=1")
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := c.Run()
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		os.Exit(ended.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "running the tests on one processor:", err)
		os.Exit(1)
	}
}
