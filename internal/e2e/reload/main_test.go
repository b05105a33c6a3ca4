package reload

import (
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

func TestMain(m *testing.M) { mcptest.Main(m, nil) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
