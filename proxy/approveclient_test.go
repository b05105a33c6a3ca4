package proxy_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy"
	"github.com/fsm-proxy/fsm-proxy/proxy/operator"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

const approvingByClient = `version: 1
initial: work
everywhere: {tools: [look]}
states:
  work:
    tools:
      pay: {approve: {by: client, message: Does the amount fit?, timeout: 2m}}
      leave: {on_any: done}
  done: {tools: {again: {on_any: work}}}
`

// elicitations are what a client's user was asked, each an id.
func elicitations(messages []string) (ids []string) {
	for _, m := range messages {
		if strings.Contains(m, `"elicitation/create"`) {
			ids = append(ids, idOf(m))
		}
	}
	return ids
}

// says answers what the client was asked.
func (c *client) says(id, result string) {
	c.t.Helper()
	c.handle(`{"jsonrpc":"2.0","id":`+id+`,"result":`+result+`}`, c.own)
	synctest.Wait()
}

const (
	yes = `{"action":"accept","content":{"approve":true}}`
	no  = `{"action":"accept","content":{"approve":false}}`
)

// The user is shown the call, whole and so that nothing in it hides, and their yes is for one call.
func TestUserApproves(t *testing.T) {
	bubble(t, approvingByClient, func(r *rig) {
		c := r.connect(ableHello)
		call := c.with("pay", `{"to":"a`+"\u202e\u200b"+`b","amount":3}`)
		if !call.pending() {
			t.Fatal(call.wait())
		}
		asked := strings.Join(call.messages(), "\n")
		has(t, asked, `Allow tool \"pay\"? Does the amount fit?\n\nArguments: {\"to\":\"a\\u202e\\u200bb\",\"amount\":3}`,
			`"requestedSchema":{"type":"object","properties":{"approve":{"type":"boolean"`, `"required":["approve"]`)
		c.says(elicitations(call.messages())[0], yes)
		r.goes(c, call)
		again := c.with("pay", `{"to":"a","amount":3}`)
		if !again.pending() || len(elicitations(again.messages())) != 1 {
			t.Error("a yes was used twice")
		}
		r.idle()
	})
}

// All but a plain yes is none, and what is no answer asks anew.
func TestUserSaysNo(t *testing.T) {
	for _, result := range []string{no, `{"action":"decline"}`, `{"action":"accept"}`, `{"action":"accept","content":{}}`, `{"action":"accept","content":{"approve":"true"}}`,
		`{"action":"accept","content":{"approve":1}}`, `{"action":"accept","content":{"Approve":true}}`,
		`{"action":"accept","content":true}`, `{"action":"decline","content":{"approve":true}}`} {
		bubble(t, approvingByClient, func(r *rig) {
			c := r.connect(ableHello)
			call := c.with("pay", `{}`)
			synctest.Wait()
			c.says(elicitations(call.messages())[0], result)
			c.refused(call.wait(), policy.ApprovalDenied)
			again := c.with("pay", `{}`)
			c.refused(again.wait(), policy.ApprovalDenied)
			if len(elicitations(again.messages())) != 0 {
				t.Errorf("%s: asked again", result)
			}
			r.idle()
		})
	}
	for _, answer := range []string{`"result":{"action":"cancel"}`, `"result":{}`, `"error":{"code":-1,"message":"no"}`} {
		bubble(t, approvingByClient, func(r *rig) {
			c := r.connect(ableHello)
			call := c.with("pay", `{}`)
			synctest.Wait()
			c.handle(`{"jsonrpc":"2.0","id":`+elicitations(call.messages())[0]+`,`+answer+`}`, c.own)
			if said := c.refused(call.wait(), policy.ApprovalDenied); !strings.Contains(said.Message, "Call it again to ask anew") {
				t.Errorf("%s: %s", answer, said.Message)
			}
			again := c.with("pay", `{}`)
			synctest.Wait()
			c.says(elicitations(again.messages())[0], yes)
			r.goes(c, again)
		})
	}
}

// A client that cannot ask says why nothing is sent.
func TestClientThatCannotAsk(t *testing.T) {
	for _, capabilities := range []string{`{}`, `{"elicitation":null}`, `{"elicitation":{"url":{}}}`} {
		bubble(t, approvingByClient, func(r *rig) {
			c := r.connect(strings.Replace(plainHello, `"capabilities":{}`, `"capabilities":`+capabilities, 1))
			if said := c.refused(c.with("pay", `{}`).wait(), policy.ApprovalDenied); !strings.Contains(said.Message, "has not declared elicitation") {
				t.Error(said.Message)
			}
			r.idle()
		})
	}
	bubble(t, approvingByClient, func(r *rig) {
		c := r.modern()
		has(t, c.ask("tools/call", `{"name":"pay","_meta":{`+fmt.Sprintf(modernMeta, `{}`)+`}}`), "approval_denied", "has not declared elicitation")
		r.idle()
	})
}

