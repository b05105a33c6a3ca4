package attack

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// A speaker is how a client of an era talks to the proxy.
type speaker struct {
	client string // "stdio" or "http"
	modern bool
	plain  bool // the proxy is built without the race detector
}

func (s speaker) String() string {
	return s.client + " of the " + map[bool]string{false: "legacy", true: "modern"}[s.modern] + " era"
}

var speakers = []speaker{{client: "stdio"}, {client: "stdio", modern: true}, {client: "http"}, {client: "http", modern: true}}

// speaks starts a proxy before a server of tools, and a client; all clients of it have one run.
func (s speaker) speaks(t *testing.T, tools map[string]func(*mcptest.Exchange), policy string, flags ...string) *rig {
	t.Helper()
	r := &rig{t: t}
	var url string
	r.upstream, url = mcptest.HTTP(t, mcptest.Script{Tools: tools}.Server())
	args := append([]string{"--policy", mcptest.WritePolicy(t, policy), "--upstream", url}, flags...)
	binary, listen := mcptest.Proxy, mcptest.Listen
	if s.plain {
		binary = mcptest.PlainProxy
		listen = func(t testing.TB, args ...string) (string, *mcptest.Process) {
			return mcptest.ListenBehind(t, nil, args...)
		}
	}
	if s.client == "http" {
		r.url, r.process = listen(t, append(args, "--run-key", "modern=process")...)
		r.Session, r.web = mcptest.DialWeb(t, r.url)
	} else {
		r.Session, r.process = mcptest.Dial(t, append([]string{binary(t), "run"}, args...)...)
	}
	if s.modern {
		r.Modern(mcptest.Modern{})
	} else {
		r.Initialize()
	}
	return r
}

// code is what a call is refused with; "sent" of one that is answered, and "-32600" of one that is no call.
func (r *rig) code(tool, arguments string) string {
	r.t.Helper()
	answer := r.Tool(tool, arguments).String()
	for _, code := range []string{"guard_failed", "limit_reached", "unknown_case", "unknown_action", "invalid_transition", "-32600"} {
		if strings.Contains(answer, code) {
			return code
		}
	}
	if denied(answer) {
		return answer
	}
	return "sent"
}

const confused = `version: 1
name: confused
initial: start
registers: {plan: text, reads: {set: text, max: 5}}
states:
  start:
    tools:
      pay: {when: args.amount <= 100}
      pay_twice:
        - {when: args.amount <= 100}
        - {when: args.amount > 100}
        - {on_any: stay}
      not: {when: 'args.path != "/etc/passwd"'}
      not_in: {when: '!(args.path in registers.reads)'}
      all: {when: 'args.paths.all(p, p.startsWith("/ok/"))'}
      plan: {when: args.plan == registers.plan}
      read: {set: {reads: {add: args.path}}}
      keep: {set: {plan: args.plan}}
      level: {by: options.level, cases: {100: stay, "200": stay, true: stay, "a*": stay, "ab*": none}}
`

