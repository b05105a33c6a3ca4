// Package mcptest is what the tests of fsm-proxy stand on: real MCP servers and clients, a raw upstream and a
// raw client that speak plain bytes, the proxy binary, and a runner for transcripts.
//
// The raw halves use no SDK and none of the proxy's own parsers, so that a mistake in those cannot hide
// itself. A raw upstream counts every message that reaches it, in the test's process or in a child of the
// proxy alike, and can fail in every way that a server can.
//
// A test package that uses it hands its TestMain over:
//
//	func TestMain(m *testing.M) { mcptest.Main(m, mcptest.Servers{"counter": counter}) }
//
// Nothing here skips: what is missing fails the test with the command that installs it.
package mcptest
