package attack

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// Of many calls at once over an edge that can be taken once exactly one reaches the upstream; the others are
// refused by the state that they then find.
func TestParallelOnceOnlyEdge(t *testing.T) {
	each(t, []way{pipes, web, webTLS, webPipe, pipeWeb}, func(r *rig) {
		const callers = 64
		for range callers {
			r.Request("tools/call", mcptest.ToolParams("once", ""))
		}
		passed := 0
		for answered := 0; answered < callers; {
			m := r.Next()
			if !m.IsResponse() {
				continue
			}
			answered++
			switch text := m.String(); {
			case !denied(text):
				passed++
			case !strings.Contains(text, `"invalid_transition"`), !strings.Contains(text, `"state":"after"`):
				r.t.Errorf("refused by %s", m)
			}
		}
		if passed != 1 {
			r.t.Errorf("%d of %d calls were let through", passed, callers)
		}
		r.reached("tools/call once")
	})
}

// A refused call is not sent by being repeated, nor by waiting behind the one that moves the state away.
func TestQueuedCallIsDecidedAgain(t *testing.T) {
	both(t, func(r *rig) {
		first := r.Request("tools/call", mcptest.ToolParams("hold", ""))
		r.upstream.Await(r.t, 1, "tools/call", "hold")
		second := r.Request("tools/call", mcptest.ToolParams("once", ""))
		third := r.Request("tools/call", mcptest.ToolParams("command", `{"command":"move"}`))
		r.upstream.Open("hold")
		answers := map[int]string{first: "", second: "", third: ""}
		for range answers {
			m := r.nextAnswer()
			for id := range answers {
				if string(m.ID) == string(mcptest.ID(id)) {
					answers[id] = m.String()
				}
			}
		}
		if !strings.Contains(answers[first], "held") || !denied(answers[second]) || !denied(answers[third]) {
			r.t.Errorf("answered %v", answers)
		}
		r.lives()
		r.reached("tools/call hold")
	})
}

// beforeReload is a walk whose states the next policy does not have, but for the first, from which the same edge leads.
const beforeReload = `version: 1
initial: start
states:
  start: {tools: {count: old}}
  old: {tools: {hold: older, ok: }}
  older: {tools: [ok]}
`

const afterReload = `version: 1
initial: start
stranded: restart
states:
  start: {tools: {hold: after, ok: }}
  after: {tools: [ok]}
`

// A reload has the run begin anew while a call is in flight that leaves its state: it does so when that has ended. What
// was queued behind it is refused, though the new run's first state binds it: it would be done twice.
func TestRestartByReloadWhileACallIsInFlight(t *testing.T) {
	t.Parallel()
	for _, modern := range []bool{false, true} {
		t.Run(map[bool]string{false: "legacy", true: "modern"}[modern], func(t *testing.T) {
			t.Parallel()
			r := pipes.under(beforeReload).with("--reload-debounce", "5ms").start(t)
			if modern {
				r.Modern(mcptest.Modern{})
			} else {
				r.Initialize()
			}
			r.Tool("count", "")
			first := r.Request("tools/call", mcptest.ToolParams("hold", ""))
			r.upstream.Await(t, 1, "tools/call", "hold")
			second := r.Request("tools/call", mcptest.ToolParams("hold", ""))
			r.Tool("ok", `{"alive":true}`) // behind which the second is queued
			if err := os.WriteFile(r.policy, []byte(afterReload), 0o600); err != nil {
				t.Fatal(err)
			}
			r.process.Log().Await(t, "the policy was reloaded")
			third := r.Request("tools/call", mcptest.ToolParams("hold", ""))
			r.Tool("ok", `{"alive":true}`)
			r.upstream.Open("hold")
			answers := r.answers(first, second, third)
			if !strings.Contains(answers[first], `"text":"held"`) {
				t.Errorf("the call in flight is answered %s", answers[first])
			}
			for _, id := range []int{second, third} {
				if answer := answers[id]; !strings.Contains(answer, `"error":"not_available"`) || !strings.Contains(answer, "the run began anew while it waited") {
					t.Errorf("what was queued is answered %s", answer)
				}
			}
			r.in("start")
			r.reached("tools/call count", "tools/call hold")
			if answer := r.Tool("hold", "").String(); !strings.Contains(answer, `"text":"held"`) {
				t.Errorf("in the new run the call is answered %s", answer)
			}
			r.in("after")
		})
	}
}

