package proxy_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

// A client cannot end a task by a request that the upstream finds wrong.
func TestBadRequestEndsNoTask(t *testing.T) {
	for _, code := range []int{wire.CodeInvalidParams, wire.CodeInternal} {
		for _, method := range []string{"tasks/get", "tasks/result", "tasks/cancel"} {
			underTask(t, func(r *rig, c *client) {
				asked := c.request(method, `{"taskId":"t1","task":"?"}`)
				r.asks(method, "t1").fail(code)
				if method != "tasks/cancel" {
					k := r.asks("tasks/get", "t1")
					if strings.Contains(string(k.m.Raw), "?") || !asked.pending() {
						t.Errorf("asked %s", k.m.Raw)
					}
					k.result(taskState("t1", "working"))
				}
				has(t, asked.wait(), `"error"`)
				c.refused(c.call("write_plan").wait(), policy.TaskRunning)
			})
		}
	}
}

// An error as the task's result is its end where the task has one.
func TestTaskWhoseResultIsAnError(t *testing.T) {
	for status, state := range map[string]string{"failed": "planning", "cancelled": "planning", "completed": "review"} {
		underTask(t, func(r *rig, c *client) {
			asked, k := c.of("tasks/result", "t1")
			k.fail(wire.CodeInternal)
			r.asks("tasks/get", "t1").result(taskState("t1", status))
			if status == "completed" {
				r.asks("tasks/result", "t1").result(ok)
			}
			asked.wait()
			c.in(state)
			c.up.answers(func(*upcall) (string, bool) { return ok, true })
			has(t, c.call("status").wait(), `"ok"`)
		})
	}
}

// Who sees the end second waits until the first has stepped the run: no client
// learns of an end before, and the second changes nothing.
func TestTaskSeenToEndTwice(t *testing.T) {
	underTask(t, func(r *rig, c *client) {
		entered, release := make(chan struct{}), make(chan struct{})
		c.own.set(func(s *stream) {
			s.hook = func(raw string) {
				if strings.Contains(raw, "tools/list_changed") {
					close(entered)
					<-release
				}
			}
		})
		r.up.conn(0).saysTask("t1", "completed")
		r.asks("tasks/result", "t1").result(ok)
		<-entered
		asked, k := c.of("tasks/get", "t1")
		k.result(taskState("t1", "failed"))
		if !asked.pending() {
			t.Error("the client learned of the end before it was told what changed")
		}
		close(release)
		asked.wait()
		c.in("review")
	})
}

// What a task asks the client goes where the client waits for it.
func TestTaskAsksItsClient(t *testing.T) {
	underTask(t, func(r *rig, c *client) {
		c.own.set(func(s *stream) { s.absent = true })
		asked, k := c.of("tasks/result", "t1")
		r.up.conn(0).says(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"?","requestedSchema":{},`+
			`"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"t1"}}}}`, nil)
		synctest.Wait()
		has(t, strings.Join(asked.messages(), ""), "elicitation/create", `"taskId":"t1"`)
		k.result(ok)
		asked.wait()
		c.in("review")
	})
}

// A client that asks for a task reads nothing but a task: a refusal is an error.
func TestRefusalOfATask(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(ableHello)
		answer := c.ask("tools/call", `{"name":"apply","task":{}}`)
		has(t, answer, `"error":{"code":-32602`, "not allowed in state 'planning'")
		c.refused(answer, policy.InvalidTransition)
		call := c.request("tools/call", `{"name":"write_plan","task":{}}`)
		r.up.next().lose(&wire.CallError{Sent: true, Err: errors.New("cut off")})
		has(t, call.wait(), `"error":{"code":-32603`, "outcome_unknown")
	}, withTasks)
}

// A server's task that a client of the other era did not ask for is followed all the
// same, and the client is told in words.
func TestTaskOutOfReach(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(ableHello)
		call := c.call("write_plan")
		r.up.next().result(modernTask("t1", time.Second))
		has(t, call.wait(), `"result":{"content":[{"type":"text","text":"Tool 'write_plan' was begun, and goes on`)
		c.refused(c.call("write_plan").wait(), policy.TaskRunning)
		has(t, c.ask("tasks/get", `{"taskId":"t1"}`), "-32601")
		r.asks("tasks/get", "t1").result(`{"resultType":"complete","taskId":"t1","status":"completed","result":{"content":[]}}`)
		synctest.Wait()
		c.in("review")
	}, modernUpstream, modernTasks)
}

// One poll that comes to nothing is no end; several in a row are.
func TestPollsThatComeToNothing(t *testing.T) {
	underTask(t, func(r *rig, c *client) {
		for _, lost := range []func(k *upcall){
			func(k *upcall) { k.lose(&wire.CallError{Sent: true, Err: errors.New("cut off")}) },
			func(k *upcall) { k.fail(wire.CodeInternal) },
			func(k *upcall) { k.result(taskState("t1", "working")) },
		} {
			lost(r.asks("tasks/get", "t1"))
		}
		for range 5 {
			c.refused(c.call("write_plan").wait(), policy.TaskRunning)
			r.asks("tasks/get", "t1").fail(wire.CodeInternal)
		}
		synctest.Wait()
		c.do("write_plan", ok)
		c.in("review")
	})
}

// The answer to tasks/result comes when the task has ended, however long that takes.
func TestTasksResultMayTakeLong(t *testing.T) {
	underTask(t, func(r *rig, c *client) {
		asked, k := c.of("tasks/result", "t1")
		r.up.answers(func(k *upcall) (string, bool) { return taskState("t1", "working"), k.m.Method == "tasks/get" })
		time.Sleep(30 * time.Minute)
		if !asked.pending() {
			t.Fatal(asked.wait())
		}
		k.result(ok)
		has(t, asked.wait(), `"ok"`)
		c.in("review")
	})
}

