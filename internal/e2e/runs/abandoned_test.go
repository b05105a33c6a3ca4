package runs

import (
	"database/sql"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// keptSessions are the objects of sessions in a store, by their names.
func keptSessions(t *testing.T, db *sql.DB) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	for name, text := range objectsIn(t, db, "session") {
		kept := map[string]any{}
		if err := json.Unmarshal([]byte(text), &kept); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		all[name] = kept
	}
	return all
}

// A session to which nobody comes back after a restart ends when it was waited for as long as sessions may be idle, and the
// run that is its own with it. One that somebody has come back to goes on, and so do runs by other keys.
func TestAbandonedSessionsEnd(t *testing.T) {
	each(t, []key{{"legacy", "session"}, {"legacy", byHeader}}, func(t *testing.T, k key) {
		url := store(t)
		h := counted(t, k, steps, "--annotate", "meta", "--store", url)
		db, err := sql.Open("sqlite", strings.TrimPrefix(url, "sqlite:"))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		enter := func(run string) *client {
			c := h.who(k, "")
			c.web.Header.Set(gatewayHeader, run)
			c.Initialize()
			return c
		}
		back, away, unused := enter("one"), h.taken(enter("two")), enter("three")
		h.again(os.Kill)
		waited := func() (n int) {
			for _, kept := range keptSessions(t, db) {
				if kept["away"] != nil {
					n++
				}
			}
			return n
		}
		mcptest.Await(t, "all are waited for", func() bool { return waited() == 3 })
		if r := back.call("ok", ""); r.verdict != "success" {
			t.Fatal(r.raw)
		}
		mcptest.Await(t, "two are waited for", func() bool { return waited() == 2 })
		if err := h.process.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		h.process.ExitCode()
		for name, kept := range keptSessions(t, db) { // as if they had been waited for an hour ago
			if kept["away"] == nil {
				continue
			}
			at, err := time.Parse(time.RFC3339Nano, kept["away"].(string))
			if err != nil {
				t.Fatal(err)
			}
			kept["away"] = at.Add(-time.Hour)
			text, _ := json.Marshal(kept)
			if _, err := db.ExecContext(t.Context(), "UPDATE objects SET bytes = ? WHERE kind = 'session' AND name = ?", text, name); err != nil {
				t.Fatal(err)
			}
		}
		h.anew()
		mcptest.Await(t, "two sessions are kept no longer", func() bool { return len(keptSessions(t, db)) == 1 })
		h.process.Log().Await(t, "nobody has come back to since a restart (--session-idle): sessions=2")
		for _, c := range []*client{away, unused} {
			if r := c.web.Post(t.Context(), `{"jsonrpc":"2.0","id":71,"method":"ping"}`); r.Status != http.StatusNotFound {
				t.Errorf("%d %s", r.Status, r.Body)
			}
		}
		if r := back.call("once", ""); r.verdict != "success" {
			t.Errorf("it was ended under its client: %s", r.raw)
		}
		ended := 0
		for _, row := range rowsOf(t, url) {
			if row.Ended.IsZero() {
				continue
			}
			if ended++; row.State != "after" || row.Last != row.At {
				t.Errorf("%+v", row)
			}
		}
		if want := map[string]int{"session": 1}[k.kind]; ended != want {
			t.Errorf("%d runs have ended, want %d", ended, want)
		}
		if k.kind == byHeader {
			if r := enter("two").call("once", ""); r.verdict != "invalid_transition" || r.state != "after" {
				t.Error(r.raw)
			}
		}
		verified(t, url)
	})
}

// They end while the proxy runs, too.
func TestAbandonedSessionsEndLater(t *testing.T) {
	t.Parallel()
	k, url := key{"legacy", "session"}, store(t)
	h := counted(t, k, steps, "--annotate", "meta", "--store", url)
	h.taken(h.enter(k, ""))
	h.args = append(h.args, "--session-idle", "1s")
	h.again(os.Kill)
	h.process.Log().Await(t, "nobody has come back to since a restart (--session-idle): sessions=1")
	mcptest.Await(t, "its run has ended", func() bool {
		rows := rowsOf(t, url)
		return len(rows) == 1 && !rows[0].Ended.IsZero()
	})
}
