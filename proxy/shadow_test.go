package proxy_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/lock"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
	"github.com/fsm-proxy/fsm-proxy/proxy/surface"
)

// tally is a Meter that counts what shadow lets pass.
type tally struct {
	observe.Meter
	mu       sync.Mutex // guards what follows
	shadowed []string
	drifted  []string
}

func (o *tally) DefinitionChanged(change lock.Change) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.drifted = append(o.drifted, change.String())
}

// changes returns the changed definitions since it was last asked.
func (o *tally) changes() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := o.drifted
	o.drifted = nil
	return strings.Join(all, " ")
}

func (o *tally) Operations(string) observe.Operations { return nil }
func (o *tally) Stepped(from, to, _ string)           {}
func (o *tally) SessionEnded(string, time.Duration)   {}
func (o *tally) ConnectionEnded(time.Duration)        {}
func (o *tally) Reconnected()                         {}

func (o *tally) ShadowRefused(why policy.Code) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.shadowed = append(o.shadowed, why.String())
}

// take returns the reasons since it was last asked.
func (o *tally) take() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := o.shadowed
	o.shadowed = nil
	return all
}

// lists answers list requests as a server does, in pages of two.
func lists(names ...string) func(k *upcall) (string, bool) {
	return func(k *upcall) (string, bool) {
		switch k.m.Method {
		case "tools/list":
			from := len(k.m.P.Cursor) * 2
			var items []string
			for _, name := range names[from:min(from+2, len(names))] {
				items = append(items, fmt.Sprintf(`{"name":%q}`, name))
			}
			next := ""
			if from+2 < len(names) {
				next = fmt.Sprintf(`,"nextCursor":%q`, k.m.P.Cursor+"x")
			}
			return `{"tools": [` + strings.Join(items, ", ") + `]` + next + `}`, true
		case "resources/list":
			return `{"resources":[{"uri":"file:///other"}]}`, true
		case "prompts/list":
			return `{"prompts":[]}`, true
		}
		return "", false
	}
}

// shadows is a bubble whose proxy begins in shadow.
func shadows(t *testing.T, source string, f func(r *rig, o *tally), options ...func(*proxy.Config, *server)) {
	t.Helper()
	o := &tally{}
	options = append([]func(*proxy.Config, *server){func(c *proxy.Config, u *server) {
		c.Mode, c.Telemetry.Meter = runs.Shadow, o
		u.auto = lists(reviewTools...)
	}}, options...)
	bubble(t, source, func(r *rig) { f(r, o) }, options...)
}

// at checks where the run is.
func (c *client) at(state string) {
	c.t.Helper()
	mode := c.p.Runs.Mode()
	c.p.SetMode(runs.Enforce)
	c.in(state)
	c.p.SetMode(mode)
}

func TestShadowIsADirectConnection(t *testing.T) {
	shadows(t, review+"instructions: In order.\nupstream_may: []\n", func(r *rig, o *tally) {
		r.up.hello = `{"protocolVersion":"2025-06-18", "capabilities":{"tools":{"listChanged": false},"tasks":{},"x":{}},"serverInfo":{},"instructions":"Be."}`
		c := r.open()
		const hello = `{"protocolVersion":"2025-06-18","capabilities":{"sampling": {},"tasks":{},"y":1},"clientInfo":{"name":"codex-mcp-client"}}`
		equal(t, "hello", c.ask("initialize", hello), `{"jsonrpc":"2.0","id":1,"result":`+r.up.hello+`}`)
		equal(t, "sent", r.up.asked, []string{`{"jsonrpc":"2.0","id":1,"method":"initialize","params":` + hello + `}`})
		equal(t, "a page", c.ask("tools/list", ""), `{"jsonrpc":"2.0","id":2,"result":{"tools": [{"name":"status"}, {"name":"read_file"}],"nextCursor":"x"}}`)
		equal(t, "the last page", c.ask("tools/list", `{"cursor":"xxx"}`), `{"jsonrpc":"2.0","id":3,"result":{"tools": [{"name":"apply"}, {"name":"rogue"}]}}`)
		for _, tt := range []struct{ method, params, why string }{
			{"ping", "", ""},
			{"resources/templates/list", "", "not_available"},
			{"tasks/list", "{}", ""},
			{"server/discover", "", "not_available"},
			{"tools/call", `{"name":"rogue"}`, "unknown_action"},
			{"tools/call", `{"name":7}`, "unknown_action"},
			{"tools/call", `{}`, "unknown_action"},
			{"tools/call", `{"name":"read_file","task":{}}`, ""},
			{"resources/read", `{"uri":"file:///other"}`, "unknown_action"},
			{"resources/read", `{"uri":"file:///diff"}`, "invalid_transition"},
			{"prompts/get", `{"name":"plan"}`, ""},
			{"prompts/get", `{"name":"hidden"}`, "unknown_action"},
			{"completion/complete", `{"ref":{"type":"ref/prompt","name":"hidden"}}`, "unknown_action"},
			{"completion/complete", `{"ref":{"type":"ref/resource","uri":"file:///plan"}}`, ""},
			{"completion/complete", `{"ref":{}}`, "unknown_action"},
			{"resources/subscribe", `{"uri":"file:///other"}`, "unknown_action"},
			{"resources/unsubscribe", `{"uri":"file:///other"}`, ""},
			{"resources/subscribe", `{}`, "unknown_action"},
			{"logging/setLevel", `{"level":"debug"}`, ""},
			{"logging/setLevel", `{"level":"loud"}`, ""},
		} {
			answer := c.request(tt.method, tt.params)
			k := r.up.next()
			params := ""
			if tt.params != "" {
				params = `,"params":` + tt.params
			}
			equal(t, tt.method, string(k.m.Raw), fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"%s"%s}`, c.last, tt.method, params))
			k.result(`{"the":  "upstream's"}`)
			equal(t, tt.method, answer.wait(), fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"the":  "upstream's"}}`, c.last))
			equal(t, tt.method+" "+tt.params, strings.Join(o.take(), " "), tt.why)
		}
	}, with(func(c *proxy.Config) { c.Surface, c.Annotate = surface.Static, surface.AnnotateText }))
}

