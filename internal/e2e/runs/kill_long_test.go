//go:build long

package runs

import (
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest/postgres"
)

// The same for longer, on each store.
func TestKilledUnderManyRuns(t *testing.T) {
	t.Run("SQLite", func(t *testing.T) { killed(t, 32, 200, store(t)) })
	t.Run("stdio", func(t *testing.T) { killedOverStdio(t, 8, 25) })
	t.Run("PostgreSQL", func(t *testing.T) { killed(t, 32, 20, postgres.Start(t).URL("killed")) })
}
