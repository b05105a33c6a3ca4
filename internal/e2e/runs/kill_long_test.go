//go:build long

package runs

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest/postgres"
)

func init() { kept["postgres"] = tables }

// databases begins a PostgreSQL, and returns what makes an empty store in it.
func databases(t *testing.T) (store func(t *testing.T) string) {
	server, n := postgres.Start(t), new(atomic.Int64)
	return func(*testing.T) string { return server.URL(fmt.Sprint("runs", n.Add(1))) }
}

// What holds of runs in a file holds of those in a database.
func TestRunsOfADatabase(t *testing.T) {
	store := databases(t)
	for name, run := range map[string]func(*testing.T, func(*testing.T) string){
		"fork": forkGoesOn, "secrets": secretsAreNotKept, "ended": endedRunsAreForgotten, "redacted": redactedIsKeptNowhere,
		"task": taskGoesOnAcrossRestarts, "another's task": taskOfAnotherAfterARestart, "list mine": listMineAcrossRestarts, "started": startedForClients,
	} {
		t.Run(name, func(t *testing.T) { run(t, store) })
	}
}

// tables are the rows of each table of a database, as text.
func tables(t *testing.T, url string) map[string]string {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	rows, err := c.Query(t.Context(), "SELECT tablename::text, set_config('bytea_output', 'escape', false) FROM pg_tables WHERE schemaname = 'fsm_proxy'")
	if err != nil {
		t.Fatal(err)
	}
	texts, name, escaped := map[string]string{}, "", ""
	if _, err := pgx.ForEachRow(rows, []any{&name, &escaped}, func() error { texts[name] = ""; return nil }); err != nil {
		t.Fatal(err)
	}
	for name := range texts {
		var text strings.Builder
		if _, err := c.PgConn().CopyTo(t.Context(), &text, "COPY fsm_proxy."+name+" TO STDOUT"); err != nil {
			t.Fatal(err)
		}
		texts[name] = text.String()
	}
	return texts
}

// The same for longer, on each store.
func TestKilledUnderManyRuns(t *testing.T) {
	t.Run("SQLite", func(t *testing.T) { killed(t, 32, 75, store(t)) })
	t.Run("stdio", func(t *testing.T) { killedOverStdio(t, 8, 12) })
}

// The same of a database, whose lease each start waits for.
func TestKilledUnderManyRunsOfADatabase(t *testing.T) {
	t.Parallel()
	killed(t, 32, 50, postgres.Start(t).URL("killed"))
}

// The database ends, and is there again.
func TestDatabaseThatIsAway(t *testing.T) {
	for name, crash := range map[string]bool{"stopped": false, "crashed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := postgres.Start(t)
			unwritable(t, key{"modern", byHeader}, server.URL("runs"), nil, func(*house) { server.Down(crash) }, func(*house) { server.Up() })
		})
	}
}

// execute executes texts over one connection, a transaction each.
func execute(t *testing.T, url string, texts ...string) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	for _, text := range texts {
		if _, err = c.Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
}

// The database is restarted now and then under runs that go to and fro.
func TestDatabaseRestartedUnderRuns(t *testing.T) {
	t.Parallel()
	server := postgres.Start(t)
	url := server.URL("runs")
	e := newEffects()
	_, upstream := mcptest.HTTP(t, e.server())
	k := key{"modern", byHeader}
	h := open(t, k, turns, "--annotate", "meta", "--store", url, "--store-timeout", "1s", "--upstream", upstream)
	all, stop := h.walkers(k, e, 16)
	for i := range 6 {
		e.await(t.Context(), 200)
		server.Down(i%2 == 0)
		server.Up()
	}
	e.await(t.Context(), 200)
	stop()
	h.ends(os.Interrupt)
	stood(t, all, e, url, 6)
}
