// Package policies holds ready policies for well-known MCP servers. Each file
// says in its header what it protects and what it cannot; the tests play each
// against its real server where that runs without an account or a browser.
package policies

import "embed"

// Files are the policy files, by name: "filesystem.yaml".
//
//go:embed *.yaml
var Files embed.FS