// What the upstream says of itself reaches the client as it came, filtered by
// nothing, and what it asks is asked.
func TestShadowPassesNotificationsAndQuestions(t *testing.T) {
	shadows(t, review+"upstream_may: []\n", func(r *rig, o *tally) {
		c := r.connect(ableHello)
		for _, raw := range []string{
			`{"jsonrpc":"2.0", "method":"notifications/tools/list_changed"}`,
			`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"file:///nowhere"}}`,
			`{"jsonrpc":"2.0","method":"vendor/thing"}`,
			`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"debug"}}`,
		} {
			c.own.set(func(s *stream) { s.sent = nil })
			r.up.conn(0).says(raw, nil)
			synctest.Wait()
			equal(t, raw, c.own.messages(), []string{raw})
		}
		r.up.conn(0).says(`{"jsonrpc":"2.0","id":"e","method":"sampling/createMessage","params":{}}`, nil)
		synctest.Wait()
		if sent := c.own.messages(); !strings.Contains(sent[len(sent)-1], "sampling/createMessage") {
			t.Errorf("asked %s", sent)
		}
		equal(t, "counted", o.take(), []string{"not_available"})
		c.notify("vendor/other", "")
		c.notify("notifications/roots/list_changed", "")
		told := r.up.conn(0).notified()
		equal(t, "upstream", told[len(told)-2:], []string{`{"jsonrpc":"2.0","method":"vendor/other"}`, `{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`})
	})
}

