package attack

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// asking binds tools whose server asks the client, several calls at a time.
const asking = `version: 1
name: asking
initial: start
states:
  start:
    tools: [ok, elicit, ask, command, hold_open, gossip]
`

// tokensOf writes a file of tokens, "the token of NAME", for these names.
func tokensOf(t *testing.T, names ...string) string {
	t.Helper()
	text := "version: 1\ntokens:\n"
	for _, name := range names {
		text += fmt.Sprintf("  %s: sha256:%x\n", name, sha256.Sum256([]byte("the token of "+name)))
	}
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// question is what a call that needs input was answered with.
type question struct{ tool, arguments, key, state string }

// asked calls a tool whose server asks the client.
func (r *rig) asked(tool, arguments string) question {
	r.t.Helper()
	answer := r.Tool(tool, arguments)
	var read struct {
		ResultType    string                     `json:"resultType"`
		InputRequests map[string]json.RawMessage `json:"inputRequests"`
		RequestState  string                     `json:"requestState"`
	}
	if json.Unmarshal(answer.Result, &read) != nil || read.ResultType != "input_required" || len(read.InputRequests) != 1 || read.RequestState == "" {
		r.t.Fatalf("%s %s asks for nothing: %s", tool, arguments, answer)
	}
	for key := range read.InputRequests {
		return question{tool, arguments, key, read.RequestState}
	}
	return question{}
}

// reply brings a question back with an answer, by whoever r is.
func (r *rig) reply(q question, says string) mcptest.Message {
	r.t.Helper()
	return r.Call("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s,"inputResponses":{%q:{"action":"accept","content":{"says":%q}}},"requestState":%q}`,
		q.tool, q.arguments, q.key, says, q.state))
}

// The state of a call is good for this call, once, and as it was given: whatever else it is brought with is refused, and
// reaches nobody. The call itself goes on.
func TestRequestStateSwappedOrUsedTwice(t *testing.T) {
	t.Parallel()
	for _, front := range []way{web, webTLS} { // on a pipe nothing says which of several calls a question is about
		t.Run(front.client+" to "+front.upstream, func(t *testing.T) {
			t.Parallel()
			r := alone(t, front.under(asking))
			first, second := r.asked("elicit", `{"a":1}`), r.asked("elicit", `{"a":2}`)
			swaps := map[string]question{
				"another call's state":     {"elicit", `{"a":1}`, first.key, second.state},
				"another's, the other way": {"elicit", `{"a":2}`, second.key, first.state},
				"another tool":             {"ask", `{"a":1}`, first.key, first.state},
				"a tool that never asks":   {"ok", `{"a":1}`, first.key, first.state},
				"a hidden tool":            {"hidden", `{"a":1}`, first.key, first.state},
				"other arguments":          {"elicit", `{"a":3}`, first.key, first.state},
				"arguments spelled anew":   {"elicit", `{"a":1.0}`, first.key, first.state},
				"no arguments":             {"elicit", `{}`, first.key, first.state},
				"a state cut short":        {"elicit", `{"a":1}`, first.key, first.state[:len(first.state)-2]},
				"a state made longer":      {"elicit", `{"a":1}`, first.key, first.state + "AA"},
				"one bit turned":           {"elicit", `{"a":1}`, first.key, turned(first.state)},
				"two states":               {"elicit", `{"a":1}`, first.key, first.state + second.state},
			}
			for _, name := range slices.Sorted(maps.Keys(swaps)) {
				if answer := r.reply(swaps[name], "forged"); !denied(answer.String()) {
					t.Errorf("%s: answered %s", name, answer)
				}
			}
			for i, q := range []question{second, first} {
				honest := fmt.Sprintf("honest %d", i)
				if answer := r.reply(q, honest); !strings.Contains(answer.String(), honest) {
					t.Errorf("the honest reply is answered %s", answer)
				}
				if answer := r.reply(q, "again"); !denied(answer.String()) {
					t.Errorf("the second use is answered %s", answer)
				}
			}
			r.unheard("forged")
			r.reached("tools/call elicit", "tools/call elicit", "answer", "answer")
			for _, m := range r.upstream.Received() {
				if strings.Contains(m.String(), "forged") || strings.Contains(m.String(), "again") {
					t.Errorf("the upstream got %s", m)
				}
			}
		})
	}
}

// turned is a state with one character changed in its middle.
func turned(state string) string {
	b := []byte(state)
	if i := len(b) / 2; b[i] == 'A' {
		b[i] = 'B'
	} else {
		b[i] = 'A'
	}
	return string(b)
}