// A value of another type than a policy means permits nothing by that, whoever speaks, and nothing of it is sent.
func TestTypeConfusion(t *testing.T) {
	t.Parallel()
	const guard, other, invalid = "guard_failed", "unknown_case", "-32600"
	cases := []struct{ tool, arguments, want string }{
		{"pay", `{"amount":100}`, "sent"},
		{"pay", `{"amount":1e2}`, "sent"},
		{"pay", `{"amount":-0}`, "sent"},
		{"pay", `{"amount":"100"}`, guard},
		{"pay", `{"amount":100.00001}`, guard},
		{"pay", `{"amount":[1]}`, guard},
		{"pay", `{"amount":{"amount":1}}`, guard},
		{"pay", `{"amount":true}`, guard},
		{"pay", `{"amount":null}`, guard},
		{"pay", `{"amount":""}`, guard},
		{"pay", `{}`, guard},
		{"pay", ``, guard},
		{"pay", `{"amount":-9007199254740993}`, guard},
		{"pay", `{"amount":-1e400}`, guard},
		{"pay", `{"amount":1,"amount":1000}`, invalid},
		{"pay", `{"amount":1,"Amount":1000}`, invalid},
		{"pay", `{"amount":1,"\u0061mount":1000}`, invalid},
		{"pay", `{"Amount":1}`, invalid},
		{"pay", `{"amount":1,"other":{"x":1,"x":2}}`, invalid},
		{"pay_twice", `{"amount":"100"}`, guard}, // an error reaches no catch-all
		{"pay_twice", `{}`, guard},
		{"pay_twice", `{"amount":1000}`, "sent"},
		{"not", `{"path":"/etc/passwd"}`, guard},
		{"not", `{}`, guard},
		{"not", `{"path":["/etc/passwd"]}`, "sent"}, // what check warns of: it is no text, and so not that text
		{"not_in", `{"path":["a"]}`, guard},
		{"not_in", `{"path":null}`, guard},
		{"not_in", `{"path":1}`, guard},
		{"all", `{"paths":["/ok/a"]}`, "sent"},
		{"all", `{"paths":"/ok/a"}`, guard},
		{"all", `{"paths":["/ok/a",1]}`, guard},
		{"all", `{"paths":["/no/a"]}`, guard},
		{"all", `{"paths":{"/no/a":1}}`, guard},
		{"all", `{"paths":[]}`, "sent"}, // what check warns of
		{"plan", `{"plan":""}`, guard},  // unset is not ""
		{"plan", `{"plan":null}`, guard},
		{"plan", `{}`, guard},
		{"keep", `{"plan":1}`, guard},
		{"keep", `{"plan":null}`, guard},
		{"keep", `{"plan":["x"]}`, guard},
		{"keep", `{}`, guard},
		{"plan", `{"plan":""}`, guard}, // still
		{"keep", `{"plan":""}`, "sent"},
		{"plan", `{"plan":""}`, "sent"},
		{"plan", `{"plan":null}`, guard},
		{"read", `{"path":1}`, guard},
		{"read", `{"path":["a",1]}`, guard},
		{"read", `{"path":{"a":"b"}}`, guard},
		{"read", `{"path":["a","b"]}`, "sent"},
		{"not_in", `{"path":"b"}`, guard},
		{"level", `{"options":{"level":100}}`, "sent"},
		{"level", `{"options":{"level":1e2}}`, "sent"},
		{"level", `{"options":{"level":100.0}}`, "sent"},
		{"level", `{"options":{"level":"100"}}`, other},
		{"level", `{"options":{"level":200}}`, other},
		{"level", `{"options":{"level":true}}`, "sent"},
		{"level", `{"options":{"level":"true"}}`, other},
		{"level", `{"options":{"level":["a"]}}`, other},
		{"level", `{"options":[{"level":"a"}]}`, other},
		{"level", `{"options":{"level":"ab"}}`, other},
		{"level", `{"options":{"level":null}}`, other},
		{"level", `{"options":{}}`, other},
		{"level", `{"options":{"level":"a","Level":"ab"}}`, invalid},
		{"level", `{"options":{"level":"a"},"Options":{"level":"ab"}}`, invalid},
		{"level", `{"options":{"level":"a"},"options":{"level":"ab"}}`, invalid},
		{"level", `{"options.level":"a"}`, other},
	}
	tools := map[string]func(*mcptest.Exchange){"pay": nil, "pay_twice": nil, "not": nil, "not_in": nil, "all": nil, "plan": nil, "read": nil, "keep": nil, "level": nil}
	for _, s := range speakers {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			r := s.speaks(t, tools, confused)
			sent := 0
			for _, c := range cases {
				if got := r.code(c.tool, c.arguments); got != c.want {
					t.Errorf("%s %s: %s, want %s", c.tool, c.arguments, got, c.want)
				}
				if c.want == "sent" {
					sent++
				}
				if n := r.upstream.Count("tools/call"); n != sent {
					t.Fatalf("%s %s: %d calls were sent, want %d", c.tool, c.arguments, n, sent)
				}
			}
		})
	}
	t.Run("NaN is no JSON", func(t *testing.T) {
		t.Parallel()
		r := speaker{client: "http"}.speaks(t, tools, confused)
		for _, v := range []string{"NaN", "Infinity", "0x10", "+1", "01", "1."} {
			if answer := r.say(call("7", `{"name":"pay","arguments":{"amount":`+v+`}}`)); !strings.Contains(answer, "-32700") {
				t.Errorf("%s: %s", v, answer)
			}
		}
		if n := r.upstream.Count("tools/call"); n != 0 {
			t.Errorf("%d calls were sent", n)
		}
	})
}

