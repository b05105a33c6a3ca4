package proxy_test

import (
	"encoding/json/v2"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
	"github.com/fsm-proxy/fsm-proxy/proxy/surface"
)

// byHandle is the key handle over an upstream whose tools have schemas. Those named
// in odd have others.
func byHandle(odd map[string]string) func(*proxy.Config, *server) {
	return func(c *proxy.Config, up *server) {
		c.Keys[wire.Modern] = runs.Key{Kind: runs.Handle}
		c.Protocol = bridge.ProtocolBoth
		var items []string
		for _, name := range reviewTools {
			schema := `{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":false}`
			if other, there := odd[name]; there {
				schema = other
			}
			items = append(items, fmt.Sprintf(`{"name":%q,"inputSchema":%s}`, name, schema))
		}
		up.offer(wire.Tools, `{"tools":[`+strings.Join(items, ",")+`]}`)
	}
}

// begin has the client begin a run, and returns its handle.
func (c *client) begin() string {
	c.t.Helper()
	var answer struct {
		Result struct {
			StructuredContent struct {
				Run string `json:"fsm_run"`
			} `json:"structuredContent"`
		} `json:"result"`
	}
	text := c.ask("tools/call", meta(`{"name":"fsm_start_run","arguments":{}}`))
	if err := json.Unmarshal([]byte(text), &answer); err != nil || answer.Result.StructuredContent.Run == "" {
		c.t.Fatalf("%s: %v", text, err)
	}
	return answer.Result.StructuredContent.Run
}

// of are the params of a call of a run.
func of(run, tool string, more ...string) string {
	arguments := strings.Join(append(more, `"fsm_run":"`+run+`"`), ",")
	return meta(`{"name":"` + tool + `","arguments":{` + arguments + `}}`)
}

func TestToolsTakeTheHandle(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.modern()
		list := c.ask("tools/list", meta(""))
		has(t, list, `"tools":[{"name":"fsm_start_run"`, `{"name":"fsm_end_run"`, "not been used for 1 day, and at the latest 30 days after it began",
			`{"description":"[Allowed in state: planning]","name":"write_plan","inputSchema":{"required":["fsm_run"],"type":"object","properties":{"fsm_run":{"type":"string",`,
			`"a":{"type":"string"}},"additionalProperties":false}}`)
		if strings.Contains(list, "fsm_list_runs") || strings.Contains(list, "x-mcp-header") {
			t.Error(list)
		}
		has(t, r.as(observe.Peer{Principal: ann}).ask("tools/list", meta("")), `{"name":"fsm_list_runs"`)
		has(t, c.ask("server/discover", meta("")), "Call fsm_start_run first")
		legacy := r.connect(plainHello)
		equal(t, "legacy tools", legacy.listed(wire.Tools), "status read_file list_a write_plan")
		if answer := legacy.ask("tools/list", "{}"); strings.Contains(answer, "fsm_run") {
			t.Error(answer)
		}
	}, byHandle(nil))
}

// The upstream sees the call as it would be without the proxy, and each run its own
// state; one client can have several.
func TestCallsOfTwoRunsByHandle(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.modern()
		one, two := c.begin(), c.begin()
		call := c.request("tools/call", of(one, "write_plan", `"a" : "x"`))
		k := r.up.next()
		has(t, string(k.m.Raw), `"arguments":{"a" : "x"}`)
		if strings.Contains(string(k.m.Raw), one) {
			t.Errorf("the upstream sees %s", k.m.Raw)
		}
		k.result(`{"content":[]}`)
		has(t, call.wait(), "State is now 'review'")
		has(t, c.ask("tools/call", of(one, "write_plan")), "invalid_transition", "in state 'review'")
		again := c.request("tools/call", of(two, "write_plan"))
		r.up.next().result(`{"content":[]}`)
		again.wait()
		read := c.request("resources/read", meta(`{"uri":"file:///diff"}`, `"fsm-proxy/run":"`+two+`"`))
		k = r.up.next()
		if strings.Contains(string(k.m.Raw), two) {
			t.Errorf("the upstream sees %s", k.m.Raw)
		}
		k.result(`{"contents":[]}`)
		has(t, read.wait(), `"contents":[]`)
		equal(t, "runs", len(r.p.Runs.Infos()), 2)
	}, byHandle(nil))
}