// waiting is the world over HTTP. Once slow is set it answers a method when the gate is open.
func waiting(t *testing.T, method, gate string) (upstream *mcptest.Upstream, url string, slow *atomic.Bool) {
	plain := world()
	slow = new(atomic.Bool)
	upstream, url = mcptest.HTTP(t, mcptest.Server{Handle: func(e *mcptest.Exchange) {
		if e.Method == method && slow.Load() {
			e.Async(func() { e.Gate(gate); plain.Handle(e) })
			return
		}
		plain.Handle(e)
	}})
	return upstream, url, slow
}

// Nor is a call done in the new run that waited for something else when the old one ended: here for the list, on which a
// glob hangs, or for a state that does not bind it at all.
func TestRestartByReloadWhileACallWaits(t *testing.T) {
	t.Parallel()
	r := &rig{t: t}
	upstream, url, slow := waiting(t, "tools/list", "list")
	r.upstream = upstream
	r.policy = mcptest.WritePolicy(t, strings.Replace(beforeReload, "{hold: older, ok: }", `{"hol*": older, once: older, ok: , swap: }`, 1))
	r.Session, r.process = mcptest.Dial(t, mcptest.Proxy(t), "run", "--policy", r.policy, "--upstream", url, "--reload-debounce", "5ms")
	r.Initialize()
	r.Tool("count", "")
	first := r.Request("tools/call", mcptest.ToolParams("hold", ""))
	r.upstream.Await(t, 1, "tools/call", "hold")
	unbound := r.Request("tools/call", mcptest.ToolParams("once", "")) // in the state in which the new run begins
	slow.Store(true)
	r.Tool("swap", "") // the list is another one now
	second := r.Request("tools/call", mcptest.ToolParams("hold", ""))
	r.Tool("ok", `{"alive":true}`)
	if err := os.WriteFile(r.policy, []byte(afterReload), 0o600); err != nil {
		t.Fatal(err)
	}
	r.process.Log().Await(t, "the policy was reloaded")
	r.upstream.Open("hold")
	r.process.Log().Await(t, "from=old to=older")
	r.upstream.Open("list")
	answers := r.answers(first, second, unbound)
	for _, id := range []int{second, unbound} {
		if answer := answers[id]; !strings.Contains(answer, `"error":"not_available"`) || !strings.Contains(answer, "the run began anew while it waited") {
			t.Errorf("answered %s", answer)
		}
	}
	r.in("start")
	r.reached("tools/call count", "tools/call hold", "tools/call swap")
}

// Nor one that waited for a connection of its own, by a client of the other era on the same run.
func TestRestartByReloadWhileACallConnects(t *testing.T) {
	t.Parallel()
	r := &rig{t: t}
	upstream, url, slow := waiting(t, "initialize", "connect")
	r.upstream = upstream
	r.policy = mcptest.WritePolicy(t, beforeReload)
	r.url, r.process = mcptest.Listen(t, "--policy", r.policy, "--upstream", url, "--run-key", "legacy=process", "--reload-debounce", "5ms")
	legacy, modern := r.diner(false, ""), r.diner(true, "")
	legacy.Tool("count", "")
	first := legacy.Request("tools/call", mcptest.ToolParams("hold", ""))
	r.upstream.Await(t, 1, "tools/call", "hold")
	slow.Store(true)
	second := modern.Request("tools/call", mcptest.ToolParams("hold", ""))
	r.upstream.Await(t, 2, "initialize")
	r.follows(afterReload)
	r.upstream.Open("hold")
	legacy.Answer(first)
	r.upstream.Open("connect")
	if answer := modern.answers(second)[second]; !strings.Contains(answer, `"error":"not_available"`) || !strings.Contains(answer, "the run began anew while it waited") {
		t.Errorf("answered %s", answer)
	}
	if n := r.upstream.Count("tools/call", "hold"); n != 1 {
		t.Errorf("hold was sent %d times", n)
	}
}