// The user may take longer than the client: the same call again waits on, and they are not asked twice.
func TestUserIsSlow(t *testing.T) {
	bubble(t, approvingByClient, func(r *rig) {
		c := r.connect(ableHello)
		call := c.with("pay", `{"n":1}`)
		c.refused(call.wait(), policy.ApprovalPending)
		id := elicitations(call.messages())[0]
		again := c.with("pay", `{"n":1}`)
		if !again.pending() || len(elicitations(again.messages())) != 0 {
			t.Error("asked twice")
		}
		c.cancel(again)
		c.says(id, yes)
		r.idle()
		r.goes(c, c.with("pay", `{"n":1}`))
	})
}

// Nobody's answer in time is told, and the question is taken back.
func TestUserDoesNotAnswer(t *testing.T) {
	bubble(t, approvingByClient, func(r *rig) {
		c := r.connect(ableHello)
		call := c.with("pay", `{}`)
		if said := c.refused(call.wait(), policy.ApprovalDenied); !strings.Contains(said.Message, "in time") {
			t.Error(said.Message)
		}
		synctest.Wait()
		all := strings.Join(append(call.messages(), c.own.messages()...), "\n")
		has(t, all, `"notifications/cancelled","params":{"requestId":`+elicitations(call.messages())[0])
		c.says(elicitations(call.messages())[0], yes) // too late
		if again := c.with("pay", `{}`); !again.pending() {
			t.Error(again.wait())
		}
		r.idle()
	}, with(func(c *proxy.Config) { c.ApprovalHold = 3 * time.Minute }))
}

// Operators do not see what a client's user is asked, and leaving the state takes it back.
func TestUserIsAskedByNobodyElse(t *testing.T) {
	bubble(t, approvingByClient, func(r *rig) {
		c := r.connect(ableHello)
		call := c.with("pay", `{}`)
		r.asked(0)
		c.do("leave", ok)
		c.refused(call.wait(), policy.InvalidTransition)
		c.says(elicitations(call.messages())[0], yes)
		c.do("again", ok)
		if again := c.with("pay", `{}`); !again.pending() {
			t.Errorf("a yes to another visit: %s", again.wait())
		}
		r.idle()
	})
	bubble(t, approving, func(r *rig) { // nor is one of theirs the client's
		c := r.connect(ableHello)
		call := c.with("pay", `{}`)
		id := r.asked(1)[0].ID
		if len(elicitations(call.messages())) != 0 {
			t.Error("the user is asked")
		}
		for i := range 5 {
			c.handle(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":%s}`, i, yes), c.own)
		}
		c.handle(fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"result":%s}`, id, yes), c.own)
		if !call.pending() {
			t.Errorf("a client has approved what operators are asked: %s", call.wait())
		}
		c.cancel(call)
		r.idle()
	})
}

// Who else calls the same is asked, too; the first answer holds for one call.
func TestUsersOfOneRun(t *testing.T) {
	bubble(t, approvingByClient, func(r *rig) {
		a, b := r.connect(ableHello), r.connect(ableHello)
		first := a.with("pay", `{}`)
		synctest.Wait()
		second := b.with("pay", `{}`)
		synctest.Wait()
		b.says(elicitations(second.messages())[0], yes)
		r.up.next().result(ok)
		r.idle()
		if first.pending() == second.pending() {
			t.Error("one yes, two calls")
		}
	}, with(func(c *proxy.Config) { c.Keys = [2]runs.Key{{Kind: runs.Process}, {Kind: runs.Process}} }))
}

// A request that stands alone is answered with the question, and comes back with the answer.
func TestUserApprovesAlone(t *testing.T) {
	for _, tt := range []struct{ response, want string }{
		{yes, `"complete"`}, {no, "approval_denied"}, {`{"action":"decline"}`, "approval_denied"}, {`{"action":"cancel"}`, "Call it again to ask anew"},
	} {
		for i, upstream := range []func(*proxy.Config, *server){func(*proxy.Config, *server) {}, modernUpstream} {
			legacy := i == 0 // a modern upstream may give out states of its own
			bubble(t, approvingByClient, func(r *rig) {
				c := r.modern()
				asked := c.ask("tools/call", meta(`{"name":"pay","arguments":{"n":12345678901234567890}}`))
				has(t, asked, `"method":"elicitation/create"`, `Allow tool \"pay\"? Does the amount fit?`, `{\"n\":12345678901234567890}`)
				keys, state := required(t, asked)
				r.idle()
				r.asked(0)
				if legacy {
					has(t, c.comeBack("pay", keys[0], "fsm1.guess", yes).wait(), "-32602")
				}
				has(t, c.ask("tools/call", meta(`{"name":"pay","arguments":{"n":1},"inputResponses":{"`+keys[0]+`":`+yes+`},"requestState":"`+state+`"}`)), "-32602")
				back := c.comeBack("pay", keys[0], state, tt.response)
				if tt.response == yes {
					k := r.up.next()
					if strings.Contains(string(k.m.Raw), "inputResponses") || strings.Contains(string(k.m.Raw), "requestState") {
						t.Errorf("the upstream got %s", k.m.Raw)
					}
					k.result(`{"resultType":"complete","content":[]}`)
				}
				has(t, back.wait(), tt.want)
				if legacy {
					has(t, c.comeBack("pay", keys[0], state, yes).wait(), "-32602") // which is good once
				}
				r.idle()
			}, upstream)
		}
	}
}

