package proxy_test

import (
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/refusal"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

// required reads what an "input required" answer asks for: the keys, and the state.
func required(t *testing.T, answer string) (keys []string, state string) {
	t.Helper()
	var m struct {
		Result struct {
			ResultType    string                     `json:"resultType"`
			InputRequests map[string]json.RawMessage `json:"inputRequests"`
			RequestState  string                     `json:"requestState"`
		} `json:"result"`
	}
	if err := json.Unmarshal([]byte(answer), &m); err != nil || m.Result.ResultType != "input_required" {
		t.Fatalf("no input is required: %s (%v)", answer, err)
	}
	for key := range m.Result.InputRequests {
		keys = append(keys, key)
	}
	return keys, m.Result.RequestState
}

const elicit = `{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{"message":"Sure?","requestedSchema":{"type":"object","properties":{}}}}`

// ask begins a call of a modern client in which the upstream elicits.
func (r *rig) elicited(c *client, name string) (k *upcall, answer string) {
	r.t.Helper()
	call := c.request("tools/call", meta(`{"name":"`+name+`","arguments":{"n":12345678901234567890}}`))
	k = r.up.next()
	k.conn.says(elicit, k)
	return k, call.wait()
}

func (c *client) comeBack(name, key, state, response string) *reply {
	return c.request("tools/call", meta(`{"name":"`+name+`","arguments":{"n":12345678901234567890},"inputResponses":{"`+key+`":`+response+`},"requestState":"`+state+`"}`))
}

func TestLegacyUpstreamAsksModernClient(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.modern()
		k, answer := r.elicited(c, "write_plan")
		has(t, answer, `"method":"elicitation/create"`, `"message":"Sure?"`)
		keys, state := required(t, answer)
		has(t, c.ask("tools/call", meta(`{"name":"write_plan"}`)), `"busy"`) // the turn is kept
		back := c.comeBack("write_plan", keys[0], state, `{"action":"accept","content":{"x":1}}`)
		synctest.Wait()
		has(t, strings.Join(k.conn.notified(), ""), `{"jsonrpc":"2.0","id":7,"result":{"action":"accept","content":{"x":1}}}`)
		k.result(`{"content":[{"type":"text","text":"done"}]}`)
		has(t, back.wait(), "done", "State is now 'review'", `"id":3`)
		equal(t, "calls that reached the upstream", r.up.count("tools/call write_plan"), 1)
		has(t, c.comeBack("write_plan", keys[0], state, `{"action":"accept"}`).wait(), "-32602", "used already")
		equal(t, "after a state was used twice", r.up.count("tools/call write_plan"), 1)
	})
}

// A state is good for the call it was given for, and for whom.
func TestRequestStateOfAnother(t *testing.T) {
	bubble(t, review, func(r *rig) {
		a, b := r.as(observe.Peer{Principal: ann}), r.as(observe.Peer{Principal: bob})
		k, answer := r.elicited(a, "status")
		keys, state := required(t, answer)
		has(t, b.comeBack("status", keys[0], state, `{"action":"accept"}`).wait(), "-32602")
		has(t, a.comeBack("read_file", keys[0], state, `{"action":"accept"}`).wait(), "-32602")
		has(t, a.ask("tools/call", meta(`{"name":"status","arguments":{},"inputResponses":{},"requestState":"`+state+`"}`)), "-32602")
		has(t, a.comeBack("status", keys[0], "fsm1.guess", `{"action":"accept"}`).wait(), "-32602")
		equal(t, "told", len(k.conn.notified()), 1) // initialized
		back := a.comeBack("status", keys[0], state, `{"action":"decline"}`)
		k.result(`{"content":[]}`)
		has(t, back.wait(), `"resultType":"complete"`)
	}, keys(runs.Process))
}

// What the client leaves out it is asked again; what the upstream asks meanwhile, next.
func TestInputIsAskedAgain(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.modern()
		k, answer := r.elicited(c, "status")
		keys, state := required(t, answer)
		k.conn.says(strings.Replace(elicit, `"id":7`, `"id":8`, 1), k)
		synctest.Wait()
		again, state2 := required(t, c.comeBack("status", "other", state, `{}`).wait())
		equal(t, "asked", len(again), 2)
		only, state3 := required(t, c.comeBack("status", keys[0], state2, `{"action":"accept"}`).wait())
		equal(t, "asked", len(only), 1)
		last := c.comeBack("status", only[0], state3, `{"action":"accept"}`)
		k.result(`{"content":[]}`)
		has(t, last.wait(), `"complete"`)
	})
}

