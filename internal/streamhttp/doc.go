// Package streamhttp is MCP's Streamable HTTP, both ends: [Server] towards
// clients, [Client] towards the wrapped server. It speaks the revisions that
// have sessions, up to 2025-11-25.
package streamhttp