// However the call in flight ends, the run begins anew then and no sooner, and once: what was queued is refused. Where
// another reload has brought the state back by then, the run goes on in it.
func TestRestartByReloadHoweverTheCallEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		flags   []string
		reloads []string
		ends    func(r *rig, first int)
		want    []string // of the second's answer
		state   string
	}{
		"cancelled":      {[]string{"--cancel-grace", "50ms"}, []string{afterReload}, (*rig).cancels, []string{`"error":"not_available"`, "began anew while it waited"}, "start"},
		"timeout":        {[]string{"--call-timeout", "3s"}, []string{afterReload}, func(*rig, int) {}, []string{`"error":"not_available"`, "began anew while it waited"}, "start"},
		"two reloads":    {nil, []string{afterReload, afterReload + "name: again\n"}, func(r *rig, _ int) { r.upstream.Open("hold") }, []string{`"error":"not_available"`}, "start"},
		"there and back": {nil, []string{afterReload, beforeReload + "name: again\n"}, func(r *rig, _ int) { r.upstream.Open("hold") }, []string{`"error":"invalid_transition"`, "older"}, "older"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := pipes.under(beforeReload).with(append(c.flags, "--reload-debounce", "5ms")...).open(t)
			r.Tool("count", "")
			first := r.Request("tools/call", mcptest.ToolParams("hold", ""))
			r.upstream.Await(t, 1, "tools/call", "hold")
			second := r.Request("tools/call", mcptest.ToolParams("hold", ""))
			r.Tool("ok", `{"alive":true}`) // behind which the second is queued
			for _, policy := range c.reloads {
				if err := os.WriteFile(r.policy, []byte(policy), 0o600); err != nil {
					t.Fatal(err)
				}
				r.process.Log().Await(t, fmt.Sprintf("digest=%x", sha256.Sum256([]byte(policy))))
			}
			c.ends(r, first)
			for answered := false; !answered; {
				m := r.nextAnswer()
				if answered = string(m.ID) == strconv.Itoa(second); !answered {
					continue
				}
				for _, want := range c.want {
					if !strings.Contains(m.String(), want) {
						t.Errorf("what was queued is answered %s, want %s", m, want)
					}
				}
			}
			r.in(c.state)
			if n := r.upstream.Count("tools/call", "hold"); n != 1 {
				t.Errorf("hold was sent %d times", n)
			}
		})
	}
}

// cancels takes a request back.
func (r *rig) cancels(id int) {
	r.t.Helper()
	r.Notify("notifications/cancelled", `{"requestId":`+strconv.Itoa(id)+`}`)
}

// answers are the answers to requests, in whatever order they come.
func (r *rig) answers(ids ...int) map[int]string {
	r.t.Helper()
	all := make(map[int]string)
	for len(all) < len(ids) {
		m := r.nextAnswer()
		id, err := strconv.Atoi(string(m.ID))
		if err != nil || !slices.Contains(ids, id) || all[id] != "" {
			r.t.Fatalf("answered %s", m)
		}
		all[id] = m.String()
	}
	return all
}

// nextAnswer is the next message that is an answer.
func (r *rig) nextAnswer() mcptest.Message {
	r.t.Helper()
	for {
		if m := r.Next(); m.IsResponse() {
			return m
		}
	}
}

