package proxy_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy"
)

// TestHiddenNameByASiblingMethod: what is not bound cannot be had by completion,
// by subscription, as another kind, by an unknown method, or by a task.
func TestHiddenNameByASiblingMethod(t *testing.T) {
	tests := map[string][2]string{
		"tools/call":            {"tools/call", `{"name":"apply"}`},
		"unbound by none":       {"tools/call", `{"name":"secret"}`},
		"bound nowhere":         {"tools/call", `{"name":"rogue"}`},
		"as a prompt":           {"prompts/get", `{"name":"apply"}`},
		"hidden prompt":         {"prompts/get", `{"name":"hidden"}`},
		"prompt as a tool":      {"tools/call", `{"name":"plan"}`},
		"hidden resource":       {"resources/read", `{"uri":"file:///diff"}`},
		"almost the same URI":   {"resources/read", `{"uri":"file:///./plan"}`},
		"URI in capitals":       {"resources/read", `{"uri":"FILE:///plan"}`},
		"percent-encoded":       {"resources/read", `{"uri":"file:///pl%61n"}`},
		"name in capitals":      {"tools/call", `{"name":"READ_FILE"}`},
		"name with a space":     {"tools/call", `{"name":"read_file "}`},
		"name with a NUL":       {"tools/call", `{"name":"read_file\u0000"}`},
		"completion of prompt":  {"completion/complete", `{"ref":{"type":"ref/prompt","name":"hidden"},"argument":{"name":"a","value":""}}`},
		"completion of URI":     {"completion/complete", `{"ref":{"type":"ref/resource","uri":"file:///diff"},"argument":{"name":"a","value":""}}`},
		"completion of mixed":   {"completion/complete", `{"ref":{"type":"ref/prompt","name":"hidden","uri":"file:///plan"}}`},
		"completion of other":   {"completion/complete", `{"ref":{"type":"ref/tool","name":"read_file"}}`},
		"completion of nothing": {"completion/complete", `{"argument":{}}`},
		"subscribe":             {"resources/subscribe", `{"uri":"file:///diff"}`},
		"subscribe to nothing":  {"resources/subscribe", `{}`},
		"unsubscribe":           {"resources/unsubscribe", `{"uri":"file:///diff"}`},
		"unknown method":        {"tools/call2", `{"name":"apply"}`},
		"method in capitals":    {"Tools/Call", `{"name":"read_file"}`},
		"method with a space":   {"tools/call ", `{"name":"read_file"}`},
		"tasks":                 {"tasks/result", `{"taskId":"1"}`},
		"a call as a task":      {"tools/call", `{"name":"read_file","task":{"ttl":1}}`},
		"a call as a null task": {"tools/call", `{"name":"read_file","task":null}`},
		"next era":              {"server/discover", `{}`},
		"name is no string":     {"tools/call", `{"name":["read_file"]}`},
		"no name":               {"tools/call", `{"arguments":{}}`},
		"no params":             {"tools/call", ``},
		"the client's methods":  {"sampling/createMessage", `{}`},
		"templates":             {"resources/templates/list", ``},
		"a cursor":              {"tools/list", `{"cursor":"2"}`},
	}
	for name, rq := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, review, func(r *rig) {
				c := r.connect(plainHello)
				answer := c.ask(rq[0], rq[1])
				if !strings.Contains(answer, `"error"`) && !strings.Contains(answer, `"isError":true`) {
					t.Errorf("not refused: %s", answer)
				}
				equal(t, "reached the upstream", len(r.up.reached()), 0)
				for _, m := range r.up.conn(0).notified()[1:] {
					t.Errorf("reached the upstream: %s", m)
				}
			})
		})
	}
}