func TestClientDoesNotComeBack(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.modern()
		k, answer := r.elicited(c, "write_plan")
		keys, state := required(t, answer)
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		has(t, strings.Join(k.conn.notified(), ""), `"id":7,"error"`)
		has(t, c.comeBack("write_plan", keys[0], state, `{"action":"accept"}`).wait(), "-32602")
		has(t, r.modernCall(c, "write_plan", `{"content":[]}`), "State is now 'review'") // the turn is free
	})
}

// The upstream may finish while its client is away: the answer waits.
func TestAnswerWhileTheClientIsAway(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.modern()
		k, answer := r.elicited(c, "write_plan")
		keys, state := required(t, answer)
		k.result(`{"content":[{"type":"text","text":"without you"}]}`)
		synctest.Wait()
		has(t, c.comeBack("write_plan", keys[0], state, `{"action":"accept"}`).wait(), "without you", `"id":2`)
	})
}

func TestModernUpstreamAsksLegacyClient(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(ableHello)
		call := c.call("write_plan")
		r.up.next().result(`{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{"message":"Sure?"}}},"requestState":"s1"}`)
		synctest.Wait()
		asked := call.messages()[0]
		has(t, asked, `"method":"elicitation/create","params":{"message":"Sure?"}`)
		other := c.call("write_plan")
		has(t, other.wait(), `"busy"`)
		c.handle(`{"jsonrpc":"2.0","id":`+idOf(asked)+`,"result":{"action":"accept"}}`, c.own)
		k := r.up.next()
		has(t, string(k.m.Raw), `"inputResponses":{"a":{"action":"accept"}}`, `"requestState":"s1"`, `"name":"write_plan"`)
		k.result(`{"resultType":"complete","content":[]}`)
		call.wait()
		equal(t, "tools", c.listed(wire.Tools), "status ask")
	}, modernUpstream)
}

// A call whose time runs out between its client's last answer and its being sent again
// is not sent again.
func TestTimeRunsOutBeforeACallIsSentAgain(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(ableHello)
		call := c.call("write_plan")
		r.up.next().result(`{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{"message":"Sure?"}}}}`)
		synctest.Wait()
		r.p.GiveUpBehind(func() {
			c.handle(`{"jsonrpc":"2.0","id":`+idOf(call.messages()[0])+`,"result":{"action":"accept"}}`, c.own)
		})
		synctest.Wait()
		equal(t, "calls that reached the upstream", r.up.count("tools/call write_plan"), 1)
		has(t, c.refused(call.wait(), policy.UpstreamUnavailable).Message, "no answer in time", "Nothing was done")
		c.do("write_plan", `{"content":[]}`) // the turn is free
		equal(t, "tools", c.listed(wire.Tools), "status ask")
	}, modernUpstream)
}

func TestLegacyClientDeclinesOrCancels(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(ableHello)
		const asks = `{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{}}}}`
		call := c.call("write_plan")
		r.up.next().result(asks)
		synctest.Wait()
		c.handle(`{"jsonrpc":"2.0","id":`+idOf(call.messages()[0])+`,"error":{"code":-1,"message":"no"}}`, c.own)
		c.refused(call.wait(), policy.UpstreamUnavailable)
		call = c.call("write_plan")
		r.up.next().result(asks)
		synctest.Wait()
		c.cancel(call)
		synctest.Wait()
		equal(t, "answer", call.wait(), "")
		has(t, strings.Join(call.messages(), ""), "notifications/cancelled")
		c.do("write_plan", `{"content":[]}`)
		equal(t, "tools", c.listed(wire.Tools), "status ask")
	}, modernUpstream)
}

func TestModernAsksPassBetweenModernPeers(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.modern()
		call := c.request("tools/call", meta(`{"name":"write_plan"}`))
		const asks = `{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{}}},"requestState":"theirs"}`
		r.up.next().result(asks)
		has(t, call.wait(), asks)
		back := c.request("tools/call", meta(`{"name":"write_plan","inputResponses":{"a":{"action":"accept"}},"requestState":"theirs"}`))
		k := r.up.next()
		has(t, string(k.m.Raw), `"requestState":"theirs"`, `"inputResponses":{"a":{"action":"accept"}}`)
		k.result(`{"resultType":"complete","content":[]}`)
		has(t, back.wait(), "State is now 'review'")
	}, modernUpstream)
}

func idOf(raw string) string {
	_, rest, _ := strings.Cut(raw, `"id":`)
	id, _, _ := strings.Cut(rest, ",")
	return id
}

// What the policy does not let the upstream ask is not offered to it, and not passed on.
func TestModernUpstreamAsksTooMuch(t *testing.T) {
	bubble(t, review+"upstream_may: [roots]\n", func(r *rig) {
		c := r.modern()
		call := c.request("tools/call", meta(`{"name":"write_plan"}`))
		k := r.up.next()
		if strings.Contains(string(k.m.Raw), "elicitation") {
			t.Errorf("offered: %s", k.m.Raw)
		}
		k.result(`{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{}}}}`)
		has(t, call.wait(), "upstream_unavailable", "does not let it")
		has(t, r.modernCall(c, "write_plan", `{"content":[]}`), "State is now 'review'")
	}, modernUpstream)
}

