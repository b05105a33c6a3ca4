package runs

import (
	"database/sql"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/stores"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
	"github.com/fsm-proxy/fsm-proxy/proxy/durable"
)

// unwritable plays what holds while the store cannot be written: nothing is sent that would have to be kept, and what was
// sent is told as unknown; all else goes on, and so does the run when it can be written again. fail and mend are what is
// done to the store meanwhile. front is a command that becomes the proxy, none where it is started by itself.
func unwritable(t *testing.T, k key, url string, front []string, fail, mend func(h *house)) {
	health := mcptest.FreeAddress(t)
	upstream, server := mcptest.HTTP(t, server())
	h := openBehind(t, front, k, steps, "--annotate", "meta", "--store", url, "--store-timeout", "2s", "--health", health, "--upstream", server)
	h.upstream = upstream
	c := h.enter(k, "")
	if r := c.call("ok", ""); r.verdict != "success" {
		t.Fatal(r.raw)
	}
	hold := c.Request("tools/call", mcptest.ToolParams("hold", `{"who":"me"}`))
	h.upstream.Await(t, 1, "tools/call", "hold")

	fail(h)
	h.upstream.Open("hold")
	answer, before := c.Answer(hold)
	if r := read(answer, before); r.verdict != "outcome_unknown" || r.state != "start" {
		t.Errorf("what is not written counts: %s", r.raw)
	}
	h.process.Log().Await(t, "the store cannot be written")
	if r := c.call("ok", ""); r.verdict != "success" || r.state != "start" {
		t.Errorf("what needs no store: %s", r.raw)
	}
	if r := c.call("elsewhere", ""); r.verdict != "busy" && r.verdict != "invalid_transition" {
		t.Errorf("what needs no store is refused: %s", r.raw)
	}
	mcptest.Await(t, "what was left out is counted", func() bool { return strings.Contains(metrics(t, health), "fsm_proxy_store_left_out_total 2\n") })
	other := h.enter(k, "")
	if r := other.call("once", ""); r.verdict == "success" {
		t.Errorf("it was sent: %s", r.raw)
	}
	if status, text := readiness(t, health); status != http.StatusServiceUnavailable || !strings.Contains(text, "[-] store") {
		t.Errorf("%d %s", status, text)
	}
	mend(h)
	h.process.Log().Await(t, "the store can be written again")
	h.process.Log().Await(t, "what became of a call is written at last")
	if r := c.call("once", ""); r.verdict != "invalid_transition" || r.state != "after" {
		t.Errorf("what was unknown is lost: %s", r.raw)
	}
	if status, text := readiness(t, health); status != http.StatusOK {
		t.Errorf("%d %s", status, text)
	}
	if front == nil {
		h.again(os.Kill)
		if r := h.enter(k, "").call("once", ""); r.verdict != "invalid_transition" || r.state != "after" {
			t.Error(r.raw)
		}
	}
	if n := h.upstream.Count("tools/call", "once"); n != 0 {
		t.Errorf("once has reached the upstream %d times", n)
	}
}

