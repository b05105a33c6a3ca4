package attack

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// taskPlan has one edge that a task takes, and says by its state how that ended.
const taskPlan = `version: 1
name: tasks
initial: start
everywhere: {tools: [look, brew, end]}
states:
  start:
    tools:
      apply: {on_success: applied, on_error: broken, on_unknown: lost}
  applied:
  broken:
  lost:
`

// kitchen is an upstream whose tasks are everybody's: it keeps nobody from another's, numbers them, and lists them one
// a page, with a cursor that is the next one's id. apply and brew begin one, and end ends one.
type kitchen struct {
	mu     sync.Mutex // guards status
	status []string   // by number
}

const taskCapabilities = `{"tools":{"listChanged":true},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}},` +
	`"extensions":{"io.modelcontextprotocol/tasks":{}}}`

func (k *kitchen) server(modern bool) mcptest.Server {
	server := mcptest.Script{
		Capabilities: taskCapabilities,
		Tools:        map[string]func(*mcptest.Exchange){"apply": k.begin, "brew": k.begin, "end": k.end, "look": nil},
		Methods: map[string]func(*mcptest.Exchange){
			"tasks/get": k.get, "tasks/result": k.result, "tasks/cancel": k.cancel, "tasks/list": k.list,
		},
	}.Server()
	server.Modern = modern
	return server
}

func (k *kitchen) begin(e *mcptest.Exchange) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.status = append(k.status, "working")
	state := k.stateLocked(len(k.status)-1, e.Modern)
	if e.Modern {
		e.Result(`{"resultType":"task",` + state + `}`)
		return
	}
	e.Result(`{"task":{` + state + `}}`)
}

func (k *kitchen) stateLocked(number int, modern bool) string {
	state := fmt.Sprintf(`"taskId":"task-%d","status":%q,"ttl":600000,"pollInterval":1000,"pollIntervalMs":1000`, number, k.status[number])
	if modern && k.status[number] == "completed" {
		state += `,"result":` + mcptest.Text("served")
	}
	return state
}

// of is the number of the task that a request is about, -1 for none.
func (k *kitchen) of(e *mcptest.Exchange) int {
	var read struct{ TaskID string }
	_ = json.Unmarshal(e.Params, &read)
	digits, _ := strings.CutPrefix(read.TaskID, "task-")
	if n, err := strconv.Atoi(digits); err == nil && n >= 0 && n < len(k.status) {
		return n
	}
	return -1
}

func (k *kitchen) get(e *mcptest.Exchange) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n := k.of(e); n >= 0 && !strings.Contains(string(e.Params), "nonsense") {
		e.Result(`{` + k.stateLocked(n, e.Modern) + `}`)
		return
	}
	e.Fail(-32602, "no such task")
}

func (k *kitchen) result(e *mcptest.Exchange) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n := k.of(e); n < 0 || k.status[n] != "completed" {
		e.Fail(-32603, "nothing is ready")
		return
	}
	e.Result(mcptest.Text("served"))
}

func (k *kitchen) cancel(e *mcptest.Exchange) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := k.of(e)
	if n < 0 || k.status[n] != "working" {
		e.Fail(-32602, "nothing to cancel")
		return
	}
	k.status[n] = "cancelled"
	e.Result(`{` + k.stateLocked(n, e.Modern) + `}`)
}

func (k *kitchen) list(e *mcptest.Exchange) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var read struct{ Cursor string }
	_ = json.Unmarshal(e.Params, &read)
	digits, _ := strings.CutPrefix(read.Cursor, "task-")
	n, _ := strconv.Atoi(digits)
	if n >= len(k.status) {
		e.Result(`{"tasks":[]}`)
		return
	}
	page := `{"tasks":[{` + k.stateLocked(n, e.Modern) + `}]`
	if n+1 < len(k.status) {
		page += fmt.Sprintf(`,"nextCursor":"task-%d"`, n+1)
	}
	e.Result(page + "}")
}

// end has a task come to an end.
func (k *kitchen) end(e *mcptest.Exchange) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n, _ := strconv.Atoi(e.Argument("number"))
	k.status[n] = e.Argument("status")
	e.Result(mcptest.Text("ended"))
}