func TestWithoutAHandleOnlyWhatIsAllowedEverywhere(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.modern()
		for _, tool := range []string{"write_plan", "read_file", "list_a", "apply", "rogue", "nothing"} {
			has(t, c.ask("tools/call", meta(`{"name":"`+tool+`"}`)), "run_not_found", "Call the tool fsm_start_run", `"isError":true`)
			has(t, c.ask("tools/call", of("", tool)), "Call the tool fsm_start_run")
		}
		has(t, c.ask("resources/read", meta(`{"uri":"file:///plan"}`)), "-32602", "run_not_found")
		has(t, c.ask("prompts/get", meta(`{"name":"plan"}`)), "-32602", "run_not_found")
		answer := r.modernCall(c, "status", `{"content":[]}`)
		if strings.Contains(answer, "fsm-proxy/state") || strings.Contains(answer, "State is now") {
			t.Errorf("of no run there is no state: %s", answer)
		}
		equal(t, "runs", len(r.p.Runs.Infos()), 0)
	}, byHandle(nil))
}

// A policy that binds a name everywhere, but for one state, does not let a run in that
// state do it by leaving its handle out.
func TestLeavingTheHandleOutOpensNothing(t *testing.T) {
	const source = `
version: 1
initial: a
everywhere: {tools: [status, read_file, ask, "list_*"], resources: ["file:///plan"]}
states:
  a: {tools: {write_plan: b, ask: b}}
  b: {everywhere: false, tools: {status: , "list_*": }}
`
	bubble(t, source, func(r *rig) {
		c := r.modern()
		for _, tool := range []string{"read_file", "ask"} {
			has(t, c.ask("tools/call", meta(`{"name":"`+tool+`"}`)), "run_not_found")
		}
		has(t, c.ask("resources/read", meta(`{"uri":"file:///plan"}`)), "run_not_found")
		r.modernCall(c, "status", `{"content":[]}`)
		r.modernCall(c, "list_a", `{"content":[]}`)
	}, byHandle(nil))
}

// Whose handle it is not, and whose there is none, hear the same; that a run has
// expired only its owner does.
func TestStolenGuessedExpiredAndForeignHandles(t *testing.T) {
	bubble(t, review, func(r *rig) {
		mine := r.as(observe.Peer{Principal: ann})
		asked := func(who wire.Principal, params string) string {
			return r.as(observe.Peer{Principal: who}).ask("tools/call", params)
		}
		run := mine.begin()
		unknown := asked(bob, of(runs.NewID(), "status"))
		has(t, unknown, "run_not_found", "fsm_start_run")
		equal(t, "a stolen handle's answer", asked(bob, of(run, "status")), unknown)
		equal(t, "a stolen handle's answer, to nobody", asked(wire.Principal{}, of(run, "status")), unknown)
		equal(t, "the end of a stolen handle", asked(bob, of(run, "fsm_end_run")), asked(bob, of(runs.NewID(), "fsm_end_run")))
		equal(t, "a guessed handle's answer", asked(ann, of(strings.ToLower(run), "status")), unknown)
		equal(t, "a guessed handle's answer", asked(ann, of(run+" ", "status")), unknown)
		equal(t, "runs", len(r.p.Runs.Infos()), 1)
		time.Sleep(25 * time.Hour)
		synctest.Wait()
		has(t, asked(ann, of(run, "status")), "run_expired", "fsm_start_run")
		equal(t, "a foreign expired handle's answer", asked(bob, of(run, "status")), unknown)
	}, byHandle(nil))
}