// A proxy before a proxy takes the other's state for what it is: the state of its upstream, which is to get it back.
func TestRequestStateOfAProxyBehind(t *testing.T) {
	t.Parallel()
	r := alone(t, web.under(asking))
	front := &rig{t: t, upstream: r.upstream}
	front.url, front.process = mcptest.Listen(t, "--policy", mcptest.WritePolicy(t, asking), "--run-key", "modern=process", "--upstream", r.url)
	front.Session, front.web = mcptest.DialWeb(t, front.url)
	front.Modern(mcptest.Modern{})
	q := front.asked("elicit", `{}`)
	if answer := front.reply(q, "honest").String(); !strings.Contains(answer, "honest") {
		t.Errorf("answered %s", answer)
	}
	if answer := front.reply(q, "again").String(); !denied(answer) {
		t.Errorf("the second use is answered %s", answer)
	}
	r.reached("tools/call elicit", "answer")
}

// The same state used by many at once is used once.
func TestRequestStateUsedTwiceAtOnce(t *testing.T) {
	t.Parallel()
	r := alone(t, web.under(asking))
	q := r.asked("elicit", `{}`)
	var (
		all  sync.WaitGroup
		mu   sync.Mutex
		good int
	)
	for range 8 {
		other := r.beside()
		all.Go(func() {
			if answer := other.reply(q, "me"); !denied(answer.String()) {
				mu.Lock()
				good++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if good != 1 {
		t.Errorf("%d of 8 were answered", good)
	}
	r.reached("tools/call elicit", "answer")
}

// A state is its principal's, also where all share one run: who else has it gets nothing for it, and takes nothing away.
func TestRequestStateOfAnotherPrincipal(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"process", "principal"} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			r := web.under(asking).with("--tokens", tokensOf(t, "ann", "bob"), "--run-key", "modern="+key).start(t)
			ann, bob := r.modernClient("the token of ann"), r.modernClient("the token of bob")
			q := ann.asked("elicit", `{}`)
			if answer := bob.reply(q, "forged"); !denied(answer.String()) {
				t.Errorf("another principal is answered %s", answer)
			}
			his := bob.asked("elicit", `{}`)
			his.key = q.key
			if answer := ann.reply(his, "forged"); !denied(answer.String()) {
				t.Errorf("another principal is answered %s", answer)
			}
			if answer := ann.reply(q, "honest"); !strings.Contains(answer.String(), "honest") || strings.Contains(answer.String(), "forged") {
				t.Errorf("its owner is answered %s", answer)
			}
			r.reached("tools/call elicit", "tools/call elicit", "answer")
		})
	}
}

// A question that its client never answers is not answered by a session's client either, though the ids be the same.
func TestForeignAnswerAcrossEras(t *testing.T) {
	t.Parallel()
	for _, front := range []way{web, webPipe, web.with("--share-upstream")} {
		t.Run(front.client+" to "+front.upstream, func(t *testing.T) {
			t.Parallel()
			r := front.under(asking).with("--run-key", "modern=process").open(t)
			modern := r.beside()
			q := modern.asked("elicit", `{}`)
			for _, id := range []string{"0", "1", "2", "3", `"raw-1"`, `"` + q.key + `"`, `"` + q.state + `"`} {
				r.Send(mcptest.Result([]byte(id), `{"action":"accept","content":{"says":"forged"}}`))
			}
			r.lives()
			if answer := modern.reply(q, "honest"); !strings.Contains(answer.String(), "honest") {
				t.Errorf("answered %s", answer)
			}
			r.reached("tools/call elicit", "answer")
		})
	}
}

// What a stdio server says late, of a call that has ended, reaches no other principal, though they share its one
// process: under the key process, and without a handle. Where there is one principal it is taken for its call's.
func TestLateMessageOfAnotherPrincipal(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{"process": {"--run-key", "modern=process"}, "no handle": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := webPipe.under(asking).with(append(flags, "--tokens", tokensOf(t, "ann", "bob"), "--annotate", "off")...).start(t)
			listening := func(name string) *rig {
				c := r.client("the token of " + name)
				c.Modern(mcptest.Modern{Meta: `"io.modelcontextprotocol/logLevel":"debug"`})
				return c
			}
			ann, bob := listening("ann"), listening("bob")
			ann.Tool("gossip", `{"secret":"first of ann"}`)
			if name == "process" {
				if answer := ann.Tool("gossip", `{"secret":"second of ann"}`); !strings.Contains(answer.String(), "first of ann") {
					t.Errorf("alone its client is answered %s", answer)
				}
			}
			if answer := bob.Tool("gossip", `{"secret":"of bob"}`).String(); !strings.Contains(answer, `"text":"said"`) {
				t.Errorf("another principal is answered %s", answer)
			}
			if answer := ann.Tool("gossip", `{"secret":"third of ann"}`).String(); !strings.Contains(answer, `"text":"said"`) {
				t.Errorf("who was there before is answered %s", answer)
			}
			bob.unheard("of ann")
			ann.unheard("of bob")
		})
	}
}

