//go:build long && unix

package docs_test

import (
	"path/filepath"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// The whole page is done, with its agent in Python on the SDK.
func TestStartWithPython(t *testing.T) {
	r := newReader(t)
	python := mcptest.Python(t, mcptest.PythonSDK2)
	r.script("venv-python", `exec '`+python+`' "$@"`)
	r.script("venv-pip", `[ "$*" = "install mcp>=2" ]`)
	r.script("python3", `[ "$*" = "-m venv venv" ] && mkdir -p venv/bin &&
		ln -s '`+filepath.Join(r.bin, "venv-python")+`' venv/bin/python && ln -s '`+filepath.Join(r.bin, "venv-pip")+`' venv/bin/pip`)
	r.do(read(t, startPage))
}