// The side effect has happened when the cancellation comes: what the upstream still answers decides the step.
func TestCancelAfterSideEffect(t *testing.T) {
	both(t, func(r *rig) {
		id := r.Request("tools/call", mcptest.ToolParams("late", ""))
		r.upstream.Await(r.t, 1, "tools/call", "late")
		r.cancel(id)
		r.upstream.Await(r.t, 1, "notifications/cancelled")
		next := r.Request("tools/call", mcptest.ToolParams("once", "")) // waits for the turn, and so for the step
		r.upstream.Open("late")
		if answer, _ := r.Answer(next); !strings.Contains(answer.String(), `"state":"after"`) {
			r.t.Errorf("the success did not step: %s", answer)
		}
		r.lives()
		r.reached("tools/call late", "notifications/cancelled")
		r.cancelledAs("late")
	})
}

func (r *rig) cancel(id int) {
	r.Notify("notifications/cancelled", `{"requestId":`+string(mcptest.ID(id))+`,"reason":"changed my mind"}`)
}

// cancelledAs fails the test unless the cancellation that reached the upstream names the call of the tool.
func (r *rig) cancelledAs(tool string) {
	r.t.Helper()
	var called, cancelled string
	for _, m := range r.upstream.Received() {
		if m.Name == tool {
			called = string(m.ID)
		}
		if m.Method == "notifications/cancelled" {
			cancelled = string(m.Params)
		}
	}
	if !strings.Contains(cancelled, `"requestId":`+called+`,`) {
		r.t.Errorf("the call was %s upstream, cancelled was %s", called, cancelled)
	}
}

// The client's id is the client's: upstream the cancellation names the id that the call has there.
func TestCancelNamesTheUpstreamsID(t *testing.T) {
	each(t, []way{pipes, web, webPipe}, func(r *rig) {
		r.Send(call(`"mine"`, `{"name":"late"}`))
		r.upstream.Await(r.t, 1, "tools/call", "late")
		r.Notify("notifications/cancelled", `{"requestId":"mine","reason":"changed my mind"}`)
		r.upstream.Await(r.t, 1, "notifications/cancelled")
		r.upstream.Open("late")
		r.lives()
		r.cancelledAs("late")
		r.reached("tools/call late", "notifications/cancelled")
	})
}

// Cancelled and never answered: after the grace it is unknown what became of it, and on_unknown leads on.
func TestCancelWithoutAnswer(t *testing.T) {
	each(t, []way{pipes.with("--cancel-grace", "100ms"), web.with("--cancel-grace", "100ms")}, func(r *rig) {
		id := r.Request("tools/call", mcptest.ToolParams("silent", ""))
		r.upstream.Await(r.t, 1, "tools/call", "silent")
		r.cancel(id)
		if answer := r.Tool("once", ""); !strings.Contains(answer.String(), `"state":"lost"`) {
			r.t.Errorf("the run did not go on to lost: %s", answer)
		}
		r.lives()
		r.reached("tools/call silent", "notifications/cancelled")
	})
}

// What is cancelled while it waits for the turn is never sent.
func TestCancelWhileQueued(t *testing.T) {
	both(t, func(r *rig) {
		first := r.Request("tools/call", mcptest.ToolParams("late", ""))
		r.upstream.Await(r.t, 1, "tools/call", "late")
		queued := r.Request("tools/call", mcptest.ToolParams("once", ""))
		r.cancel(queued) // over HTTP it may come first: then the call is decided in the state behind
		r.cancel(first)
		r.upstream.Await(r.t, 1, "notifications/cancelled")
		r.upstream.Open("late")
		r.in("after")
		r.lives()
		r.reached("tools/call late", "notifications/cancelled")
	})
}

// A client of HTTP that goes away has cancelled nothing: what it started is stepped.
func TestDisconnectAfterSideEffect(t *testing.T) {
	each(t, []way{web, webTLS, webPipe}, func(r *rig) {
		ctx, leave := context.WithCancel(r.t.Context())
		var gone sync.WaitGroup
		gone.Go(func() { r.web.Post(ctx, call("500", `{"name":"hold"}`)) })
		r.upstream.Await(r.t, 1, "tools/call", "hold")
		leave()
		gone.Wait()
		waits := r.Request("tools/call", mcptest.ToolParams("once", ""))
		r.upstream.Open("hold")
		if answer, _ := r.Answer(waits); !strings.Contains(answer.String(), `"state":"after"`) {
			r.t.Errorf("the call of the client that left did not step: %s", answer)
		}
		r.lives()
		r.reached("tools/call hold")
	})
}

