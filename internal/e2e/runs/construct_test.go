package runs

import (
	"encoding/json"
	"fmt"
	"net/http"
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
	*house
	dynamic bool
	old     string // the id of what was asked before the reload
}

// gets fails the test unless a call has this verdict, and leaves the run in the state if one is given.
func (p *player) gets(verdict, state, tool, arguments string) reply {
	p.house.t.Helper()
	r := p.call(tool, arguments)
	if r.verdict == "success" && state != "" {
		r.state = p.call("nowhere", "").state
	}
	if r.verdict != verdict || state != "" && r.state != state {
		p.house.t.Errorf("%s %s: %s in %q, want %s in %q: %s", tool, arguments, r.verdict, r.state, verdict, state, r.raw)
	}
	return r
}

// lists fails the test unless a tool is listed where lists follow the run; where they do not, it is always.
func (p *player) lists(tool string, want bool) {
	p.house.t.Helper()
	if list := p.Call("tools/list", "").String(); strings.Contains(list, `"name":"`+tool+`"`) != (want || !p.dynamic) {
		p.house.t.Errorf("%s is to be listed: %v; %s", tool, want, list)
	}
}

// review is the part of those constructs that have one.
const review = `{version: 1, name: review, initial: draft, states: {draft: {tools: {once: approved, hold: {timeout: 1s, on_unknown: rejected}}}, approved: {terminal: true}, rejected: {terminal: true}}}`

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
			p.begins("hold", `"x":"a"`)
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
  reviewing: {part: review, exits: {approved: there, "*": wrong}, tools: {elsewhere: {on_any: idle}}}
  there: {tools: {ok: reviewing}}
  wrong:`,
		func(p *player) {
			p.gets("success", "reviewing/draft", "ok", "")
			p.gets("success", "idle", "elsewhere", "")
			p.lists("once", false)
			p.gets("success", "reviewing/draft", "ok", "")
			p.lists("once", true)
		},
		func(p *player) {
			var from struct{ Parts []string }
			if p.operator(http.MethodGet, "/v1/policy", &from); len(from.Parts) != 1 || filepath.Base(from.Parts[0]) != "review.yaml" {
				p.house.t.Errorf("the policy has the parts %q", from.Parts)
			}
			p.lists("once", true)
			p.gets("success", "there", "once", "")
			p.gets("success", "reviewing/draft", "ok", "")
			p.gets("outcome_unknown", "wrong", "hold", "")
		}},
	"return": {`
  idle: {tools: {once: there, ok: asking}}
  there: {tools: {ok: asking, once: idle}}
  asking: {tools: {elsewhere: {on_success: {return: true}}}}`,
		func(p *player) {
			p.gets("success", "asking", "ok", "")
			p.gets("success", "idle", "elsewhere", "")
			p.gets("success", "there", "once", "")
			p.gets("success", "asking", "ok", "")
		},
		func(p *player) {
			p.gets("success", "there", "elsewhere", "")
			p.gets("success", "idle", "once", "")
			p.gets("success", "asking", "ok", "")
			p.gets("success", "idle", "elsewhere", "")
		}},
	"return, of a return": {`
  idle: {tools: {once: there}}
  there: {tools: {ok: asking}}
  asking: {tools: {elsewhere: {on_success: {return: true}}, once: further}}
  further: {tools: {ok: {on_success: {return: true}}}}`,
		func(p *player) {
			p.gets("success", "there", "once", "")
			p.gets("success", "asking", "ok", "")
			p.gets("invalid_transition", "asking", "ok", "")
			p.gets("success", "further", "once", "")
			p.lists("elsewhere", false)
		},
		func(p *player) {
			p.gets("success", "asking", "ok", "") // where further was entered from
			p.lists("elsewhere", true)
			p.gets("success", "there", "elsewhere", "") // where asking was, of which the return is no entering
			p.gets("invalid_transition", "there", "elsewhere", "")
		}},
	"return, from a part": {`
  idle: {tools: {elsewhere: reviewing, once: there}}
  there: {tools: {elsewhere: reviewing}}
  reviewing: {part: review, exits: {approved: {return: true}, "*": idle}}`,
		func(p *player) {
			p.gets("success", "reviewing/draft", "elsewhere", "")
			p.gets("invalid_transition", "reviewing/draft", "elsewhere", "")
			p.gets("success", "idle", "once", "")
			p.gets("success", "there", "once", "")
			p.gets("success", "reviewing/draft", "elsewhere", "")
		},
		func(p *player) {
			p.gets("success", "there", "once", "")
			p.gets("success", "reviewing/draft", "elsewhere", "")
			p.gets("outcome_unknown", "idle", "hold", "")
		}},
	"approve, over a reload": {`
  idle: {tools: {ok: {approve: {by: operator}, on_success: there}, once: {approve: {by: operator}}, elsewhere: {approve: {by: operator}}}}
  there:`,
		func(p *player) {
			p.gets("unknown_action", "idle", "nowhere", "")
			if r := p.decides("deny", "once", `"n":1`); r.verdict != "approval_denied" {
				p.house.t.Error(r.raw)
			}
			p.begins("elsewhere", "")
			p.old = p.approvals(1)[0].ID
		},
		func(p *player) { // it ends what was asked, and answered, before
			mcptest.Await(p.house.t, "the call that is held is asked anew", func() bool {
				all := p.approvals(1)
				return all[0].ID != p.old && all[0].Name == "elsewhere"
			})
			if s := p.answers(p.old, "allow", ""); s.status != http.StatusNotFound {
				p.house.t.Errorf("what was asked before: %d %s", s.status, s.text)
			}
			p.begins("once", `"n":1`)
			p.approvals(2)
			if n := p.upstream.Count("tools/call"); n != 0 {
				p.house.t.Errorf("%d calls were sent", n)
			}
		}},
	"approve, by an operator": {`
  idle: {tools: {ok: {when: args.n <= 100, approve: {by: operator}, on_success: there}}}
  there: {tools: {ok: {approve: {by: operator}, on_success: idle}, once: {approve: {by: operator, timeout: 1s}}}}`,
		func(p *player) {
			p.gets("guard_failed", "idle", "ok", `"n":101`)
			if r := p.decides("allow", "ok", `"n":1`); r.verdict != "success" {
				p.house.t.Error(r.raw)
			}
			if r := p.decides("deny", "ok", `"n":1`); r.verdict != "approval_denied" || r.state != "there" {
				p.house.t.Error(r.raw)
			}
			p.gets("approval_denied", "there", "ok", `"n":1`)
			p.gets("approval_denied", "there", "once", "") // nobody has answered in time
		},
		func(p *player) {
			if r := p.decides("allow", "ok", `"n":1`); r.verdict != "success" {
				p.house.t.Error(r.raw)
			}
			p.gets("guard_failed", "idle", "ok", `"n":"1"`)
			if n := p.upstream.Count("tools/call", "ok"); n != 2 {
				p.house.t.Errorf("%d calls were sent, and two were approved", n)
			}
			if n := p.upstream.Count("tools/call", "once"); n != 0 {
				p.house.t.Errorf("%d calls were sent that nobody approved", n)
			}
		}},
	"approve, by the client": {`
  idle: {tools: {ok: {approve: {by: client, message: Really?}, on_success: there}}}
  there: {tools: {once: {approve: {by: client}, on_success: idle}}}`,
		func(p *player) {
			if r := p.consents("ok", `{"action":"accept","content":{"approve":true}}`); r.verdict != "success" {
				p.house.t.Error(r.raw)
			}
			if r := p.consents("once", `{"action":"decline"}`); r.verdict != "approval_denied" || r.state != "there" {
				p.house.t.Error(r.raw)
			}
		},
		func(p *player) {
			if r := p.consents("once", `{"action":"accept","content":{"approve":true}}`); r.verdict != "success" {
				p.house.t.Error(r.raw)
			}
			p.gets("invalid_transition", "idle", "once", "")
		}},
	"upstream_may": {`
  idle: {upstream_may: [], tools: {ask: there, ok: stay}}
  there: {upstream_may: [elicitation], tools: {ask: idle}}`,
		func(p *player) { p.asksInVain("there") },
		func(p *player) {
			if r := p.consents("ask", `{"action":"accept","content":{}}`); r.verdict != "success" || !strings.Contains(r.text, "accept") {
				p.house.t.Errorf("the server's question was answered %s", r.raw)
			}
			p.asksInVain("there")
		}},
	"timeout": {`
  idle: {tools: {hold: {timeout: 1s, on_success: wrong, on_unknown: there}}}
  there: {tools: {hold: {timeout: 1s, on_success: wrong, on_unknown: idle}}}
  wrong:`,
		func(p *player) { p.gets("outcome_unknown", "there", "hold", "") },
		func(p *player) { p.gets("outcome_unknown", "idle", "hold", "") }},
}

// asksInVain has the server ask for what it may not here.
func (p *player) asksInVain(state string) {
	p.house.t.Helper()
	if r := p.gets("success", state, "ask", ""); !strings.Contains(r.text, "-32601") {
		p.house.t.Errorf("the server's question was answered %s", r.text)
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

// decides calls a tool that waits for an operator, who then decides.
func (p *player) decides(answer, tool, arguments string) reply {
	p.house.t.Helper()
	call := p.begins(tool, arguments)
	if s := p.answers(p.approvals(1)[0].ID, answer, ""); s.status != http.StatusOK {
		p.house.t.Errorf("%d %s", s.status, s.text)
	}
	return p.answered(call)
}

// consents calls a tool of which the client's user is asked, and answers.
func (p *player) consents(tool, answer string) reply {
	p.house.t.Helper()
	_, answers := p.asks(p.house.t, p.begins(tool, ""), tool)
	return p.answered(answers(answer))
}

// asks is what the client's user is asked on behalf of a call of a tool, and how that is answered: it returns the id
// under which the call's own answer comes.
func (c *client) asks(t *testing.T, call int, tool string) (question string, answers func(answer string) int) {
	t.Helper()
	if !c.key.modern() {
		m := c.Next()
		for m.Method != "elicitation/create" {
			if m.IsResponse() {
				t.Fatalf("nobody was asked: %s", m)
			}
			m = c.Next()
		}
		return m.String(), func(answer string) int {
			c.Send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, answer))
			return call
		}
	}
	first, _ := c.Answer(call)
	var asks struct {
		InputRequests map[string]json.RawMessage
		RequestState  string
	}
	if json.Unmarshal(first.Result, &asks) != nil || len(asks.InputRequests) != 1 {
		t.Fatalf("nobody was asked: %s", first)
	}
	return first.String(), func(answer string) (again int) {
		arguments, state := "{}", ""
		if c.handle != "" {
			arguments = fmt.Sprintf(`{"fsm_run":%q}`, c.handle)
		}
		if asks.RequestState != "" {
			state = fmt.Sprintf(`,"requestState":%q`, asks.RequestState)
		}
		for id := range asks.InputRequests {
			again = c.Request("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s,"inputResponses":{%q:%s}%s}`, tool, arguments, id, answer, state))
		}
		return again
	}
}

