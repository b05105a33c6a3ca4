package attack

import (
	"crypto/sha256"
	"encoding/json/v2"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// handles is a proxy that finds the runs of modern clients by handle, and tells ann
// and bob apart by their tokens.
func handles(t *testing.T, flags ...string) *rig {
	t.Helper()
	return handlesOver(t, web, flags...)
}

func handlesOver(t *testing.T, w way, flags ...string) *rig {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	text := "version: 1\ntokens:\n"
	for _, name := range []string{"ann", "bob"} {
		text += fmt.Sprintf("  %s: sha256:%x\n", name, sha256.Sum256([]byte(tokenOf(name))))
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return w.with(append(flags, "--tokens", path)...).start(t)
}

func tokenOf(name string) string { return name + "-token-1234567890" }

// begin has a client begin a run, and returns its handle.
func (r *rig) begin() string {
	r.t.Helper()
	var result struct {
		StructuredContent struct {
			Run string `json:"fsm_run"`
		} `json:"structuredContent"`
	}
	answer := r.Tool("fsm_start_run", "{}")
	if err := json.Unmarshal(answer.Result, &result); err != nil || len(result.StructuredContent.Run) < 22 {
		r.t.Fatalf("a run of fewer than 128 bits, or none: %s", answer)
	}
	return result.StructuredContent.Run
}

// of are the arguments of a call of a run.
func of(run string) string { return `{"fsm_run":"` + run + `"}` }

// says is how a fresh client is answered, so that two answers can be compared.
func (r *rig) says(name, tool, arguments string) string {
	r.t.Helper()
	return r.modernClient(tokenOf(name)).Tool(tool, arguments).String()
}

// Another's handle is answered as one that there is not, whatever is done with it, and
// opens nothing.
func TestHandleStolenAndGuessed(t *testing.T) {
	t.Parallel()
	r := handles(t)
	ann := r.modernClient(tokenOf("ann"))
	run := ann.begin()
	for _, tool := range []string{"ok", "once", "hidden", "nowhere", "fsm_end_run"} {
		unknown := r.says("bob", tool, of("ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
		if !strings.Contains(unknown, `"error":"run_not_found"`) || !denied(unknown) {
			t.Errorf("%s with a handle that is none is answered %s", tool, unknown)
		}
		if stolen := r.says("bob", tool, of(run)); stolen != unknown {
			t.Errorf("%s with a stolen handle is answered %s, with a made-up one %s", tool, stolen, unknown)
		}
		for _, guess := range []string{strings.ToLower(run), run[:len(run)-1], run + "A", run + " ", `\u0000` + run} {
			if answer := r.says("ann", tool, of(guess)); answer != unknown {
				t.Errorf("%s with the handle %q is answered %s", tool, guess, answer)
			}
		}
	}
	read := func(name, run string) string {
		return r.modernClient(tokenOf(name)).Call("resources/read", `{"uri":"w://shown","_meta":{"fsm-proxy/run":"`+run+`"}}`).String()
	}
	if stolen, unknown := read("bob", run), read("bob", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"); stolen != unknown || !strings.Contains(stolen, "run_not_found") {
		t.Errorf("a read with a stolen handle is answered %s, with a made-up one %s", stolen, unknown)
	}
	if list := r.says("bob", "fsm_list_runs", "{}"); strings.Contains(list, run) {
		t.Errorf("bob is shown %s", list)
	}
	r.reached()
	if answer := ann.Tool("once", of(run)); denied(answer.String()) {
		t.Errorf("the owner is answered %s", answer)
	}
	r.reached("tools/call once")
}

// That a run has expired its owner learns, and nobody else.
func TestHandleExpired(t *testing.T) {
	t.Parallel()
	r := handles(t, "--run-idle", "1s")
	run := r.modernClient(tokenOf("ann")).begin()
	unknown := r.says("bob", "ok", of("ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
	r.process.Log().Await(t, "runs have expired")
	if answer := r.says("ann", "ok", of(run)); !strings.Contains(answer, `"error":"run_expired"`) {
		t.Errorf("the owner is answered %s", answer)
	}
	if answer := r.says("bob", "ok", of(run)); answer != unknown {
		t.Errorf("another is answered %s", answer)
	}
	r.reached()
}

// A handle that readers could find in two places, or that is none to some, is decided
// on by nobody; one in a place of its own choosing is none.
func TestHandleInAnothersPlace(t *testing.T) {
	t.Parallel()
	r := handles(t)
	ann := r.modernClient(tokenOf("ann"))
	run, other := ann.begin(), ann.begin()
	for _, arguments := range []string{
		`{"FSM_RUN":"` + run + `"}`, `{"fſm_run":"` + other + `","fsm_run":"` + run + `"}`, `{"fsm_run\u0000":"` + other + `","fsm_run":"` + run + `"}`,
		`{"fsm_run":"` + other + `","fsm\u005frun":"` + run + `"}`, `{"fsm_run":["` + run + `"]}`, `{"fsm_run":null}`, `{"fsm_run":{"fsm_run":"` + run + `"}}`,
	} {
		if answer := ann.Tool("once", arguments).String(); !strings.Contains(answer, "-32600") {
			t.Errorf("%s is answered %s", arguments, answer)
		}
	}
	for _, params := range []string{
		`{"name":"once","arguments":{"fsm_run":"` + run + `"},"_meta":{"fsm-proxy/run":"` + other + `"}}`,
		`{"name":"once","_meta":{"fsm-proxy/RUN":"` + run + `"}}`,
	} {
		if answer := ann.Call("tools/call", params).String(); !strings.Contains(answer, "-32600") {
			t.Errorf("%s is answered %s", params, answer)
		}
	}
	for _, params := range []string{
		`{"name":"once","fsm_run":"` + run + `"}`, `{"name":"once","arguments":{"a":` + of(run) + `}}`, `{"name":"once","arguments":["fsm_run","` + run + `"]}`,
		`{"name":"once","arguments":{"run":"` + run + `"}}`, `{"name":"once","_meta":{"fsm_run":"` + run + `"}}`, `{"name":"once","arguments":{"fsm_run":""}}`,
	} {
		if answer := ann.Call("tools/call", params).String(); !strings.Contains(answer, `"error":"run_not_found"`) {
			t.Errorf("%s is answered %s", params, answer)
		}
	}
	r.reached()
}

// Leaving the handle out neither resets the run nor opens what it has behind it.
func TestHandleDropped(t *testing.T) {
	t.Parallel()
	r := handles(t)
	ann := r.modernClient(tokenOf("ann"))
	run := ann.begin()
	ann.Tool("once", of(run))
	for _, tool := range []string{"once", "read_a", "swap", "hidden"} {
		if answer := ann.Tool(tool, "{}").String(); !strings.Contains(answer, `"error":"run_not_found"`) {
			t.Errorf("%s without a handle is answered %s", tool, answer)
		}
	}
	if answer := ann.Tool("once", of(run)).String(); !strings.Contains(answer, `"state":"after"`) {
		t.Errorf("the run is answered %s", answer)
	}
	r.reached("tools/call once")
}

// What the upstream sees of a call is the call without the proxy: neither it nor the
// log has the handle.
func TestHandleIsToldNobody(t *testing.T) {
	t.Parallel()
	r := handles(t, "--log-level", "trace")
	ann := r.modernClient(tokenOf("ann"))
	run := ann.begin()
	for _, params := range []string{
		`{"name":"ok","arguments":{"fsm_run":"` + run + `"}}`, `{"name":"ok","arguments":{"a":1,"fsm_run":"` + run + `"},"_meta":{"fsm-proxy/run":"` + run + `"}}`,
		`{"name":"ok","_meta":{"fsm-proxy/run":"` + run + `"}}`,
	} {
		if answer := ann.Call("tools/call", params).String(); denied(answer) || strings.Contains(answer, run) {
			t.Errorf("%s is answered %s", params, answer)
		}
	}
	ann.Tool("hidden", of(run))
	ann.Tool("fsm_end_run", of(run))
	ann.Tool("ok", of(run))
	for _, m := range r.upstream.Received() {
		if strings.Contains(m.String(), run) || strings.Contains(m.String(), "fsm") && m.Method == "tools/call" {
			t.Errorf("the upstream got %s", m)
		}
	}
	r.nowhereIn(r.process.Log().String(), run)
}

// A flood of runs is refused, and harms nobody else's.
func TestFloodOfStartRun(t *testing.T) {
	t.Parallel()
	r := handles(t, "--max-runs", "40", "--max-runs-per-principal", "20")
	bob, ann := r.modernClient(tokenOf("bob")), r.modernClient(tokenOf("ann"))
	run := bob.begin()
	var mu sync.Mutex
	var began, refused int
	var flood sync.WaitGroup
	for range 8 {
		flood.Go(func() {
			for id := range 50 {
				answer := ann.web.Post(t.Context(), mcptest.Request(id+1, "tools/call", mcptest.Modern{}.Params(mcptest.ToolParams("fsm_start_run", "{}"))))
				mu.Lock()
				switch {
				case strings.Contains(string(answer.Body), "There are too many runs"):
					refused++
				case answer.Status == http.StatusOK && !denied(string(answer.Body)):
					began++
				}
				mu.Unlock()
			}
		})
	}
	flood.Wait()
	if began != 20 || refused != 380 {
		t.Errorf("%d runs began, %d were refused", began, refused)
	}
	if answer := bob.Tool("once", of(run)).String(); denied(answer) {
		t.Errorf("another's run is answered %s", answer)
	}
	bob.begin()
	r.reached("tools/call once")
}

// Where each run has a process, who begins as many as they may, and calls a tool in each,
// locks nobody out: there are processes left for others, and for their lists.
func TestFloodOfRunsWithProcesses(t *testing.T) {
	t.Parallel()
	r := handlesOver(t, webPipe, "--max-upstreams", "5")
	ann, bob := r.modernClient(tokenOf("ann")), r.modernClient(tokenOf("bob"))
	for range 2 {
		if answer := ann.Tool("ok", of(ann.begin())).String(); denied(answer) {
			t.Errorf("the run is answered %s", answer)
		}
	}
	if answer := ann.Tool("fsm_start_run", "{}").String(); !strings.Contains(answer, "There are too many runs") {
		t.Errorf("one run more is answered %s", answer)
	}
	if answer := bob.Call("tools/list", "{}").String(); !strings.Contains(answer, "fsm_start_run") {
		t.Errorf("another's list is answered %s", answer)
	}
	for range 2 {
		if answer := bob.Tool("ok", of(bob.begin())).String(); denied(answer) {
			t.Errorf("another's run is answered %s", answer)
		}
	}
	r.reached("tools/call ok", "tools/call ok", "tools/call ok", "tools/call ok")
}

// namesake is an upstream that has a tool of its own with a name of the proxy's.
func namesake() mcptest.Server {
	return mcptest.Script{
		Capabilities: `{"tools":{"listChanged":true}}`,
		Tools: map[string]func(*mcptest.Exchange){
			"fsm_start_run": func(e *mcptest.Exchange) { e.Result(mcptest.Text("the server's own")) },
			"once":          func(e *mcptest.Exchange) { e.Result(mcptest.Text("once")) },
		},
	}.Server()
}

// An upstream's tool that is named like the proxy's is hidden, and out of reach, only where the proxy serves its own:
// under the keys that renew a run, if the policy says that a complete one stops.
func TestUpstreamsOwnStartRun(t *testing.T) {
	t.Parallel()
	const policy = "version: 1\nname: namesake\ninitial: start\nstates: {start: {tools: {fsm_start_run: , once: {on_success: {terminal: true}}}}}\n"
	for stop, served := range map[string]bool{"": false, "on_complete: stop\n": true} {
		for _, surface := range []string{"dynamic", "static"} {
			t.Run(stop+surface, func(t *testing.T) {
				t.Parallel()
				r := &rig{t: t}
				var url string
				r.upstream, url = mcptest.HTTP(t, namesake())
				r.url, r.process = mcptest.Listen(t, "--policy", mcptest.WritePolicy(t, policy+stop), "--upstream", url, "--surface", surface,
					"--run-key", "legacy=principal", "--tokens", tokensOf(t, "ann"))
				for _, modern := range []bool{false, true} {
					c := r.diner(modern, "the token of ann")
					list := c.Call("tools/list", "").String()
					own, proxys := strings.Contains(list, `{"name":"fsm_start_run","inputSchema"`) || strings.Contains(list, `{"description":"[Allowed in state: start]","name":"fsm_start_run"`),
						strings.Contains(list, `"title":"Start a new run"`)
					if own == served || proxys != (served && surface == "static") {
						t.Errorf("modern %v: the server's own is listed %v, the proxy's %v: %s", modern, own, proxys, list)
					}
					answer := c.Tool("fsm_start_run", "").String()
					if reached := strings.Contains(answer, "the server's own"); reached == served {
						t.Errorf("modern %v: answered %s", modern, answer)
					}
				}
			})
		}
	}
}

// Under opaque refusals nothing that is listed, answered or added names a state.
func TestOpaqueNamesNoStates(t *testing.T) {
	t.Parallel()
	const policy = "version: 1\nname: opaque\ninitial: secretive\nstates: {secretive: {tools: {ok: , once: clandestine}, resources: {'w://shown': }}, clandestine: {tools: [ok]}}\n"
	for _, flags := range [][]string{{"--surface", "static"}, {"--surface", "dynamic"}, nil} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			t.Parallel()
			r := handlesOver(t, web.under(policy), append(flags, "--refusals", "opaque")...)
			for _, modern := range []bool{false, true} {
				c, arguments := r.diner(modern, tokenOf("ann")), "{}"
				if modern {
					arguments = of(c.begin())
					c.Tool("fsm_list_runs", "{}")
				}
				for _, list := range []string{"tools/list", "resources/list"} {
					if answer := c.Call(list, ""); denied(answer.String()) {
						t.Errorf("%s is answered %s", list, answer)
					}
				}
				for _, tool := range []string{"ok", "once", "once", "hidden", "ok"} {
					c.Tool(tool, arguments)
				}
				for _, name := range []string{"secretive", "clandestine", "llowed"} {
					c.unheard(name)
				}
			}
			r.reached("tools/call ok", "tools/call ok", "tools/call once", "tools/call ok", "tools/call ok", "tools/call once")
		})
	}
}

// Nor does anything else that a client can bring about: other methods, a call that has no answer, one that waits for the
// turn in vain, a run that is complete, that begins anew, or whose state a reload takes away.
func TestOpaqueNamesNoStatesByOtherWays(t *testing.T) {
	t.Parallel()
	const policy = `version: 1
name: opaque
initial: secretive
on_complete: stop
states:
  secretive:
    description: What the secretive state is for.
    tools: {ok: , silent: clandestine, hold: {exclusive: true}, once: {on_success: {to: hideaway, terminal: true}}, command: {by: command, cases: {move: clandestine}}}
    resources: {"w://shown": }
  clandestine: {tools: [elsewhere]}
  hideaway:
`
	const without = "version: 1\nname: opaque\ninitial: other\nstranded: refuse\non_complete: stop\nstates: {other: {tools: [ok, elsewhere]}}\n"
	for _, surface := range []string{"static", "dynamic"} {
		t.Run(surface, func(t *testing.T) {
			t.Parallel()
			r := web.under(policy).with("--surface", surface, "--refusals", "opaque", "--run-key", "legacy=principal", "--tokens", namedTokens(t),
				"--call-timeout", "300ms", "--turn-timeout", "20ms", "--cancel-grace", "50ms", "--reload-debounce", "5ms").start(t)
			clients := []*rig{r.diner(false, "token of ann"), r.diner(true, "token of ann")}
			all := func(calls ...[2]string) {
				for _, c := range clients {
					for _, x := range calls {
						c.Call(x[0], x[1])
					}
				}
			}
			tool := func(name, arguments string) [2]string {
				return [2]string{"tools/call", mcptest.ToolParams(name, arguments)}
			}
			holder := r.diner(false, "token of ann")
			held := holder.Request("tools/call", mcptest.ToolParams("hold", ""))
			r.upstream.Await(t, 1, "tools/call", "hold")
			all(tool("once", ""), tool("command", `{"command":"elsewhere"}`), tool("command", `{"command":"move","Command":"x"}`), tool("fsm_start_run", ""), tool("hidden", ""),
				[2]string{"resources/read", `{"uri":"w://hidden"}`}, [2]string{"prompts/get", `{"name":"hidden"}`}, [2]string{"resources/subscribe", `{"uri":"w://hidden"}`},
				[2]string{"completion/complete", `{"ref":{"type":"ref/prompt","name":"hidden"},"argument":{"name":"a","value":""}}`},
				[2]string{"resources/templates/list", ""}, [2]string{"tasks/get", `{"taskId":"x"}`}, [2]string{"server/discover", ""}, [2]string{"acme/x", ""}, [2]string{"tools/list", ""})
			r.upstream.Open("hold")
			holder.Answer(held)
			all(tool("once", ""), tool("once", ""), tool("fsm_start_run", ""), [2]string{"tools/list", ""}) // complete, refused, begun anew
			all(tool("fsm_start_run", ""), tool("silent", ""), tool("silent", ""))                          // without an answer
			r.follows(without)
			all(tool("ok", ""), tool("elsewhere", ""), [2]string{"tools/list", ""})
			log := r.process.Log().String()
			for _, code := range []string{"busy", "unknown_case", "invalid_transition", "unknown_action", "run_complete", "not_available"} {
				if !strings.Contains(log, "code="+code) {
					t.Errorf("nothing was refused as %s:\n%s", code, log)
				}
			}
			if !strings.Contains(log, "its outcome is unknown") || strings.Contains(log, "code=outcome_unknown") {
				t.Errorf("a call without an answer is no refusal, and told:\n%s", log)
			}
			for _, c := range clients {
				for _, name := range []string{"secretive", "clandestine", "hideaway", "llowed", "State is", "not complete", "passthrough"} {
					c.unheard(name)
				}
			}
		})
	}
}
