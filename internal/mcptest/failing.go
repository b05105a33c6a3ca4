package mcptest

import "strings"

// Failing returns a raw upstream whose tools fail, each in the way that its name says:
//
//	ok            answers
//	refuse        answers with isError
//	die           the process, or the connection, ends without an answer
//	silent        no answer ever
//	late          answers when the test opens the gate "late", cancelled or not
//	twice         two answers to one request
//	wrong_id      an answer to a request that was never made; then, at the gate "right", the true one
//	truncate      half an answer
//	unreadable    a line that is no JSON where the answer should be, and no answer
//	noise         text on standard output around a good answer
//	flood         1 MiB on standard error before a good answer
//	children      starts a child process, then answers
//	ask           asks the client for a sample and answers with what it said
//	elicit        asks the client for input and answers with what it said
//	progress      three progress notifications, then the answer
//	log           a log message, then the answer
//	changed       says that the tools have changed, then answers
//	status_500 …  an HTTP status without a JSON-RPC body: 202, 400, 401, 403, 404, 405, 413, 429, 500, 502, 503
func Failing() Server {
	tools := map[string]func(*Exchange){
		"ok":         nil,
		"refuse":     func(e *Exchange) { e.Result(ErrorText("the server says no")) },
		"die":        (*Exchange).Die,
		"silent":     func(e *Exchange) { e.Async(e.Silent) },
		"late":       func(e *Exchange) { e.Async(func() { e.Gate("late"); e.Result(Text("late")) }) },
		"twice":      func(e *Exchange) { e.Send(Result(e.ID, Text("first"))); e.Send(Result(e.ID, Text("second"))) },
		"wrong_id":   wrongID,
		"truncate":   func(e *Exchange) { e.Truncate(Text("half of this gets lost")) },
		"unreadable": func(e *Exchange) { e.Answer(`{"jsonrpc":"2.0","id":`) },
		"noise": func(e *Exchange) {
			e.Noise("listening on port 3000\n")
			e.Result(Text("after noise"))
			e.Noise("bye\n")
		},
		"flood": func(e *Exchange) {
			e.Stderr(strings.Repeat("a line of noise\n", 1<<16))
			e.Result(Text("after a flood"))
		},
		"children": func(e *Exchange) { e.Spawn(); e.Result(Text("a child lives")) },
		"ask":      func(e *Exchange) { e.Async(func() { ask(e, "sampling/createMessage", sampling) }) },
		"elicit":   func(e *Exchange) { e.Async(func() { ask(e, "elicitation/create", elicitation) }) },
		"progress": progress,
		"log": func(e *Exchange) {
			e.Send(Notification("notifications/message", `{"level":"info","data":"logged"}`))
			e.Result(Text("logged"))
		},
		"changed": func(e *Exchange) {
			e.Announce(Notification("notifications/tools/list_changed", ""))
			e.Result(Text("changed"))
		},
	}
	for name, code := range map[string]int{
		"status_202": 202, "status_400": 400, "status_401": 401, "status_403": 403, "status_404": 404, "status_405": 405,
		"status_413": 413, "status_429": 429, "status_500": 500, "status_502": 502, "status_503": 503,
	} {
		tools[name] = func(e *Exchange) { e.Status(code, "") }
	}
	return Script{Tools: tools}.Server()
}

const (
	sampling    = `{"messages":[{"role":"user","content":{"type":"text","text":"hello"}}],"maxTokens":10}`
	elicitation = `{"message":"May I?","requestedSchema":{"type":"object","properties":{"yes":{"type":"boolean"}}}}`
)

func wrongID(e *Exchange) {
	e.Send(Result([]byte(`"nobody asked"`), Text("for somebody else")))
	e.Async(func() {
		e.Gate("right")
		e.Result(Text("for you"))
	})
}

func ask(e *Exchange, method, params string) {
	if e.Modern {
		if answer, ok := e.Require("question", method, params); ok {
			e.Result(Text("the client says " + answer))
		}
		return
	}
	answer := e.Ask(method, params)
	if answer.Error != nil {
		e.Result(ErrorText("the client says " + string(answer.Error)))
		return
	}
	e.Result(Text("the client says " + string(answer.Result)))
}

func progress(e *Exchange) {
	for step := range 3 {
		e.Progress(step+1, 3)
	}
	e.Result(Text("done"))
}
