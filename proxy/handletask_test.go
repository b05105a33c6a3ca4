package proxy_test

import (
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

const workingTask = `{"resultType":"complete","status":"working"}`

// A library asks about its task without a handle, which it does not know. It gets to the
// run that the task is of, and nobody else does.
func TestTasksAreFoundWithoutAHandle(t *testing.T) {
	const long = "786512e2-9e0d-44bd-8f29-789f320fe840"
	bubble(t, review, func(r *rig) {
		mine, other, nobody := r.as(observe.Peer{Principal: ann}), r.as(observe.Peer{Principal: bob}), r.modern()
		asked := func(c *client, id string) string { return c.ask("tasks/get", meta(`{"taskId":"`+id+`"}`)) }
		found := func(c *client, id string) {
			t.Helper()
			call := c.request("tasks/get", meta(`{"taskId":"`+id+`"}`))
			r.asks("tasks/get", id).result(workingTask)
			has(t, call.wait(), `"status":"working"`)
		}
		one := mine.begin()
		mine.begins(of(one, "write_plan"), "t1", time.Minute)
		found(mine, "t1")
		for _, c := range []*client{other, nobody} {
			has(t, asked(c, "t1"), "-32602", "Task not found")
		}
		has(t, asked(mine, "t2"), "Task not found")

		free := nobody.begin()
		nobody.begins(of(free, "write_plan"), "t3", time.Minute)
		has(t, asked(nobody, "t3"), "Task not found") // anybody could guess it
		free = nobody.begin()
		nobody.begins(of(free, "write_plan"), long, time.Minute)
		found(nobody, long)
		has(t, asked(mine, long), "Task not found")

		two := mine.begin()
		mine.begins(of(two, "write_plan"), "t1", time.Minute) // another process's, under the same id
		has(t, asked(mine, "t1"), "Task not found")
		call := mine.request("tasks/get", meta(`{"taskId":"t1"}`, `"fsm-proxy/run":"`+two+`"`))
		r.asks("tasks/get", "t1").result(workingTask)
		call.wait()

		nobody.ask("tools/call", of(free, "fsm_end_run"))
		has(t, asked(nobody, long), "Task not found")
	}, byHandle(nil), modernUpstream, modernTasks)
}

func TestTasksOfOtherKeysAreNotFoundByID(t *testing.T) {
	bubble(t, review, func(r *rig) {
		id, _ := r.p.Runs.Start(bridge.Stateless, ann)
		c := r.as(observe.Peer{Principal: ann, Run: id})
		c.begins(meta(`{"name":"write_plan"}`), "t1", time.Minute)
		has(t, r.as(observe.Peer{Principal: ann}).ask("tasks/get", meta(`{"taskId":"t1"}`)), "run_not_found")
	}, keys(runs.Path), modernUpstream, modernTasks)
}