// The end of standard input in mid-call cancels upstream, waits for the grace at most, and ends everything.
func TestEndOfInputAfterSideEffect(t *testing.T) {
	each(t, []way{pipes.with("--cancel-grace", "300ms"), pipeWeb.with("--cancel-grace", "300ms")}, func(r *rig) {
		r.Request("tools/call", mcptest.ToolParams("late", ""))
		r.upstream.Await(r.t, 1, "tools/call", "late")
		r.Close()
		if code := r.process.ExitCode(); code != 0 {
			r.t.Errorf("exit code %d", code)
		}
		r.upstream.AwaitLive(r.t, 0)
		r.reached("tools/call late", "notifications/cancelled")
	})
}

// An answer after its time changes nothing: the run went by on_unknown, and the client has its answer.
func TestLateAnswer(t *testing.T) {
	each(t, []way{pipes.with(impatient...), web.with(impatient...), webTLS.with(impatient...)}, func(r *rig) {
		id := r.Request("tools/call", mcptest.ToolParams("late", ""))
		answer, _ := r.Answer(id)
		if !strings.Contains(answer.String(), `"outcome_unknown"`) || !strings.Contains(answer.String(), "may have happened") {
			r.t.Errorf("answered %s", answer)
		}
		r.upstream.Open("late")
		r.lives()
		r.in("lost")
		if n := answers(r, id); n != 1 {
			r.t.Errorf("the client got %d answers", n)
		}
		r.reached("tools/call late", "notifications/cancelled")
	})
}

// answers is how many answers to a request the client got.
func answers(r *rig, id int) (n int) {
	for _, m := range r.Received() {
		if m.IsResponse() && string(m.ID) == string(mcptest.ID(id)) {
			n++
		}
	}
	return n
}

// Of two answers the first counts; the second neither steps nor reaches anybody.
func TestDoubleAnswer(t *testing.T) {
	both(t, func(r *rig) {
		id := r.Request("tools/call", mcptest.ToolParams("twice", ""))
		if answer, _ := r.Answer(id); string(answer.Result) != mcptest.Text("first") {
			r.t.Errorf("answered %s", answer)
		}
		r.lives()
		r.in("after")
		if n := answers(r, id); n != 1 {
			r.t.Errorf("the client got %d answers", n)
		}
		r.unheard("second")
		r.reached("tools/call twice")
	})
}

// sideDoor fails the test unless each message is refused and none reaches the upstream.
func sideDoor(t *testing.T, requests ...[2]string) {
	both(t, func(r *rig) {
		r.t.Helper()
		for _, request := range requests {
			if answer := r.Call(request[0], request[1]); !denied(answer.String()) {
				r.t.Errorf("%v is answered %s", request, answer)
			}
		}
		r.untouched()
	})
}

func TestHiddenNameByCompletion(t *testing.T) {
	const argument = `,"argument":{"name":"a","value":""}`
	sideDoor(t,
		[2]string{"completion/complete", `{"ref":{"type":"ref/prompt","name":"hidden"}` + argument + `}`},
		[2]string{"completion/complete", `{"ref":{"type":"ref/resource","uri":"w://hidden"}` + argument + `}`},
		[2]string{"completion/complete", `{"ref":{"type":"ref/resource","uri":"w://{any}"}` + argument + `}`},
		[2]string{"completion/complete", `{"ref":{"type":"ref/resource","name":"shown","uri":"w://hidden"}` + argument + `}`},
		[2]string{"completion/complete", `{"ref":{"type":"ref/prompt","name":"hidden","uri":"w://shown"}` + argument + `}`},
		[2]string{"completion/complete", `{"ref":{"type":"ref/tool","name":"hidden"}` + argument + `}`},
		[2]string{"completion/complete", `{"ref":"shown"` + argument + `}`},
		[2]string{"completion/complete", `{"name":"shown"` + argument + `}`})
}

