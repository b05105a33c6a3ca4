package mcptest

import (
	"path/filepath"
	"runtime"
	"testing"
)

// PythonSDK is a major version of the Python SDK. Packages that need it are in an environment of its own, since no
// environment can have both.
type PythonSDK int

// The major versions.
const (
	PythonSDK1 PythonSDK = 1
	PythonSDK2 PythonSDK = 2
)

// Python returns the interpreter of an environment, as `make deps` makes it.
func Python(t testing.TB, sdk PythonSDK) string {
	t.Helper()
	return sdk.command(t, "python")
}

// PythonServer returns the path of a command that a package of an environment installs.
func PythonServer(t testing.TB, sdk PythonSDK, name string) string {
	t.Helper()
	return sdk.command(t, name)
}

// PythonScript returns the path of one of the client scripts beside the files that pin the packages.
func PythonScript(name string) string {
	return filepath.Join(Root(), "internal", "mcptest", "python", name)
}

func (sdk PythonSDK) command(t testing.TB, name string) string {
	t.Helper()
	folder := "bin"
	if runtime.GOOS == "windows" {
		folder = "Scripts"
	}
	environment := map[PythonSDK]string{PythonSDK1: "mcp1", PythonSDK2: "mcp2"}[sdk]
	return installed(t, filepath.Join(Root(), ".deps", "python", environment, folder, name+executableSuffix()))
}
