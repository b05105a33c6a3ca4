//go:build long

package runs

import (
	"context"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest/postgres"
)

// slowStores are stores, and what has each commit of one take a second until mend is called.
var slowStores = map[string]func(t *testing.T) (url string, slow func() (mend func())){
	"SQLite": func(t *testing.T) (string, func() func()) {
		url := store(t)
		return url, func() func() { return holdsUp(t, url) }
	},
	"PostgreSQL": func(t *testing.T) (string, func() func()) {
		url := postgres.Start(t).URL("runs")
		return url, func() func() {
			execute(t, url, `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(1); RETURN NEW; END';
				CREATE TRIGGER slow BEFORE INSERT ON fsm_proxy.entries FOR EACH STATEMENT EXECUTE FUNCTION slow()`)
			return func() { execute(t, url, "DROP TRIGGER slow ON fsm_proxy.entries") }
		}
	},
}

// holdsUp has a file of SQLite locked by another process for a second before commits of its own, one after the other.
func holdsUp(t *testing.T, url string) (mend func()) {
	t.Helper()
	conn := connects(t, url)
	ctx, cancel := context.WithCancel(t.Context())
	execute := func(text string) {
		if _, err := conn.ExecContext(context.Background(), text); err != nil {
			t.Error(err)
			cancel()
		}
	}
	version := func() (n int) {
		if err := conn.QueryRowContext(context.Background(), "PRAGMA data_version").Scan(&n); err != nil {
			t.Error(err)
			cancel()
		}
		return n
	}
	waits := func(d time.Duration) bool {
		select {
		case <-time.After(d):
			return true
		case <-ctx.Done():
			return false
		}
	}
	execute("PRAGMA busy_timeout = 30000; BEGIN IMMEDIATE")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			going := waits(time.Second) // which is the fault
			execute("ROLLBACK")
			for was := version(); going && version() == was; {
				going = waits(time.Millisecond)
			}
			if !going {
				return
			}
			execute("BEGIN IMMEDIATE")
		}
	}()
	mend = sync.OnceFunc(func() { cancel(); <-ended })
	t.Cleanup(mend)
	return mend
}

// A store that takes a second for each commit is waited for: what may happen once is sent once, what needs no store goes on,
// the proxy is ready, and nothing is lost.
func TestStoreThatIsSlow(t *testing.T) {
	t.Parallel()
	for name, open := range slowStores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, slow := open(t)
			k, health := key{"modern", byHeader}, mcptest.FreeAddress(t)
			h := counted(t, k, steps, "--annotate", "meta", "--store", url, "--health", health)
			c, d := h.enter(k, ""), h.enter(k, "")
			if r := c.call("ok", ""); r.verdict != "success" {
				t.Fatal(r.raw)
			}
			slow()
			began := time.Now()
			first, second := c.Request("tools/call", mcptest.ToolParams("once", "{}")), d.Request("tools/call", mcptest.ToolParams("once", "{}"))
			if r := h.enter(k, "").call("ok", ""); r.verdict != "success" {
				t.Errorf("what needs no store: %s", r.raw)
			}
			answer, before := c.Answer(first)
			other, earlier := d.Answer(second)
			a, b := read(answer, before), read(other, earlier)
			if took := time.Since(began); took < time.Second/2 {
				t.Fatalf("nothing was slow: %v", took)
			}
			if a.verdict != "success" {
				a, b = b, a
			}
			if a.verdict != "success" || a.state != "after" || b.verdict != "busy" && b.verdict != "invalid_transition" {
				t.Errorf("%s\n%s", a.raw, b.raw)
			}
			if status, text := readiness(t, health); status != http.StatusOK {
				t.Errorf("%d %s", status, text)
			}
			h.again(os.Kill)
			if r := h.enter(k, "").call("once", ""); r.verdict != "invalid_transition" || r.state != "after" {
				t.Error(r.raw)
			}
			if n := h.upstream.Count("tools/call", "once"); n != 1 {
				t.Errorf("once has reached the upstream %d times", n)
			}
		})
	}
}

// A store that takes longer than --store-timeout: its client hears what is so, and the run is where the upstream has it be
// once all is written.
func TestStoreThatIsTooSlow(t *testing.T) {
	t.Parallel()
	for name, open := range slowStores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, slow := open(t)
			k := key{"modern", byHeader}
			h := counted(t, k, steps, "--annotate", "meta", "--store", url, "--store-timeout", "500ms")
			c := h.enter(k, "")
			goesOn := func(c *client, name string) (r reply) {
				mcptest.Await(t, "the run goes on", func() bool { // a machine that has much to do can be too slow as well
					r = c.call(name, "")
					return r.verdict != "busy" && r.verdict != "store_unavailable"
				})
				return r
			}
			if r := goesOn(c, "ok"); r.verdict != "success" {
				t.Fatal(r.raw)
			}
			mend := slow()
			r := c.call("once", "")
			sent := h.upstream.Count("tools/call", "once")
			if r.verdict != "store_unavailable" && r.verdict != "outcome_unknown" || r.verdict == "store_unavailable" && sent != 0 {
				t.Errorf("it was sent %d times: %s", sent, r.raw)
			}
			mend()
			want := map[int]string{0: "success", 1: "invalid_transition"}[sent]
			if r = goesOn(c, "once"); r.verdict != want || r.state != "after" {
				t.Errorf("want %s: %s", want, r.raw)
			}
			h.again(os.Kill)
			if r := goesOn(h.enter(k, ""), "once"); r.verdict != "invalid_transition" || r.state != "after" {
				t.Error(r.raw)
			}
			if n := h.upstream.Count("tools/call", "once"); n != 1 {
				t.Errorf("once has reached the upstream %d times", n)
			}
		})
	}
}