// Nothing that readers take for a handle in different ways is decided on.
func TestHandlesInAnothersPlace(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.modern()
		run := c.begin()
		for _, arguments := range []string{
			`{"FSM_RUN":"` + run + `"}`, `{"fſm_run":"x","fsm_run":"` + run + `"}`, `{"fsm_run":["` + run + `"]}`, `{"fsm_run":null}`,
		} {
			has(t, c.ask("tools/call", meta(`{"name":"status","arguments":`+arguments+`}`)), "-32600")
		}
		has(t, c.ask("tools/call", meta(`{"name":"status","arguments":{"fsm_run":"`+run+`"}}`, `"fsm-proxy/run":"other"`)), "-32600", "two runs")
		for _, params := range []string{
			meta(`{"name":"write_plan","arguments":{"a":{"fsm_run":"` + run + `"}}}`), meta(`{"name":"write_plan","fsm_run":"` + run + `"}`),
			meta(`{"name":"write_plan","arguments":{"a":"` + run + `"}}`), meta(`{"name":"write_plan","arguments":["fsm_run","` + run + `"]}`),
		} {
			has(t, c.ask("tools/call", params), "run_not_found")
		}
		equal(t, "calls upstream", len(r.up.reached()), 0)
	}, byHandle(nil))
}

func TestRunsEndByTheirHandle(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.modern()
		run := c.begin()
		call := c.request("tools/call", of(run, "write_plan"))
		r.up.next().result(`{"content":[]}`)
		call.wait()
		has(t, c.ask("tools/call", meta(`{"name":"fsm_end_run"}`)), "run_not_found", "Call the tool")
		has(t, c.ask("tools/call", of(run, "fsm_end_run")), `"ended":true`)
		has(t, c.ask("tools/call", of(run, "fsm_end_run")), "run_not_found")
		has(t, c.ask("tools/call", of(run, "status")), "run_not_found")
		synctest.Wait()
		select {
		case <-r.up.conn(0).Done():
		default:
			t.Error("the run's connection is open")
		}
		equal(t, "runs", len(r.p.Runs.Infos()), 0)
	}, byHandle(nil))
}

func TestOnlyWhoIsToldApartListsRuns(t *testing.T) {
	bubble(t, review, func(r *rig) {
		mine, other := r.as(observe.Peer{Principal: ann}), r.as(observe.Peer{Principal: bob})
		first := mine.begin()
		time.Sleep(time.Minute)
		second := mine.begin()
		list := meta(`{"name":"fsm_list_runs"}`)
		answer := mine.ask("tools/call", list)
		has(t, answer, first, second, `"state":"planning","expires_at":"`)
		if strings.Index(answer, first) > strings.Index(answer, second) {
			t.Errorf("the oldest is not the first: %s", answer)
		}
		has(t, other.ask("tools/call", list), `"runs":[]`)
		r.modern().begin()
		has(t, r.modern().ask("tools/call", list), "unknown_action")
	}, byHandle(nil))
}

// A flood of runs is refused, and harms no other.
func TestFloodOfStartRun(t *testing.T) {
	bubble(t, review, func(r *rig) {
		mine, other := r.as(observe.Peer{Principal: ann}), r.as(observe.Peer{Principal: bob})
		run := other.begin()
		for range 2 {
			mine.begin()
		}
		for range 500 {
			has(t, mine.ask("tools/call", meta(`{"name":"fsm_start_run"}`)), `"isError":true`, "busy", "too many runs")
		}
		call := other.request("tools/call", of(run, "write_plan"))
		r.up.next().result(`{"content":[]}`)
		has(t, call.wait(), "State is now 'review'")
		other.begin()
		has(t, r.modern().ask("tools/call", meta(`{"name":"fsm_start_run"}`)), "too many runs")
		equal(t, "runs", len(r.p.Runs.Infos()), 4)
	}, byHandle(nil), with(func(c *proxy.Config) { c.MaxRuns, c.MaxRunsPerPrincipal = 4, 2 }))
}

// What cannot take the argument is neither shown nor called, whichever way its call
// would say its run.
func TestToolsThatCannotTakeTheHandle(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.modern()
		run := c.begin()
		list := c.ask("tools/list", meta(""))
		if strings.Contains(list, `"write_plan"`) || strings.Contains(list, `"read_file"`) {
			t.Error(list)
		}
		has(t, c.ask("tools/call", of(run, "write_plan")), "not_available", "combined with other schemas", "Allowed now: status, list_a.")
		has(t, c.ask("tools/call", meta(`{"name":"read_file"}`, `"fsm-proxy/run":"`+run+`"`)), "has an argument of this name already")
		equal(t, "calls upstream", len(r.up.reached()), 0)
		legacy := r.connect(plainHello)
		equal(t, "legacy tools", legacy.listed(wire.Tools), "status read_file list_a write_plan")
	}, byHandle(map[string]string{"write_plan": `{"oneOf":[{}]}`, "read_file": `{"properties":{"fsm_run":{}}}`}))
}