func TestHiddenNameBySubscribe(t *testing.T) {
	sideDoor(t,
		[2]string{"resources/subscribe", `{"uri":"w://hidden"}`},
		[2]string{"resources/subscribe", `{"uri":["w://hidden"]}`},
		[2]string{"resources/unsubscribe", `{"uri":"w://hidden"}`},
		[2]string{"resources/subscribe", ""})
}

func TestHiddenNameByPromptsGet(t *testing.T) {
	sideDoor(t,
		[2]string{"prompts/get", `{"name":"hidden"}`},
		[2]string{"prompts/get", `{"name":"ok"}`}, // a tool's name is no prompt's
		[2]string{"prompts/get", `{"name":["shown"]}`},
		[2]string{"prompts/get", `{"uri":"w://shown"}`},
		[2]string{"tools/call", `{"name":"shown"}`})
}

func TestHiddenNameByRead(t *testing.T) {
	sideDoor(t,
		[2]string{"resources/read", `{"uri":"w://hidden"}`},
		[2]string{"resources/read", `{"uri":"W://shown"}`},
		[2]string{"resources/read", `{"uri":"w://shown/"}`},
		[2]string{"resources/read", `{"uri":"w://shown/../hidden"}`},
		[2]string{"resources/read", `{"uri":"w://%73hown"}`},
		[2]string{"resources/read", `{"uri":" w://shown"}`},
		[2]string{"resources/templates/list", ""})
}

func TestHiddenNameByUnknownMethod(t *testing.T) {
	sideDoor(t,
		[2]string{"tools/run", `{"name":"hidden"}`},
		[2]string{"Tools/Call", `{"name":"hidden"}`},
		[2]string{"tools/call ", `{"name":"hidden"}`},
		[2]string{"tools.call", `{"name":"hidden"}`},
		[2]string{"rpc.discover", ""},
		[2]string{"server/discover", ""},
		[2]string{"sampling/createMessage", `{"name":"hidden"}`},
		[2]string{"elicitation/create", ""},
		[2]string{"roots/list", ""},
		[2]string{"notifications/cancelled", `{"requestId":1}`})
}

func TestHiddenNameByTask(t *testing.T) {
	sideDoor(t,
		[2]string{"tools/call", `{"name":"ok","task":{"ttl":1000}}`},
		[2]string{"tools/call", `{"name":"ok","task":null}`},
		[2]string{"tasks/list", ""},
		[2]string{"tasks/result", `{"taskId":"1"}`},
		[2]string{"tasks/cancel", `{"taskId":"1"}`})
}

// What the state hides is in no list, whichever of the upstream's pages it stands on, and the pages beyond are
// not to be had by their cursors.
func TestHiddenToolOnPage2(t *testing.T) {
	both(t, func(r *rig) {
		for method, shown := range map[string]string{"tools/list": `"read_two"`, "resources/list": `"w://shown"`, "prompts/list": `"shown"`} {
			list := r.Call(method, "").String()
			if !strings.Contains(list, shown) || strings.Contains(list, "hidden") || strings.Contains(list, "page_two") || strings.Contains(list, "nextCursor") {
				r.t.Errorf("%s shows %s", method, list)
			}
		}
		if list := r.Call("tools/list", `{"cursor":"two"}`); !denied(list.String()) {
			r.t.Errorf("the upstream's own cursor is answered %s", list)
		}
		for _, name := range []string{"page_two", "hidden"} {
			if answer := r.Tool(name, ""); !denied(answer.String()) {
				r.t.Errorf("%s is answered %s", name, answer)
			}
		}
		r.untouched()
	})
}

