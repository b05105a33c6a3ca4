//go:build long && unix

package docs_test

import (
	"os"
	"testing"

	server "github.com/fsm-proxy/fsm-proxy/internal/mcptest/postgres"
)

// A run moves from SQLite to PostgreSQL, is backed up and restored there, and moves back.
func TestStoreMovesToPostgreSQL(t *testing.T) {
	postgres := server.Start(t)
	const onPage = "postgres://db.internal/runs"
	o := newOperator(t, onPage, postgres.URL("runs"))
	o.path = postgres.Programs() + string(os.PathListSeparator) + o.path
	s, p := o.proxy("sqlite:runs.db")
	o.call(s, "to_b", false)
	o.kill(p)
	o.do(fences(section(t, storePage, "## Move to PostgreSQL"))...)
	o.onlyOurs("runs.jsonl")

	page := fences(section(t, storePage, "### PostgreSQL"))
	if len(page) != 2 {
		t.Fatalf("the page has %d steps, not 2: backup and restore", len(page))
	}
	s, p = o.proxy(onPage)
	o.call(s, "to_a", true)
	o.do(page[0])
	o.onlyOurs("runs.dump")
	o.call(s, "to_c", false)
	o.kill(p)
	o.do(page[1])
	s, p = o.proxy(onPage)
	o.call(s, "to_a", true)
	o.call(s, "to_c", false)
	o.kill(p)
	o.shell("fsm-proxy runs export --store "+onPage+" | fsm-proxy runs import --store sqlite:back.db && fsm-proxy verify --store sqlite:back.db", 0)
	s, _ = o.proxy("sqlite:back.db")
	o.call(s, "to_a", false)
}