func TestOwnToolsHideTheUpstreams(t *testing.T) {
	const source = `
version: 1
initial: a
states: {a: {tools: {fsm_start_run: , fsm_end_run: , status: }}}
`
	bubble(t, source, func(r *rig) {
		r.up.offer(wire.Tools, `{"tools":[{"name":"fsm_start_run","inputSchema":{}},{"name":"status","inputSchema":{}}]}`)
		c := r.modern()
		if list := c.ask("tools/list", meta("")); strings.Count(list, `"name":"fsm_start_run"`) != 1 {
			t.Error(list)
		}
		c.begin()
		equal(t, "calls upstream", len(r.up.reached()), 0)
	}, byHandle(nil))
}

func TestArgumentsAreValidatedWithoutTheHandle(t *testing.T) {
	bubble(t, review+"validate: true\n", func(r *rig) {
		c := r.modern()
		run := c.begin()
		call := c.request("tools/call", of(run, "write_plan", `"a":"x"`))
		r.up.next().result(`{"content":[]}`)
		has(t, call.wait(), "State is now 'review'")
		has(t, c.ask("tools/call", of(run, "ask", `"b":"x"`)), "validation_failed")
	}, byHandle(nil))
}

func TestAPolicysSplittingArgumentIsReadBesideTheHandle(t *testing.T) {
	const source = `
version: 1
initial: a
states: {a: {tools: {status: {by: a, cases: {x: stay}}}}}
`
	bubble(t, source, func(r *rig) {
		c := r.modern()
		run := c.begin()
		call := c.request("tools/call", of(run, "status", `"a":"x"`))
		r.up.next().result(`{"content":[]}`)
		call.wait()
		has(t, c.ask("tools/call", of(run, "status", `"a":"y"`)), "unknown_case")
		without := c.request("tools/call", meta(`{"name":"status","arguments":{"a":"x"}}`))
		r.up.next().result(`{"content":[]}`)
		without.wait()
		has(t, c.ask("tools/call", meta(`{"name":"status","arguments":{"a":"y"}}`)), "run_not_found")
	}, byHandle(nil))
}

// A run of a handle that is complete begins anew under the same handle, where the policy
// does not say that it stops.
func TestRunsByHandleBeginAnew(t *testing.T) {
	bubble(t, strings.Replace(review, "write_plan: review", "write_plan: done", 1), func(r *rig) {
		c := r.modern()
		run := c.begin()
		for range 2 {
			call := c.request("tools/call", of(run, "write_plan"))
			r.up.next().result(`{"content":[]}`)
			has(t, call.wait(), "The run was completed and begins again. State is now 'planning'.")
		}
	}, byHandle(nil))
}

// A run of a handle stays complete where the policy says so.
func TestRunsByHandleEndComplete(t *testing.T) {
	bubble(t, "on_complete: stop\n"+strings.Replace(review, "write_plan: review", "write_plan: done", 1), func(r *rig) {
		c := r.modern()
		run := c.begin()
		call := c.request("tools/call", of(run, "write_plan"))
		r.up.next().result(`{"content":[]}`)
		has(t, call.wait(), "The run is complete. A new run begins with the tool fsm_start_run.")
		has(t, c.ask("tools/call", of(run, "write_plan")), "run_complete", "fsm_start_run")
		has(t, r.as(observe.Peer{}).ask("tools/call", of(c.begin(), "apply")), "invalid_transition")
	}, byHandle(nil))
}

// In shadow clients see what they would without the proxy, and no run is theirs.
func TestShadowAsksForNoHandle(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.modern()
		list := c.request("tools/list", meta(""))
		r.up.next().result(`{"tools":[]}`)
		has(t, list.wait(), `"tools":[]`)
		call := c.request("tools/call", of("x", "rogue"))
		k := r.up.next()
		has(t, string(k.m.Raw), `"fsm_run":"x"`)
		k.result(`{"content":[]}`)
		call.wait()
	}, byHandle(nil), with(func(c *proxy.Config) { c.Mode = runs.Shadow }))
}