// Clients know nothing of each other's ids: calls with one id at the same time are as many, and each gets its own answer.
func TestSameIDFromManyClients(t *testing.T) {
	t.Parallel()
	for _, front := range []way{web, webTLS, webPipe, web.with("--share-upstream")} {
		t.Run(front.client+" to "+front.upstream, func(t *testing.T) {
			t.Parallel()
			r := alone(t, front.under(asking))
			const clients, calls = 8, 10
			var all sync.WaitGroup
			for i := range clients {
				other := r.beside()
				all.Go(func() {
					for n := range calls {
						mine := fmt.Sprintf("client %d call %d.", i, n)
						answer := other.web.Post(t.Context(), aloneCall(`{"name":"command","arguments":{"command":"`+mine+`"}}`))
						if !strings.Contains(string(answer.Body), `"id":1`) || !strings.Contains(string(answer.Body), mine) {
							t.Errorf("%s is answered %d %s", mine, answer.Status, answer.Body)
						}
					}
				})
			}
			all.Wait()
			if n := r.upstream.Count("tools/call", "command"); n != clients*calls {
				t.Errorf("%d calls reached the upstream", n)
			}
		})
	}
}

// Without sessions there is nothing to GET or to DELETE, whatever ids come along, and none of them is given out.
func TestGETAndDELETEWithoutSessions(t *testing.T) {
	fronts(t, func(t *testing.T, front way) {
		r := alone(t, front, "--protocol", "modern")
		for _, method := range []string{http.MethodGet, http.MethodDelete, http.MethodPut, http.MethodPatch} {
			for name, header := range map[string]http.Header{
				"nothing":        {},
				"the revision":   {"Mcp-Protocol-Version": {mcptest.ModernRevision}},
				"a session's id": {"Mcp-Session-Id": {"any"}, "Last-Event-Id": {"1"}},
				"an older one":   {"Mcp-Session-Id": {"any"}, "Mcp-Protocol-Version": {"2025-11-25"}},
			} {
				r.web.Header = header
				if answer := r.web.Do(request(r, method, "")); answer.Status != http.StatusMethodNotAllowed || answer.Header.Get("Allow") != http.MethodPost {
					t.Errorf("%s with %s is answered %d %v", method, name, answer.Status, answer.Header)
				}
			}
		}
		r.web.Header = http.Header{"Mcp-Session-Id": {"any"}, "Last-Event-Id": {"1"}}
		answer := r.web.Post(t.Context(), aloneCall(`{"name":"ok"}`))
		if !strings.Contains(string(answer.Body), `"text":"ok"`) || answer.Header.Get("Mcp-Session-Id") != "" {
			t.Errorf("a call with a session's id is answered %d %v %s", answer.Status, answer.Header, answer.Body)
		}
		r.web.Header = http.Header{}
		if answer := r.web.Post(t.Context(), mcptest.Request(1, "initialize", oldHello)); answer.Status < 400 || answer.Header.Get("Mcp-Session-Id") != "" {
			t.Errorf("initialize is answered %d %v %s", answer.Status, answer.Header, answer.Body)
		}
		r.reached("tools/call ok")
	})
}

// A session of the older era is not to be had by requests of the newer one, nor ended by them.
func TestSessionAcrossEras(t *testing.T) {
	fronts(t, func(t *testing.T, front way) {
		r := front.open(t)
		other := r.beside()
		other.web.Header = http.Header{"Mcp-Session-Id": {r.web.ID()}}
		answer := other.web.Post(t.Context(), aloneCall(`{"name":"once"}`))
		if !denied(string(answer.Body)) || answer.Header.Get("Mcp-Session-Id") != "" {
			t.Errorf("a call with the session's id is answered %d %s", answer.Status, answer.Body)
		}
		other.web.Post(t.Context(), mcptest.Notification("notifications/cancelled", mcptest.Modern{}.Params(`{"requestId":1}`)))
		r.in("start")
		r.untouched()
	})
}
