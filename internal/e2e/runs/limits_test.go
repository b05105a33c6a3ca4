package runs

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// personal is a policy with limits of principals over all their runs.
const personal = `version: 1
name: personal
initial: start
at_most: {principal: {day: 6}}
states:
  start:
    tools:
      ok: {at_most: {principal: {hour: 2}}}
      once: {at_most: {principal: {minute: 1}}}
      hold:
    signals:
      stop: {to: start, at_most: {principal: {day: 1}}}
`

// as is a client of somebody's in a run of a name.
func (h *house) as(k key, who, run string) *client {
	h.t.Helper()
	c := h.who(k, who)
	c.web.Header.Set(gatewayHeader, run)
	if !k.modern() {
		c.Initialize()
	}
	return c
}

// earlier has what is kept of principals' limits be as if so much time had passed since; the proxy is not there.
func earlier(t *testing.T, url string, passed time.Duration) {
	t.Helper()
	db, err := sql.Open("sqlite", strings.TrimPrefix(url, "sqlite:"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for name, text := range objectsIn(t, db, "principal_limits") {
		var kept map[string][]map[string]any
		if err := json.Unmarshal([]byte(text), &kept); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		for _, one := range kept["limits"] {
			times := one["times"].([]any)
			times[0] = int64(times[0].(float64)) - int64(passed)
		}
		again, err := json.Marshal(kept)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.ExecContext(t.Context(), "UPDATE objects SET bytes = ? WHERE kind = 'principal_limits' AND name = ?", again, name); err != nil {
			t.Fatal(err)
		}
	}
}

// objectsIn are the objects of a kind that are kept, by their names.
func objectsIn(t *testing.T, db *sql.DB, kind string) map[string]string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT name, bytes FROM objects WHERE kind = ?", kind)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	all := map[string]string{}
	for rows.Next() {
		var name string
		var text []byte
		if err := rows.Scan(&name, &text); err != nil {
			t.Fatal(err)
		}
		all[name] = string(text)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// Limits of a principal go on, over all of its runs, whenever the proxy is killed, and those of another are its own.
func TestPrincipalsLimitsAcrossRestarts(t *testing.T) {
	each(t, those(byHeader), func(t *testing.T, k key) {
		url := store(t)
		h := counted(t, k, personal, "--annotate", "meta", "--tokens", tokens(t), "--store", url)
		must := func(who, run, tool, verdict string) {
			t.Helper()
			call, arguments := tool, `"who":"me"`
			if tool == "stop" {
				call, arguments = "fsm_signal", `"name":"stop"`
			}
			if r := h.as(k, who, run+" of "+who).call(call, arguments); r.verdict != verdict {
				t.Fatalf("%s of %s in %s: %s, want %s\n%s", tool, who, run, r.verdict, verdict, r.raw)
			}
			h.again(os.Kill)
		}
		must("ann", "one", "ok", "success")
		must("ann", "two", "ok", "success")
		must("ann", "one", "ok", "limit_reached")
		must("ann", "three", "ok", "limit_reached")
		must("bob", "one", "ok", "success")
		must("ann", "three", "once", "success")
		must("ann", "three", "once", "limit_reached")
		must("ann", "three", "stop", "success")
		must("ann", "two", "stop", "limit_reached")

		held := h.as(k, "ann", "two of ann") // whose call is lost with the proxy, and counts: the fourth of the day
		held.Request("tools/call", mcptest.ToolParams("hold", `{"who":"me"}`))
		h.upstream.Await(t, 1, "tools/call", "hold")
		h.ends(os.Kill)
		h.upstream.Open("hold")
		earlier(t, url, time.Hour)
		h.anew()

		must("ann", "one", "ok", "success") // again: its hour is over
		must("ann", "four", "once", "success")
		must("ann", "two", "once", "limit_reached")
		must("ann", "five", "ok", "limit_reached") // the day's six are taken
		must("bob", "one", "ok", "success")
		for _, by := range []os.Signal{os.Kill, syscall.SIGTERM} {
			h.ends(by)
			earlier(t, url, 24*time.Hour)
			h.anew()
			must("ann", "six", "ok", "success")
			must("ann", "six", "stop", "success")
			must("ann", "one", "stop", "limit_reached")
		}
	})
}

// What is kept of principals' limits names nobody, goes when their windows are over, and is given back by calls that
// were not sent.
func TestPrincipalsLimitsAreForgotten(t *testing.T) {
	t.Parallel()
	k, url := key{"modern", byHeader}, store(t)
	h := counted(t, k, personal, "--annotate", "meta", "--tokens", tokens(t), "--store", url, "--run-idle", "16s")
	if r := h.as(k, "ann", "the run").call("ok", ""); r.verdict != "success" {
		t.Fatal(r.raw)
	}
	db, err := sql.Open("sqlite", strings.TrimPrefix(url, "sqlite:"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	all := objectsIn(t, db, "principal_limits")
	if len(all) != 1 {
		t.Fatal(all)
	}
	for name, text := range all {
		if strings.Contains(name+text, "ann") || len(name) != 64 {
			t.Errorf("%s: %s", name, text)
		}
	}
	h.ends(os.Kill)
	earlier(t, url, 24*time.Hour)
	h.anew()
	mcptest.Await(t, "nothing is kept of windows that are over", func() bool { return len(objectsIn(t, db, "principal_limits")) == 0 })
}

// A limit whose state has another name in the policy after the restart goes on there.
func TestPrincipalsLimitsUnderAnotherPolicy(t *testing.T) {
	t.Parallel()
	k := key{"modern", byHeader}
	h := counted(t, k, personal, "--annotate", "meta", "--tokens", tokens(t), "--store", store(t))
	if r := h.as(k, "ann", "one").call("once", ""); r.verdict != "success" {
		t.Fatal(r.raw)
	}
	if err := os.WriteFile(h.args[1], []byte(strings.NewReplacer("start", "begin").Replace(personal)+"renamed: {start: begin}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.again(os.Kill)
	for _, run := range []string{"one", "two"} {
		if r := h.as(k, "ann", run).call("once", ""); r.verdict != "limit_reached" {
			t.Errorf("%s: %s", run, r.raw)
		}
	}
	if r := h.as(k, "bob", "three").call("once", ""); r.verdict != "success" {
		t.Error(r.raw)
	}
}

// Over stdio all is done for one, of whom nobody says who that is.
func TestPrincipalsLimitsOverStdio(t *testing.T) {
	t.Parallel()
	_, url := mcptest.HTTP(t, server())
	policy, kept := mcptest.WritePolicy(t, personal), store(t)
	for i, x := range []struct{ tool, verdict string }{
		{"ok", "success"}, {"ok", "success"}, {"ok", "limit_reached"}, {"stop", "success"}, {"stop", "limit_reached"}, {"once", "success"}, {"once", "limit_reached"},
	} {
		c := &client{}
		var p *mcptest.Process
		c.Session, p = mcptest.Dial(t, mcptest.Proxy(t), "run", "--policy", policy, "--annotate", "meta", "--store", kept, "--upstream", url)
		c.Initialize()
		r := reply{}
		if x.tool == "stop" {
			r = c.signal("stop")
		} else {
			r = c.call(x.tool, "")
		}
		if r.verdict != x.verdict {
			t.Fatalf("call %d: %s of %s, want %s\n%s", i, r.verdict, x.tool, x.verdict, r.raw)
		}
		if err := p.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		p.ExitCode()
	}
}

// However many runs a principal has under way when the proxy is killed, no more calls are sent than its limit lets, and no
// fewer but for those that were under way.
func TestPrincipalsLimitsUnderKills(t *testing.T) {
	each(t, those(byHeader), func(t *testing.T, k key) {
		const most, walkers, kills = 60, 6, 5
		policy := fmt.Sprintf("version: 1\nname: s\ninitial: start\nstates: {start: {tools: {ok: {at_most: {principal: {day: %d}}}}}}\n", most)
		h := counted(t, k, policy, "--annotate", "meta", "--tokens", tokens(t), "--store", store(t))
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var calls sync.WaitGroup
		var full atomic.Int32
		came := func() int { return h.upstream.Count("tools/call", "ok") }
		for i := range walkers {
			c := h.as(k, "ann", fmt.Sprint("run ", i))
			calls.Go(func() {
				for ctx.Err() == nil {
					params := mcptest.ToolParams("ok", "{}")
					if k.modern() {
						params = mcptest.Modern{}.Params(params)
					}
					answer := c.web.Post(ctx, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":%s}`, params))
					if answer.Err != nil || len(answer.Messages) == 0 { // the proxy is not there
						select {
						case <-ctx.Done():
						case <-time.After(5 * time.Millisecond):
						}
						continue
					}
					if read(answer.Messages[len(answer.Messages)-1], nil).verdict == "limit_reached" {
						full.Add(1)
						return
					}
				}
			})
		}
		for i := range kills {
			mcptest.Await(t, "some calls come, or all have", func() bool { return came() >= (i+1)*most/(kills+2) || full.Load() == walkers })
			h.again(os.Kill)
		}
		calls.Wait()
		if n := came(); n > most || n < most-kills*walkers {
			t.Errorf("%d calls were sent, of %d, with %d kills under %d runs", n, most, kills, walkers)
		}
		if r := h.as(k, "ann", "the last").call("ok", ""); r.verdict != "limit_reached" {
			t.Error(r.raw)
		}
		h.again(syscall.SIGTERM)
		if r := h.as(k, "ann", "the last").call("ok", ""); r.verdict != "limit_reached" {
			t.Error(r.raw)
		}
	})
}