func TestTheArgumentsName(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.modern()
		has(t, c.ask("tools/list", meta("")), `"required":["job"]`)
		has(t, c.ask("tools/call", meta(`{"name":"fsm_start_run"}`)), `"structuredContent":{"job":"`)
	}, byHandle(nil), with(func(c *proxy.Config) { c.HandleArgument = "job" }))
	p, _ := policy.Parse("test.yaml", []byte(review))
	if _, err := proxy.New(proxy.Config{Policy: p, Dial: new(server).dial, Notifier: func(func(uint8) bool) surface.Notifier { return nil }, HandleArgument: "a b"}); err == nil {
		t.Error("any text is taken as an argument's name")
	}
}

const stops = `
version: 1
initial: a
on_complete: stop
states:
  a: {tools: {write_plan: done, status: }}
  done: {terminal: true}
`

// Where a run is found by who is asking it begins anew by a tool, once it is complete.
func TestStartRunBeginsAPrincipalsRunAnew(t *testing.T) {
	bubble(t, stops, func(r *rig) {
		c, watch := r.connectAs(observe.Peer{Principal: ann}), r.connectAs(observe.Peer{Principal: ann})
		equal(t, "tools", c.listed(wire.Tools), "status write_plan")
		has(t, c.ask("tools/call", `{"name":"fsm_start_run"}`), "invalid_transition", "the run is not complete")
		c.do("write_plan", `{"content":[]}`)
		equal(t, "tools", c.listed(wire.Tools), "fsm_start_run")
		has(t, c.ask("tools/call", `{"name":"write_plan"}`), "run_complete", "begins with the tool fsm_start_run")
		began := c.request("tools/call", `{"name":"fsm_start_run"}`)
		has(t, began.wait(), "A new run has begun.", `"structuredContent":{"state":"a"}`, "Allowed now: status, write_plan.")
		has(t, strings.Join(began.messages(), ""), "tools/list_changed")
		synctest.Wait()
		has(t, strings.Join(watch.own.messages(), ""), "tools/list_changed")
		equal(t, "tools", c.listed(wire.Tools), "status write_plan")
		modern := r.as(observe.Peer{Principal: ann})
		has(t, modern.ask("tools/list", meta("")), `"tools":[{"name":"fsm_start_run"`)
		r.modernCall(modern, "write_plan", `{"content":[]}`)
		has(t, modern.ask("tools/call", meta(`{"name":"fsm_start_run"}`)), "A new run has begun.", `"resultType":"complete"`)
		equal(t, "runs", len(r.p.Runs.Infos()), 1)
	}, keys(runs.Principal))
}

func TestWhereRunsBeginAnewByThemselvesNoToolDoesIt(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connectAs(observe.Peer{Principal: ann})
		has(t, c.ask("tools/call", `{"name":"fsm_start_run"}`), "unknown_action")
		if list := r.as(observe.Peer{Principal: ann}).ask("tools/list", meta("")); strings.Contains(list, "fsm_start_run") {
			t.Error(list)
		}
	}, keys(runs.Principal))
}

// An upstream without tools has the tools for handles all the same: resources are
// read of a run, too.
func TestHandlesWithoutTools(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.modern()
		has(t, c.ask("server/discover", meta("")), `"tools":{"listChanged":true}`)
		has(t, c.ask("tools/list", meta("")), `"tools":[{"name":"fsm_start_run"`, `{"name":"fsm_end_run"`)
		read := c.request("resources/read", meta(`{"uri":"file:///plan"}`, `"fsm-proxy/run":"`+c.begin()+`"`))
		r.up.next().result(`{"contents":[]}`)
		read.wait()
	}, byHandle(nil), func(_ *proxy.Config, up *server) {
		up.hello = strings.Replace(up.hello, `"tools":`, `"experimental":`, 1)
	})
}

