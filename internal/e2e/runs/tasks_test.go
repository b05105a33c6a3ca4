package runs

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/stores"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// byTasks is moved by a task alone, and says by its state how that ended. What apply sets hangs on its arguments.
const byTasks = `version: 1
name: tasks
initial: start
registers: {plan: text, size: number}
everywhere: {tools: [look, twin]}
at_most: 6
states:
  start:
    tools:
      apply:
        outcomes: {small: result.structuredContent.n < 5.0}
        on_success: {to: applied, set: {plan: args.who, size: result.structuredContent.n}}
        on_small: little
        on_error: broken
        on_unknown: lost
      other: {irreversible: true, outcomes: {mine: result.structuredContent.n == args.n}, on_mine: applied, on_success: little, on_unknown: lost}
      slow: {on_success: applied, on_unknown: lost}
      step: little
  applied: {tools: {check: {when: registers.plan == "me" && registers.size == 9.0}}}
  little:
  broken:
  lost: {tools: {back: start}}
`

// workshop is an upstream whose tasks outlive the proxies in front of it, and whoever began them.
type workshop struct {
	mu    sync.Mutex // guards what follows
	tasks map[string]*work
	poll  int    // in milliseconds, how often it wants to be asked; 0: 1000
	mum   bool   // it does not say where tasks stand
	last  string // the id of the last task, which that of twin has as well
}

type work struct{ status, created, result string }

func (w *workshop) server(modern bool) mcptest.Server {
	w.tasks = make(map[string]*work)
	s := mcptest.Script{
		Capabilities: `{"tools":{"listChanged":true},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}},"extensions":{"io.modelcontextprotocol/tasks":{}}}`,
		Tools:        map[string]func(*mcptest.Exchange){"apply": w.begin, "other": w.begin, "twin": w.begin, "slow": func(e *mcptest.Exchange) { e.Async(func() { e.Gate("slow"); w.begin(e) }) }, "look": nil, "step": nil, "check": nil, "back": nil},
		Methods: map[string]func(*mcptest.Exchange){
			"tasks/get": w.about, "tasks/cancel": w.about,
			"tasks/result": func(e *mcptest.Exchange) {
				if x := w.of(e); x.result != "" {
					e.Result(x.result)
				} else {
					e.Fail(-32603, "nothing is ready")
				}
			},
			"tasks/update": w.about,
			"tasks/list":   w.list,
		},
	}.Server()
	s.Modern = modern
	return s
}

func (w *workshop) begin(e *mcptest.Exchange) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := w.last
	if e.Name != "twin" {
		id = rand.Text()
		w.tasks[id] = &work{"working", time.Now().Format(time.RFC3339Nano), ""}
		w.last = id
	}
	if e.Modern {
		e.Result(`{"resultType":"task",` + w.stateLocked(id, true) + `}`)
	} else {
		e.Result(`{"task":{` + w.stateLocked(id, false) + `}}`)
	}
}

func (w *workshop) stateLocked(id string, modern bool) string {
	x, poll := w.tasks[id], cmp.Or(w.poll, 1000)
	state := fmt.Sprintf(`"taskId":%q,"status":%q,"createdAt":%q,"ttl":600000,"pollInterval":%d,"pollIntervalMs":%d`, id, x.status, x.created, poll, poll)
	if modern && x.result != "" {
		state += `,"result":` + x.result
	}
	return state
}

func (w *workshop) list(e *mcptest.Exchange) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for id := range w.tasks {
		all = append(all, "{"+w.stateLocked(id, false)+"}")
	}
	e.Result(`{"tasks":[` + strings.Join(all, ",") + `]}`)
}

func asksAbout(e *mcptest.Exchange) string {
	var read struct{ TaskID string }
	_ = json.Unmarshal(e.Params, &read)
	return read.TaskID
}

func (w *workshop) of(e *mcptest.Exchange) (x work) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if there := w.tasks[asksAbout(e)]; there != nil {
		x = *there
	}
	return x
}