// A client that goes by an old list is refused by what holds now: by the state, and by what the upstream lists.
func TestStaleCachedList(t *testing.T) {
	both(t, func(r *rig) {
		r.Call("tools/list", "")
		if answer := r.Tool("read_b", ""); denied(answer.String()) {
			r.t.Errorf("a listed name is answered %s", answer)
		}
		r.Tool("swap", "")
		if answer := r.Tool("read_b", ""); !strings.Contains(answer.String(), `"unknown_action"`) {
			r.t.Errorf("a name that is listed no more is answered %s", answer)
		}
		if answer := r.Tool("read_c", ""); denied(answer.String()) {
			r.t.Errorf("a name that is listed now is answered %s", answer)
		}
		r.Tool("once", "")
		if answer := r.Tool("read_c", ""); !strings.Contains(answer.String(), `"invalid_transition"`) {
			r.t.Errorf("a name of another state is answered %s", answer)
		}
		r.reached("tools/call read_b", "tools/call swap", "tools/call read_c", "tools/call once")
	})
}

// A glob binds what the upstream lists, and no name that it would serve all the same.
func TestGlobBindsOnlyWhatIsListed(t *testing.T) {
	both(t, func(r *rig) {
		for _, name := range []string{"read_c", "read_", "read_*", "READ_a"} {
			if answer := r.Tool(name, ""); !denied(answer.String()) {
				r.t.Errorf("%s is answered %s", name, answer)
			}
		}
		r.untouched()
	})
}

// The argument that splits a tool is read as the upstream reads it, or not at all.
func TestUnknownCase(t *testing.T) {
	both(t, func(r *rig) {
		for _, arguments := range []string{
			`{"command":"destroy"}`, `{"command":"Plan"}`, `{"command":"plan "}`, `{"command":["plan"]}`, `{"command":null}`,
			`{"command":{"plan":"plan"}}`, `{"command":"plan\u0000"}`, `{}`, `[]`, `"plan"`, `null`, `"{\"command\":\"plan\"}"`,
			`{"command":"plan","Command":"destroy"}`, `{"COMMAND":"plan"}`, `{"command":"plan","comm\u0061nd\u0000":"destroy"}`,
			`{"nested":{"command":"plan"}}`,
		} {
			if answer := r.Tool("command", arguments); !denied(answer.String()) {
				r.t.Errorf("%s is answered %s", arguments, answer)
			}
		}
		if answer := r.Call("tools/call", `{"name":"command"}`); !denied(answer.String()) {
			r.t.Errorf("no arguments are answered %s", answer)
		}
		if answer := r.Tool("command", `{"c\u006fmmand":"pl\u0061n"}`); string(answer.Result) != mcptest.Text("plan") {
			r.t.Errorf("a listed case in escapes is answered %s", answer)
		}
		r.in("start")
		r.lives()
		r.reached("tools/call command")
	})
}

