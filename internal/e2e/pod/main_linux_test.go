//go:build long

package pod

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// The words that turn the test binary into a part of a pod.
const (
	sandboxWord   = "pod-sandbox"
	containerWord = "pod-container"
	hookWord      = "pod-hook"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 {
		parts := map[string]func(string) error{sandboxWord: beSandbox, containerWord: beContainer, hookWord: beHook}
		if be := parts[os.Args[1]]; be != nil {
			fmt.Fprintln(os.Stderr, be(os.Args[2])) // what goes well does not return
			os.Exit(1)
		}
	}
	mcptest.Main(onNode{m}, mcptest.Servers{"server": server()})
}

// leakless are tests that leave no goroutine behind.
func leakless(m mcptest.Tests) int {
	code := m.Run()
	if code != 0 {
		return code
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
