package runs

import (
	"flag"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

func TestMain(m *testing.M) {
	// Most of the time goes by with waiting for other processes.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	mcptest.Main(m, mcptest.Servers{"legacy workshop": new(workshop).server(false), "modern workshop": new(workshop).server(true)})
}