// A client that does not come back in time has approved nothing, and nothing of it is left.
func TestUserDoesNotComeBack(t *testing.T) {
	bubble(t, approvingByClient, func(r *rig) {
		c := r.modern()
		keys, state := required(t, c.ask("tools/call", meta(`{"name":"pay","arguments":{"n":12345678901234567890}}`)))
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		has(t, c.comeBack("pay", keys[0], state, yes).wait(), "-32602")
		call := meta(`{"name":"pay","arguments":{"n":12345678901234567890}}`)
		keys, state = required(t, c.ask("tools/call", call))
		back := c.comeBack("pay", keys[0], state, yes)
		r.up.next().result(`{"content":[]}`)
		has(t, back.wait(), `"complete"`)
		r.idle()
	})
}

// A reload by which another is to approve asks them, and takes the question back from who was asked.
func TestReloadToAnotherApprover(t *testing.T) {
	bubble(t, approvingByClient, func(r *rig) {
		c := r.connect(ableHello)
		call := c.with("pay", `{}`)
		synctest.Wait()
		id := elicitations(call.messages())[0]
		r.p.Reload(parse(t, strings.Replace(approvingByClient, "by: client", "by: operator", 1)))
		x := r.asked(1)[0]
		c.says(id, yes)
		if !call.pending() {
			t.Fatal(call.wait())
		}
		has(t, strings.Join(call.messages(), "\n"), "notifications/cancelled")
		if refused := r.answers(x.ID, true, nil); refused != nil {
			t.Error(refused)
		}
		r.goes(c, call)
		if refused := r.answers(id, true, nil); refused == nil || refused.Why != operator.NoApproval {
			t.Errorf("%v", refused)
		}
	})
}

// What a server asks in the middle of a call that was approved is of that call: nobody approves it twice.
func TestApprovedCallThatAsksItsClient(t *testing.T) {
	const asks = `{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{}}},"requestState":"theirs"}`
	bubble(t, approvingByClient, func(r *rig) {
		c := r.modern()
		keys, state := required(t, c.ask("tools/call", meta(`{"name":"pay","arguments":{"n":12345678901234567890}}`)))
		back := c.comeBack("pay", keys[0], state, yes)
		r.up.next().result(asks)
		has(t, back.wait(), `"requestState":"theirs"`)
		last := c.comeBack("pay", "a", "theirs", `{"action":"accept"}`)
		k := r.up.next()
		has(t, string(k.m.Raw), `"inputResponses":{"a":{"action":"accept"}}`, `"requestState":"theirs"`)
		k.result(`{"resultType":"complete","content":[]}`)
		has(t, last.wait(), `"complete"`)
		required(t, c.ask("tools/call", meta(`{"name":"pay","arguments":{"n":12345678901234567890}}`))) // that yes is used
		r.idle()
	}, modernUpstream)
	bubble(t, approvingByClient, func(r *rig) {
		c := r.connect(ableHello)
		call := c.with("pay", `{}`)
		synctest.Wait()
		c.says(elicitations(call.messages())[0], yes)
		r.up.next().result(asks)
		synctest.Wait()
		c.says(elicitations(call.messages())[1], `{"action":"accept"}`)
		r.up.next().result(`{"resultType":"complete","content":[]}`)
		has(t, call.wait(), `"result"`)
		again := c.with("pay", `{}`)
		if !again.pending() || len(elicitations(again.messages())) != 1 {
			t.Error("a yes was used twice")
		}
		r.idle()
	}, modernUpstream)
}
