package runs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// A construct of the language is played in two halves, between which the policy is reloaded.
type construct struct {
	policy        string // but for version, name and where it begins; states come last
	before, after func(p *player)
}

// A player is a client that plays a construct.
type player struct {
	*client
	t        *testing.T
	upstream *mcptest.Upstream
	dynamic  bool
}

// gets fails the test unless a call has this verdict, and leaves the run in the state if one is given.
func (p *player) gets(verdict, state, tool, arguments string) reply {
	p.t.Helper()
	r := p.call(tool, arguments)
	if r.verdict == "success" && state != "" {
		r.state = p.call("nowhere", "").state
	}
	if r.verdict != verdict || state != "" && r.state != state {
		p.t.Errorf("%s %s: %s in %q, want %s in %q: %s", tool, arguments, r.verdict, r.state, verdict, state, r.raw)
	}
	return r
}

// lists fails the test unless a tool is listed where lists follow the run; where they do not, it is always.
func (p *player) lists(tool string, want bool) {
	p.t.Helper()
	if list := p.Call("tools/list", "").String(); strings.Contains(list, `"name":"`+tool+`"`) != (want || !p.dynamic) {
		p.t.Errorf("%s is to be listed: %v; %s", tool, want, list)
	}
}

// review is the part of those constructs that have one.
const review = `{version: 1, name: review, initial: draft, states: {draft: {tools: {once: approved}}, approved: {terminal: true}}}`

