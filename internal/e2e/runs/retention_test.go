package runs

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/stores"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
	"github.com/fsm-proxy/fsm-proxy/proxy/durable"
)

// endless is a run that goes on and on, and counts.
const endless = `version: 1
name: endless
initial: start
registers: {n: counter, seen: {set: text, max: 10}}
states:
  start:
    tools:
      ok: {at_most: {run: 40}, set: {n: {add: 1}, seen: {add: args.who}}}
      hold_open: {at_most: {run: 5}}
      once: {when: registers.n == 40 && size(registers.seen) == 1, on_success: after}
  after: {tools: [elsewhere]}
`

// Of a run that never ends few records are kept, behind checkpoints, and what it remembers goes on through any number of
// them: also what calls have taken that were under way when the proxy was killed, and after the run was carried to
// another store.
func TestRunsThatNeverEndKeepFewRecords(t *testing.T) {
	each(t, those(byHeader), func(t *testing.T, k key) {
		const keep = 10
		url, next := store(t), store(t)
		h := counted(t, k, endless, "--annotate", "meta", "--store", url, "--keep-entries", "10")
		c := h.enter(k, "")
		must := func(tool, arguments, verdict, state string) {
			t.Helper()
			if r := c.call(tool, arguments); r.verdict != verdict || r.state != state {
				t.Fatalf("%s: %s in %s, want %s in %s\n%s", tool, r.verdict, r.state, verdict, state, r.raw)
			}
		}
		for i := range 5 {
			_ = c.Request("tools/call", mcptest.ToolParams("hold_open", `{"who":"me"}`)) // which is lost with the proxy
			h.upstream.Await(t, i+1, "tools/call", "hold_open")
			for range 8 {
				must("ok", `"who":"a"`, "success", "start")
			}
			h.ends(os.Kill)
			if i == 4 {
				carry(t, url, next)
				h.args[slices.Index(h.args, url)] = next
			}
			h.anew()
			c = h.enter(k, c.run())
		}
		must("hold_open", `"who":"me"`, "limit_reached", "start")
		must("ok", `"who":"b"`, "limit_reached", "start")
		must("once", "", "success", "after")
		for _, url := range []string{url, next} {
			rows := rowsOf(t, url)
			if len(rows) != 1 || rows[0].Last.Seq < 90 || rows[0].Checkpoint == 0 || rows[0].Last.Seq-rows[0].Base.Seq > 2*keep+5 {
				t.Errorf("%+v", rows)
			}
			verified(t, url)
		}
	})
}

// Where runs that go on fill the store no more begin, also after a restart; one that ends makes room for another.
func TestStoreThatIsFull(t *testing.T) {
	each(t, those("handle"), func(t *testing.T, k key) {
		url := store(t)
		h := counted(t, k, steps, "--annotate", "meta", "--store", url, "--max-stored-runs", "3")
		live := []*client{h.taken(h.enter(k, "")), h.taken(h.enter(k, "")), h.taken(h.enter(k, ""))}
		full := func() {
			t.Helper()
			if r := h.who(k, "").call("fsm_start_run", ""); r.verdict != "store_unavailable" || !strings.Contains(r.text, "full") {
				t.Errorf("a run too many is answered %s", r.raw)
			}
		}
		another := h.who(k, "")
		if !k.modern() {
			another.Initialize()
		}
		full()
		if r := live[0].call("fsm_end_run", ""); r.verdict != "success" {
			t.Fatal(r.raw)
		}
		mcptest.Await(t, "there is room for another run", func() bool { return another.call("fsm_start_run", "").verdict == "success" })
		mcptest.Await(t, "that which has ended is gone", func() bool {
			rows := rowsOf(t, url)
			return len(rows) == 3 && !slices.ContainsFunc(rows, func(r journal.Row) bool { return !r.Ended.IsZero() })
		})
		full()
		h.again(os.Kill)
		full()
		for _, c := range live[1:] {
			if r := h.enter(k, c.handle).call("once", ""); r.verdict != "invalid_transition" || r.state != "after" {
				t.Error(r.raw)
			}
		}
	})
}

// carry carries all runs from one store to another.
func carry(t *testing.T, from, to string) {
	t.Helper()
	s, err := stores.OpenReader(t.Context(), stores.Config{URL: from})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var lines bytes.Buffer
	x := journal.Exporter{From: s, To: &lines, Needs: durable.Needs}
	if err := x.Objects(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, row := range rowsOf(t, from) {
		if err := x.Run(t.Context(), row.ID); err != nil {
			t.Fatal(err)
		}
	}
	other, err := stores.Open(t.Context(), stores.Config{URL: to, Holder: "a test"})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := journal.Import(t.Context(), other, &lines); err != nil {
		t.Fatal(err)
	}
}
