package proxy_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/operator"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

const taskHello = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}},` +
	`"serverInfo":{"name":"up","version":"1"}}`

func withTasks(_ *proxy.Config, u *server) { u.hello = taskHello }

func modernTasks(_ *proxy.Config, u *server) {
	u.hello = strings.Replace(u.hello, `"prompts":{}`, `"prompts":{},"extensions":{"io.modelcontextprotocol/tasks":{},"other":{}}`, 1)
}

func taskState(id, status string) string {
	return fmt.Sprintf(`{"taskId":%q,"status":%q,"ttl":60000,"pollInterval":2000}`, id, status)
}

// modernTask is a task of the modern era that has just begun.
func modernTask(id string, poll time.Duration) string {
	return fmt.Sprintf(`{"resultType":"task","taskId":%q,"status":"working","pollIntervalMs":%d}`, id, poll.Milliseconds())
}

// startTask calls a tool as a task, which the upstream begins.
func (c *client) startTask(tool, id string) string {
	c.t.Helper()
	call := c.request("tools/call", fmt.Sprintf(`{"name":%q,"task":{"ttl":60000}}`, tool))
	k := c.up.next()
	has(c.t, string(k.m.Raw), `"task":{"ttl":60000}`)
	k.result(`{"task":` + taskState(id, "working") + `}`)
	answer := call.wait()
	has(c.t, answer, `"taskId":"`+id+`"`)
	return answer
}

// begins has a call answered by a task of the modern era.
func (c *client) begins(params, id string, poll time.Duration) string {
	c.t.Helper()
	call := c.request("tools/call", params)
	c.up.next().result(modernTask(id, poll))
	answer := call.wait()
	has(c.t, answer, `"taskId":"`+id+`"`)
	return answer
}

// underTask runs a test while a task goes on that a client began, and that moves the run.
func underTask(t *testing.T, f func(r *rig, c *client), options ...func(*proxy.Config, *server)) {
	t.Helper()
	bubble(t, review, func(r *rig) {
		c := r.connect(ableHello)
		c.startTask("write_plan", "t1")
		f(r, c)
	}, slices.Concat([]func(*proxy.Config, *server){withTasks}, options)...)
}

// of asks about a task, up to the upstream.
func (c *client) of(method, id string) (asked *reply, k *upcall) {
	c.t.Helper()
	asked = c.request(method, `{"taskId":"`+id+`"}`)
	return asked, c.asks(method, id)
}

// saysTask is a notification of a task's state.
func (c *conn) saysTask(id, status string) {
	c.says(`{"jsonrpc":"2.0","method":"notifications/tasks/status","params":`+taskState(id, status)+`}`, nil)
}

// asks is what the upstream is asked next.
func (r *rig) asks(method, id string) *upcall {
	r.t.Helper()
	k := r.up.next()
	if k.m.Method != method || k.m.P.TaskID != id {
		r.t.Fatalf("asked %s", k.m.Raw)
	}
	return k
}

// The proxy sees the task's end by itself, and tells the client what changed.
func TestTaskEndsByItself(t *testing.T) {
	for name, tt := range map[string]struct{ status, result, state string }{
		"success":        {"completed", `{"content":[]}`, "review"},
		"error":          {"completed", `{"content":[],"isError":true}`, "planning"},
		"failed":         {"failed", "", "planning"},
		"cancelled":      {"cancelled", "", "planning"},
		"a new protocol": {"completed", `{"content":[],"isError":false}`, "review"},
	} {
		t.Run(name, func(t *testing.T) {
			underTask(t, func(r *rig, c *client) {
				has(t, c.ask("tools/call", `{"name":"write_plan"}`), "task_running", "t1", "write_plan")
				c.do("status", `{"content":[]}`) // what stays is not held up
				synctest.Wait()
				k := r.asks("tasks/get", "t1")
				k.result(taskState("t1", "working"))
				k = r.asks("tasks/get", "t1")
				k.result(taskState("t1", tt.status))
				if tt.result != "" {
					r.asks("tasks/result", "t1").result(tt.result)
				}
				synctest.Wait()
				c.in(tt.state)
				if changed := strings.Contains(strings.Join(c.own.messages(), ""), "tools/list_changed"); changed != (tt.state == "review") {
					t.Errorf("told of a change: %t", changed)
				}
			})
		})
	}
}

// Whoever sees the end first steps the run, before the client learns of it.
func TestClientSeesTheTasksEndFirst(t *testing.T) {
	underTask(t, func(r *rig, c *client) {
		asked, k := c.of("tasks/result", "t1")
		k.result(`{"content":[{"type":"text","text":"done"}]}`)
		has(t, asked.wait(), "done")
		has(t, strings.Join(asked.messages(), ""), "tools/list_changed")
		c.in("review")
		time.Sleep(time.Hour)
		synctest.Wait()
		equal(t, "polls after the end", r.up.count("tasks/get"), 0)
		get, k := c.of("tasks/get", "t1")
		k.result(taskState("t1", "failed"))
		get.wait()
		c.in("review") // a second end changes nothing
	})
}

func TestTaskCompletedSeenByGet(t *testing.T) {
	underTask(t, func(r *rig, c *client) {
		asked, k := c.of("tasks/get", "t1")
		k.result(taskState("t1", "completed"))
		k = r.asks("tasks/result", "t1")
		if !asked.pending() {
			t.Error("the client learned of the end before the run was stepped")
		}
		k.result(`{"content":[],"isError":true}`)
		has(t, asked.wait(), `"completed"`)
		c.in("planning")
	})
}

func TestForeignAndGuessedTasks(t *testing.T) {
	bubble(t, review, func(r *rig) {
		mine, other := r.connect(ableHello), r.connect(ableHello)
		mine.startTask("status", "t1")
		for _, method := range []string{"tasks/get", "tasks/result", "tasks/cancel"} {
			foreign, guessed := other.ask(method, `{"taskId":"t1"}`), other.ask(method, `{"taskId":"t2"}`)
			has(t, foreign, "-32602", "not found")
			_, foreign, _ = strings.Cut(foreign, `"error"`)
			_, guessed, _ = strings.Cut(guessed, `"error"`)
			equal(t, method, foreign, guessed)
		}
		equal(t, "asked upstream", r.up.count("tasks/get")+r.up.count("tasks/result")+r.up.count("tasks/cancel"), 0)
		list := other.request("tasks/list", "")
		r.up.next().result(`{"tasks":[` + taskState("t1", "working") + `],"nextCursor":"t1"}`)
		k := r.up.next()
		has(t, string(k.m.Raw), `"cursor":"t1"`)
		k.result(`{"tasks":[` + taskState("t9", "working") + `]}`)
		has(t, list.wait(), `"result":{"tasks":[]}`) // a cursor may be another's task
		has(t, other.ask("tasks/list", `{"cursor":"t1"}`), "-32602")
		list = mine.request("tasks/list", "")
		r.up.next().result(`{"tasks":[` + taskState("t0", "working") + `, ` + taskState("t1", "working") + `]}`)
		has(t, list.wait(), `{"tasks":[`+taskState("t1", "working")+`]}`)
	}, withTasks)
}

func TestTaskThatNeverEnds(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(ableHello)
		c.do("write_plan", `{"content":[]}`)
		c.do("ask", `{"content":[]}`)
		r.up.answers(func(k *upcall) (string, bool) { return taskState("t1", "working"), k.m.Method == "tasks/get" })
		c.startTask("apply", "t1")
		time.Sleep(61 * time.Minute)
		synctest.Wait()
		c.in("review") // on_unknown
	}, withTasks)
}

func TestTaskOfALostUpstream(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(ableHello)
		c.do("write_plan", `{"content":[]}`)
		c.do("ask", `{"content":[]}`)
		c.startTask("apply", "t1")
		r.up.conn(0).fade()
		synctest.Wait()
		c.in("review")
	}, withTasks)
}

// The same where the connection ends as soon as the task has begun.
func TestTaskOfAnUpstreamJustLost(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(ableHello)
		c.do("write_plan", `{"content":[]}`)
		c.do("ask", `{"content":[]}`)
		call := c.request("tools/call", `{"name":"apply","task":{"ttl":60000}}`)
		k := r.up.next()
		r.up.conn(0).fade()
		k.result(`{"task":` + taskState("t1", "working") + `}`)
		has(t, call.wait(), `"taskId":"t1"`)
		synctest.Wait()
		c.in("review") // on_unknown
	}, withTasks)
}

func TestTaskThatExpired(t *testing.T) {
	underTask(t, func(r *rig, c *client) {
		r.asks("tasks/get", "t1").fail(wire.CodeInvalidParams)
		synctest.Wait()
		c.in("planning")
		c.do("write_plan", `{"content":[]}`)
		c.in("review")
	})
}

func TestTaskStatusNotification(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c, other := r.connect(ableHello), r.connect(ableHello)
		c.startTask("write_plan", "t1")
		r.up.conn(0).saysTask("t1", "completed")
		r.asks("tasks/result", "t1").result(`{"content":[]}`)
		synctest.Wait()
		c.in("review")
		equal(t, "order", strings.Join(c.own.journal.all()[5:], "; "), "own tools/list_changed; own tasks/status; 6 answer")
		r.up.conn(1).saysTask("t1", "completed")
		synctest.Wait()
		equal(t, "told of another's task", len(other.own.messages()), 0)
	}, withTasks)
}

// A call that waited for the turn finds the task in it.
func TestQueuedCallFindsATask(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(ableHello)
		call := c.request("tools/call", `{"name":"write_plan","task":{}}`)
		k := r.up.next()
		queued := c.call("write_plan")
		synctest.Wait()
		k.result(`{"task":` + taskState("t1", "working") + `}`)
		call.wait()
		c.refused(queued.wait(), policy.TaskRunning)
	}, withTasks)
}

func TestTasksWhereTheUpstreamHasNone(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(ableHello)
		has(t, c.ask("tools/call", `{"name":"read_file","task":{}}`), "-32601")
		has(t, c.ask("tasks/get", `{"taskId":"t"}`), "-32601")
		has(t, c.ask("tasks/list", ""), "-32601")
	})
}

// A run that begins anew is held up by no task of the old one.
func TestRestartDuringATask(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connectAs(observe.Peer{Principal: ann})
		c.startTask("write_plan", "t1")
		if _, err := r.p.Operators().Reset(operator.Verb{Run: r.only().Name}); err != nil {
			t.Fatal("no run")
		}
		c.do("write_plan", `{"content":[]}`)
		c.in("review")
		r.asks("tasks/get", "t1").result(taskState("t1", "failed"))
		synctest.Wait()
		c.in("review")
	}, withTasks, keys(runs.Principal))
}

func TestModernTask(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.modern()
		has(t, c.begins(meta(`{"name":"write_plan"}`), "t1", time.Second), `"resultType":"task","taskId":"t1"`)
		has(t, c.ask("tools/call", meta(`{"name":"write_plan"}`)), "task_running")
		k := r.asks("tasks/get", "t1")
		has(t, string(k.m.Raw), `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`)
		k.result(`{"resultType":"complete","taskId":"t1","status":"completed","result":{"content":[]}}`)
		synctest.Wait()
		has(t, c.ask("tools/call", meta(`{"name":"write_plan"}`)), "in state 'review'")
		has(t, c.ask("server/discover", meta("")), `"extensions":{"io.modelcontextprotocol/tasks":{}}`)
		has(t, r.as(observe.Peer{Principal: ann}).ask("tasks/cancel", meta(`{"taskId":"t1"}`)), "-32602")
		update := c.request("tasks/update", meta(`{"taskId":"t1","inputResponses":{}}`))
		r.asks("tasks/update", "t1").lose(&wire.CallError{Err: errors.New("gone")})
		has(t, update.wait(), "-32603")
	}, modernUpstream, modernTasks)
}

// For a task that begins at the very end nothing is begun: nobody would wait for that.
func TestTaskBegunAtTheEnd(t *testing.T) {
	for range 100 {
		bubble(t, review, func(r *rig) {
			for range 4 {
				c := r.connect(ableHello)
				c.request("tools/call", `{"name":"write_plan","task":{"ttl":60000}}`)
				k := r.up.next()
				go func() {
					time.Sleep(time.Second)
					k.result(`{"task":` + taskState("t1", "working") + `}`)
				}()
			}
			r.p.Close()
		}, withTasks, sharing(true), with(func(c *proxy.Config) { c.EndGrace = time.Second }))
	}
}

// A task of a call that stays is the client's alone: its end is not asked for, and is
// recorded no second time.
func TestEndOfATaskWithoutTheTurnIsNotWanted(t *testing.T) {
	j := &recorder{log: &journal{}}
	bubble(t, review, func(r *rig) {
		c := r.connect(ableHello)
		c.startTask("read_file", "t1")
		before := len(j.log.all())
		for _, method := range []string{"tasks/get", "tasks/cancel"} {
			asked, k := c.of(method, "t1")
			k.result(taskState("t1", "completed"))
			has(t, asked.wait(), `"completed"`)
		}
		r.up.conn(0).saysTask("t1", "completed")
		synctest.Wait()
		equal(t, "results asked for", r.up.count("tasks/result"), 0)
		equal(t, "recorded", j.log.all()[before:], []string(nil))
		c.do("write_plan", ok)
		c.in("review")
	}, withTasks, with(func(c *proxy.Config) { c.Journal = j }))
}