// tasked starts a proxy before a kitchen, and a client of the era. Clients have the tokens "token of ann" and "token of
// bob".
func tasked(t *testing.T, modern bool, flags ...string) *rig {
	t.Helper()
	return before(t, modern, append(flags, "--tokens", namedTokens(t))...).diner(modern, "token of ann")
}

// before starts a proxy before a kitchen.
func before(t *testing.T, modern bool, flags ...string) *rig {
	t.Helper()
	r := &rig{t: t}
	var url string
	r.upstream, url = mcptest.HTTP(t, new(kitchen).server(modern))
	r.url, r.process = mcptest.Listen(t, append([]string{"--policy", mcptest.WritePolicy(t, taskPlan), "--upstream", url}, flags...)...)
	return r
}

func namedTokens(t *testing.T) string {
	t.Helper()
	tokens := filepath.Join(t.TempDir(), "tokens.yaml")
	text := "version: 1\ntokens:\n"
	for _, name := range []string{"ann", "bob"} {
		text += fmt.Sprintf("  %s: sha256:%x\n", name, sha256.Sum256([]byte("token of "+name)))
	}
	if err := os.WriteFile(tokens, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return tokens
}

// diner is another client, of the era.
func (r *rig) diner(modern bool, token string) *rig {
	r.t.Helper()
	if modern {
		return r.modernClient(token)
	}
	other := r.client(token)
	other.Initialize()
	return other
}

// inBothEras runs a test with clients and an upstream of each.
func inBothEras(t *testing.T, run func(t *testing.T, modern bool)) {
	t.Helper()
	t.Parallel()
	for _, modern := range []bool{false, true} {
		t.Run(map[bool]string{false: "legacy", true: "modern"}[modern], func(t *testing.T) { t.Parallel(); run(t, modern) })
	}
}

// starts has a tool begin a task.
func (r *rig) starts(tool, id string) {
	r.t.Helper()
	if answer := r.Call("tools/call", `{"name":"`+tool+`","task":{}}`); !strings.Contains(answer.String(), `"taskId":"`+id+`"`) {
		r.t.Fatalf("%s began no task: %s", tool, answer)
	}
}

// ends has a task come to an end, of which nobody is told.
func (r *rig) ends(number, status string) {
	r.t.Helper()
	if answer := r.Tool("end", `{"number":"`+number+`","status":"`+status+`"}`); denied(answer.String()) {
		r.t.Fatalf("the task did not end: %s", answer)
	}
}

// of is a request about a task, less the id of the answer.
func (r *rig) of(method, id string) string {
	r.t.Helper()
	answer := r.Call(method, `{"taskId":"`+id+`"}`).String()
	_, text, _ := strings.Cut(answer, `"error"`)
	if text == "" {
		return answer
	}
	return text
}

// Another's task, one that was guessed and one that is nowhere answer alike, whoever asks, in whatever way, and the
// upstream is not asked.
func TestForeignAndGuessedTask(t *testing.T) {
	inBothEras(t, func(t *testing.T, modern bool) {
		ann := tasked(t, modern, "--run-key", "modern=principal")
		ann.starts("apply", "task-0")
		bob := ann.diner(modern, "token of bob")
		bob.starts("brew", "task-1")
		for _, method := range []string{"tasks/get", "tasks/result", "tasks/cancel", "tasks/update"} {
			if method == "tasks/result" && modern || method == "tasks/update" && !modern {
				continue
			}
			before := ann.upstream.Count(method)
			foreign, guessed, nowhere := bob.of(method, "task-0"), bob.of(method, "task-7"), bob.of(method, "x")
			if foreign != guessed || guessed != nowhere || !strings.Contains(foreign, "-32602") {
				t.Errorf("%s: foreign %s, guessed %s, nowhere %s", method, foreign, guessed, nowhere)
			}
			if n := ann.upstream.Count(method) - before; n > 0 && method != "tasks/get" { // which the proxy does for ann
				t.Errorf("%s reached the upstream", method)
			}
		}
		ann.in("start")
		if answer := ann.Tool("apply", ""); !strings.Contains(answer.String(), "task_running") {
			t.Errorf("beside the task a call is answered %s", answer)
		}
	})
}

// tasks/list shows nothing of others, neither their tasks nor, by a cursor, that there are any.
func TestTasksListLeak(t *testing.T) {
	t.Parallel()
	ann := tasked(t, false)
	ann.starts("apply", "task-0")
	bob := ann.diner(false, "token of bob")
	bob.starts("brew", "task-1")
	again := ann.diner(false, "token of ann") // another session of ann's has another run
	for _, x := range []struct {
		who  *rig
		want []string
	}{{ann, []string{"task-0"}}, {bob, []string{"task-1"}}, {again, nil}} {
		answer := x.who.Call("tasks/list", "").String()
		for _, id := range []string{"task-0", "task-1"} {
			if strings.Contains(answer, id) != slices.Contains(x.want, id) {
				t.Errorf("%v listed as %s", x.want, answer)
			}
		}
		if answer := x.who.Call("tasks/list", `{"cursor":"task-0"}`).String(); !denied(answer) {
			t.Errorf("a cursor of one's own making is answered %s", answer)
		}
	}
}

// While a task runs whose end moves the run nothing that could move it slips through, on none of the connections to the
// run; what stays goes on. The end is seen many times, and moves the run once.
func TestCallBesideATask(t *testing.T) {
	inBothEras(t, func(t *testing.T, modern bool) {
		r := tasked(t, modern, "--run-key", "modern=principal")
		r.starts("apply", "task-0")
		clients := []*rig{r, r.diner(modern, "token of ann"), r.diner(modern, "token of ann")}
		var calls sync.WaitGroup
		for i := range 24 {
			calls.Go(func() {
				c := clients[i%len(clients)]
				body := `{"name":"apply","task":{}}`
				if modern {
					body = mcptest.Modern{}.Params(body)
				}
				if answer := c.web.Post(t.Context(), call(strconv.Itoa(1000+i), body)); !strings.Contains(string(answer.Body), "task_running") {
					t.Errorf("a call beside the task is answered %s", answer.Body)
				}
			})
		}
		calls.Wait()
		if n := r.upstream.Count("tools/call", "apply"); n != 1 {
			t.Errorf("apply was called %d times", n)
		}
		clients[1].ends("0", "completed")
		for i := range 8 {
			calls.Go(func() {
				body := mcptest.Request(2000+i, "tasks/get", `{"taskId":"task-0"}`)
				if modern {
					body = mcptest.Request(2000+i, "tasks/get", mcptest.Modern{}.Params(`{"taskId":"task-0"}`))
				}
				r.web.Post(t.Context(), body)
			})
		}
		calls.Wait()
		for _, c := range clients {
			c.in("applied")
		}
		r.ends("0", "failed")
		r.of("tasks/get", "task-0")
		r.in("applied")
	})
}

// Requests about a task that the upstream finds wrong, or cannot answer yet, do not pass for its end.
func TestWrongRequestEndsNoTask(t *testing.T) {
	inBothEras(t, func(t *testing.T, modern bool) {
		r := tasked(t, modern, "--run-key", "modern=principal")
		r.starts("apply", "task-0")
		r.Call("tasks/get", `{"taskId":"task-0","more":"nonsense"}`)
		r.Call("tasks/result", `{"taskId":"task-0"}`)
		if answer := r.Tool("apply", ""); !strings.Contains(answer.String(), "task_running") {
			t.Errorf("after wrong requests a call is answered %s", answer)
		}
		r.ends("0", "cancelled")
		r.of("tasks/get", "task-0")
		r.in("lost")
	})
}

// What a task comes to after its time is up changes nothing.
func TestLateEndOfATask(t *testing.T) {
	inBothEras(t, func(t *testing.T, modern bool) {
		r := tasked(t, modern, "--run-key", "modern=principal", "--task-timeout", "50ms")
		r.starts("apply", "task-0")
		r.process.Log().Await(t, "task ended")
		r.in("lost")
		r.ends("0", "completed")
		if answer := r.of("tasks/get", "task-0"); !strings.Contains(answer, "completed") {
			t.Errorf("the task is answered %s", answer)
		}
		r.in("lost")
	})
}

// Who leaves in the middle of a task, and comes back, finds the run where the task has left it, not at its beginning.
func TestReconnectDuringATask(t *testing.T) {
	t.Parallel()
	r := tasked(t, false, "--run-key", "legacy=principal")
	r.starts("apply", "task-0")
	again := r.diner(false, "token of ann")
	r.web.Delete()
	r.process.Log().Await(t, "task ended")
	again.in("lost")
	if n := r.upstream.Count("tools/call", "apply"); n != 1 {
		t.Errorf("apply was called %d times", n)
	}
}

// Two tasks are begun at once by calls of one edge: one reaches the upstream.
func TestTasksBegunAtOnce(t *testing.T) {
	inBothEras(t, func(t *testing.T, modern bool) {
		r := tasked(t, modern, "--run-key", "modern=principal")
		r.in("start")
		var calls sync.WaitGroup
		for i := range 16 {
			calls.Go(func() {
				body := `{"name":"apply","task":{}}`
				if modern {
					body = mcptest.Modern{}.Params(body)
				}
				r.web.Post(t.Context(), call(strconv.Itoa(1000+i), body))
			})
		}
		calls.Wait()
		if n := r.upstream.Count("tools/call", "apply"); n != 1 {
			t.Errorf("apply was called %d times", n)
		}
	})
}

// able is a client that says that it knows tasks.
func (r *rig) able(token string) *rig {
	r.t.Helper()
	other := r.client(token)
	other.Modern(mcptest.Modern{Capabilities: `{"extensions":{"a":{},"io.modelcontextprotocol/tasks":{},"b":{}},"roots":{}}`})
	return other
}

// A call without a run is offered no task. One that comes all the same is nobody's: its id serves neither who made the
// call nor who guesses it, and whether the call has happened is unknown.
func TestTaskOfACallWithoutARun(t *testing.T) {
	t.Parallel()
	ann := before(t, true).able("")
	if answer := ann.Tool("brew", "").String(); !strings.Contains(answer, "outcome_unknown") || strings.Contains(answer, "task-0") {
		t.Errorf("a task without a run is answered %s", answer)
	}
	for _, m := range ann.upstream.Received() {
		if m.Method == "tools/call" && (strings.Contains(string(m.Params), "modelcontextprotocol/tasks") || !strings.Contains(string(m.Params), `"extensions":{"a":{},"b":{}},"roots":{}`)) {
			t.Errorf("the upstream is told %s", m.Params)
		}
	}
	for _, who := range []*rig{ann, ann.able("")} {
		for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
			if answer := who.of(method, "task-0"); !strings.Contains(answer, "-32602") {
				t.Errorf("%s is answered %s", method, answer)
			}
		}
	}
	run := ann.begin()
	if answer := ann.Tool("brew", of(run)).String(); !strings.Contains(answer, "task-1") {
		t.Errorf("with a run the call is answered %s", answer)
	}
	for id, want := range map[string]string{"task-0": "-32602", "task-1": "working"} {
		if answer := ann.Call("tasks/get", `{"taskId":"`+id+`","_meta":{"fsm-proxy/run":"`+run+`"}}`).String(); !strings.Contains(answer, want) {
			t.Errorf("with a handle %s is answered %s", id, answer)
		}
	}
}