// places are where a construct is played: over HTTP by who asks, by session or handle, and at standard input and output.
var places = []struct {
	key     key
	surface string
}{
	{key{"legacy", "principal"}, "dynamic"}, {key{"legacy", "principal"}, "static"}, {key{"legacy", "session"}, "dynamic"}, {key{"legacy", ""}, "dynamic"},
	{key{"modern", "principal"}, "dynamic"}, {key{"modern", "principal"}, "static"}, {key{"modern", "handle"}, "static"}, {key{"modern", ""}, "dynamic"},
}

// Each construct is what it is in both eras, wherever its run is found, whether or not lists follow the run, and goes on over a reload.
func TestConstructsInEachEraOnEachSurfaceOverAReload(t *testing.T) {
	t.Parallel()
	for name, c := range constructs {
		for _, at := range places {
			if at.key.kind == "" && strings.Contains(c.policy, "for:") {
				continue // at standard input nobody is known: TestWhoAsksWhereNobodyIsKnown
			}
			t.Run(name+"/"+at.key.String()+"/"+at.surface, func(t *testing.T) { t.Parallel(); c.play(t, at.key, at.surface) })
		}
	}
}

func (c construct) play(t *testing.T, k key, surface string) {
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
	h := &house{t: t, admin: mcptest.FreeAddress(t), olga: "olga", upstream: upstream}
	p := &player{client: &client{key: k}, house: h, dynamic: surface == "dynamic"}
	args := []string{"--policy", path, "--upstream", upstreamURL, "--reload-debounce", "5ms", "--surface", surface, "--admin", h.admin, "--admin-tokens", tokensOf(t, "olga")}
	if k.kind == "" {
		p.Session, h.process = mcptest.Dial(t, append([]string{mcptest.Proxy(t), "run"}, args...)...)
	} else {
		h.url, h.process = mcptest.Listen(t, append(args, "--tokens", tokens(t), "--run-key", k.era+"="+k.kind)...)
		p.Session, p.web = mcptest.DialWeb(t, h.url)
		p.web.Header.Set("Authorization", "Bearer "+token("ann"))
	}
	if k.modern() {
		p.Modern(mcptest.Modern{Capabilities: `{"elicitation":{}}`})
	} else {
		p.InitializeAs(`{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"c","version":"1"}}`)
	}
	if k.kind == "handle" {
		p.handle = p.start(t)
	}
	c.before(p)
	if err := os.WriteFile(path, []byte(text+"\n  added: {tools: [ok]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.process.Log().Await(t, "the policy was reloaded")
	c.after(p)
}