// A task that the upstream forgets soon is asked about before it does.
func TestTaskIsAskedAboutBeforeItIsForgotten(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(ableHello)
		call := c.request("tools/call", `{"name":"write_plan","task":{}}`)
		r.up.next().result(`{"task":{"taskId":"t1","status":"working","ttl":4000,"pollInterval":60000}}`)
		call.wait()
		begun := time.Now()
		r.asks("tasks/get", "t1").result(taskState("t1", "cancelled"))
		equal(t, "asked after", time.Since(begun), 2*time.Second)
	}, withTasks)
}

// A task of a call that stays can take no id from one that moves the run, nor end it. Its client is told that nobody
// follows it.
func TestTaskThatTakesAnothersID(t *testing.T) {
	underTask(t, func(r *rig, c *client) {
		call := c.request("tools/call", `{"name":"status","task":{"ttl":60000}}`)
		c.up.next().result(`{"task":` + taskState("t1", "working") + `}`)
		has(t, call.wait(), policy.OutcomeUnknown.String(), "it may have happened")
		asked, k := c.of("tasks/result", "t1")
		k.result(ok)
		asked.wait()
		c.in("review")
	})
}

// A server of both eras keeps its tasks for the clients of each.
func TestTasksBesideExtensions(t *testing.T) {
	before := strings.Replace(taskHello, `"tasks":{`, `"extensions":{"io.modelcontextprotocol/tasks":{}},"tasks":{`, 1)
	after := strings.Replace(taskHello, `"call":{}}}}`, `"call":{}}}},"extensions":{"a/b":{}}`, 1)
	for _, hello := range []string{before, after} {
		underTask(t, func(*rig, *client) {}, func(_ *proxy.Config, u *server) { u.hello = hello })
	}
}

// A run is not idle while a task goes on.
func TestRunDoesNotExpireUnderATask(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.as(observe.Peer{Principal: ann})
		c.begins(meta(`{"name":"write_plan"}`), "t1", time.Second)
		time.Sleep(30 * time.Minute)
		equal(t, "runs", len(r.p.Runs.Infos()), 1)
		time.Sleep(time.Hour)
		equal(t, "runs", len(r.p.Runs.Infos()), 0)
	}, modernUpstream, keys(runs.Principal), with(func(c *proxy.Config) { c.RunIdle = 10 * time.Minute }), modernTasks, func(_ *proxy.Config, u *server) {
		u.auto = func(k *upcall) (string, bool) { return taskState("t1", "working"), k.m.Method == "tasks/get" }
	})
}

// ledger is an Auditor that remembers outcomes.
type ledger struct {
	mu    sync.Mutex // guards lines
	lines []string
	n     uint64
}

func (l *ledger) Room() bool            { return true }
func (l *ledger) Await(context.Context) {}

func (l *ledger) Entered(observe.Entry) {}

func (l *ledger) Decided(d observe.Decision) { l.Begin(d) }

func (l *ledger) Begin(observe.Decision) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	return l.n
}

func (l *ledger) End(_ uint64, _ observe.Peer, op *observe.Operation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if op.Name == "write_plan" {
		l.lines = append(l.lines, op.Message.Method+" "+op.Outcome+" "+op.From+" "+op.To)
	}
}

// The step that a task's end takes is on record, under its call's decision.
func TestTaskIsRecorded(t *testing.T) {
	l := &ledger{}
	underTask(t, func(r *rig, c *client) {
		r.asks("tasks/get", "t1").result(taskState("t1", "completed"))
		r.asks("tasks/result", "t1").result(ok)
		synctest.Wait()
		c.in("review")
		l.mu.Lock()
		defer l.mu.Unlock()
		equal(t, "records", strings.Join(l.lines, "; "), "tools/call   ; tools/call success planning review")
	}, with(func(c *proxy.Config) { c.Telemetry.Auditor = l }))
}

// What is no result, or looks like something else than one, does not tell how a task has ended. An isError that is anything
// but false and null is an error.
func TestTaskResultsThatAreNone(t *testing.T) {
	for result, state := range map[string]string{
		`null`:                                "review",
		`[]`:                                  "review",
		`{"task":{"taskId":"t2"}}`:            "review",
		`{"resultType":"task","taskId":"t2"}`: "review",
		`{"resultType":"input_required"}`:     "review",
		`{"content":[],"isError":"true"}`:     "planning",
		`{"content":[],"isError":1}`:          "planning",
		`{"content":[],"isError":null}`:       "done",
	} {
		bubble(t, strings.Replace(review, "done: {terminal: true}", "done: {tools: [status]}", 1), func(r *rig) {
			c := r.connect(ableHello)
			c.do("write_plan", ok)
			c.do("ask", ok)
			c.startTask("apply", "t1")
			asked, k := c.of("tasks/result", "t1")
			k.result(result)
			asked.wait()
			c.in(state)
		}, withTasks)
	}
	for _, result := range []string{`,"result":null`, ``, `,"result":{"isError":false,"isError":true}`, `,"result":{"IsError":true}`} {
		bubble(t, review, func(r *rig) {
			c := r.modern()
			r.modernCall(c, "write_plan", ok)
			r.modernCall(c, "ask", ok)
			c.begins(meta(`{"name":"apply"}`), "t1", time.Second)
			r.asks("tasks/get", "t1").result(`{"resultType":"complete","taskId":"t1","status":"completed"` + result + `}`)
			synctest.Wait()
			has(t, c.ask("tools/call", meta(`{"name":"read_file"}`)), "in state 'review'")
		}, modernUpstream, modernTasks)
	}
}