// What a path leads to is read at each name as the upstream reads it, in the type that the policy says, or not at all.
func TestUnknownCaseAtAPath(t *testing.T) {
	both(t, func(r *rig) {
		for _, arguments := range []string{
			`{"options":{"level":"100"}}`, `{"options":{"level":200}}`, `{"options":{"level":"true"}}`, `{"options":{"level":1}}`, `{"options":{"level":false}}`,
			`{"options":{"level":["200"]}}`, `{"options":[{"level":100}]}`, `{"options":"{\"level\":100}"}`, `{"options":{"level":null}}`, `{"options":null}`,
			`{"options":{}}`, `{"level":100}`, `{"options.level":100}`, `{"options":{"level":{"level":100}}}`, `{"options":{"level":-100}}`, `{"options":{"level":-0}}`,
			`{"options":{"level":100.00000000000000000000000000001}}`, `{"options":{"level":1e999999999}}`, `{"options":{"level":1e99999999999999999999}}`,
			`{"options":{"level":"git push -f"}}`, `{"options":{"level":"git push*"}}`, `{"options":{"level":"Git log"}}`, `{"options":{"level":"git \u0000log"}}`, `{"options":{"level":"\"200\""}}`,
			`{"options":{"level":100,"Level":1}}`, `{"options":{"LEVEL":1,"level":100}}`, `{"options":{"level":100},"Options":{"level":1}}`, `{"OPTIONS":{"level":100}}`,
			`{"options":{"level":100,"level\u0000":1}}`, `{"options":{"level":100,"level":1}}`, `{"options":{"level":100,"l\u0065vel":1}}`, `{"options":{"level":100},"options":{}}`,
			strings.Repeat(`{"options":`, 400) + `100` + strings.Repeat(`}`, 400),
		} {
			if answer := r.Tool("level", arguments); !denied(answer.String()) {
				r.t.Errorf("%s is answered %s", arguments, answer)
			}
		}
		pass := []string{
			`{"options":{"level":100}}`, `{"options":{"level":1e2}}`, `{"options":{"level":100.0}}`, `{"options":{"level":"200"}}`, `{"options":{"level":true}}`,
			`{"options":{"level":"git log"}}`, `{"opt\u0069ons":{"l\u0065vel":"g\u0069t log"}}`, `{"options":{"level":100,"other":{"LEVEL":1}},"x":{"Options":1}}`,
		}
		var want []string
		for _, arguments := range pass {
			if answer := r.Tool("level", arguments); result(answer) != mcptest.Text("level") {
				r.t.Errorf("%s is answered %s", arguments, answer)
			}
			want = append(want, "tools/call level")
		}
		r.in("start")
		r.lives()
		r.reached(want...)
	})
}

// A new session is a new run, at its beginning. That is what holds where the run is the session's; the one that
// stays behind is where it was.
func TestResetByReconnecting(t *testing.T) {
	each(t, []way{web, webPipe, web.with("--share-upstream")}, func(r *rig) {
		r.Tool("once", "")
		if again := r.Tool("once", ""); !denied(again.String()) {
			r.t.Errorf("the edge was taken twice: %s", again)
		}
		other := r.join()
		other.in("start")
		if fresh := other.Tool("once", ""); denied(fresh.String()) {
			r.t.Errorf("another session is not at its own beginning: %s", fresh)
		}
		if answer := r.say(mcptest.Request(1, "initialize", oldHello)); !strings.Contains(answer, invalidRequest) {
			r.t.Errorf("a second initialize is answered %s", answer)
		}
		r.in("after")
		r.reached("tools/call once", "tools/call once")
	})
}

// On a pipe a second initialize begins nothing anew.
func TestResetBySecondInitialize(t *testing.T) {
	each(t, []way{pipes, pipeWeb}, func(r *rig) {
		r.Tool("once", "")
		if answer := r.Call("initialize", oldHello); !strings.Contains(string(answer.Error), invalidRequest) {
			r.t.Errorf("answered %s", answer)
		}
		r.in("after")
		r.reached("tools/call once")
		if n := r.upstream.Count("initialize"); n != 1 {
			r.t.Errorf("%d initialize reached the upstream", n)
		}
	})
}

// What is said of a hidden resource does not reach the client, subscribed to before or not.
func TestHiddenUpdate(t *testing.T) {
	both(t, func(r *rig) {
		r.Call("resources/subscribe", `{"uri":"w://shown"}`)
		_, before := r.Answer(r.Request("tools/call", mcptest.ToolParams("update", "")))
		if len(before) != 1 || !strings.Contains(before[0].String(), "w://shown") {
			r.t.Errorf("the client got %v", before)
		}
		r.lives()
		r.reached("resources/subscribe w://shown", "tools/call update")
	})
}

// Requests that overtake initialize are refused, and reach nothing.
func TestCallBeforeInitialize(t *testing.T) {
	t.Parallel()
	for _, w := range []way{pipes, web} {
		t.Run(w.client, func(t *testing.T) {
			t.Parallel()
			r := w.start(t)
			if answer := r.say(call("9", `{"name":"ok"}`)); strings.Contains(answer, `"result"`) {
				t.Errorf("answered %s", answer)
			}
			r.Initialize()
			r.untouched()
		})
	}
}
