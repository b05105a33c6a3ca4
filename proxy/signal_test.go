package proxy_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/refusal"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
	"github.com/fsm-proxy/fsm-proxy/proxy/surface"
)

// signalling has signals of the agent's and an operator's.
const signalling = `version: 1
initial: idle
states:
  idle:
    tools: {status: stay, write_plan: {on_success: waiting, on_any: stay}}
  waiting:
    description: Somebody looks at the plan.
    tools: {status: stay, ask: {on_any: waiting, exclusive: true}}
    signals:
      give_up: {to: idle, description: Stop here.}
      again: stay
      released: {to: applying, from: operator}
  applying:
    tools: {apply: {on_any: idle}}
`

// stepping has a signal that goes round.
const stepping = `version: 1
initial: a
states:
  a: {signals: {go: b}, tools: {write_plan: {on_any: a, exclusive: true}}}
  b: {signals: {go: c}}
  c: {signals: {back: a}}
`

func signal(name string, more ...string) string {
	return `{"name":"fsm_signal","arguments":{"name":"` + name + `"` + strings.Join(more, "") + `}}`
}

func TestSignalSteps(t *testing.T) {
	bubble(t, signalling, func(r *rig) {
		c := r.connect(plainHello)
		equal(t, "tools", c.listed(wire.Tools), "status write_plan")
		c.do("write_plan", ok)
		has(t, c.ask("tools/list", ""), `"name":"fsm_signal"`, `"enum":["give_up","again"]`, `give_up: Stop here.`)
		has(t, c.ask("tools/call", signal("again")), `"state":"waiting"`, `"signals":["give_up","again"]`, "Signals: give_up, again.")
		call := c.request("tools/call", signal("give_up", `,"note":"no \u001b[31m time"`))
		has(t, call.wait(), "State is now 'idle'. Allowed now: status, write_plan.",
			`"structuredContent":{"state":"idle","valid_next":{"tools":["status","write_plan"],"resources":[],"prompts":[]}}`)
		equal(t, "told before the answer", strings.Contains(strings.Join(call.messages(), ""), "notifications/tools/list_changed"), true)
		equal(t, "tools", c.listed(wire.Tools), "status write_plan")
		got := c.refused(c.ask("tools/call", signal("give_up")), policy.InvalidTransition)
		equal(t, "kind", got.Kind, "signal")
		c.refused(c.ask("tools/call", signal("nothing")), policy.UnknownAction)
	})
}

// The static surface, and the modern era, list all that the agent may send in some state.
func TestStaticSurfaceListsAllSignals(t *testing.T) {
	bubble(t, signalling, func(r *rig) {
		c := r.connect(plainHello)
		has(t, c.ask("tools/list", ""), `"enum":["give_up","again"]`)
		c.refused(c.ask("tools/call", signal("give_up")), policy.InvalidTransition)
	}, with(func(c *proxy.Config) { c.Surface = surface.Static }))
}

func TestSignalsByHandle(t *testing.T) {
	bubble(t, signalling, func(r *rig) {
		c := r.modern()
		list := c.ask("tools/list", meta(""))
		has(t, list, `"name":"fsm_signal"`, `"enum":["give_up","again"]`, `"required":["fsm_run","name"]`)
		if strings.Contains(list, "released") {
			t.Error(list)
		}
		one, two := c.begin(), c.begin()
		call := c.request("tools/call", of(one, "write_plan"))
		r.up.next().result(ok)
		call.wait()
		has(t, c.ask("tools/call", of(two, "fsm_signal", `"name":"give_up"`)), "invalid_transition", `"kind":"signal"`)
		has(t, c.ask("tools/call", meta(`{"name":"fsm_signal","arguments":{"name":"give_up"}}`)), "run_not_found")
		has(t, c.ask("tools/call", of("nobody's", "fsm_signal", `"name":"give_up"`)), "run_not_found")
		has(t, c.ask("tools/call", of(one, "fsm_signal", `"name":"give_up"`)), `"state":"idle"`, `"resultType":"complete"`)
	}, byHandle(nil))
}