// readiness is what /readyz answers.
func readiness(t *testing.T, health string) (status int, text string) {
	t.Helper()
	answer, err := http.Get("http://" + health + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	return answer.StatusCode, body(t, answer)
}

// Somebody else locks the file.
func TestStoreThatIsLocked(t *testing.T) {
	each(t, those(byHeader), func(t *testing.T, k key) {
		url := store(t)
		execute := locks(t, url)
		unwritable(t, k, url, nil, func(*house) { execute("PRAGMA busy_timeout = 30000; BEGIN IMMEDIATE") }, func(*house) { execute("ROLLBACK") })
	})
}

// locks returns what executes SQL over one connection to a file of runs.
func locks(t *testing.T, url string) (execute func(text string)) {
	t.Helper()
	conn := connects(t, url)
	return func(text string) {
		if _, err := conn.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
}

// connects returns a connection to a file of runs.
func connects(t *testing.T, url string) *sql.Conn {
	t.Helper()
	db, err := sql.Open("sqlite", strings.TrimPrefix(url, "sqlite:"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// toAndFro has ok and once in turns.
const toAndFro = `version: 1
name: turns
initial: a
states:
  a: {tools: {ok: b}}
  b: {tools: {once: a}}
`

// The end of what was written is lost, as by a power failure of a disk that lied, or damaged: runs are in an old state then,
// which an anchor finds, and never in one that they were not in.
func TestEndOfTheStoreIsLost(t *testing.T) {
	for name, spoil := range map[string]func(wal []byte) []byte{
		"cut":     func(wal []byte) []byte { return wal[:rand.IntN(len(wal))] },
		"zeroed":  func(wal []byte) []byte { clear(wal[rand.IntN(len(wal)):]); return wal },
		"damaged": func(wal []byte) []byte { wal[rand.IntN(len(wal))] ^= 0x55; return wal },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, url := key{"modern", byHeader}, store(t)
			h := counted(t, k, toAndFro, "--annotate", "meta", "--store", url)
			c := h.enter(k, "")
			for i := range 20 {
				if r := c.call([]string{"ok", "once"}[i%2], ""); r.verdict != "success" {
					t.Fatal(r.raw)
				}
			}
			end := rowsOf(t, url)[0]
			if err := h.process.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			h.process.ExitCode()
			for range 6 {
				h.goesOnFrom(k, spoiled(t, url, spoil), end)
			}
		})
	}
}

// spoiled is a copy of a store whose write-ahead log is spoiled.
func spoiled(t *testing.T, url string, spoil func(wal []byte) []byte) string {
	t.Helper()
	copied := store(t)
	for _, file := range []string{"", "-wal"} {
		text, err := os.ReadFile(strings.TrimPrefix(url, "sqlite:") + file)
		if err != nil {
			t.Fatal(err)
		}
		if file != "" {
			text = spoil(text)
		}
		if err := os.WriteFile(strings.TrimPrefix(copied, "sqlite:")+file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return copied
}

// goesOnFrom starts a proxy over a store whose end may be lost, and plays on.
func (h *house) goesOnFrom(k key, url string, end journal.Row) {
	h.t.Helper()
	whole := keeps(h.t, url, end)
	args := slices.Clone(h.args)
	args[slices.Index(args, "--store")+1], args[slices.Index(args, "--admin")+1] = url, mcptest.FreeAddress(h.t)
	old := &house{t: h.t, args: args}
	old.url, old.process = mcptest.Listen(h.t, args...)
	c := old.enter(k, "")
	r := c.call("elsewhere", "")
	next := map[string]string{"a": "ok", "b": "once"}[r.state]
	if next == "" {
		h.t.Fatalf("the run is wedged: %s", r.raw)
	}
	if r := c.call(next, ""); r.verdict != "success" {
		h.t.Error(r.raw)
	}
	if err := old.process.Process.Kill(); err != nil {
		h.t.Fatal(err)
	}
	old.process.ExitCode()
	if done := verified(h.t, url) - 1; done < 0 || (done%2 == 0) != (r.state == "a") {
		h.t.Errorf("the run was in %s, and the store has %d steps that led there", r.state, done)
	}
	s, err := stores.OpenReader(h.t.Context(), stores.Config{URL: url})
	if err != nil {
		h.t.Fatal(err)
	}
	defer s.Close()
	row, err := s.Row(h.t.Context(), end.ID)
	if err != nil {
		return // its beginning is lost, too: an anchor says that it is gone
	}
	fault, err := durable.Verifier(nil)(&row, journal.All(h.t.Context(), s, row.ID), end.Last)
	if err != nil || (fault == nil) != whole || whole && r.state != "a" {
		h.t.Errorf("record %d of %d is the last, in %s, and the anchor says %v, %v", row.Last.Seq, end.Last.Seq, r.state, fault, err)
	}
}

// keeps reports whether a store has all of a run, up to its end.
func keeps(t *testing.T, url string, end journal.Row) bool {
	t.Helper()
	s, err := stores.OpenReader(t.Context(), stores.Config{URL: url})
	if err != nil {
		return false // not even its tables are there any more
	}
	defer s.Close()
	records, err := s.Records(t.Context(), end.ID, end.Last.Seq-1, 1)
	return err == nil && len(records) == 1 && records[0].Hash == end.Last.Hash
}
