//go:build long

package attack

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// Results as large as a server may send take the memory of a few of them, whether an outcome reads them or not.
func TestMemoryUnderOutcomesOf64MiB(t *testing.T) {
	const size = 63 << 20
	for _, s := range []speaker{{client: "stdio", plain: true}, {client: "http", modern: true, plain: true}} {
		t.Run(s.String(), func(t *testing.T) {
			r := s.largeResults(t, size, "whole")
			peak := mcptest.PeakMemory(t, r.process.Process.Pid)
			t.Logf("the proxy had %d MiB at most", peak>>20)
			if peak > 16*size {
				t.Errorf("the proxy had %d MiB", peak>>20)
			}
		})
	}
}

const brim = `version: 1
name: brim
initial: start
registers: {seen: {set: text, max: 1000}, last: text}
states:
  start:
    tools:
      add: {set: {seen: {add: args.texts}}}
      keep: {set: {last: args.text}}
`

// Registers filled to the brim in ten thousand runs take, all together, what --max-registers says for each, and what there
// is no room for is refused in each of them.
func TestMemoryUnderRegistersFilledToTheBrim(t *testing.T) {
	const runs, room = 10_000, 4 << 10
	r := &rig{t: t}
	var url string
	r.upstream, url = mcptest.HTTP(t, mcptest.Script{Tools: map[string]func(*mcptest.Exchange){"add": nil, "keep": nil}}.Server())
	r.url, r.process = mcptest.ListenBehind(t, nil, "--policy", mcptest.WritePolicy(t, brim), "--upstream", url, "--run-key", "modern=header:X-Run-Id",
		"--trusted-proxies", "127.0.0.1", "--max-registers", "4KiB", "--max-runs", fmt.Sprint(runs), "--max-runs-per-principal", fmt.Sprint(runs), "--log-level", "warn", "--share-upstream")
	fill := func(calls int, texts bool) (limited int64) {
		var next, refused atomic.Int64
		var workers sync.WaitGroup
		for range 8 {
			c := r.modernClient("")
			for name, value := range map[string]string{"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "add"} {
				c.web.Header.Set(name, value)
			}
			workers.Go(func() {
				for {
					n := next.Add(1)
					if n > runs {
						return
					}
					c.web.Header.Set("X-Run-Id", fmt.Sprint("run ", n))
					for i := range calls {
						var all []string
						for k := range 20 {
							all = append(all, fmt.Sprintf(`"%d %d %d %s"`, n, i, k, strings.Repeat("x", 40)))
						}
						arguments := `{"text":"a","texts":[` + strings.Join(all, ",") + `]}`
						if !texts {
							arguments = `{"text":"a","texts":[]}`
						}
						answer := string(c.web.Post(t.Context(), aloneCall(`{"name":"add","arguments":`+arguments+`}`)).Body)
						switch {
						case strings.Contains(answer, "limit_reached"):
							refused.Add(1)
						case denied(answer) || answer == "":
							t.Errorf("run %d: %.300s", n, answer)
							return
						}
					}
				}
			})
		}
		workers.Wait()
		return refused.Load()
	}
	for range 2 { // what calls take beside is taken by then
		if n := fill(1, false); n != 0 {
			t.Errorf("%d calls were refused that add nothing", n)
		}
	}
	empty := mcptest.PeakMemory(t, r.process.Process.Pid)
	refused := fill(3, true)
	full := mcptest.PeakMemory(t, r.process.Process.Pid)
	t.Logf("%d runs: %d MiB empty, %d MiB full, %d calls refused", runs, empty>>20, full>>20, refused)
	if refused < runs || refused > 2*runs {
		t.Errorf("%d calls were refused of %d", refused, 3*runs)
	}
	if grown := full - empty; grown > 3*runs*room {
		t.Errorf("it grew by %d bytes a run, of which each has room for %d", grown/runs, room)
	}
}
