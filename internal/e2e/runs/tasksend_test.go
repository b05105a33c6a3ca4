package runs

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// told are the types of the entries of the one run of a store, with the outcomes of its calls.
func told(t *testing.T, url string) (all []string) {
	t.Helper()
	for _, entries := range entriesOf(t, url) {
		for _, e := range entries {
			all = append(all, strings.TrimSpace(e.Type+" "+e.Outcome))
		}
	}
	return all
}

// wantTold waits until the entries of the one run of a store are these, and nothing is kept of a task.
func (w *working) wantTold(want ...string) {
	w.t.Helper()
	var got []string
	defer func() {
		if !slices.Equal(got, want) {
			w.t.Errorf("the entries are %q, not %q", got, want)
		}
	}()
	mcptest.Await(w.t, "the run has its entries", func() bool {
		got = told(w.t, w.store)
		return len(got) >= len(want)
	})
	if kept := tasksOf(w.t, w.store); len(kept) != 0 {
		w.t.Errorf("%s is kept of a task that has ended", kept)
	}
}

// A session's task ends with it, also where it is not known yet whether its server has it still.
func TestTaskThatIsComingEndsWithItsSession(t *testing.T) {
	each(t, those("session"), func(t *testing.T, k key) {
		w := works(t, k, false)
		w.poll = 60_000
		w.begins("apply", `"who":"me"`)
		w.ends(os.Kill)
		w.mums(true)
		w.anew()
		w.says("look", "success", "start")
		if status := w.c.web.Delete(); status != http.StatusNoContent && status != http.StatusOK {
			t.Fatal(status)
		}
		w.wantTold("began", "begun", "begun", "ended success", "ended unknown", "finished")
		w.ends(os.Interrupt)
		verified(t, w.store)
	})
}

// A session that nobody comes back to ends with its task.
func TestTaskEndsWithAnAbandonedSession(t *testing.T) {
	each(t, those("session"), func(t *testing.T, k key) {
		w := works(t, k, false)
		w.poll = 60_000
		w.begins("apply", `"who":"me"`)
		w.ends(os.Kill)
		w.args = append(w.args, "--session-idle", "1s")
		w.anew()
		w.wantTold("began", "begun", "ended unknown", "finished")
	})
}

// An operator who ends a run ends the task that has gone on in it.
func TestTaskEndsWithItsRun(t *testing.T) {
	each(t, those("principal", "handle", "path"), func(t *testing.T, k key) {
		w := works(t, k, false, "--admin-tokens", tokensOf(t, "olga"))
		w.poll = 60_000
		w.begins("apply", `"who":"me"`)
		w.again(os.Kill)
		w.does(0, "end", w.one(k), "--reason", "enough")
		w.wantTold("began", "begun", "finished", "ended unknown")
		w.ends(os.Interrupt)
		verified(t, w.store)
	})
}

// A run that an operator resets has its task be followed to its end, which moves nothing, and is one run meanwhile: also
// where its session comes back, over and over, before its server is there.
func TestResetOfARunWhoseTaskGoesOn(t *testing.T) {
	each(t, those("session"), func(t *testing.T, k key) {
		w := &working{workshop: &workshop{}, k: k, store: store(t)}
		url, serve := away(t, w)
		web := serve()
		w.house = open(t, k, byTasks, "--annotate", "meta", "--store", w.store, "--connect-timeout", "1s", "--admin-tokens", tokensOf(t, "olga"), "--upstream", url)
		w.c = w.enter(k, "")
		id := w.begins("apply", `"who":"me"`)
		w.ends(os.Kill)
		web.Close()
		w.anew()
		w.does(0, "reset", w.known()[0].ID, "--reason", "ticket 12")
		for range 3 {
			if r := w.c.web.Post(t.Context(), `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"look","arguments":{}}}`); r.Status != http.StatusServiceUnavailable {
				t.Fatalf("%d %s", r.Status, r.Body)
			}
		}
		web = serve()
		defer web.Close()
		mcptest.Await(t, "the session goes on", func() bool {
			return w.c.web.Post(t.Context(), `{"jsonrpc":"2.0","id":9,"method":"ping"}`).Status == http.StatusOK
		})
		w.says("step", "success", "little") // it holds nobody up
		w.set(id, "completed", sized(9, ""))
		w.wantTold("began", "begun", "reset", "begun", "ended success", "ended success")
		w.says("look", "success", "little")
		log := w.process.Log().String()
		if strings.Contains(log, "is shut") || strings.Count(log, "a run goes on") != 1 {
			t.Error(log)
		}
	})
}

// A client over stdio ends the proxy by closing standard input: its task goes on when the proxy is started anew, as behind a
// signal.
func TestTaskGoesOnWhereItsClientCloses(t *testing.T) {
	each(t, []key{{"legacy", ""}, {"modern", ""}}, func(t *testing.T, k key) {
		w := &working{house: &house{t: t}, workshop: &workshop{}, k: k, store: store(t)}
		_, url := mcptest.HTTP(t, w.server(k.modern()))
		policy := mcptest.WritePolicy(t, byTasks)
		begins := func() {
			t.Helper()
			w.c = &client{key: k}
			w.c.Session, w.process = mcptest.Dial(t, mcptest.Proxy(t), "run", "--policy", policy, "--annotate", "meta", "--store", w.store, "--run", "mine", "--upstream", url)
			if k.modern() {
				w.c.Modern(mcptest.Modern{})
			} else {
				w.c.Initialize()
			}
		}
		closes := func() {
			t.Helper()
			w.c.Close()
			if code := w.process.ExitCode(); code != 0 {
				t.Fatal(code)
			}
			if kept := tasksOf(t, w.store); len(kept) != 1 {
				t.Fatalf("%s is kept of the task", kept)
			}
		}
		begins()
		id := w.begins("apply", `"who":"me"`)
		for range 2 {
			closes()
			begins()
			w.says("step", "task_running", "start")
			if got := w.asks("tasks/get", id); !strings.Contains(got, `"working"`) {
				t.Fatal(got)
			}
		}
		closes()
		w.set(id, "completed", sized(9, ""))
		begins()
		w.moved("applied")
		w.says("check", "success", "applied")
	})
}

// A server that gives two tasks one id has the call of the second told as one of which nobody knows how it ended: it was
// sent. The first goes on.
func TestTwoTasksOfOneID(t *testing.T) {
	each(t, those("session", "principal", "handle"), func(t *testing.T, k key) {
		for name, again := range map[string]bool{"before a restart": false, "behind one": true} {
			t.Run(name, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "audit.jsonl")
				w := works(t, k, false, "--audit", file)
				id := w.begins("apply", `"who":"me"`)
				if again {
					w.back(os.Kill)
				}
				arguments := "{}"
				if w.c.handle != "" {
					arguments = `{"fsm_run":"` + w.c.handle + `"}`
				}
				if got := w.c.Call("tools/call", `{"name":"twin","arguments":`+arguments+`,"task":{}}`).String(); !strings.Contains(got, "outcome_unknown") || strings.Contains(got, "taskId") {
					t.Error(got)
				}
				w.says("step", "task_running", "start")
				w.set(id, "completed", sized(9, ""))
				w.wantTold("began", "begun", "begun", "ended unknown", "refused", "ended success")
				w.says("check", "success", "applied")
				w.ends(os.Interrupt)
				if _, fault := differ(t, w.store, file); fault != "" {
					t.Error(fault)
				}
			})
		}
	})
}
