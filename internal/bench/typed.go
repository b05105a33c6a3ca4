package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// playTyped is the same job done with mcp-go's types on both sides: a server
// that registers the upstream's tools and forwards each call through a client.
// It enforces nothing.
func playTyped(a roleArgs) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	upstream, err := typedClient(a)
	if err != nil {
		return err
	}
	defer upstream.Close()
	proxy, err := typedServer(ctx, upstream)
	if err != nil {
		return err
	}
	if a.listen {
		return serveHTTP(server.NewStreamableHTTPServer(proxy, server.WithEndpointPath(mcpPath)))
	}
	return server.ServeStdio(proxy, server.WithWorkerPoolSize(100), server.WithQueueSize(1000))
}

// typedClient is mcp-go's client with what makes it fast: a transport with
// enough idle connections.
func typedClient(a roleArgs) (*client.Client, error) {
	var t transport.Interface
	if a.upstream == "" {
		t = transport.NewStdio(a.command[0], nil, a.command[1:]...)
	} else {
		http := &http.Client{Transport: tunedTransport()}
		var err error
		if t, err = transport.NewStreamableHTTP(a.upstream, transport.WithHTTPBasicClient(http)); err != nil {
			return nil, fmt.Errorf("making the client: %w", err)
		}
	}
	return client.NewClient(t), nil
}

func typedServer(ctx context.Context, upstream *client.Client) (*server.MCPServer, error) {
	if err := upstream.Start(ctx); err != nil {
		return nil, fmt.Errorf("starting the client: %w", err)
	}
	hello, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := upstream.Initialize(hello, mcp.InitializeRequest{Params: mcp.InitializeParams{
		ProtocolVersion: latestLegacy,
		ClientInfo:      mcp.Implementation{Name: "fsm-proxy-bench", Version: "1"},
	}})
	listed, listErr := upstream.ListTools(hello, mcp.ListToolsRequest{})
	if err := errors.Join(err, listErr); err != nil {
		return nil, fmt.Errorf("listing the upstream's tools: %w", err)
	}
	s := server.NewMCPServer("bench-typed", "1", server.WithToolCapabilities(true))
	for _, tool := range listed.Tools {
		s.AddTool(tool, upstream.CallTool)
	}
	return s, nil
}