// Of those who share the one token nobody learns another's handles, and another's task is not found by its id.
func TestSharedBearer(t *testing.T) {
	t.Parallel()
	r := before(t, true, "--bearer-file", secretFile(t, "the-one"))
	ann, bob := r.able("the-one"), r.able("the-one")
	run := ann.begin()
	if answer := ann.Tool("brew", of(run)).String(); !strings.Contains(answer, "task-0") {
		t.Errorf("with a run the call is answered %s", answer)
	}
	if list := bob.Call("tools/list", "").String(); strings.Contains(list, "fsm_list_runs") || !strings.Contains(list, "fsm_start_run") {
		t.Errorf("listed as %s", list)
	}
	if answer := bob.Tool("fsm_list_runs", "").String(); strings.Contains(answer, run) || !strings.Contains(answer, "unknown_action") {
		t.Errorf("fsm_list_runs is answered %s", answer)
	}
	for _, method := range []string{"tasks/get", "tasks/update", "tasks/cancel"} {
		if answer := bob.of(method, "task-0"); !strings.Contains(answer, "-32602") {
			t.Errorf("%s is answered %s", method, answer)
		}
	}
	if answer := ann.Call("tasks/get", `{"taskId":"task-0","_meta":{"fsm-proxy/run":"`+run+`"}}`).String(); !strings.Contains(answer, "working") {
		t.Errorf("with the handle the task is answered %s", answer)
	}
}

