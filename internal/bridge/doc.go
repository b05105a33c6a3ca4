// Package bridge lets proxy see one era of MCP, which is the one with sessions. A
// [Client] and a [Server] translate what differs: how a client is introduced, what a
// request carries, what an answer means, and which members and codes it has.
package bridge