func (w *workshop) about(e *mcptest.Exchange) {
	if e.Method == "tasks/cancel" {
		w.set(asksAbout(e), "cancelled", "")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch id := asksAbout(e); {
	case w.mum:
		e.Fail(-32603, "not now")
	case w.tasks[id] != nil:
		e.Result(`{` + w.stateLocked(id, e.Modern) + `}`)
	default:
		e.Fail(-32602, "no such task")
	}
}

// mums has it not say where tasks stand, or say it again.
func (w *workshop) mums(mum bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mum = mum
}

// set says where a task stands; the status "" has it be forgotten.
func (w *workshop) set(id, status, result string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if x := w.tasks[id]; x != nil {
		if x.status, x.result = status, result; status == "" {
			delete(w.tasks, id)
		}
	}
}

func sized(n int, more string) string {
	return fmt.Sprintf(`{"content":[],"structuredContent":{"n":%d}%s}`, n, more)
}

// working is a proxy in front of a workshop, with a client.
type working struct {
	*house
	*workshop
	k     key
	c     *client
	store string
}

// works opens a proxy in front of a workshop over HTTP, or of one that it wraps.
func works(t *testing.T, k key, wrapped bool, flags ...string) *working {
	t.Helper()
	return worksOver(t, store(t), k, wrapped, flags...)
}

// worksOver is works over a store.
func worksOver(t *testing.T, store string, k key, wrapped bool, flags ...string) *working {
	t.Helper()
	w := &working{workshop: &workshop{}, k: k, store: store}
	flags = append(flags, "--annotate", "meta", "--store", w.store)
	var upstream *mcptest.Upstream
	if wrapped {
		upstream = mcptest.Stdio(t, k.era+" workshop")
		flags = append(append(flags, "--"), upstream.Command()...)
	} else {
		var url string
		upstream, url = mcptest.HTTP(t, w.server(k.modern()))
		flags = append(flags, "--upstream", url)
	}
	w.house = open(t, k, byTasks, flags...)
	if w.upstream = upstream; !slices.Contains(flags, "--tokens") {
		w.c = w.enter(k, "")
	}
	return w
}

// begins has a tool begin a task, and returns its id.
func (w *working) begins(tool, arguments string) (id string) {
	w.t.Helper()
	if w.c.handle != "" {
		arguments += fmt.Sprintf(`,"fsm_run":%q`, w.c.handle)
	}
	answer := w.c.Call("tools/call", `{"name":"`+tool+`","arguments":{`+arguments+`},"task":{}}`)
	var read struct {
		TaskID string
		Task   struct{ TaskID string }
	}
	if err := json.Unmarshal(answer.Result, &read); err != nil || read.TaskID+read.Task.TaskID == "" {
		w.t.Fatalf("no task: %s", answer)
	}
	return read.TaskID + read.Task.TaskID
}

// back ends the proxy, starts it again, and has the client come back.
func (w *working) back(by os.Signal) {
	w.t.Helper()
	w.again(by)
	if w.k.kind != "session" { // which goes on by itself
		w.c = w.enter(w.k, w.c.run())
	}
}

// signal is another one each time.
func signal(n int) os.Signal { return []os.Signal{os.Kill, syscall.SIGTERM}[n%2] }

// asks asks about a task, and returns the answer.
func (w *working) asks(method, id string) string {
	w.t.Helper()
	return w.c.Call(method, `{"taskId":"`+id+`"}`).String()
}

// says calls a tool and wants a verdict in a state.
func (w *working) says(tool, verdict, state string) {
	w.t.Helper()
	if r := w.c.call(tool, ""); r.verdict != verdict || r.state != state {
		w.t.Fatalf("%s: %s in %s, want %s in %s\n%s", tool, r.verdict, r.state, verdict, state, r.raw)
	}
}

// moved waits until the run is in a state by what is kept of it, and nothing is kept of a task any more.
func (w *working) moved(state string) {
	w.t.Helper()
	mcptest.Await(w.t, "the run is in "+state, func() bool {
		rows := rowsOf(w.t, w.store)
		return len(rows) == 1 && rows[0].State == state
	})
	if kept := tasksOf(w.t, w.store); len(kept) != 0 {
		w.t.Errorf("%s is kept of a task that has ended", kept)
	}
}

// tasksOf is what a store keeps of tasks.
func tasksOf(t *testing.T, url string) (all []string) {
	t.Helper()
	s, err := stores.OpenReader(t.Context(), stores.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for r, err := range journal.Rows(t.Context(), s, journal.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		objects, err := s.Objects(t.Context(), r.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			if o.Kind == "task" {
				all = append(all, string(o.Bytes))
			}
		}
	}
	return all
}

// A task that has the turn of its run has it after restarts as well, its client asks about it as before, and its end moves
// the run, and sets what the call decided, as if nothing had been.
func TestTaskGoesOnAcrossRestarts(t *testing.T) { taskGoesOnAcrossRestarts(t, store) }

func taskGoesOnAcrossRestarts(t *testing.T, store func(t *testing.T) string) {
	each(t, keys, func(t *testing.T, k key) {
		w := worksOver(t, store(t), k, false)
		id := w.begins("apply", `"who":"me"`)
		for n := range 3 {
			w.back(signal(n))
			if got := w.asks("tasks/get", id); !strings.Contains(got, `"working"`) {
				t.Fatal(got)
			}
			r := w.c.call("step", "")
			if r.verdict != "task_running" || r.state != "start" || !strings.Contains(r.raw, id) || !strings.Contains(r.text, "apply") {
				t.Fatal(r.raw)
			}
			w.says("look", "success", "start") // what stays is not held up
		}
		w.set(id, "completed", sized(9, ""))
		w.moved("applied")
		w.says("check", "success", "applied")
		if got := w.asks("tasks/get", id); !strings.Contains(got, `"completed"`) {
			t.Error(got)
		}
		if got := w.asks("tasks/result", id); !k.modern() && !strings.Contains(got, `"n":9`) {
			t.Error(got)
		}
		w.back(os.Kill)
		w.says("check", "success", "applied")
		w.says("look", "limit_reached", "applied") // of which it was counted once
		if n := w.upstream.Count("tools/call", "apply"); n != 1 {
			t.Errorf("it was called %d times", n)
		}
		if n := verified(t, w.store); n != 6 {
			t.Error(n)
		}
	})
}

// The end is seen whoever is there: nobody has to come back for it.
func TestTaskEndsThatNobodyAsksAbout(t *testing.T) {
	each(t, those("process", "session", "principal", "handle"), func(t *testing.T, k key) {
		for n, x := range []struct{ status, result, state string }{
			{"completed", sized(9, ""), "applied"},
			{"completed", sized(2, ""), "little"},
			{"completed", sized(9, `,"isError":true`), "broken"},
			{"failed", "", "broken"},
			{"cancelled", "", "lost"},
			{"", "", "lost"}, // the server has forgotten it
		} {
			t.Run(x.status+" "+x.state, func(t *testing.T) {
				w := works(t, k, false)
				id := w.begins("apply", `"who":"me"`)
				w.ends(signal(n))
				w.set(id, x.status, x.result)
				w.anew()
				w.moved(x.state)
			})
		}
	})
}

// The audit tells of each entry once, also of a task's end that the process does not have the decision on.
func TestTaskThatGoesOnHasOneLine(t *testing.T) {
	each(t, those("principal", "handle"), func(t *testing.T, k key) {
		for n, x := range []struct{ status, result, outcome, to string }{
			{"completed", sized(9, ""), "success", "applied"},
			{"completed", sized(2, ""), "small", "little"},
			{"failed", "", "error", "broken"},
			{"", "", "unknown", "lost"}, // after a first answer
		} {
			t.Run(x.outcome, func(t *testing.T) {
				file := filepath.Join(t.TempDir(), "audit.jsonl")
				w := works(t, k, false, "--audit", file)
				id := w.begins("apply", `"who":"me"`)
				w.back(signal(n))
				w.says("step", "task_running", "start")
				w.set(id, x.status, x.result)
				w.moved(x.to)
				mcptest.Await(t, "the audit tells of the end", func() bool {
					_, fault := differ(t, w.store, file)
					return fault == ""
				})
				lines := auditOf(t, file)
				if a := lines[len(lines)-1]; a.Event != "entry" || a.Type != "ended" || a.Outcome != x.outcome || a.From != "start" || a.To != x.to || a.Begun == 0 || a.Rule == "" {
					t.Errorf("%+v", a)
				}
				w.ends(os.Interrupt)
				if _, fault := differ(t, w.store, file); fault != "" {
					t.Error(fault)
				}
			})
		}
	})
}

// Over a connection that all share it is the same.
func TestTaskGoesOnOverASharedConnection(t *testing.T) {
	each(t, those("principal"), func(t *testing.T, k key) {
		w := works(t, k, false, "--share-upstream")
		id := w.begins("apply", `"who":"me"`)
		w.back(syscall.SIGTERM)
		if got := w.asks("tasks/get", id); !strings.Contains(got, `"working"`) {
			t.Fatal(got)
		}
		w.says("step", "task_running", "start")
		w.set(id, "completed", sized(9, ""))
		w.moved("applied")
		w.says("check", "success", "applied")
	})
}

// A client can cancel its task after a restart.
func TestTaskIsCancelledAfterARestart(t *testing.T) {
	each(t, those("session", "principal", "handle"), func(t *testing.T, k key) {
		w := works(t, k, false)
		id := w.begins("apply", `"who":"me"`)
		w.back(os.Kill)
		if got := w.asks("tasks/cancel", id); strings.Contains(got, `"error"`) {
			t.Fatal(got)
		}
		w.moved("lost")
		w.says("back", "success", "start")
		w.says("step", "success", "little")
	})
}

// A server that numbers its tasks may have another one of the same id by now: that is not the call's.
func TestAnotherTaskOfTheSameID(t *testing.T) {
	each(t, those("session", "principal"), func(t *testing.T, k key) {
		w := works(t, k, false)
		id := w.begins("apply", `"who":"me"`)
		w.ends(os.Kill)
		w.mu.Lock()
		w.tasks[id].created = "2026-01-01T00:00:00Z"
		w.mu.Unlock()
		w.set(id, "completed", sized(9, ""))
		w.anew()
		w.moved("lost")
		if w.k.kind != "session" {
			w.c = w.enter(k, w.c.run())
		}
		if got := w.asks("tasks/get", id); !strings.Contains(got, "-32602") {
			t.Error(got)
		}
	})
}

// Such a server may be started anew when the proxy has already asked it: what its client asks is not answered by another
// task either, nor done to it.
func TestAnotherTaskOfTheSameIDThatItsClientAsksAbout(t *testing.T) {
	each(t, those("session", "principal", "handle"), func(t *testing.T, k key) {
		methods := []string{"tasks/get", "tasks/cancel", "tasks/result", "tasks/list"}
		if k.modern() {
			methods = []string{"tasks/get", "tasks/cancel", "tasks/update"}
		}
		for n, method := range methods {
			t.Run(method, func(t *testing.T) {
				w := works(t, k, false)
				w.poll = 60_000 // the proxy asks but once
				id := w.begins("apply", `"who":"me"`)
				w.back(signal(n))
				if got := w.asks("tasks/get", id); !strings.Contains(got, `"working"`) {
					t.Fatal(got)
				}
				if got := w.c.Call("tasks/list", "{}").String(); !k.modern() && !strings.Contains(got, id) {
					t.Fatal(got)
				}
				status := "completed"
				if method == "tasks/cancel" {
					status = "working"
				}
				w.mu.Lock()
				w.tasks[id].created = "2026-01-01T00:00:00Z"
				w.mu.Unlock()
				w.set(id, status, sized(9, ""))
				switch got := w.asks(method, id); {
				case method == "tasks/list":
					if strings.Contains(got, id) {
						t.Error(got)
					}
					return
				case !strings.Contains(got, "-32602"):
					t.Error(got)
				}
				if method != "tasks/get" && w.upstream.Count(method) != 0 {
					t.Errorf("%s has reached another task", method)
				}
				w.moved("lost")
				for _, method := range methods[:2] { // nor when it is over
					if got := w.asks(method, id); !strings.Contains(got, "-32602") {
						t.Error(got)
					}
				}
			})
		}
	})
}

// What is wrapped has forgotten its tasks, and so has nobody asked about them.
func TestTaskOfAWrappedCommand(t *testing.T) {
	each(t, those("session", "principal"), func(t *testing.T, k key) {
		w := works(t, k, true)
		id := w.begins("apply", `"who":"me"`)
		if kept := tasksOf(t, w.store); len(kept) != 0 {
			t.Errorf("%s is kept", kept)
		}
		w.ends(os.Kill)
		asked := w.upstream.Count("tasks/get")
		w.anew()
		if w.k.kind != "session" {
			w.c = w.enter(k, w.c.run())
		}
		w.says("step", "invalid_transition", "lost")
		if got := w.asks("tasks/get", id); !strings.Contains(got, "-32602") || w.upstream.Count("tasks/get") != asked {
			t.Errorf("%s, asked %d times", got, w.upstream.Count("tasks/get")-asked)
		}
	})
}

// What a result means that is read beside the call's arguments, which are not kept, nobody knows after a restart.
func TestTaskWhoseOutcomeHangsOnTheCall(t *testing.T) {
	each(t, those("principal"), func(t *testing.T, k key) {
		w := works(t, k, false)
		w.begins("other", `"n":9`)
		w.back(os.Kill)
		w.says("step", "invalid_transition", "lost")
	})
}

// A task is its owner's alone after a restart, too, on a run that several have.
func TestTaskOfAnotherAfterARestart(t *testing.T) { taskOfAnotherAfterARestart(t, store) }

func taskOfAnotherAfterARestart(t *testing.T, store func(t *testing.T) string) {
	each(t, those("process"), func(t *testing.T, k key) {
		w := worksOver(t, store(t), k, false, "--tokens", tokens(t))
		come := func(who string) *client {
			c := w.who(k, who)
			if !k.modern() {
				c.Initialize()
			}
			return c
		}
		w.c = come("ann")
		id := w.begins("apply", `"who":"me"`)
		w.again(os.Kill)
		for _, method := range []string{"tasks/get", "tasks/cancel"} {
			w.c = come("bob")
			if got := w.asks(method, id); !strings.Contains(got, "-32602") {
				t.Errorf("%s: %s", method, got)
			}
		}
		w.c = come("ann")
		if got := w.asks("tasks/get", id); !strings.Contains(got, `"working"`) {
			t.Error(got)
		}
	})
}

// How long a task may take counts from its beginning, whatever happens to the proxy.
func TestTaskTimesOutAcrossARestart(t *testing.T) {
	each(t, those("principal"), func(t *testing.T, k key) {
		w := works(t, k, false, "--task-timeout", "10s")
		begun := time.Now()
		w.begins("apply", `"who":"me"`)
		w.ends(os.Kill)
		<-time.After(8500 * time.Millisecond) // of which it takes no account if it counts anew
		w.anew()
		w.moved("lost")
		if took := time.Since(begun); took < 9500*time.Millisecond || took > 18*time.Second {
			t.Errorf("it was given up after %v", took)
		}
	})
}

// No client hears of a task that would be lost with the proxy: where that cannot be written, its outcome is unknown to the
// client, and moves the run once it can.
func TestTaskThatCannotBeKept(t *testing.T) {
	each(t, those("principal"), func(t *testing.T, k key) {
		w := works(t, k, false, "--store-timeout", "2s")
		execute := locks(t, w.store)
		asked := w.c.Request("tools/call", `{"name":"slow","task":{}}`)
		w.upstream.Await(t, 1, "tools/call", "slow")
		execute("PRAGMA busy_timeout = 30000; BEGIN IMMEDIATE")
		w.upstream.Open("slow")
		answer, before := w.c.Answer(asked)
		if r := read(answer, before); r.verdict != "outcome_unknown" || r.state != "start" || strings.Contains(r.raw, "taskId") {
			t.Errorf("it hears of a task that is not kept: %s", r.raw)
		}
		w.says("step", "task_running", "start")
		execute("ROLLBACK")
		mcptest.Await(t, "it is kept", func() bool { return len(tasksOf(t, w.store)) == 1 })
		w.again(os.Kill)
		w.mu.Lock()
		for _, x := range w.tasks {
			x.status, x.result = "completed", sized(9, "")
		}
		w.mu.Unlock()
		w.moved("applied")
	})
}

// away is a server of tasks at an address where it can be gone for a while.
func away(t *testing.T, w *working) (url string, serve func() *http.Server) {
	t.Helper()
	upstream, _ := mcptest.HTTP(t, w.server(w.k.modern()))
	address := mcptest.FreeAddress(t)
	return "http://" + address + "/mcp", func() *http.Server {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		web := &http.Server{Handler: upstream.Handler(), ReadHeaderTimeout: time.Minute}
		go func() { _ = web.Serve(l) }()
		return web
	}
}

// The server may come back after the proxy does.
func TestTaskOfAServerThatIsNotThereYet(t *testing.T) {
	each(t, those("principal"), func(t *testing.T, k key) {
		w := &working{workshop: &workshop{}, k: k, store: store(t)}
		url, serve := away(t, w)
		web := serve()
		w.house = open(t, k, byTasks, "--annotate", "meta", "--store", w.store, "--upstream", url)
		w.c = w.enter(k, "")
		id := w.begins("apply", `"who":"me"`)
		w.ends(os.Kill)
		web.Close()
		w.anew()
		w.process.Log().Await(t, "the upstream is not there: trying again")
		web = serve()
		defer web.Close()
		w.set(id, "completed", sized(9, ""))
		w.moved("applied")
	})
}

// The client of a session comes back, over and over, before the server is there: its run has one task, which goes on.
func TestTaskOfASessionThatComesBackBeforeItsServer(t *testing.T) {
	each(t, those("session"), func(t *testing.T, k key) {
		w := &working{workshop: &workshop{}, k: k, store: store(t)}
		url, serve := away(t, w)
		web := serve()
		w.house = open(t, k, byTasks, "--annotate", "meta", "--store", w.store, "--connect-timeout", "1s", "--upstream", url)
		w.c = w.enter(k, "")
		id := w.begins("apply", `"who":"me"`)
		w.ends(os.Kill)
		web.Close()
		w.anew()
		for range 4 {
			if r := w.c.web.Post(t.Context(), `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"look","arguments":{}}}`); r.Status != http.StatusServiceUnavailable {
				t.Fatalf("%d %s", r.Status, r.Body)
			}
		}
		web = serve()
		defer web.Close()
		mcptest.Await(t, "the session goes on", func() bool {
			return w.c.web.Post(t.Context(), `{"jsonrpc":"2.0","id":9,"method":"ping"}`).Status == http.StatusOK
		})
		w.says("step", "task_running", "start")
		w.set(id, "completed", sized(9, ""))
		w.moved("applied")
		w.says("check", "success", "applied")
		if n := strings.Count(w.process.Log().String(), "a run goes on"); n != 1 {
			t.Errorf("it was read %d times", n)
		}
	})
}

// What finds a task stands in the store alone, for as long as it runs, and nobody is shown it.
func TestTaskIsShownToNobody(t *testing.T) {
	each(t, those("principal"), func(t *testing.T, k key) {
		w := works(t, k, false, "--log-level", "debug")
		id := w.begins("apply", `"who":"me"`)
		if kept := tasksOf(t, w.store); len(kept) != 1 || !strings.Contains(kept[0], id) {
			t.Fatalf("%s is kept", kept)
		}
		w.back(os.Kill)
		w.says("step", "task_running", "start")
		run := w.known()[0].ID
		shown := map[string]string{"the log": w.process.Log().String()}
		for _, args := range [][]string{{"runs", "export"}, {"runs", "export", run}, {"runs", "tail", run, "--json"}, {"runs", "show", run, "--json"}, {"report", run}} {
			for _, from := range [][]string{{"--store", w.store}, {"--admin", w.admin}} {
				out, err := exec.CommandContext(t.Context(), mcptest.Proxy(t), append(slices.Clone(args), from...)...).CombinedOutput()
				if err != nil || len(out) == 0 {
					t.Fatalf("%v %v: %v\n%s", args, from, err, out)
				}
				shown[fmt.Sprint(args, from)] = string(out)
			}
		}
		var objects json.RawMessage
		w.operator(http.MethodGet, "/v1/journal/runs/"+run+"/objects", &objects)
		shown["the journal"] = string(objects)
		for where, text := range shown {
			if plain := strings.ReplaceAll(text, " ", ""); strings.Contains(plain, id) || strings.Contains(plain, `"kind":"task"`) {
				t.Errorf("%s shows the task: %s", where, text)
			}
		}
	})
}