// However expensive a call makes a guard, it is refused, and nobody else waits for that.
func TestCostBombsHoldNobodyUp(t *testing.T) {
	t.Parallel()
	bombs := []string{
		`args.list.all(a, args.list.all(b, a == b)) && size(args.list) > 0`,
		`args.list.all(a, args.list == args.list) && size(args.list) > 0`,
		`args.list.all(a, args.text + args.text != "x") && size(args.list) > 0`,
		`args.list.all(a, args.text.matches("^(a{1,20}){1,20}$") || true) && size(args.list) > 0`,
		`args.list.all(a, args.list.filter(b, a == b).size() > 0) && size(args.list) > 0`,
		`[args.text]` + strings.Repeat(`.map(x,x+x)`, 40) + `.size() > 0`,
		`[[1]]` + strings.Repeat(`.map(x,[x,x])`, 40) + `.exists(x,x==x)`,
	}
	policy, tools := "version: 1\nname: bombs\ninitial: start\nstates:\n  start:\n    tools:\n      ok: stay\n", map[string]func(*mcptest.Exchange){"ok": nil}
	for i, bomb := range bombs {
		policy += fmt.Sprintf("      bomb_%d: {when: %q}\n", i, bomb)
		tools[fmt.Sprint("bomb_", i)] = nil
	}
	arguments := `{"list":[` + strings.Repeat("0,", 15000) + `0],"text":"` + strings.Repeat("a", 30000) + `"}`
	much := strings.Repeat("a", 65<<10) // more than a guard reads
	long := `{"list":["` + much + `"],"text":"` + much + `"}`
	r := speaker{client: "http"}.speaks(t, tools, policy)
	var bombers sync.WaitGroup
	over := make(chan struct{})
	for range 4 {
		bomber := r.join()
		bombers.Go(func() {
			for i := range bombs {
				for _, a := range []string{arguments, long} {
					began := time.Now()
					if answer := bomber.Tool(fmt.Sprint("bomb_", i), a).String(); !strings.Contains(answer, "guard_failed") {
						t.Errorf("%s: %s", bombs[i], answer)
					}
					if took := time.Since(began); took > 10*time.Second {
						t.Errorf("%s is refused after %s", bombs[i], took)
					}
				}
			}
		})
	}
	go func() { bombers.Wait(); close(over) }()
	served, slowest := 0, time.Duration(0)
	for done := false; !done || served < 10; served++ {
		began := time.Now()
		r.lives()
		slowest = max(slowest, time.Since(began))
		select {
		case <-over:
			done = true
		default:
		}
	}
	t.Logf("%d calls of another meanwhile, the slowest in %s", served, slowest)
	if slowest > 5*time.Second {
		t.Errorf("another's call took %s", slowest)
	}
	if n := r.upstream.Count("tools/call", "ok"); n != r.upstream.Count("tools/call") {
		t.Error("a call was sent whose guard does not hold")
	}
}

const outcomesOfMuch = `version: 1
name: much
initial: start
registers: {last: text}
states:
  start:
    tools:
      text: {outcomes: {seen: 'result.text.contains("x")'}, on_seen: wrong, on_success: wrong, on_unknown: unknown}
      json: {outcomes: {seen: 'json(result.text).a == 1.0'}, on_seen: wrong, on_success: wrong, on_unknown: unknown}
      structured: {outcomes: {seen: 'result.structuredContent.a != ""'}, on_seen: wrong, on_success: wrong, on_unknown: unknown}
      beside: {outcomes: {seen: 'result.structuredContent.b == 1.0'}, on_seen: seen, on_any: wrong}
      error: {outcomes: {seen: 'result.text != ""'}, on_seen: wrong, on_success: wrong, on_error: failed}
      keeps: {set: {last: result.text}, on_success: wrong, on_unknown: unknown}
  unknown: {tools: {back: start}}
  failed: {tools: {back: start}}
  seen: {tools: {back: start}}
  wrong: {tools: {back: start}}
`

// However large a result is, it reaches the client as it came. An outcome that would have to read more of it than it can
// makes a success unknown, and what it does not read is no hindrance.
func TestOutcomesOfLargeResults(t *testing.T) {
	t.Parallel()
	for _, s := range speakers {
		t.Run(s.String(), func(t *testing.T) { t.Parallel(); s.largeResults(t, 2<<20, "whole", "streamed") })
	}
}

// largeResults plays what the test above says with results that hold a text of this size.
func (s speaker) largeResults(t *testing.T, size int, how ...string) *rig {
	t.Helper()
	much := strings.Repeat("x", size)
	results := map[string]struct{ result, state string }{
		"text":       {mcptest.Text(much), "unknown"},
		"json":       {`{"content":[{"type":"text","text":"{\"a\":1,\"b\":\"` + much + `\"}"}]}`, "unknown"},
		"structured": {`{"content":[],"structuredContent":{"a":"` + much + `"}}`, "unknown"},
		"beside":     {`{"content":[{"type":"text","text":"` + much + `"}],"structuredContent":{"b":1}}`, "seen"},
		"error":      {mcptest.ErrorText(much), "failed"},
		"keeps":      {mcptest.Text(much), "unknown"},
	}
	tools := map[string]func(*mcptest.Exchange){"back": nil}
	for name, r := range results {
		tools[name] = func(e *mcptest.Exchange) {
			if e.Argument("how") == "streamed" {
				e.Send(mcptest.Notification("notifications/message", `{"level":"info","data":"much comes"}`)) // makes it a stream
			}
			e.Result(r.result)
		}
	}
	r := s.speaks(t, tools, outcomesOfMuch)
	for name, want := range results {
		for _, how := range how {
			answer := r.Tool(name, `{"how":"`+how+`"}`)
			if got := len(answer.Result); strings.Count(string(answer.Result), much) != 1 || got > len(want.result)+4096 {
				t.Fatalf("%s, %s: a result of %d bytes, of %d: %.300s", name, how, got, len(want.result), answer)
			}
			r.in(want.state)
			r.Tool("back", "")
		}
	}
	return r
}