// To the agent an operator's signal is what a name is that nobody has written: byte for byte, but the name.
func TestOperatorsSignalDoesNotExist(t *testing.T) {
	bubble(t, signalling, func(r *rig) {
		c := r.connect(plainHello)
		for _, at := range []string{"idle", "waiting"} {
			if at == "waiting" {
				c.do("write_plan", ok)
			}
			theirs := c.requestOn(c.stream("x"), "99", "tools/call", signal("released")).wait()
			guessed := c.requestOn(c.stream("y"), "99", "tools/call", signal("relaxedx")).wait()
			c.refused(theirs, policy.UnknownAction)
			equal(t, "the answer in "+at, strings.ReplaceAll(theirs, "released", "relaxedx"), guessed)
			if list := c.ask("tools/list", ""); strings.Contains(list, "released") {
				t.Error(list)
			}
			c.in(at)
		}
	})
}

func TestSignalsThatCannotBe(t *testing.T) {
	bubble(t, signalling, func(r *rig) {
		c := r.connect(plainHello)
		c.do("write_plan", ok)
		for params, want := range map[string]string{
			`{"name":"fsm_signal"}`:                                          "-32602",
			`{"name":"fsm_signal","arguments":{"name":1}}`:                   "-32602",
			`{"name":"fsm_signal","arguments":{"name":["give_up"]}}`:         "-32602",
			signal("give_up", `,"note":1`):                                   "-32602",
			signal("give_up", `,"more":1`):                                   "-32602",
			signal("give_up", `,"note":"`, strings.Repeat("n", 1025), `"`):   "-32602",
			signal("give_up", `,"Name":"again"`):                             "-32600",
			signal("give_up", `,"note":"a","NOTE":"b"`):                      "-32600",
			`{"name":"fsm_signal","arguments":{"name":"give_up"},"task":{}}`: "-32602",
			signal("give_up/x"):                                              "unknown_action",
			signal(`give_up\u0000`):                                          "unknown_action",
			signal("status"):                                                 "unknown_action",
			signal("give_*"):                                                 "unknown_action",
			`{"name":"give_up"}`:                                             "unknown_action",
		} {
			if answer := c.ask("tools/call", params); !strings.Contains(answer, want) {
				t.Errorf("%s\n got %s\nwant %s", params, answer, want)
			}
		}
		c.in("waiting")
		has(t, c.ask("tools/call", signal("give_up", `,"note":"`, strings.Repeat("n", 1024), `"`)), `"state":"idle"`)
	})
}

// Each is decided anew at its turn, so that a signal that was allowed when it came may not be then.
func TestSignalsWaitForTheTurn(t *testing.T) {
	bubble(t, stepping, func(r *rig) {
		c := r.connect(plainHello)
		holder := c.call("write_plan")
		k := r.up.next()
		var all []*reply
		for range 63 {
			all = append(all, c.request("tools/call", signal("go")))
		}
		given := c.request("tools/call", signal("go"))
		if !given.pending() {
			t.Fatal("it did not wait")
		}
		c.cancel(given)
		equal(t, "the answer to what was cancelled", given.wait(), "")
		k.result(ok)
		holder.wait()
		counts := map[string]int{}
		for _, call := range all {
			switch answer := call.wait(); {
			case strings.Contains(answer, `"structuredContent":{"state":"b"`):
				counts["b"]++
			case strings.Contains(answer, `"structuredContent":{"state":"c"`):
				counts["c"]++
			default:
				c.refused(answer, policy.InvalidTransition)
				counts["refused"]++
			}
		}
		equal(t, "outcomes", fmt.Sprint(counts), "map[b:1 c:1 refused:61]")
		c.in("c")
	}, with(func(c *proxy.Config) { c.MaxQueue, c.MaxInFlight = 64, 128 }))
}

// In shadow the name is the server's, as where the policy has no signals for the agent.
func TestNoSignalsInShadow(t *testing.T) {
	shadows(t, signalling, func(r *rig, _ *tally) {
		c := r.connect(plainHello)
		c.do("write_plan", ok)
		call := c.request("tools/call", signal("give_up"))
		k := r.up.next()
		has(t, string(k.m.Raw), `"name":"fsm_signal"`)
		k.result(ok)
		has(t, call.wait(), `"text":"ok"`)
		if list := c.ask("tools/list", ""); strings.Contains(list, "fsm_signal") {
			t.Error(list)
		}
		c.at("waiting")
	})
}

