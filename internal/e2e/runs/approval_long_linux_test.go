//go:build long

package runs

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// holding has calls that wait for ever, as far as a test goes.
const holding = `version: 1
name: holding
initial: open
everywhere: {tools: [ok]}
states:
  open:
    tools:
      once: {approve: {by: operator, timeout: 24h}, on_success: paid, on_any: stay}
  paid:
`

// Calls that wait for an approval, and are cancelled, leave nothing but their question, which is one for all that are the
// same call: 20,000 of them in one run take no more than the first thousands of them. What a session keeps of streams that
// may be resumed has a bound of its own.
func TestMemoryUnderCalledOffApprovals(t *testing.T) {
	for _, k := range those("process") {
		t.Run(k.String(), func(t *testing.T) {
			const warm, all, callers, questions = 4_000, 20_000, 8, 6
			upstream, url := mcptest.HTTP(t, server())
			h := &house{t: t, admin: mcptest.FreeAddress(t), olga: "olga", upstream: upstream}
			h.url, h.process = mcptest.ListenBehind(t, nil, "--policy", mcptest.WritePolicy(t, holding), "--upstream", url, "--run-key", k.era+"=process",
				"--admin", h.admin, "--admin-tokens", tokensOf(t, "olga"), "--approval-hold", "10m", "--log-level", "error", "--max-resume", "64KiB")
			var each [callers]*client
			for i := range each {
				each[i] = h.enter(k, "")
			}
			var held atomic.Int64
			waits := func(calls int) {
				var next atomic.Int64
				var working sync.WaitGroup
				for _, c := range each {
					working.Go(func() {
						for n := next.Add(1); n <= int64(calls) && !t.Failed(); n = next.Add(1) {
							if why := c.callsOff(n % questions); why != "" {
								t.Errorf("call %d: %s", n, why)
								return
							}
							held.Add(1)
						}
					})
				}
				working.Wait()
			}
			waits(warm)
			peak, heap := mcptest.PeakMemory(t, h.process.Process.Pid), h.heap()
			waits(all - warm)
			h.grown(peak, heap, all-warm)
			if held.Load() != all {
				t.Errorf("%d calls were held, want %d", held.Load(), all)
			}
			// To cancel a call does not take back its question, and a yes is for the next of it.
			open := h.approvals(questions)
			if s := h.answers(open[0].ID, "allow", ""); s.status != http.StatusOK {
				t.Errorf("%d %s", s.status, s.text)
			}
			if n := upstream.Count("tools/call"); n != 0 {
				t.Errorf("%d were sent that nobody waits for", n)
			}
			if r := each[0].call("once", strings.Trim(string(open[0].Arguments), "{}")); r.verdict != "success" {
				t.Error(r.raw)
			}
			if n := upstream.Count("tools/call", "once"); n != 1 {
				t.Errorf("%d were sent", n)
			}
		})
	}
}

// heap is what the proxy has in use, once nothing is left to be collected.
func (h *house) heap() (bytes int) {
	h.t.Helper()
	for range 2 { // what is kept for the next use is dropped by the second
		r, err := http.NewRequestWithContext(h.t.Context(), http.MethodGet, "http://"+h.admin+"/debug/pprof/heap?gc=1&debug=1", nil)
		if err != nil {
			h.t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token(h.olga))
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			h.t.Fatal(err)
		}
		_, said, _ := strings.Cut(body(h.t, answer), "# HeapAlloc = ")
		answer.Body.Close()
		if _, err := fmt.Sscan(said, &bytes); err != nil || bytes == 0 {
			h.t.Fatalf("no heap: %v", err)
		}
	}
	return bytes
}

// grown fails the test where so many calls have left anything in the proxy, or took much while they went on.
func (h *house) grown(peak, heap, calls int) {
	h.t.Helper()
	left, most := h.heap()-heap, mcptest.PeakMemory(h.t, h.process.Process.Pid)-peak
	h.t.Logf("%d calls have left %d KiB in %d KiB, and took %d KiB at most beyond what those before had", calls, left>>10, heap>>10, most>>10)
	if left > 100*calls {
		h.t.Errorf("they have left %d bytes each", left/calls)
	}
	if most > 16<<20 {
		h.t.Errorf("they took %d KiB", most>>10)
	}
}

// callsOff makes a call, and cancels it once it is held. It returns what came instead.
func (c *client) callsOff(n int64) string {
	arguments := fmt.Sprintf(`"n":%d`, n)
	if c.handle != "" {
		arguments += fmt.Sprintf(`,"fsm_run":%q`, c.handle)
	}
	id, leave := c.Open("tools/call", fmt.Sprintf(`{"name":"once","arguments":{%s},"_meta":{"progressToken":"p"}}`, arguments))
	defer leave()
	for {
		switch m := c.Next(); {
		case m.Method == "notifications/progress":
			if !c.key.modern() {
				c.Notify("notifications/cancelled", fmt.Sprintf(`{"requestId":%d}`, id))
			}
			return ""
		case m.IsResponse():
			return m.String()
		}
	}
}

// Nor do the runs that end with such a call, each with its question.
func TestMemoryUnderEndedRunsThatAsked(t *testing.T) {
	for _, k := range those("session", "handle") {
		t.Run(k.String(), func(t *testing.T) {
			const warm, all, callers = 3_000, 10_000, 8
			_, url := mcptest.HTTP(t, server())
			h := &house{t: t, admin: mcptest.FreeAddress(t), olga: "olga"}
			h.url, h.process = mcptest.ListenBehind(t, nil, "--policy", mcptest.WritePolicy(t, holding), "--upstream", url, "--run-key", k.era+"="+k.kind,
				"--admin", h.admin, "--admin-tokens", tokensOf(t, "olga"), "--approval-hold", "10m", "--log-level", "error", "--share-upstream")
			var clients [callers]*client
			for i := range clients {
				clients[i] = h.who(k, "")
			}
			asks := func(calls int) {
				var next atomic.Int64
				var working sync.WaitGroup
				for _, c := range clients {
					working.Go(func() {
						for n := next.Add(1); n <= int64(calls) && !t.Failed(); n = next.Add(1) {
							if why := c.asksAndEnds(t, n); why != "" {
								t.Errorf("run %d: %s", n, why)
								return
							}
						}
					})
				}
				working.Wait()
			}
			asks(warm)
			peak, heap := mcptest.PeakMemory(t, h.process.Process.Pid), h.heap()
			asks(all - warm)
			h.grown(peak, heap, all-warm)
			h.approvals(0)
			if n := len(h.known()); n != 0 {
				t.Errorf("there are %d runs yet", n)
			}
		})
	}
}

// asksAndEnds begins a run, has a call of it held and cancelled, and ends it. It returns what came instead.
func (c *client) asksAndEnds(t *testing.T, n int64) (why string) {
	if c.key.modern() {
		c.handle = c.start(t)
		why = c.callsOff(n)
		if r := c.call("fsm_end_run", ""); r.verdict != "success" {
			return r.raw
		}
		return why
	}
	c.web.SetID("")
	c.Initialize()
	why = c.callsOff(n)
	if status := c.web.Delete(); status >= 300 {
		return fmt.Sprint("ending the session: ", status)
	}
	return why
}
