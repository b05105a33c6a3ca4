// Command fsm-proxy puts a state machine in front of any MCP server: a policy
// file says which tools, resources and prompts exist in which state, what may
// be called, and where each result leads.
package main

import (
	"context"
	"os"

	"github.com/fsm-proxy/fsm-proxy/internal/cli"
	"github.com/fsm-proxy/fsm-proxy/internal/host"
)

// version is stamped by the release build: -ldflags "-X main.version=v1.2.3".
var version string

func main() {
	os.Exit(host.Run(func(ctx context.Context) int { return cli.Main(ctx, version, os.Args[1:]) }))
}
