package runs

import (
	"database/sql"
	"os"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// alter does something to a store that no process has.
func alter(t *testing.T, url, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", strings.TrimPrefix(url, "sqlite:"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	done, err := db.ExecContext(t.Context(), statement)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := done.RowsAffected(); n == 0 || err != nil {
		t.Fatalf("%s: %d rows, %v", statement, n, err)
	}
}

// isShut starts the proxy over a store that is damaged: the run is named, nothing is sent, and no other one begins. The
// run of a process has it not start at all.
func (h *house) isShut(k key, url, id, why string) {
	h.t.Helper()
	sent := h.upstream.Count("tools/call")
	if k.kind == "process" {
		p := mcptest.Start(h.t, nil, append([]string{mcptest.Proxy(h.t), "run", "--listen", mcptest.FreeAddress(h.t)}, h.args...)...)
		if code, log := p.ExitCode(), p.Log().String(); code == 0 || !strings.Contains(log, id) || !strings.Contains(log, why) {
			h.t.Errorf("exit status %d: %s", code, log)
		}
	} else {
		h.anew()
		c := h.enter(k, "")
		for _, tool := range []string{"ok", "once"} {
			if r := c.call(tool, ""); r.verdict != "store_unavailable" {
				h.t.Errorf("%s is not refused: %s", tool, r.raw)
			}
		}
		h.process.Log().Await(h.t, "run "+id+" is shut")
		h.process.Log().Await(h.t, why)
		h.ends(os.Kill)
	}
	if n := h.upstream.Count("tools/call"); n != sent {
		h.t.Errorf("%d calls were sent", n-sent)
	}
	if rows := rowsOf(h.t, url); len(rows) != 1 || rows[0].ID != id {
		h.t.Errorf("another run has begun: %+v", rows)
	}
}

// A run whose policy is missing from the store is shut, and no other one begins in its place.
func TestPolicyIsMissingFromTheStore(t *testing.T) {
	each(t, []key{{"legacy", "process"}, {"modern", byHeader}}, func(t *testing.T, k key) {
		url := store(t)
		h := counted(t, k, steps, "--annotate", "meta", "--run", "p", "--store", url)
		h.taken(h.enter(k, ""))
		h.ends(os.Kill)
		alter(t, url, "DELETE FROM objects WHERE kind = 'policy'")
		if err := os.WriteFile(h.args[1], []byte(strings.Replace(steps, "[ok, hold_open]", "[ok]", 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		h.isShut(k, url, rowsOf(t, url)[0].ID, "is missing from the store")
	})
}