// A task lives in the era in which it was begun: to the same principal, on the same run, in the other era it is not there,
// though the server speaks both. Nothing is asked about it in a language that its connection does not speak.
func TestTaskOfTheOtherEra(t *testing.T) {
	t.Parallel()
	k := new(kitchen)
	old, oldURL := mcptest.HTTP(t, k.server(false))
	fresh, freshURL := mcptest.HTTP(t, k.server(true))
	front := httptest.NewServer(&httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		to := oldURL
		if r.In.Header.Get("MCP-Protocol-Version") == mcptest.ModernRevision {
			to = freshURL
		}
		r.Out.URL, _ = url.Parse(to)
	}})
	t.Cleanup(func() { front.CloseClientConnections(); front.Close() })
	r := &rig{t: t}
	r.url, r.process = mcptest.Listen(t, "--policy", mcptest.WritePolicy(t, taskPlan), "--upstream", front.URL, "--run-key", "modern=principal", "--tokens", namedTokens(t))
	legacy, modern := r.diner(false, "token of ann"), r.able("token of ann")
	legacy.starts("brew", "task-0")
	modern.starts("brew", "task-1")
	for _, x := range []struct {
		who     *rig
		methods []string
		foreign string
		own     string
		asked   *mcptest.Upstream
	}{
		{modern, []string{"tasks/get", "tasks/cancel", "tasks/update"}, "task-0", "task-1", old},
		{legacy, []string{"tasks/get", "tasks/cancel", "tasks/result"}, "task-1", "task-0", fresh},
	} {
		for _, method := range x.methods {
			asked := x.asked.Count(method)
			foreign, nowhere := x.who.of(method, x.foreign), x.who.of(method, "x")
			if foreign != nowhere || !strings.Contains(foreign, "-32602") || x.asked.Count(method) > asked {
				t.Errorf("%s is answered %s, and of a task that is nowhere %s", method, foreign, nowhere)
			}
		}
		if answer := x.who.of("tasks/get", x.own); !strings.Contains(answer, "working") {
			t.Errorf("one's own task is answered %s", answer)
		}
	}
	if list := legacy.Call("tasks/list", "").String(); !strings.Contains(list, "task-0") || strings.Contains(list, "task-1") {
		t.Errorf("listed are %s", list)
	}
}