// A glob never reaches the tool, and a server's own is out of reach.
func TestServersOwnSignalToolIsOutOfReach(t *testing.T) {
	source := strings.ReplaceAll(signalling, "{status: stay,", `{"fsm_*": stay, status: stay,`)
	bubble(t, source, func(r *rig) {
		c := r.connect(plainHello)
		equal(t, "tools", c.listed(wire.Tools), "status write_plan")
		c.refused(c.ask("tools/call", signal("give_up")), policy.InvalidTransition)
	}, func(_ *proxy.Config, up *server) {
		up.names(wire.Tools, append([]string{"fsm_signal"}, reviewTools...)...)
	})
}

// A reload in the middle of a run takes signals away and brings others.
func TestReloadChangesSignals(t *testing.T) {
	bubble(t, signalling, func(r *rig) {
		c := r.connect(plainHello)
		c.do("write_plan", ok)
		next, found := policy.Parse("next.yaml", []byte(strings.ReplaceAll(signalling, "give_up", "drop")))
		if next == nil {
			t.Fatal(found)
		}
		r.p.Reload(next)
		c.refused(c.ask("tools/call", signal("give_up")), policy.UnknownAction)
		has(t, c.ask("tools/list", ""), `"enum":["drop","again"]`)
		has(t, c.ask("tools/call", signal("drop")), `"state":"idle"`)
	})
}

