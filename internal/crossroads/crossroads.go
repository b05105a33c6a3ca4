// Package crossroads is the upstream of the demo: an ordinary MCP server about
// a door, a button and a key, built on mcp-go.
//
// It knows nothing of states. Every tool can be called at any time, and what it
// answers depends only on the world's own facts: how often the door was pushed,
// whether the button was pressed, which key fits. What may be called when is
// the business of policies/crossroads.yaml, which fsm-proxy enforces in front
// of it.
package crossroads

import (
	"context"
	"crypto/rand"
	"io"
	"log"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// Name is the server's name, as initialize tells it.
const Name = "crossroads"

// Config says how a world begins. Its zero value is a fresh world.
type Config struct {
	// KeyID is the id of the key that fits. Empty: one that nobody can guess.
	KeyID string
	// Version is the server's version, as initialize tells it.
	Version string
}

// New returns a server with a world of its own. It is safe for concurrent use.
func New(cfg Config) *server.MCPServer {
	if cfg.KeyID == "" {
		cfg.KeyID = "key-" + rand.Text()[:6]
	}
	w := &world{keyID: cfg.KeyID}
	s := server.NewMCPServer(Name, cfg.Version, server.WithToolCapabilities(false))
	for _, t := range w.tools() {
		s.AddTool(t.tool, t.handler())
	}
	return s
}

// Serve speaks MCP over in and out until in ends or ctx is done.
func Serve(ctx context.Context, cfg Config, in io.Reader, out io.Writer) error {
	s := server.NewStdioServer(New(cfg))
	s.SetErrorLogger(log.New(io.Discard, "", 0))
	return s.Listen(ctx, in, out)
}

// tool is one tool and what it does to the world.
type tool struct {
	tool mcp.Tool
	// act returns what to tell, and whether it worked.
	act func(mcp.CallToolRequest) (text string, ok bool)
}

func (t tool) handler() server.ToolHandlerFunc {
	return func(_ context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		text, ok := t.act(req)
		if !ok {
			return mcp.NewToolResultError(text), nil
		}
		return mcp.NewToolResultText(text), nil
	}
}
