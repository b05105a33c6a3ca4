package attack

import (
	"encoding/json"
	"strings"
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

// sayer is an upstream whose tool say answers with the result that its argument has.
func sayer(modern bool) mcptest.Server {
	server := mcptest.Script{
		Capabilities: taskCapabilities,
		Tools: map[string]func(*mcptest.Exchange){
			"say":   func(e *mcptest.Exchange) { e.Answer(mcptest.Result(e.ID, e.Argument("result"))) },
			"again": nil,
		},
		Methods: map[string]func(*mcptest.Exchange){
			"tasks/get":    func(e *mcptest.Exchange) { e.Result(`{"resultType":"complete","taskId":"t","status":"working"}`) },
			"tasks/cancel": func(e *mcptest.Exchange) { e.Fail(-32602, "no") },
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
		r.Modern(mcptest.Modern{})
	} else {
		r.Initialize()
	}
	return r
}

// saying are the params of a call that is answered with a result. more are further members.
func saying(result, more string) string {
	text, _ := json.Marshal(result)
	return `{"name":"say","arguments":{"result":` + string(text) + `}` + more + `}`
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
				answer := r.Call("tools/call", saying(x.result, x.more)).String()
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
