//go:build long

package main

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest/postgres"
)

// TestReplicasOfADatabase measures real processes on a real database: steps are passed on, and what was made for it is removed.
func TestReplicasOfADatabase(t *testing.T) {
	url := postgres.Start(t).URL("bench")
	var stdout, stderr strings.Builder
	if err := run(t.Context(), []string{"-paths", "replicas", "-callers", "1,2", "-rounds", "1", "-window", "100ms", "-postgres", url}, &stdout, &stderr); err != nil {
		t.Fatalf("%v\n%s\n%s", err, stdout.String(), stderr.String())
	}
	for _, row := range []string{"| p50 of a step passed on ÷ at its owner (", "| p50 of a step at its owner ÷ in a process alone, callers: 2 "} {
		if !strings.Contains(stdout.String(), row) {
			t.Errorf("no %q in\n%s", row, stdout.String())
		}
	}
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	var left int
	if err := c.QueryRow(t.Context(), "SELECT count(*) FROM pg_database WHERE datname LIKE 'fsm_proxy_bench_%'").Scan(&left); err != nil || left > 0 {
		t.Errorf("%d databases are left, %v", left, err)
	}
}
