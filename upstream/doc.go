// Package upstream makes connections to the wrapped MCP server and carries
// messages over them: to a child process, over Streamable HTTP, or over the old
// HTTP+SSE transport. A [Server] is what is wrapped, a [Conn] one connection to
// it: its calls, what it sends by itself, and snapshots of its lists.
//
// It knows the legacy era of the protocol (up to 2025-11-25) and nothing of
// policies: what may be sent is decided before.
package upstream