// A note in the log is one value on one line, whatever the agent writes.
func TestNoteInTheLogIsEscaped(t *testing.T) {
	for _, json := range []bool{false, true} {
		var log bytes.Buffer
		bubble(t, signalling, func(r *rig) {
			c := r.connect(plainHello)
			c.do("write_plan", ok)
			log.Reset()
			c.ask("tools/call", signal("again", `,"note":"a\nb \" signal=x \\\" signal=y \u001b[31m\u009b\u202e\u2028\u0000 größe\\"`))
			want := `a\nb \x22 signal=x \\\x22 signal=y \x1b[31m\u009b\u202e\u2028\x00 größe\\`
			if json {
				want = strings.ReplaceAll(want, `\`, `\\`)
			}
			has(t, log.String(), `"`+want+`"`)
			equal(t, "lines", strings.Count(log.String(), "\n"), 1)
		}, with(func(c *proxy.Config) { c.Log = hclog.New(&hclog.LoggerOptions{Output: &log, JSONFormat: json}) }))
	}
}

// Whose handle it is not sends nothing with it, and hears what is said of one that there is not.
func TestSignalWithAnothersHandle(t *testing.T) {
	bubble(t, signalling, func(r *rig) {
		mine := r.as(observe.Peer{Principal: ann})
		run := mine.begin()
		call := mine.request("tools/call", of(run, "write_plan"))
		r.up.next().result(ok)
		call.wait()
		asked := func(who wire.Principal, run string) string {
			return r.as(observe.Peer{Principal: who}).ask("tools/call", of(run, "fsm_signal", `"name":"give_up"`))
		}
		unknown := asked(bob, runs.NewID())
		has(t, unknown, "run_not_found")
		equal(t, "a stolen handle's answer", asked(bob, run), unknown)
		equal(t, "a stolen handle's answer, to nobody", asked(wire.Principal{}, run), unknown)
		has(t, asked(ann, run), `"state":"idle"`)
	}, byHandle(nil))
}

// Where refusals are opaque neither they nor what was taken tell a state or a name, nor whether a name is
// a signal's at all.
func TestOpaqueSignals(t *testing.T) {
	bubble(t, signalling, func(r *rig) {
		c := r.connect(plainHello)
		answers := func() []string {
			var all []string
			for _, name := range []string{"give_up", "released", "guessed"} {
				answer := c.requestOn(c.stream(name), "99", "tools/call", signal(name)).wait()
				all = append(all, strings.ReplaceAll(answer, name, "NAME"))
			}
			return all
		}
		idle := answers()
		for _, answer := range idle {
			equal(t, "the refusal", answer, idle[0])
			for _, secret := range []string{"idle", "waiting", "again", "give_up", "status", "state", "valid_next", "Allowed"} {
				if strings.Contains(answer, secret) {
					t.Errorf("%q is told: %s", secret, answer)
				}
			}
		}
		c.do("write_plan", ok)
		waiting := answers()
		equal(t, "taken", waiting[0], `{"jsonrpc":"2.0","id":99,"result":{"content":[{"type":"text","text":"The signal was taken."}]}}`)
		equal(t, "the refusals of an operator's and of none", waiting[1:], idle[1:])
		equal(t, "where it has led", c.listed(wire.Tools), "status write_plan")
	}, with(func(c *proxy.Config) { c.Refusals = refusal.Opaque }))
}

// A signal can complete the run; then there is none that could be sent.
func TestSignalsOfACompleteRun(t *testing.T) {
	const source = "version: 1\ninitial: a\nstates:\n  a: {tools: [status], signals: {look: stay, finish: end}}\n  end: {terminal: true}\n"
	bubble(t, source, func(r *rig) {
		c := r.connect(plainHello)
		has(t, c.ask("tools/call", signal("finish")), `"state":"a","restarted":true`, `"signals":["look","finish"]`, "The run was completed and begins again.")
		has(t, c.ask("tools/call", signal("look")), `"state":"a"`)
	})
	bubble(t, source+"on_complete: stop\n", func(r *rig) {
		c := r.connect(plainHello)
		answer := c.ask("tools/call", signal("finish"))
		has(t, answer, `"state":"end","complete":true`, "The run is complete. ")
		if strings.Contains(answer, "look") {
			t.Errorf("told after the end: %s", answer)
		}
		equal(t, "tools", c.listed(wire.Tools), "")
		for _, name := range []string{"look", "finish"} {
			equal(t, "kind", c.refused(c.ask("tools/call", signal(name)), policy.RunComplete).Kind, "signal")
		}
	})
}

// A signal that finds no place in the queue, or whose turn does not come, is refused, and leaves no trace.
func TestSignalsOfABusyRun(t *testing.T) {
	bubble(t, stepping, func(r *rig) {
		c := r.connect(plainHello)
		holder := c.call("write_plan")
		k := r.up.next()
		first, second := c.request("tools/call", signal("go")), c.request("tools/call", signal("go"))
		equal(t, "kind", c.refused(c.ask("tools/call", signal("go")), policy.Busy).Kind, "signal")
		c.refused(first.wait(), policy.Busy)
		c.refused(second.wait(), policy.Busy)
		k.result(ok)
		holder.wait()
		c.in("a")
		has(t, c.ask("tools/call", signal("go")), `"state":"b"`)
	}, with(func(c *proxy.Config) { c.MaxQueue = 2 }))
}

// While a task has the turn a signal is refused, also one that had waited for the call that began the task.
func TestSignalsUnderATask(t *testing.T) {
	bubble(t, stepping, func(r *rig) {
		c := r.connect(ableHello)
		call := c.request("tools/call", `{"name":"write_plan","task":{}}`)
		k := r.up.next()
		queued := c.request("tools/call", signal("go"))
		if !queued.pending() {
			t.Fatal("it did not wait")
		}
		k.result(`{"task":` + taskState("t1", "working") + `}`)
		call.wait()
		equal(t, "kind", c.refused(queued.wait(), policy.TaskRunning).Kind, "signal")
		c.refused(c.ask("tools/call", signal("go")), policy.TaskRunning)
		r.asks("tasks/get", "t1").result(taskState("t1", "completed"))
		r.asks("tasks/result", "t1").result(ok)
		synctest.Wait()
		has(t, c.ask("tools/call", signal("go")), `"state":"b"`)
	}, withTasks)
}

// What a signal says of itself is what the state has of it; where the run may stand anywhere, what the first has.
func TestSignalsAreDescribedWhereTheRunStands(t *testing.T) {
	const source = `version: 1
initial: a
everywhere: {signals: {go: {to: b, description: To b.}}}
states:
  a: {}
  b: {signals: {go: {to: c, description: To c.}}}
  c: {signals: {go: a}}
`
	bubble(t, source, func(r *rig) {
		c := r.connect(plainHello)
		for _, want := range []string{`\ngo: To b."`, `\ngo: To c."`, `\ngo"`} {
			has(t, c.ask("tools/list", ""), want)
			c.ask("tools/call", signal("go"))
		}
	})
	bubble(t, source, func(r *rig) {
		c := r.connect(plainHello)
		for range 3 {
			has(t, c.ask("tools/list", ""), `\ngo: To b."`)
			c.ask("tools/call", signal("go"))
		}
	}, with(func(c *proxy.Config) { c.Surface = surface.Static }))
}

// A reload, or a change of mode, that brings the tool or takes it away is told of, though no other tool comes or goes.
func TestToldThatSignalsComeAndGo(t *testing.T) {
	const without = "version: 1\ninitial: a\nstates:\n  a: {tools: [status]}\n"
	with := strings.ReplaceAll(without, "[status]", "[status], signals: {go: stay}")
	bubble(t, without, func(r *rig) {
		c := r.connect(plainHello)
		c.told()
		for _, source := range []string{with, without, with} {
			next, found := policy.Parse("next.yaml", []byte(source))
			if next == nil {
				t.Fatal(found)
			}
			r.p.Reload(next)
			equal(t, "told", c.told(), []string{"tools/list_changed"})
			equal(t, "listed", strings.Contains(c.ask("tools/list", ""), "fsm_signal"), source == with)
		}
		for _, mode := range []runs.Mode{runs.Shadow, runs.Enforce} {
			r.p.SetMode(mode)
			has(t, strings.Join(c.told(), " "), "tools/list_changed")
			equal(t, "listed", strings.Contains(c.ask("tools/list", ""), "fsm_signal"), mode == runs.Enforce)
		}
	}, func(_ *proxy.Config, up *server) { up.names(wire.Tools, "status") })
}

// Before an upstream that offers no tools the one that sends signals is there all the same, in either era.
func TestSignalsWithoutTools(t *testing.T) {
	const source = `version: 1
initial: a
states:
  a: {signals: {go: b}, resources: {"file:///plan": }}
  b: {signals: {back: a}, resources: {"file:///plan": }}
`
	none := func(_ *proxy.Config, up *server) {
		up.hello = strings.Replace(up.hello, `"tools":`, `"experimental":`, 1)
	}
	for _, modern := range []bool{false, true} {
		options := []func(*proxy.Config, *server){none}
		if modern {
			options = append(options, keys(runs.Process), with(func(c *proxy.Config) { c.Surface = surface.Dynamic }))
		}
		bubble(t, source, func(r *rig) {
			var c *client
			params := func(of string) string { return of }
			if modern {
				c, params = r.modern(), func(of string) string { return meta(of) }
				has(t, c.ask("server/discover", params("")), `"tools":{"listChanged":true}`)
			} else {
				c = r.open()
				has(t, c.ask("initialize", plainHello), `"tools":{"listChanged":true}`)
				c.notify("notifications/initialized", "")
			}
			has(t, c.ask("tools/list", params("")), `"enum":["go"]`)
			stream := c.own
			if modern {
				stream = c.request("subscriptions/listen", params(`{"notifications":{"toolsListChanged":true}}`)).stream
				synctest.Wait()
			}
			call := c.request("tools/call", params(signal("go")))
			has(t, call.wait(), `"state":"b"`, `"tools":[]`)
			synctest.Wait()
			has(t, strings.Join(append(stream.messages(), call.messages()...), ""), "tools/list_changed")
			has(t, c.ask("tools/list", params("")), `"enum":["back"]`)
		}, options...)
	}
	bubble(t, strings.ReplaceAll(source, "signals: {go: b}, ", "prompts: {plan: b}, "), func(r *rig) { // with none in a
		has(t, r.connect(plainHello).ask("tools/list", ""), `"tools":[]`)
	}, none)
	bubble(t, review, func(r *rig) {
		c := r.open()
		if answer := c.ask("initialize", plainHello); strings.Contains(answer, `"tools":`) {
			t.Error(answer)
		}
		has(t, c.ask("tools/list", ""), "-32601")
	}, none)
}
