package attack

import (
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// answerPlan says by its state what a call's outcome was.
const answerPlan = `version: 1
name: answers
initial: start
states:
  start:
    tools:
      say: {on_success: done, on_error: broken, on_unknown: lost}
  done: {tools: {again: start}}
  broken: {tools: {again: start}}
  lost: {tools: {again: start}}
`

// sayer is an upstream whose tool say answers with the result, or the error, that its argument has. So are all requests
// about tasks answered from then on, if there is an argument later.
func sayer(modern bool) mcptest.Server {
	later := atomic.Pointer[string]{}
	say := func(e *mcptest.Exchange) {
		if text := e.Argument("later"); text != "" {
			later.Store(&text)
		}
		e.Answer(`{"jsonrpc":"2.0","id":` + string(e.ID) + `,` + e.Argument("answer") + `}`)
	}
	ofTask := func(e *mcptest.Exchange) {
		e.Answer(`{"jsonrpc":"2.0","id":` + string(e.ID) + `,` + *later.Load() + `}`)
	}
	server := mcptest.Script{
		Capabilities: taskCapabilities,
		Tools:        map[string]func(*mcptest.Exchange){"say": say, "again": nil},
		Methods: map[string]func(*mcptest.Exchange){
			"tasks/get": ofTask, "tasks/result": ofTask, "tasks/update": ofTask, "tasks/cancel": ofTask, "completion/complete": say,
		},
	}.Server()
	server.Modern = modern
	return server
}

// says starts a proxy before a sayer, and a client of an era.
func says(t *testing.T, client, upstream bool, policy string, flags ...string) *rig {
	t.Helper()
	r := &rig{t: t}
	var url string
	r.upstream, url = mcptest.HTTP(t, sayer(upstream))
	args := []string{"--policy", mcptest.WritePolicy(t, policy), "--upstream", url, "--run-key", "modern=process", "--annotate", "off"}
	r.url, r.process = mcptest.Listen(t, append(args, flags...)...)
	r.Session, r.web = mcptest.DialWeb(t, r.url)
	if client {
		r.Modern(mcptest.Modern{Capabilities: `{"sampling":{},"elicitation":{"form":{},"url":{}},"roots":{}}`})
	} else {
		r.Initialize()
	}
	return r
}

// saying are the params of a call that is answered with members of an answer, "result" or "error", as requests about tasks
// are later. more are further members of the params.
func saying(answer, later, more string) string {
	arguments, _ := json.Marshal(map[string]string{"answer": answer, "later": later})
	return `{"name":"say","arguments":` + string(arguments) + more + `}`
}

// What merely looks like a task, or like a question, or like a result without an error, is none: by no such answer can a
// call that has happened be repeated, and no client is given a task that nobody can follow.
func TestAnswersThatOnlyLookHarmless(t *testing.T) {
	t.Parallel()
	const legacy, modern = false, true
	task := `{"task":{"taskId":"t","status":"working"}}`
	flat := `{"resultType":"task","taskId":"t","status":"working"}`
	asks := `{"resultType":"input_required","requestState":"s"}`
	for _, eras := range []struct {
		client, upstream bool
		cases            []struct{ result, more, state string }
	}{
		{legacy, legacy, []struct{ result, more, state string }{
			{task, "", "lost"}, // nobody asked for it
			{flat, "", "lost"},
			{flat, `,"task":{}`, "lost"},
			{asks, "", "lost"},
			{`{"task":{"status":"working"}}`, `,"task":{}`, "lost"},
			{`{"task":{"taskId":7}}`, `,"task":{}`, "lost"},
			{`{"task":null}`, `,"task":{}`, "lost"},
			{`{"task":"vendor","content":[]}`, "", "done"},
		}},
		{modern, modern, []struct{ result, more, state string }{
			{`{"resultType":"complete","task":{"taskId":"t"}}`, "", "lost"}, // the older era's
			{task, `,"task":{}`, "lost"},
			{`{"resultType":"task","status":"working"}`, "", "lost"},
			{`{"resultType":"task","taskId":7}`, "", "lost"},
			{`{"resultType":"queued","content":[]}`, "", "lost"},
			{`{"resultType":true,"content":[]}`, "", "lost"},
			{`{"content":[]}`, "", "done"},
		}},
		{modern, legacy, []struct{ result, more, state string }{{flat, "", "lost"}, {asks, "", "lost"}, {task, "", "lost"}}},
		{legacy, modern, []struct{ result, more, state string }{{`{"resultType":"complete","task":{"taskId":"t"}}`, "", "lost"}}},
	} {
		cases := eras.cases
		for _, v := range []string{`true`, `"false"`, `"true"`, `0`, `1`, `{}`, `[]`, `""`} {
			cases = append(cases, struct{ result, more, state string }{`{"content":[],"isError":` + v + `}`, "", "broken"})
		}
		for _, v := range []string{`false`, `null`, ` false `} {
			cases = append(cases, struct{ result, more, state string }{`{"content":[],"isError":` + v + `}`, "", "done"})
		}
		name := map[bool]string{legacy: "legacy", modern: "modern"}
		t.Run(name[eras.client]+" to "+name[eras.upstream], func(t *testing.T) {
			t.Parallel()
			r := says(t, eras.client, eras.upstream, answerPlan)
			for _, x := range cases {
				answer := r.Call("tools/call", saying(`"result":`+x.result, `"result":{}`, x.more)).String()
				if x.state == "lost" && strings.Contains(answer, "taskId") {
					t.Errorf("%s %s: the client was given %s", x.result, x.more, answer)
				}
				if at := r.Tool("nowhere", "").String(); !strings.Contains(at, `"state":"`+x.state+`"`) {
					t.Errorf("%s %s: not in %s, but %s", x.result, x.more, x.state, at)
				}
				r.Tool("again", "")
			}
		})
	}
}

// What upstream_may does not name reaches no client, whatever the upstream says it by: an error that sends the user to a
// URL, a result that asks for input, or the state of a task. Where it is named it does, and in shadow as well.
func TestUpstreamAsksByItsAnswers(t *testing.T) {
	t.Parallel()
	const (
		visit  = `"error":{"code":-32042,"message":"visit","data":{"elicitations":[{"mode":"url","url":"https://bait/","elicitationId":"e","message":"m"}]}}`
		inputs = `"inputRequests":{"a":{"method":"elicitation/create","params":{"message":"bait"}}}`
		odd    = `"inputRequests":{"a":{"method":"roots/list","m\u0065thod":"elicitation/create","params":{"message":"bait"}}}`
		like   = `"inputRequests":{"a":{"Method":"elicitation/create","params":{"message":"bait"}}}`
		begun  = `"result":{"resultType":"task","taskId":"t","status":"working","ttl":600000}`
	)
	const legacy, modern = false, true
	type exchange struct {
		name, answer, more string
		method, later      string // what is asked of the task that the answer begins
		want               string // of the last answer, where the bait is taken out of it
	}
	both := []exchange{
		{name: "-32042", answer: visit, want: `"code":-32603`},
		{name: "-32042.0", answer: strings.Replace(visit, "-32042", "-32042.0", 1), want: `"code":-32603`},
		{name: "-3.2042e4", answer: strings.Replace(visit, "-32042", "-3.2042e4", 1), want: `"code":-32603`},
	}
	all := append([]exchange{
		{name: "input required", answer: `"result":{"resultType":"input_required",` + inputs + `}`, want: "upstream_unavailable"},
		{name: "two methods", answer: `"result":{"resultType":"input_required",` + odd + `}`, want: "upstream_unavailable"},
		{name: "a lookalike", answer: `"result":{"resultType":"input_required",` + like + `}`, want: "upstream_unavailable"},
		{name: "a new task", answer: `"result":{"resultType":"task","taskId":"t","status":"input_required",` + inputs + `}`, want: "outcome_unknown"},
		{name: "tasks/get", answer: begun, method: "tasks/get", later: `"result":{"taskId":"t","status":"input_required",` + inputs + `}`, want: "-32603"},
		{name: "tasks/get, a result that asks", answer: begun, method: "tasks/get",
			later: `"result":{"taskId":"t","status":"completed","result":{"resultType":"input_required",` + inputs + `}}`, want: "-32603"},
		{name: "tasks/get, a lookalike", answer: begun, method: "tasks/get",
			later: `"result":{"taskId":"t","status":"completed","Result":{` + strings.Replace(inputs, "inputR", "InputR", 1) + `}}`, want: "-32603"},
		{name: "tasks/update", answer: begun, method: "tasks/update", later: `"result":{` + inputs + `}`, want: "-32603"},
		{name: "tasks/cancel", answer: begun, method: "tasks/cancel", later: `"result":{` + inputs + `}`, want: "-32603"},
		{name: "tasks/get, -32042", answer: begun, method: "tasks/get", later: visit, want: `"code":-32603`},
	}, both...)
	old := `"result":{"task":{"taskId":"t","status":"working","ttl":600000}}`
	older := append([]exchange{
		{name: "tasks/get", answer: old, more: `,"task":{}`, method: "tasks/get", later: `"result":{"taskId":"t","status":"input_required",` + inputs + `}`, want: "-32603"},
		{name: "tasks/result", answer: old, more: `,"task":{}`, method: "tasks/result", later: visit, want: `"code":-32603`},
		{name: "a new task", answer: `"result":{"task":{"taskId":"t","status":"input_required",` + inputs + `}}`, more: `,"task":{}`, want: "outcome_unknown"},
	}, both...)
	policies := map[string]string{
		"may ask":       "version: 1\ninitial: start\nstates: {start: {tools: [say]}}\n",
		"may not":       "version: 1\nupstream_may: []\ninitial: start\nstates: {start: {tools: [say]}}\n",
		"may elsewhere": "version: 1\ninitial: start\nstates: {start: {upstream_may: [], tools: [say]}, other: {tools: [say]}}\n",
		"may others":    "version: 1\nupstream_may: [roots, sampling]\ninitial: start\nstates: {start: {tools: [say]}}\n",
	}
	name := map[bool]string{legacy: "legacy", modern: "modern"}
	for _, eras := range []struct {
		client, upstream bool
		exchanges        []exchange
	}{{modern, modern, all}, {legacy, legacy, older}, {modern, legacy, both}, {legacy, modern, both}} {
		for may, policy := range policies {
			for _, mode := range []string{"enforce", "shadow"} {
				t.Run(name[eras.client]+" to "+name[eras.upstream]+" "+may+" in "+mode, func(t *testing.T) {
					t.Parallel()
					r := says(t, eras.client, eras.upstream, policy, "--mode", mode)
					for _, x := range eras.exchanges {
						answer := r.Call("tools/call", saying(x.answer, x.later, x.more)).String()
						if x.method != "" {
							answer = r.Call(x.method, `{"taskId":"t"}`).String()
						}
						free := may == "may ask" || mode == "shadow"
						switch {
						case free && !strings.Contains(answer, "bait"):
							t.Errorf("%s: what is allowed does not arrive: %s", x.name, answer)
						case !free && (strings.Contains(answer, "bait") || !strings.Contains(answer, x.want)):
							t.Errorf("%s: answered %s", x.name, answer)
						}
					}
				})
			}
		}
	}
}