func TestShadowStepsWhatIsAllowedAndNothingElse(t *testing.T) {
	shadows(t, review, func(r *rig, o *tally) {
		c := r.connect(plainHello)
		equal(t, "answer", c.do("apply", ok), fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":%s}`, c.last, ok))
		equal(t, "counted", o.take(), []string{"invalid_transition"})
		c.do("write_plan", ok)
		c.do("ask", failed)
		c.do("write_plan", ok)
		c.do("ask", ok)
		c.do("apply", ok)
		equal(t, "counted", o.take(), []string(nil))
		equal(t, "told", c.told(), []string(nil))
		c.at("planning") // and a new run
	})
}

// Turns are not taken: of several calls under way the first to end steps the run,
// and the others were decided where it no longer is.
func TestShadowStepsOnceForConcurrentCalls(t *testing.T) {
	shadows(t, review, func(r *rig, o *tally) {
		c := r.connect(plainHello)
		first, second, third := c.call("write_plan"), c.call("write_plan"), c.call("write_plan")
		a, b, late := r.up.next(), r.up.next(), r.up.next()
		b.result(ok)
		second.wait()
		c.at("review")
		a.result(ok)
		first.wait()
		c.at("review")
		c.do("ask", failed) // back in planning: still not where the third was decided
		late.result(ok)
		third.wait()
		c.at("planning")
		equal(t, "counted", o.take(), []string(nil))
	})
}

// A run that a step begins anew is another one: what is under way from the old one
// changes nothing.
func TestShadowLeavesTheOldRunBehind(t *testing.T) {
	const loop = "version: 1\ninitial: a\nstates: {a: {tools: {status: {on_success: {terminal: true}}, rogue: b}}, b: {tools: [status]}}\n"
	shadows(t, loop, func(r *rig, _ *tally) {
		c := r.connect(plainHello)
		late := c.call("rogue")
		k := r.up.next()
		c.do("status", ok)
		k.result(ok)
		late.wait()
		c.at("a")
	})
}

func TestShadowStepsThroughAReload(t *testing.T) {
	shadows(t, review, func(r *rig, _ *tally) {
		c := r.connect(plainHello)
		reply := c.call("write_plan")
		k := r.up.next()
		r.reload("review", "inspection", "write_plan: inspection", "write_plan: ", "initial:", "renamed: {review: inspection}\ninitial:")
		equal(t, "told", c.told(), []string(nil))
		k.result(ok) // decided by the policy by which it leads on
		reply.wait()
		c.at("inspection")
	})
}

func TestShadowIsNotHeldUpByALostList(t *testing.T) {
	shadows(t, review, func(r *rig, o *tally) {
		c := r.connect(plainHello)
		r.up.conn(0).fail = errors.New("no list today")
		r.up.conn(0).drop(wire.Tools)
		c.do("list_a", ok)
		equal(t, "counted", o.take(), []string(nil))
		c.do("nobody has this", ok)
		equal(t, "counted", o.take(), []string{"unknown_action"})
	})
}

// What no answer came to is said in shadow too, without a word of states.
func TestShadowTellsOfALostAnswer(t *testing.T) {
	shadows(t, review, func(r *rig, o *tally) {
		c := r.connect(plainHello)
		reply := c.call("write_plan")
		r.up.next().lose(&wire.CallError{Sent: true, Err: errors.New("gone")})
		answer := reply.wait()
		c.refused(answer, policy.OutcomeUnknown)
		if strings.Contains(answer, "review") || strings.Contains(answer, "Allowed") {
			t.Error(answer)
		}
		equal(t, "counted", o.take(), []string(nil))
	})
}

func TestShadowCountsWhatValidationWouldRefuse(t *testing.T) {
	shadows(t, "validate: true\n"+review, func(r *rig, o *tally) {
		r.up.offer(wire.Tools, `{"tools":[{"name":"write_plan","inputSchema":{"required":["text"]}}]}`)
		c := r.connect(plainHello)
		c.do("write_plan", ok)
		equal(t, "counted", o.take(), []string{"validation_failed"})
		c.at("planning")
	})
}

// A call that asks for a task where none are offered, and waits for a list when shadow ends, is refused.
func TestModeSwitchWhileATaskIsAskedFor(t *testing.T) {
	shadows(t, review, func(r *rig, o *tally) {
		c := r.connect(plainHello)
		r.up.conn(0).drop(wire.Tools)
		r.up.conn(0).slow = time.Second
		reply := c.request("tools/call", `{"name":"list_a","task":{}}`)
		if !reply.pending() {
			t.Fatal("it does not wait")
		}
		c.p.SetMode(runs.Enforce)
		if answer := reply.wait(); !strings.Contains(answer, "tasks are not offered here") {
			t.Error(answer)
		}
		equal(t, "counted", o.take(), []string(nil))
	})
}

func TestModeSwitchTellsWhatIsShownNow(t *testing.T) {
	shadows(t, review, func(r *rig, _ *tally) {
		c := r.connect(plainHello)
		c.p.SetMode(runs.Enforce)
		equal(t, "told", c.told(), []string{"prompts/list_changed", "resources/list_changed", "tools/list_changed"})
		equal(t, "listed", c.listed(wire.Tools), "status read_file list_a write_plan")
		c.refused(c.call("rogue").wait(), policy.UnknownAction)
		c.p.SetMode(runs.Enforce)
		equal(t, "told of nothing", c.told(), []string(nil))
		c.p.SetMode(runs.Shadow)
		equal(t, "told", c.told(), []string{"prompts/list_changed", "resources/list_changed", "tools/list_changed"})
		equal(t, "listed", c.listed(wire.Tools), "status read_file")
		c.do("rogue", ok)
		c.p.SetMode(runs.Enforce)
		c.refused(c.call("rogue").wait(), policy.UnknownAction)
	})
}

// To whom nothing is hidden nothing changes.
func TestModeSwitchIsSilentWhereAllIsBound(t *testing.T) {
	const open = "version: 1\ninitial: a\nstates: {a: {tools: [\"*\"], resources: [\"*\"], prompts: [\"*\"]}}\n"
	bubble(t, open, func(r *rig) {
		c := r.connect(plainHello)
		c.p.SetMode(runs.Shadow)
		c.p.SetMode(runs.Enforce)
		equal(t, "told", c.told(), []string(nil))
	})
}

// The switch into shadow lets all go that wait for the turn, at once.
func TestModeSwitchReleasesTheQueue(t *testing.T) {
	o := &tally{}
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		holder := c.call("write_plan")
		k := r.up.next()
		waiting := []*reply{c.call("write_plan"), c.call("write_plan"), c.call("write_plan")}
		for _, w := range waiting {
			if !w.pending() {
				t.Fatal("it does not wait")
			}
		}
		c.p.SetMode(runs.Shadow)
		for range waiting {
			r.up.next().result(failed)
		}
		for _, w := range waiting {
			equal(t, "answer", strings.Contains(w.wait(), `"isError":true`), true)
		}
		k.result(ok) // decided under enforcement, it ends so
		holder.wait()
		c.at("review")
		equal(t, "counted", o.take(), []string(nil))
	}, with(func(c *proxy.Config) { c.Telemetry.Meter = o }))
}