// A legacy upstream sends the user to a URL by an error that the modern era has not.
func TestURLElicitationInTheModernEra(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.modern()
		const fault = `{"code":-32042,"message":"visit","data":{"elicitations":[{"mode":"url","url":"https://a/","elicitationId":"e","message":"m"}]}}`
		able := strings.Replace(meta(`{"name":"write_plan"}`), `{"elicitation":{}}`, `{"elicitation":{"url":{}}}`, 1)
		call := c.request("tools/call", able)
		r.up.next().failure(fault)
		has(t, call.wait(), `"resultType":"input_required"`, `"method":"elicitation/create","params":{"mode":"url","url":"https://a/"`)
		back := c.request("tools/call", strings.Replace(able, `"name"`, `"inputResponses":{"url1":{"action":"accept"}},"name"`, 1))
		k := r.up.next()
		if strings.Contains(string(k.m.Raw), "inputResponses") {
			t.Errorf("a legacy upstream got %s", k.m.Raw)
		}
		k.result(`{"content":[]}`)
		has(t, back.wait(), "State is now 'review'")
		call = c.request("tools/call", meta(`{"name":"ask"}`))
		r.up.next().failure(fault)
		has(t, call.wait(), "-32603")
	})
}

// What the policy has come to forbid while its client was away is not asked any more.
func TestInputIsForbiddenWhileTheClientIsAway(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.modern()
		k, answer := r.elicited(c, "status")
		keys, state := required(t, answer)
		k.conn.says(strings.Replace(elicit, `"id":7`, `"id":8`, 1), k)
		synctest.Wait()
		r.p.Reload(parse(t, review+"upstream_may: []\n"))
		back := c.comeBack("status", keys[0], state, `{"action":"accept"}`)
		synctest.Wait()
		has(t, strings.Join(k.conn.notified(), ""), `"id":8,"error":{"code":-32601`)
		k.result(`{"content":[]}`)
		has(t, back.wait(), `"complete"`)
	})
}

// elsewhere is a requestState as another process has given it out.
const elsewhere = "fsm1.ABCDEFGHIJKLM.ABCDEFGHIJKLMNOPQRSTUVWXYZ"

// What a client is told that comes back to a call of which only another process knows, has the form of its request; nothing
// of that is sent.
func TestAskedByAnotherProcess(t *testing.T) {
	const back = `,"inputResponses":{"7":{"action":"accept"}},"requestState":"` + elsewhere + `"}`
	bubble(t, review, func(r *rig) {
		c := r.modern()
		said := c.refused(c.comeBack("write_plan", "7", elsewhere, `{"action":"accept"}`).wait(), policy.OutcomeUnknown)
		has(t, said.Message, "Tool 'write_plan' does not go on", "restarted", "may have happened", "State is now 'planning'", "Allowed now: ")
		equal(t, "state", said.State, "planning")
		has(t, c.ask("resources/read", meta(`{"uri":"file:///plan"`+back)), "-32603", "outcome_unknown", "Resource 'file:///plan'")
		has(t, c.ask("prompts/get", meta(`{"name":"any"`+back)), "-32603", "outcome_unknown", "Prompt 'any'")
		for _, other := range []string{elsewhere + "A", "fsm1.ABCDEFGHIJKLM", "fsm1..ABCDEFGHIJKLMNOPQRSTUVWXYZ"} {
			has(t, c.comeBack("write_plan", "7", other, `{"action":"accept"}`).wait(), "-32602", "may have happened", "without requestState")
		}
		r.p.SetMode(runs.Shadow)
		has(t, c.comeBack("write_plan", "7", elsewhere, `{"action":"accept"}`).wait(), "outcome_unknown", "may have happened")
		equal(t, "calls that reached the upstream", r.up.count("tools/call write_plan"), 0)
		r.p.SetMode(runs.Enforce)
		k, answer := r.elicited(c, "write_plan") // which nothing of that has kept from going
		keys, state := required(t, answer)
		last := c.comeBack("write_plan", keys[0], state, `{"action":"accept"}`)
		k.result(`{"content":[]}`)
		has(t, last.wait(), `"complete"`)
		r.idle()
	})
	bubble(t, review, func(r *rig) {
		answer := r.modern().comeBack("write_plan", "7", elsewhere, `{"action":"accept"}`).wait()
		has(t, answer, "outcome_unknown", "may have happened")
		if strings.Contains(answer, "planning") {
			t.Errorf("an opaque refusal tells the state: %s", answer)
		}
	}, with(func(c *proxy.Config) { c.Refusals = refusal.Opaque }))
}