var constructs = map[string]construct{
	"signals": {`
  idle: {tools: {once: waiting}}
  waiting:
    signals: {again: stay, give_up: idle, released: {to: idle, from: operator}}`,
		func(p *player) {
			p.gets("invalid_transition", "idle", "fsm_signal", `"name":"give_up"`)
			p.lists("fsm_signal", false)
			p.gets("success", "waiting", "once", "")
			p.lists("fsm_signal", true)
		},
		func(p *player) {
			p.gets("success", "waiting", "fsm_signal", `"name":"again"`)
			p.gets("unknown_action", "waiting", "fsm_signal", `"name":"released"`)
			p.gets("success", "idle", "fsm_signal", `"name":"give_up"`)
		}},
	"by, a path": {`
  idle: {tools: {ok: {by: a.b, cases: {1: stay, "x*": there, true: none}}}}
  there: {tools: {ok: {by: a.b, cases: {1: idle}}}}`,
		func(p *player) {
			p.gets("unknown_case", "idle", "ok", `"a":{"b":"1"}`)
			p.gets("unknown_case", "idle", "ok", `"a":{"b":true}`)
			p.gets("success", "idle", "ok", `"a":{"b":1.0}`)
			p.gets("success", "there", "ok", `"a":{"b":"xy"}`)
		},
		func(p *player) {
			p.gets("unknown_case", "there", "ok", `"a":{"b":2}`)
			p.gets("success", "idle", "ok", `"a":{"b":1e0}`)
		}},
	"guards": {`
  idle:
    tools:
      ok: {when: args.n <= 100}
      once: {when: 'run.state == "there"'}
      elsewhere: there
  there: {tools: {once: {when: 'run.state == "there"'}}}`,
		func(p *player) {
			p.gets("success", "", "ok", `"n":1e2`)
			p.gets("guard_failed", "idle", "ok", `"n":101`)
			p.gets("guard_failed", "idle", "once", "")
			p.lists("once", false)
		},
		func(p *player) {
			p.gets("guard_failed", "idle", "ok", `"n":"1"`)
			p.gets("success", "there", "elsewhere", "")
			p.lists("once", true)
			p.gets("success", "", "once", "")
		}},
	"alternatives": {`
  idle:
    tools:
      ok:
        - {when: args.n <= 1, on_success: there}
        - {when: args.n <= 2, on_success: stay}
  there: {tools: {once: idle}}`,
		func(p *player) {
			p.gets("guard_failed", "idle", "ok", `"n":3`)
			p.gets("success", "there", "ok", `"n":1`)
		},
		func(p *player) {
			p.gets("success", "idle", "once", "")
			p.gets("success", "idle", "ok", `"n":2`)
			p.gets("guard_failed", "idle", "ok", `"n":"2"`)
		}},
	"outcomes": {`
  idle: {tools: {ok: {outcomes: {good: 'result.text == "ok"'}, on_good: there, on_any: wrong}}}
  there: {tools: {once: {outcomes: {bad: 'json(result.text).x == 1'}, on_bad: wrong, on_success: wrong, on_unknown: idle}}}
  wrong:`,
		func(p *player) { p.gets("success", "there", "ok", "") },
		func(p *player) { p.gets("success", "idle", "once", "") }},
	"registers": {`
  idle:
    tools:
      ok: {set: {seen: {add: args.x}}}
      once: {when: args.x in registers.seen, on_success: {to: idle, set: {last: args.x}}}
      elsewhere: {when: has(registers.last) && registers.last == args.x}`,
		func(p *player) {
			p.gets("guard_failed", "idle", "once", `"x":"a"`)
			p.gets("success", "", "ok", `"x":"a"`)
			p.lists("elsewhere", false)
			p.gets("success", "idle", "once", `"x":"a"`)
			p.lists("elsewhere", true)
		},
		func(p *player) {
			p.lists("elsewhere", true)
			p.gets("success", "", "elsewhere", `"x":"a"`)
			p.gets("success", "", "ok", `"x":"b"`)
			p.gets("limit_reached", "idle", "ok", `"x":"c"`)
			p.gets("guard_failed", "idle", "elsewhere", `"x":"b"`)
		}},
	"registers, with a call under way": {`
  idle: {tools: {hold: {set: {seen: {add: args.x}}}, once: {when: args.x in registers.seen}, ok: {set: {seen: {add: args.x}}}}}`,
		func(p *player) {
			p.Request("tools/call", mcptest.ToolParams("hold", `{"x":"a"}`))
			p.upstream.Await(p.t, 1, "tools/call", "hold")
			p.gets("guard_failed", "idle", "once", `"x":"a"`)
			p.gets("success", "", "ok", `"x":"b"`)
			p.gets("limit_reached", "idle", "ok", `"x":"c"`) // its room is kept
		},
		func(p *player) {
			p.gets("limit_reached", "idle", "ok", `"x":"c"`)
			p.upstream.Open("hold")
			for p.call("once", `"x":"a"`).verdict != "success" { // until it has ended
			}
		}},
	"limits": {`
  idle: {at_most: 4, tools: {ok: {at_most: 2}, once: {at_most: {run: 2, minute: 5, principal: {hour: 9}}}}}`,
		func(p *player) {
			p.gets("success", "", "ok", "")
			p.gets("success", "", "ok", "")
			p.gets("limit_reached", "idle", "ok", "")
			p.gets("success", "", "once", "")
		},
		func(p *player) {
			p.gets("limit_reached", "idle", "ok", "")
			p.gets("success", "", "once", "")
			p.gets("limit_reached", "idle", "once", "") // of the state
		}},
	"clocks": {`
  idle: {tools: {once: there}}
  there: {after: {1s: idle}, tools: {elsewhere: stay}}`,
		func(p *player) { p.gets("success", "", "once", "") },
		func(p *player) {
			for p.call("once", "").verdict != "success" { // until it has gone off
			}
			p.gets("success", "", "elsewhere", "")
		}},
	"for": {`
  idle:
    tools:
      ok: {for: {subject: ann}}
      once: {for: {subject: bob}}
      elsewhere: [{for: {subject: bob}, on_success: wrong}, {for: {issuer: tokens}, on_success: there}]
  there: {for: {subject: [bob]}, tools: {hold: stay}, signals: {go: idle}}
  wrong:`,
		func(p *player) {
			p.gets("success", "", "ok", "")
			p.gets("unknown_action", "idle", "once", "")
		},
		func(p *player) {
			p.gets("unknown_action", "idle", "once", "")
			p.gets("success", "there", "elsewhere", "")
			p.gets("unknown_action", "there", "hold", "")
			p.gets("unknown_action", "there", "fsm_signal", `"name":"go"`)
		}},
	"parts": {`
  idle: {tools: {ok: reviewing}}
  reviewing: {part: review, exits: {approved: there}, tools: {elsewhere: {on_any: idle}}}
  there:`,
		func(p *player) {
			p.gets("success", "reviewing/draft", "ok", "")
			p.gets("success", "idle", "elsewhere", "")
			p.gets("success", "reviewing/draft", "ok", "")
		},
		func(p *player) { p.gets("success", "there", "once", "") }},
	"return": {`
  idle: {tools: {once: there}}
  there: {tools: {ok: asking}}
  asking: {tools: {elsewhere: {on_success: {return: true}}}}`,
		func(p *player) {
			p.gets("success", "there", "once", "")
			p.gets("success", "asking", "ok", "")
		},
		func(p *player) { p.gets("success", "there", "elsewhere", "") }},
	"approve": {`
  idle: {tools: {ok: {when: args.n <= 100, approve: {by: operator}, on_any: wrong}, once: there}}
  there: {tools: {ok: {approve: {by: operator}, on_any: wrong}}}
  wrong:`,
		func(p *player) {
			p.gets("guard_failed", "idle", "ok", `"n":101`)
			p.gets("approval_pending", "idle", "ok", `"n":1`)
			p.gets("success", "there", "once", "")
		},
		func(p *player) {
			p.gets("approval_pending", "there", "ok", `"n":1`)
			if n := p.upstream.Count("tools/call", "ok"); n != 0 {
				p.t.Errorf("%d calls were sent that nobody approved", n)
			}
		}},
	"upstream_may": {`
  idle: {upstream_may: [], tools: {ask: there}}
  there: {upstream_may: [roots], tools: {ask: idle}}`,
		func(p *player) { p.asksInVain("there") },
		func(p *player) { p.asksInVain("idle") }},
	"timeout": {`
  idle: {tools: {hold: {timeout: 1s, on_success: wrong, on_unknown: there}}}
  there: {tools: {hold: {timeout: 1s, on_success: wrong, on_unknown: idle}}}
  wrong:`,
		func(p *player) { p.gets("outcome_unknown", "there", "hold", "") },
		func(p *player) { p.gets("outcome_unknown", "idle", "hold", "") }},
}