// A call that came off the queue when shadow began, and finds enforcement again,
// waits again.
func TestModeSwitchThereAndBackKeepsTheTurn(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		holder := c.call("write_plan")
		k := r.up.next()
		second := c.call("write_plan")
		synctest.Wait()
		c.p.SetMode(runs.Shadow)
		c.p.SetMode(runs.Enforce)
		synctest.Wait()
		switch r.up.count("tools/call write_plan") {
		case 1: // it waits again, and finds the run in review
			k.result(ok)
			holder.wait()
			c.refused(second.wait(), policy.InvalidTransition)
		case 2: // it was decided in shadow, and steps nothing while another has the turn
			r.up.next().result(failed)
			second.wait()
			k.result(ok)
			holder.wait()
		}
		c.in("review")
	})
}

// A call that was decided in shadow never steps a run whose turn another has.
func TestShadowCallDoesNotStepUnderAHolder(t *testing.T) {
	shadows(t, review, func(r *rig, _ *tally) {
		c := r.connect(plainHello)
		old := c.call("write_plan")
		k := r.up.next()
		c.p.SetMode(runs.Enforce)
		c.told()
		holder := c.call("write_plan")
		h := r.up.next()
		k.result(ok)
		old.wait()
		c.in("planning")
		h.result(ok)
		holder.wait()
		c.in("review")
	})
}

func TestModeSwitchUnderLoad(t *testing.T) {
	r := newRig(t, review, with(func(c *proxy.Config) {
		c.TurnTimeout, c.CallTimeout, c.CancelGrace = time.Second, time.Second, 50*time.Millisecond
	}))
	plain := lists(reviewTools...)
	r.up.auto = func(k *upcall) (string, bool) {
		if result, ok := plain(k); ok {
			return result, true
		}
		return ok, true
	}
	var clients, switching sync.WaitGroup
	stop := make(chan struct{})
	switching.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			r.p.SetMode(runs.Mode(n % 2))
			if n%7 == 0 {
				r.reload("read_file: ,", "")
			}
		}
	})
	for range 8 {
		clients.Go(func() {
			c := r.connect(plainHello)
			var all []*reply
			for range 150 {
				all = append(all, c.call(reviewTools[rand.IntN(len(reviewTools))]))
				if rand.IntN(10) == 0 {
					all = append(all, c.request("tools/list", ""))
				}
				if len(all) > 30 {
					all[0].wait()
					all = slices.Delete(all, 0, 1)
				}
			}
			for _, a := range all {
				if a.wait() == "" {
					t.Error("a call has no answer")
				}
			}
		})
	}
	clients.Wait()
	close(stop)
	switching.Wait()
	r.p.SetMode(runs.Enforce)
	c := r.connect(plainHello)
	equal(t, "listed", c.listed(wire.Tools), "status list_a write_plan")
	c.refused(c.call("apply").wait(), policy.InvalidTransition)
	r.p.Close()
}

// In shadow a stateless client hears what a stateless upstream says, whatever it asks.
func TestShadowOfRequestsThatSessionsHave(t *testing.T) {
	for method, params := range map[string]string{"logging/setLevel": `{"level":"info"}`, "resources/subscribe": `{"uri":"file:///plan"}`} {
		bubble(t, review, func(r *rig) {
			r.p.SetMode(runs.Shadow)
			c := r.modern()
			call := c.request(method, meta(params))
			synctest.Wait()
			if !call.pending() {
				t.Errorf("%s is answered by the proxy: %s", method, call.wait())
				return
			}
			r.up.next().result(`{"resultType":"complete","said":"by the server"}`)
			if answer := call.wait(); !strings.Contains(answer, "by the server") {
				t.Errorf("%s: %s", method, answer)
			}
		}, modernUpstream)
	}
}