// Two sessions on one run, each with a process of its own that counts its tasks: of two tasks with one id each session
// means its own, and none takes the other's place.
func TestTasksOfOneIDInTwoSessions(t *testing.T) {
	t.Parallel()
	r := &rig{t: t, upstream: mcptest.Stdio(t, "kitchen")}
	r.url, r.process = mcptest.Listen(t, append([]string{"--policy", mcptest.WritePolicy(t, taskPlan), "--run-key", "legacy=principal", "--tokens", namedTokens(t), "--"},
		r.upstream.Command()...)...)
	first, second := r.diner(false, "token of ann"), r.diner(false, "token of ann")
	first.starts("brew", "task-0")
	second.starts("brew", "task-0")
	for _, x := range []struct {
		who          *rig
		method, want string
	}{
		{first, "tasks/cancel", "cancelled"}, {second, "tasks/get", "working"}, {first, "tasks/get", "cancelled"}, {second, "tasks/list", "working"},
		{r.diner(false, "token of ann"), "tasks/get", "-32602"}, {r.diner(false, "token of bob"), "tasks/get", "-32602"},
	} {
		if answer := x.who.of(x.method, "task-0"); !strings.Contains(answer, x.want) {
			t.Errorf("%s is answered %s, want %s", x.method, answer, x.want)
		}
	}
}
