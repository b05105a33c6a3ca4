//go:build long && unix

package runs

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// A task goes on at a replica that does not have its run, whether its client says which run that is or asks by the task's id
// alone, and its end moves the run. One that there is nowhere is found nowhere, and somebody else's is not either.
func TestTasksAtAnotherReplica(t *testing.T) {
	database := databases(t)
	each(t, []key{{"legacy", "session"}, {"modern", "handle"}, {"modern", "principal"}}, func(t *testing.T, k key) {
		w := &working{workshop: &workshop{}, k: k, store: database(t)}
		_, upstream := mcptest.HTTP(t, w.server(k.modern()))
		r := replicate(t, k, byTasks, w.store, "--upstream", upstream, "--tokens", tokens(t))
		w.house = r.house
		ann, bob := r.comes(k, "ann"), r.comes(k, "bob")
		w.c = ann
		id := w.begins("apply", `"who":"me"`)
		for range r.all {
			if got := w.asks("tasks/get", id); !strings.Contains(got, `"working"`) {
				t.Fatal(got)
			}
			if got := w.asks("tasks/get", "there-is-none"); !strings.Contains(got, "not found") {
				t.Fatal(got)
			}
			w.c = bob
			if got := w.asks("tasks/get", id); !strings.Contains(got, "not found") {
				t.Fatal(got)
			}
			w.c = ann
		}
		owner, others := r.owner()
		r.come(others...)
		owner.ends(os.Kill)
		if got := w.asks("tasks/get", id); k.kind == "handle" && !strings.Contains(got, `"working"`) {
			t.Fatal(got)
		}
		owner.anew()
		r.come(r.all...)
		w.set(id, "completed", sized(9, ""))
		for range r.all {
			if got := w.asks("tasks/get", id); !strings.Contains(got, `"completed"`) {
				t.Fatal(got)
			}
		}
		w.says("check", "success", "applied")
	})
}

// A task goes on with its run that is released, again and again, and at a replica that ends while calls are under way in other runs:
// that the connection ends on which it was asked about says nothing of the task.
func TestTaskOfARunThatIsGivenAway(t *testing.T) {
	database := databases(t)
	each(t, []key{{"legacy", "session"}, {"legacy", "principal"}, {"modern", "handle"}, {"modern", "principal"}}, func(t *testing.T, k key) {
		w := &working{workshop: &workshop{}, k: k, store: database(t)}
		upstream, url := mcptest.HTTP(t, w.server(k.modern()))
		r := replicate(t, k, byTasks, w.store, "--upstream", url, "--tokens", tokens(t), "--admin-tokens", tokensOf(t, "olga"))
		w.house, w.c = r.house, r.comes(k, "ann")
		id := w.begins("apply", `"who":"me"`)
		goesOn := func() {
			t.Helper()
			if k.kind == "principal" && !k.modern() { // whose session may have gone with its run
				w.c = r.comes(k, "ann")
			}
			if got := w.asks("tasks/get", id); !strings.Contains(got, `"working"`) {
				t.Fatal(got)
			}
		}
		for range 4 {
			owner, others := r.owner()
			others[0].does(0, "release", r.of())
			r.come(owner)
			goesOn()
		}
		owner, others := r.owner()
		r.come(owner)
		bob := r.comes(k, "bob")
		slow := bob.begins("slow", "")
		upstream.Await(t, 1, "tools/call", "slow")
		owner.sends(syscall.SIGTERM)
		owner.process.Log().Await(t, "ending: calls under way")
		r.come(others...)
		goesOn()
		upstream.Open("slow")
		bob.answered(slow)
		owner.process.ExitCode()
		w.set(id, "completed", sized(9, ""))
		mcptest.Await(t, "its end has moved the run", func() bool { x := w.c.call("check", ""); return x.verdict == "success" && x.state == "applied" })
		if n := upstream.Count("tools/call", "apply"); n != 1 {
			t.Errorf("it was called %d times", n)
		}
	})
}

// A task whose run is just being given away is found by its id alone, too, by who asks at that moment.
func TestTaskByItsIDWhileItsRunIsGivenAway(t *testing.T) {
	t.Parallel()
	k := key{"modern", "handle"}
	w := &working{workshop: &workshop{}, k: k, store: databases(t)(t)}
	_, url := mcptest.HTTP(t, w.server(true))
	r := lined(t, k, byTasks, w.store, "--upstream", url, "--tokens", tokens(t), "--admin-tokens", tokensOf(t, "olga"), "--lease", "4s")
	w.house, w.c = r.house, r.comes(k, "ann")
	id := w.begins("apply", `"who":"me"`)
	for range 3 {
		owner, others := r.owner()
		run := r.of()
		r.data[owner].slow(300 * time.Millisecond)
		released := make(chan struct{})
		go func() {
			defer close(released)
			for others[0].posts("/v1/runs/"+run+"/release", "", "Authorization", "Bearer "+token("olga")).Code == "busy" {
			}
		}()
		r.come(others...)
		for done := false; !done; {
			select {
			case <-released:
				done = true
			default:
			}
			if got := w.asks("tasks/get", id); !strings.Contains(got, `"working"`) {
				t.Fatal(got)
			}
		}
		r.data[owner].slow(0)
	}
}
