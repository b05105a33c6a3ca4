package runs

import (
	"database/sql"
	"os"
	"os/exec"
	"path/filepath"
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
		if code, log := p.ExitCode(), p.Log().String(); code == 0 || !strings.Contains(log, id) || !strings.Contains(log, why) || !strings.Contains(log, "fsm-proxy verify RUN") {
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

// What the row of a run says is held to its entries, with a key that who alters it does not have: 'verify' names the run,
// and the proxy shuts it.
func TestRowIsHeldToItsEntries(t *testing.T) {
	byOne, byAnn := key{"modern", byHeader}, key{"modern", "principal"}
	for what, x := range map[string]struct {
		k               key
		statement, says string
	}{
		"ended":                    {byOne, "UPDATE runs SET ended = used", "other row: the row has it that the run has ended"},
		"ended, of a process":      {key{"legacy", "process"}, "UPDATE runs SET ended = used", "other row: the row has it that the run has ended"},
		"the state":                {byOne, "UPDATE runs SET state = 'start'", "other row: the row has the state"},
		"complete":                 {byOne, "UPDATE runs SET complete = 1", "other row: the row has it that the run is complete"},
		"the policy":               {byOne, "UPDATE runs SET policy = 'another'", "other row: the row has the policy another"},
		"the checkpoint":           {byOne, "UPDATE runs SET checkpoint = 1", "other row: the row has it that the last checkpoint is 1"},
		"an owner":                 {byOne, "UPDATE runs SET subject = 'mallory'", "other row: the row has another key or owner"},
		"another owner":            {byAnn, "UPDATE runs SET subject = 'mallory'", "other row: the row has another key or owner"},
		"the beginning is cut off": {byOne, "UPDATE runs SET base_seq = 2, base_hash = (SELECT hash FROM entries WHERE seq = 2); DELETE FROM entries WHERE seq <= 2", "gap: those before it are missing"},
		"all is cut off":           {byOne, "UPDATE runs SET at_seq = 0, at_hash = x''; DELETE FROM entries", "cut tail: the run has no records"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			url, secret := store(t), filepath.Join(t.TempDir(), "key")
			if err := os.WriteFile(secret, []byte(strings.Repeat("k", 40)), 0o600); err != nil {
				t.Fatal(err)
			}
			h := counted(t, x.k, steps, "--annotate", "meta", "--run", "p", "--store", url, "--record-key", secret)
			h.taken(h.enter(x.k, ""))
			h.ends(os.Kill)
			verify := func() (string, error) {
				out, err := exec.CommandContext(t.Context(), mcptest.Proxy(t), "verify", "--store", url, "--record-key", secret).CombinedOutput()
				return string(out), err
			}
			if out, err := verify(); err != nil {
				t.Fatalf("before: %s, %v", out, err)
			}
			alter(t, url, x.statement)
			id := rowsOf(t, url)[0].ID
			out, err := verify()
			if status, is := err.(*exec.ExitError); !is || status.ExitCode() != 1 || !strings.Contains(out, "run "+id+", entry") || !strings.Contains(out, x.says) {
				t.Errorf("%s, %v", out, err)
			}
			h.isShut(x.k, url, id, x.says)
		})
	}
}

// What finds a run is held to its entries as well: it is nobody else's then, and 'verify' names it.
func TestKeyIsHeldToTheEntries(t *testing.T) {
	t.Parallel()
	k, url := key{"modern", byHeader}, store(t)
	h := counted(t, k, steps, "--annotate", "meta", "--store", url)
	h.taken(h.enter(k, ""))
	h.ends(os.Kill)
	alter(t, url, "UPDATE runs SET key_hash = zeroblob(32)")
	if out, err := exec.CommandContext(t.Context(), mcptest.Proxy(t), "verify", "--store", url).CombinedOutput(); err == nil || !strings.Contains(string(out), "other row: the row has another key or owner") {
		t.Errorf("%s, %v", out, err)
	}
}
