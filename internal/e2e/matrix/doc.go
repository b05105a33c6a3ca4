// Package matrix tests the proxy from outside: every client with every server over every pairing of stdio and
// Streamable HTTP, each session compared with the same session on a direct connection; recorded sessions
// compared byte for byte; and the official conformance suite. What takes long stands behind the build tag
// `long`, which `make test-all` sets.
package matrix