// asksInVain has the server ask for what it may not here.
func (p *player) asksInVain(state string) {
	p.t.Helper()
	if r := p.gets("success", state, "ask", ""); !strings.Contains(r.text, "-32601") {
		p.t.Errorf("the server's question was answered %s", r.text)
	}
}

// asking is server with a tool ask, that asks the client's user.
func asking() mcptest.Server {
	plain := server()
	return mcptest.Server{Handle: func(e *mcptest.Exchange) {
		switch {
		case e.Method == "tools/call" && e.Name == "ask":
			e.Async(func() {
				e.Result(mcptest.Text(e.Ask("elicitation/create", `{"message":"?","requestedSchema":{"type":"object","properties":{}}}`).String()))
			})
		default:
			plain.Handle(e)
		}
	}}
}

// Each construct is what it is in both eras, whether or not lists follow the run, and goes on over a reload.
func TestConstructsInEachEraOnEachSurfaceOverAReload(t *testing.T) {
	t.Parallel()
	for name, c := range constructs {
		for _, era := range []string{"legacy", "modern"} {
			for _, surface := range []string{"dynamic", "static"} {
				t.Run(name+"/"+era+"/"+surface, func(t *testing.T) { t.Parallel(); c.play(t, era, surface) })
			}
		}
	}
}

func (c construct) play(t *testing.T, era, surface string) {
	text := "version: 1\nname: constructs\ninitial: idle\nregisters: {seen: {set: text, max: 2}, last: text}\n"
	if strings.Contains(c.policy, "part:") {
		text += "use: {review: review.yaml}\n"
	}
	text += "states:" + c.policy
	path := mcptest.WritePolicy(t, text)
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "review.yaml"), []byte(review), 0o600); err != nil {
		t.Fatal(err)
	}
	upstream, upstreamURL := mcptest.HTTP(t, asking())
	url, process := mcptest.Listen(t, "--policy", path, "--upstream", upstreamURL, "--tokens", tokens(t), "--reload-debounce", "5ms",
		"--surface", surface, "--run-key", era+"=principal",
		"--admin", mcptest.FreeAddress(t), "--admin-tokens", tokensOf(t, "olga"), "--approval-hold", "1s")
	p := &player{client: &client{key: key{era: era}}, t: t, upstream: upstream, dynamic: surface == "dynamic"}
	p.Session, p.web = mcptest.DialWeb(t, url)
	p.web.Header.Set("Authorization", "Bearer "+token("ann"))
	if p.key.modern() {
		p.Modern(mcptest.Modern{Capabilities: `{"elicitation":{}}`})
	} else {
		p.InitializeAs(`{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"c","version":"1"}}`)
	}
	c.before(p)
	if err := os.WriteFile(path, []byte(text+"\n  added: {tools: [ok]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	process.Log().Await(t, "the policy was reloaded")
	c.after(p)
}