// Who calls, or listens, without a run keeps nobody from listing and starting one.
func TestFloodWithoutAHandle(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.modern()
		for range 5 {
			c.request("subscriptions/listen", meta(`{"notifications":{"toolsListChanged":true}}`))
		}
		calls := []*reply{c.request("tools/call", meta(`{"name":"status"}`)), c.request("tools/call", meta(`{"name":"status"}`))}
		upcalls := []*upcall{r.up.next(), r.up.next()}
		has(t, c.ask("tools/call", meta(`{"name":"status"}`)), "too many requests under way")
		has(t, c.ask("tools/list", meta("")), "fsm_start_run")
		run := c.begin()
		call := c.request("tools/call", of(run, "write_plan"))
		r.up.next().result(`{"content":[]}`)
		has(t, call.wait(), "State is now 'review'")
		for i, k := range upcalls {
			k.result(`{"content":[]}`)
			calls[i].wait()
		}
		r.modernCall(c, "status", `{"content":[]}`)
	}, byHandle(nil), with(func(c *proxy.Config) { c.MaxInFlight = 2 }))
}

// A refusal says the kind of what was asked for, and none of what has no kind.
func TestKindOfAStray(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.modern()
		for _, q := range []struct{ method, params, kind, requested string }{
			{"tools/list", `{"name":"status"}`, "", ""},
			{"resources/list", `{}`, "", ""},
			{"subscriptions/listen", `{"notifications":{}}`, "", ""},
			{"tasks/get", `{"taskId":"t"}`, "", ""},
			{"tools/call", `{"name":"status"}`, "tool", "status"},
			{"prompts/get", `{"name":"plan"}`, "prompt", "plan"},
			{"resources/read", `{"uri":"file:///plan"}`, "resource", "file:///plan"},
			{"completion/complete", `{"ref":{"type":"ref/prompt","name":"plan"},"argument":{"name":"a","value":""}}`, "prompt", "plan"},
			{"completion/complete", `{"ref":{"type":"ref/resource","uri":"file:///plan"},"argument":{"name":"a","value":""}}`, "resource", "file:///plan"},
		} {
			answer := c.ask(q.method, meta(q.params, `"fsm-proxy/run":"ABCDEFGHIJKLMNOPQRSTUVWXYZ"`))
			refusal := c.refused(answer, policy.RunNotFound)
			equal(t, q.method, refusal.Kind+" "+refusal.Requested, q.kind+" "+q.requested)
			if (refusal.URI != "") != (q.kind == "resource") {
				t.Errorf("%s has the uri %q", q.method, refusal.URI)
			}
			if q.kind == "" && strings.Contains(answer, `"kind"`) {
				t.Errorf("%s has a kind: %s", q.method, answer)
			}
		}
	}, byHandle(nil))
}

// A stream of notifications ends with its run, and says so; others go on.
func TestListenEndsWithItsRun(t *testing.T) {
	for name, end := range map[string]func(c *client, run string){
		"ended":   func(c *client, run string) { c.ask("tools/call", of(run, "fsm_end_run")) },
		"expired": func(*client, string) { time.Sleep(25 * time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, review, func(r *rig) {
				c := r.modern()
				listen := meta(`{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["file:///plan"]}}`, `"fsm-proxy/run":"%s"`)
				run := c.begin()
				r.up.answers(func(k *upcall) (string, bool) { return "{}", strings.HasPrefix(k.m.Method, "resources/") })
				l := c.request("subscriptions/listen", fmt.Sprintf(listen, run))
				other := c.request("subscriptions/listen", meta(`{"notifications":{"toolsListChanged":true}}`))
				leaves := &reply{stream: c.stream("leaves")}
				raw := `{"jsonrpc":"2.0","id":9,"method":"subscriptions/listen","params":` + fmt.Sprintf(listen, run) + "}"
				rest := c.s.Handle(read(t, raw, wire.FromClient), leaves.stream)
				go rest.Wait()
				synctest.Wait()
				has(t, strings.Join(l.messages(), ""), "acknowledged")
				rest.(wire.Cancellable).Cancel()
				equal(t, "after the client has left", leaves.wait(), "")
				end(c, run)
				id := fmt.Sprint(l.id)
				equal(t, "the end", l.wait(), `{"jsonrpc":"2.0","id":`+id+`,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":`+id+`}}}`)
				if !other.pending() {
					t.Error("another stream has ended, too")
				}
			}, byHandle(nil))
		})
	}
}
