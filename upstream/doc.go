// Package upstream makes connections to the wrapped MCP server and carries
// messages over them: to a child process, over Streamable HTTP, or over the old
// HTTP+SSE transport. A [Server] is what is wrapped, a [Conn] one connection to
// it: its calls, what it sends by itself, and snapshots of its lists.
//
// It speaks both eras of the protocol, and finds out which of them the server knows.
// In the modern one (2026-07-28) requests stand alone, headers repeat what is in them,
// and what belongs to no request comes by a subscription. It translates nothing and
// knows nothing of policies: what may be sent is decided before.
package upstream
