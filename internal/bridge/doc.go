// Package bridge lets proxy see one era of MCP, which is the one with sessions.
//
// A [Client] and a [Server] translate what differs in bytes: how a client is introduced,
// what a request carries, what an answer means, and which members and codes it has. An
// [Upstream] makes a stateless server one with sessions: what it asks for in the middle of
// a call becomes requests to the client. An [Input] does the same for a stateless client:
// what it is sent as requests becomes an answer that asks for input, and what it comes
// back with the answers to those requests. A [Pipe] is one client that speaks both.
package bridge
