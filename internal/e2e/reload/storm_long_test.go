//go:build long

package reload

import (
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// A thousand policies in a row under the load of 64 sessions.
func TestKubeletLong(t *testing.T) { storm(t, 64, 1000) }

// A hundred saves of editors under the same load.
func TestEditorsLong(t *testing.T) {
	edit(t, &editor{t: t, path: mcptest.WritePolicy(t, version(0))}, 64, 100)
}