// TestBoundNamesPassBySiblingMethods, with their bytes but for the id.
func TestBoundNamesPassBySiblingMethods(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		for _, rq := range [][2]string{
			{"completion/complete", `{"ref":{"type":"ref/prompt","name":"plan"},"argument":{"name":"a","value":"b"}}`},
			{"completion/complete", `{"ref":{"type":"ref/resource","uri":"file:///plan"},"argument":{"name":"a","value":"b"}}`},
			{"resources/subscribe", `{"uri":"file:///plan"}`},
			{"resources/unsubscribe", `{"uri":"file:///plan"}`},
			{"logging/setLevel", `{"level":"debug"}`},
		} {
			reply := c.request(rq[0], rq[1])
			k := r.up.next()
			equal(t, "params", string(k.m.Bytes(k.m.Params)), rq[1])
			k.result(`{ "x" : 1e400 }`)
			equal(t, "answer", reply.wait(), fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{ "x" : 1e400 }}`, reply.id))
		}
	})
}

// TestAnswerIsTheUpstreamsBytes but for the id, which is the client's.
func TestAnswerIsTheUpstreamsBytes(t *testing.T) {
	const odd = `{ "unknown":{"a":1,"a":2}, "content":[{"type":"hologram","\u0041":-0.0}] ,"isError":false,"n":90071992547409931234,"_meta":{"fsm-proxy/state":"spoof"}}`
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		for _, id := range []string{`"a\u0062"`, `90071992547409931234`, `-0`, `""`} {
			reply := c.requestOn(c.stream("odd"), id, "tools/call", `{"name":"read_file"}`)
			r.up.next().result(odd)
			equal(t, "answer", reply.wait(), `{"jsonrpc":"2.0","id":`+id+`,"result":`+odd+`}`)
		}
	})
}

// TestIDsUnderWay: one that is under way is refused, however it is written; 1
// and "1" are two.
func TestIDsUnderWay(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		call := func(id string) *reply {
			return c.requestOn(c.stream(id), id, "tools/call", `{"name":"read_file"}`)
		}
		a, b := call(`1000`), call(`"1000"`)
		for _, id := range []string{`1000`, `"1000"`, `"100\u0030"`} {
			if answer := call(id).wait(); !strings.Contains(answer, "-32600") || !strings.Contains(answer, `"id":`+id) {
				t.Errorf("got %s", answer)
			}
		}
		r.up.next().result(ok)
		r.up.next().result(ok)
		a.wait()
		b.wait()
		again := call(`1000`)
		r.up.next().result(ok)
		again.wait()
		equal(t, "reached", r.up.count("tools/call read_file"), 3)
	})
}

// TestMaxInFlight refuses one more, and takes it when there is room.
func TestMaxInFlight(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		a, b := c.call("read_file"), c.call("read_file")
		if answer := c.call("read_file").wait(); !strings.Contains(answer, "-32600") {
			t.Errorf("got %s", answer)
		}
		r.up.next().result(ok)
		r.up.next().result(ok)
		a.wait()
		b.wait()
		c.do("read_file", ok)
	}, with(func(c *proxy.Config) { c.MaxInFlight = 2 }))
}

const split = `
version: 1
initial: start
states:
  start:
    tools:
      terraform: {by: command, cases: {plan: stay, "\u00e9": stay, apply: applied}}
  applied: {tools: {status: }}
`

// TestCases: no value but the listed ones, and nothing that reads as another to
// somebody else.
func TestCases(t *testing.T) {
	pass := map[string]string{
		"plan":         `{"command":"plan"}`,
		"escaped":      `{"command":"pl\u0061n","x":[{"Command":"apply"}]}`,
		"escaped name": `{"comm\u0061nd":"plan"}`,
		"e acute":      `{"command":"\u00e9"}`,
	}
	refuse := map[string]string{
		"other value":       `{"command":"destroy"}`,
		"other case":        `{"command":"PLAN"}`,
		"a space":           `{"command":"plan "}`,
		"a NUL":             `{"command":"plan\u0000"}`,
		"decomposed":        `{"command":"e\u0301"}`,
		"no string":         `{"command":["plan"]}`,
		"null":              `{"command":null}`,
		"missing":           `{"Other":"plan"}`,
		"no arguments":      ``,
		"not an object":     `["plan"]`,
		"an object in text": `"{\"command\":\"plan\"}"`,
	}
	unclear := map[string]string{
		"lookalike after":  `{"command":"plan","Command":"apply"}`,
		"lookalike before": `{"COMMAND":"apply","command":"plan"}`,
		"lookalike alone":  `{"Command":"plan"}`,
		"up to a NUL":      `{"command":"plan","command\u0000":"apply"}`,
		"of a turn":        `{"command":"apply","Command":"plan"}`,
	}
	params := func(arguments string) string {
		if arguments == "" {
			return `{"name":"terraform"}`
		}
		return `{"name":"terraform","arguments":` + arguments + `}`
	}
	bubble(t, split, func(r *rig) {
		r.up.names(wire.Tools, "terraform", "status")
		c := r.connect(plainHello)
		for name, arguments := range pass {
			answer := c.request("tools/call", params(arguments))
			k := r.up.next()
			equal(t, name, string(k.m.Bytes(k.m.P.Arguments)), arguments)
			k.result(ok)
			answer.wait()
		}
		reached := len(r.up.reached())
		for name, arguments := range refuse {
			if refusal := c.refused(c.ask("tools/call", params(arguments)), policy.UnknownCase); !strings.Contains(refusal.Message, "unless 'command' is one of these texts: plan, é, apply.") {
				t.Errorf("%s: %s", name, refusal.Message)
			}
		}
		holder := c.request("tools/call", params(`{"command":"apply"}`)) // they must not wait behind it
		for name, arguments := range unclear {
			if answer := c.ask("tools/call", params(arguments)); !strings.Contains(answer, "-32600") {
				t.Errorf("%s: %s", name, answer)
			}
		}
		equal(t, "reached", len(r.up.reached()), reached+1)
		r.up.next().result(ok)
		holder.wait()
		c.in("applied")
	})
}

// TestValidate checks arguments before the first list too, and after a change.
func TestValidate(t *testing.T) {
	const source = "version: 1\ninitial: a\nvalidate: true\nstates:\n  a: {tools: {act: b, free: , bare: , broken: , far: }}\n  b: {tools: {act: }}\n"
	bubble(t, source, func(r *rig) {
		r.up.offer(wire.Tools, `{"tools":[{"name":"act","inputSchema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}},`+
			`{"name":"bare"},{"name":"broken","inputSchema":{"type":7}},{"name":"far","inputSchema":{"$ref":"file:///etc/passwd"}}]}`)
		c := r.open()
		c.ask("initialize", plainHello)
		for _, arguments := range []string{`{}`, `{"n":"1"}`, `{"n":1.5}`, `[]`, `null`} {
			refusal := c.refused(c.ask("tools/call", `{"name":"act","arguments":`+arguments+`}`), policy.ValidationFailed)
			if !strings.Contains(refusal.Message, "inputSchema") && !strings.Contains(refusal.Message, "input schema") {
				t.Errorf("got %s", refusal.Message)
			}
		}
		c.refused(c.call("act").wait(), policy.ValidationFailed)
		c.refused(c.call("broken").wait(), policy.ValidationFailed)
		c.refused(c.call("far").wait(), policy.ValidationFailed)
		c.refused(c.call("free").wait(), policy.ValidationFailed) // not listed
		c.refused(c.call("bare").wait(), policy.ValidationFailed) // without a schema
		equal(t, "reached", len(r.up.reached()), 0)
		c.in("a")
		reply := c.request("tools/call", `{"name":"act","arguments":{"n":1e2}}`)
		r.up.next().result(ok)
		reply.wait()
		c.in("b")
		r.up.offer(wire.Tools, `{"tools":[{"name":"act","inputSchema":{"required":["other"]}}]}`)
		r.up.conn(0).says(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`, nil)
		c.refused(c.ask("tools/call", `{"name":"act","arguments":{"n":1}}`), policy.ValidationFailed)
	})
}

// TestWithoutAnUpstream: what is refused is refused as ever, the rest is not
// available, and nothing steps.
func TestWithoutAnUpstream(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(plainHello)
		r.up.conn(0).end()
		r.up.refuse = &wire.CallError{Err: errors.New("connection refused")}
		c.refused(c.call("apply").wait(), policy.InvalidTransition)
		c.refused(c.call("read_file").wait(), policy.UpstreamUnavailable)
		c.refused(c.call("write_plan").wait(), policy.UpstreamUnavailable)
		c.refused(c.call("list_a").wait(), policy.UpstreamUnavailable)
		c.refused(c.ask("prompts/get", `{"name":"plan"}`), policy.UpstreamUnavailable)
		for _, rq := range [][2]string{{"tools/list", ""}, {"logging/setLevel", `{"level":"info"}`}, {"resources/subscribe", `{"uri":"file:///plan"}`}} {
			if answer := c.ask(rq[0], rq[1]); !strings.Contains(answer, "-32603") {
				t.Errorf("%s: %s", rq[0], answer)
			}
		}
		r.up.refuse = nil
		c.in("planning")
		equal(t, "made up for", r.up.next().what(), "logging/setLevel")
		c.do("write_plan", ok)
		c.in("review")
	})
}

// TestListThatFails denies what hangs on it, and refuses the rest all the same.
func TestListThatFails(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.open()
		c.ask("initialize", plainHello)
		r.up.conn(0).fail = errors.New("no list today")
		c.refused(c.call("list_a").wait(), policy.UpstreamUnavailable)
		c.refused(c.call("apply").wait(), policy.InvalidTransition)
		c.do("read_file", ok)
		equal(t, "reached", r.up.reached(), []string{"tools/call read_file"})
	})
}

// TestSessionCloseCancels what is under way upstream; the grace decides, queued
// calls are never sent, and then the connection is closed.
func TestSessionCloseCancels(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(ableHello)
		moving, queued, reading := c.call("write_plan"), c.call("write_plan"), c.call("read_file")
		synctest.Wait()
		km, kr := r.up.next(), r.up.next()
		r.up.conn(0).says(`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`, nil)
		c.s.Close()
		c.s.Close()
		synctest.Wait()
		equal(t, "cancelled", []int{len(km.cancelled()), len(kr.cancelled())}, []int{1, 1})
		equal(t, "queued", queued.wait(), "")
		if told := r.up.conn(0).notified(); !strings.Contains(told[len(told)-1], "session has ended") {
			t.Errorf("the open request was answered %s", told)
		}
		km.result(ok)
		if !strings.Contains(moving.wait(), `"ok"`) {
			t.Error("an answer within the grace was lost")
		}
		equal(t, "given up", reading.wait(), "")
		synctest.Wait()
		select {
		case <-r.up.conn(0).Done():
		default:
			t.Error("the connection is still open")
		}
		if answer := c.call("read_file").wait(); !strings.Contains(answer, "-32600") {
			t.Errorf("after the end: %s", answer)
		}
		equal(t, "reached", r.up.count("tools/call write_plan"), 1)
	})
}
