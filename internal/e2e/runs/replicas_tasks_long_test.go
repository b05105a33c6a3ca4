//go:build long && unix

package runs

import (
	"os"
	"strings"
	"testing"

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
