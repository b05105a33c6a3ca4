package attack

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// Rounds: a client with a session, whose server is of the era without, is asked by requests, and its call is sent again
// with what it says. Whatever happens in between holds for the call that is sent again.

// roundsPlan binds elicit without the turn at the start, with it in a state behind, and nowhere else.
const roundsPlan = `version: 1
name: rounds
initial: start
states:
  start: {tools: {elicit: , ok: , once: after, hold: behind, command: {by: command, cases: {move: behind}}}}
  behind: {tools: {ok: , elicit: {on_success: end}, hold: {exclusive: true}}}
  after: {tools: [ok]}
  end: {tools: [ok]}
`

var modernWays = []way{webModern, pipesModern}

// elicits calls the tool that asks its client, and returns the call's id and the question.
func (r *rig) elicits() (id int, question mcptest.Message) {
	r.t.Helper()
	id = r.Request("tools/call", mcptest.ToolParams("elicit", ""))
	return id, r.isAsked()
}

// isAsked is what the client is asked next.
func (r *rig) isAsked() mcptest.Message {
	r.t.Helper()
	for {
		switch m := r.Next(); {
		case m.Method == "elicitation/create":
			return m
		case m.IsResponse():
			r.t.Fatalf("the client is not asked, but answered %s", m)
		}
	}
}

// accepts answers a question, and returns what the call is answered with then.
func (r *rig) accepts(id int, question mcptest.Message) string {
	r.t.Helper()
	r.Send(mcptest.Result(question.ID, `{"action":"accept","content":{"yes":true}}`))
	answer, _ := r.Answer(id)
	return answer.String()
}

// follows replaces the policy, once, and waits until the proxy has.
func (r *rig) follows(policy string) {
	r.t.Helper()
	next := filepath.Join(filepath.Dir(r.policy), "next")
	if err := os.WriteFile(next, []byte(policy), 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(next, r.policy); err != nil {
		r.t.Fatal(err)
	}
	r.process.Log().Await(r.t, "the policy was reloaded")
}

func TestRoundGoesOn(t *testing.T) {
	each(t, underPolicy(roundsPlan), func(r *rig) {
		id, question := r.elicits()
		if answer := r.accepts(id, question); !strings.Contains(answer, "the client says") || !strings.Contains(answer, "accept") {
			r.t.Errorf("answered %s", answer)
		}
		r.reached("tools/call elicit", "tools/call elicit")
		r.in("start")
	})
}

// A call that only stays is not sent again once the state has taken it away.
func TestRoundIsDecidedAnew(t *testing.T) {
	each(t, underPolicy(roundsPlan), func(r *rig) {
		id, question := r.elicits()
		r.Tool("once", "")
		if answer := r.accepts(id, question); !strings.Contains(answer, "invalid_transition") || !strings.Contains(answer, `"state":"after"`) {
			r.t.Errorf("answered %s", answer)
		}
		r.reached("tools/call elicit", "tools/call once")
	})
}

// A call that has come to lead on takes the turn, and waits for it if need be.
func TestRoundTakesTheTurn(t *testing.T) {
	each(t, underPolicy(roundsPlan), func(r *rig) {
		id, question := r.elicits()
		r.Tool("command", `{"command":"move"}`)
		if answer := r.accepts(id, question); !strings.Contains(answer, "accept") {
			r.t.Errorf("answered %s", answer)
		}
		r.in("end")
		r.reached("tools/call elicit", "tools/call command", "tools/call elicit")
	})
}

func TestRoundWaitsForTheTurn(t *testing.T) {
	each(t, underPolicy(roundsPlan), func(r *rig) {
		id, question := r.elicits()
		r.Tool("command", `{"command":"move"}`)
		holder := r.Request("tools/call", mcptest.ToolParams("hold", ""))
		r.upstream.Await(r.t, 1, "tools/call", "hold")
		r.Send(mcptest.Result(question.ID, `{"action":"accept","content":{"yes":true}}`))
		r.lives()
		r.reached("tools/call elicit", "tools/call command", "tools/call hold")
		r.upstream.Open("hold")
		r.answers(holder, id) // over HTTP the second may come first: it has the turn once the first one's outcome is known
		r.in("end")
	})
}

// While a call has the turn the state waits for it, but the policy in force has to bind its name still: else it is not
// sent again, there is no outcome, and the turn goes on.
func TestRoundUnderATighterPolicy(t *testing.T) {
	held := strings.Replace(roundsPlan, "elicit: ,", "elicit: {on_any: end},", 1)
	for name, c := range map[string]struct{ before, after, want, state string }{
		"the turn, unbound":        {held, strings.NewReplacer("elicit: {on_any: end}, ", "", "elicit: {on_success: end}, ", "").Replace(held), "unknown_action", "start"},
		"the turn, bound anywhere": {held, strings.Replace(held, "elicit: {on_any: end}, ", "", 1), "accept", "end"},
		"a stay, unbound here":     {roundsPlan, strings.Replace(roundsPlan, "elicit: , ", "", 1), "invalid_transition", "start"},
		"the turn, kept":           {held, strings.Replace(held, "ok: , once", "ok: , sse: , once", 1), "accept", "end"},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, underPolicy(c.before), func(r *rig) {
				id, question := r.elicits()
				r.follows(c.after)
				if answer := r.accepts(id, question); !strings.Contains(answer, c.want) {
					r.t.Errorf("answered %s", answer)
				}
				r.in(c.state)
				sent := map[bool]int{true: 2, false: 1}[c.want == "accept"]
				if n := r.upstream.Count("tools/call", "elicit"); n != sent {
					r.t.Errorf("it was sent %d times", n)
				}
				if answer := r.Tool("once", ""); c.state == "start" && denied(answer.String()) {
					r.t.Errorf("the turn is not free: %s", answer)
				}
			})
		})
	}
}

// Whenever a client cancels a call that asks it, the call is not sent again, and the turn is free: while it is asked, with
// and without the turn, and while the call that is to be sent again waits for the turn.
func TestRoundIsCancelled(t *testing.T) {
	late := func(r *rig, question mcptest.Message) {
		r.Send(mcptest.Result(question.ID, `{"action":"accept","content":{"late":true}}`))
		r.lives()
	}
	for name, c := range map[string]struct {
		elicit string
		way    func(r *rig, id int, question mcptest.Message)
		want   []string
	}{
		"asked":    {"elicit: ,", func(r *rig, id int, q mcptest.Message) { r.cancels(id); late(r, q) }, []string{"tools/call elicit", "tools/call once"}},
		"the turn": {"elicit: {exclusive: true},", func(r *rig, id int, q mcptest.Message) { r.cancels(id); late(r, q) }, []string{"tools/call elicit", "tools/call once"}},
		"waits": {"elicit: ,", func(r *rig, id int, q mcptest.Message) {
			r.Tool("command", `{"command":"move"}`)
			holder := r.Request("tools/call", mcptest.ToolParams("hold", ""))
			r.upstream.Await(r.t, 1, "tools/call", "hold")
			late(r, q)
			r.cancels(id)
			r.lives()
			r.upstream.Open("hold")
			r.answers(holder)
		}, []string{"tools/call command", "tools/call elicit", "tools/call hold", "tools/call once"}},
	} {
		t.Run(name, func(t *testing.T) {
			policy := strings.Replace(strings.Replace(roundsPlan, "elicit: ,", c.elicit, 1), "behind: {tools: {", "behind: {tools: {once: after, ", 1)
			each(t, underPolicy(policy), func(r *rig) {
				id, question := r.elicits()
				c.way(r, id, question)
				for n := 0; r.upstream.Count("tools/call", "once") == 0; n++ {
					if answer := r.Tool("once", "").String(); denied(answer) && (n > 1000 || !strings.Contains(answer, `"busy"`)) {
						r.t.Fatalf("the turn is not free: %s", answer)
					}
				}
				r.in("after")
				r.reached(c.want...)
			})
		})
	}
}

// A server that never has enough is not asked for ever: after 64 rounds the call ends without an outcome.
func TestRoundsAreCounted(t *testing.T) {
	t.Parallel()
	r := says(t, false, true, answerPlan)
	answer := r.Call("tools/call", saying(`"result":{"resultType":"input_required","requestState":"s"}`, "", "")).String()
	if !strings.Contains(answer, "upstream_unavailable") || !strings.Contains(answer, "it asked its client too many times") {
		t.Errorf("answered %s", answer)
	}
	if n := r.upstream.Count("tools/call", "say"); n != 65 {
		t.Errorf("the call was sent %d times", n)
	}
	if answer := r.Tool("say", `{"answer":"\"result\":{\"content\":[]}"}`).String(); denied(answer) {
		t.Errorf("the turn is not free: %s", answer)
	}
}

// In shadow the call is sent again, and what would have been refused is told to the log alone.
func TestRoundInShadow(t *testing.T) {
	ways := underPolicy(roundsPlan)
	for i := range ways {
		ways[i] = ways[i].with("--mode", "shadow")
	}
	each(t, ways, func(r *rig) {
		id, question := r.elicits()
		r.Tool("once", "")
		if answer := r.accepts(id, question); !strings.Contains(answer, "accept") {
			r.t.Errorf("answered %s", answer)
		}
		r.process.Log().Await(r.t, "code=invalid_transition tool=elicit state=after")
	})
}

// underPolicy are the ways to a server of the era without sessions, under a policy.
func underPolicy(policy string) (ways []way) {
	for _, w := range modernWays {
		ways = append(ways, w.under(policy))
	}
	return ways
}

// A client that never answers holds up nobody for longer than --ask-timeout: what the server has asked is answered with an
// error in its place. Of a server of the era without sessions the call ends.
func TestQuestionThatIsNeverAnswered(t *testing.T) {
	var ways []way
	for _, w := range []way{pipes, web, webTLS, webPipe, pipesModern, webModern} {
		ways = append(ways, w.with("--ask-timeout", "300ms"))
	}
	each(t, ways, func(r *rig) {
		id, question := r.elicits()
		answer, _ := r.Answer(id)
		if text := answer.String(); !strings.Contains(text, "did not answer in time") || !denied(text) {
			r.t.Errorf("answered %s", text)
		}
		withdrawn := false
		for _, m := range r.Received() {
			withdrawn = withdrawn || m.Method == "notifications/cancelled" && strings.Contains(string(m.Params), `"requestId":`+string(question.ID)+`,`)
		}
		if !withdrawn {
			r.t.Error("the question was not taken back")
		}
		r.Send(mcptest.Result(question.ID, `{"action":"accept","content":{"late":true}}`))
		r.Tool("once", "")
		r.in("after")
		for _, m := range r.upstream.Received() {
			if strings.Contains(m.String(), `"late"`) {
				r.t.Errorf("the late answer reached the server: %s", m)
			}
		}
		if n := r.upstream.Count("tools/call", "elicit"); n != 1 {
			r.t.Errorf("elicit was sent %d times", n)
		}
	})
}

// Likewise a client without sessions that does not come back: the turn is free after --ask-timeout.
func TestClientWithoutSessionNeverComesBack(t *testing.T) {
	fronts(t, func(t *testing.T, front way) {
		r := alone(t, front, "--ask-timeout", "300ms", "--cancel-grace", "100ms")
		q := r.asked("elicit", `{}`)
		r.process.Log().Await(t, "did not come back in time")
		if answer := r.reply(q, "late"); !denied(answer.String()) {
			t.Errorf("the late reply is answered %s", answer)
		}
		for r.upstream.Count("tools/call", "once") == 0 {
			if answer := r.Tool("once", "").String(); denied(answer) && !strings.Contains(answer, `"busy"`) {
				t.Fatalf("the run is not free again: %s", answer)
			}
		}
	})
}

// A server that asks its client 400 things at once in one call, of which the client answers some, some too late and some
// never: each has one answer, the call ends, and the turn is free.
func TestManyQuestionsAtOnce(t *testing.T) {
	t.Parallel()
	const all = 400
	for _, modern := range []bool{false, true} {
		t.Run(map[bool]string{false: "legacy", true: "modern"}[modern], func(t *testing.T) {
			t.Parallel()
			var answers atomic.Int64
			plain := world()
			r := &rig{t: t}
			var url string
			r.upstream, url = mcptest.HTTP(t, mcptest.Server{Handle: func(e *mcptest.Exchange) {
				if e.Name != "ask" {
					plain.Handle(e)
					return
				}
				e.Async(func() {
					var asked sync.WaitGroup
					for range all {
						asked.Go(func() {
							e.Ask("elicitation/create", `{"message":"m","requestedSchema":{"type":"object","properties":{}}}`)
							answers.Add(1)
						})
					}
					asked.Wait()
					e.Result(mcptest.Text("enough"))
				})
			}})
			r.url, r.process = mcptest.Listen(t, "--policy", mcptest.WritePolicy(t, plan), "--upstream", url, "--run-key", "modern=process", "--ask-timeout", "200ms", "--call-timeout", "20s")
			r.Session, r.web = mcptest.DialWeb(t, r.url)
			if modern {
				r.Modern(mcptest.Modern{})
				r.answersSome(t)
			} else {
				r.Initialize()
				id, open := r.Request("tools/call", mcptest.ToolParams("ask", "")), []string(nil)
				for answered := false; !answered; {
					m := r.Next()
					switch {
					case m.Method == "elicitation/create" && len(open)%3 == 0:
						r.Send(mcptest.Result(m.ID, `{"action":"decline"}`))
						fallthrough
					case m.Method == "elicitation/create":
						open = append(open, string(m.ID))
					case string(m.ID) == strconv.Itoa(id) && m.IsResponse():
						answered = true
						if !strings.Contains(m.String(), "enough") {
							t.Errorf("answered %s", m)
						}
					}
				}
				for _, id := range open {
					r.Send(mcptest.Result([]byte(id), `{"action":"decline"}`))
				}
			}
			// A call that expired under a slow client is called off after that is said.
			mcptest.Await(t, "an answer to each question", func() bool { return answers.Load() == all })
			mcptest.Await(t, "a free turn", func() bool {
				answer := r.Tool("once", "").String()
				if denied(answer) && !strings.Contains(answer, `"busy"`) {
					t.Fatalf("the turn is not free: %s", answer)
				}
				return !denied(answer)
			})
		})
	}
}

// answersSome has a client without sessions answer every other thing that it is asked in a call, until that is answered,
// or it has come too late with what was asked.
func (r *rig) answersSome(t *testing.T) {
	t.Helper()
	more := ""
	for range 1000 {
		answer := r.Call("tools/call", `{"name":"ask","arguments":{}`+more+`}`)
		var read struct {
			InputRequests map[string]json.RawMessage
			RequestState  string
		}
		if err := json.Unmarshal(answer.Result, &read); err != nil || read.RequestState == "" {
			late := more != "" && strings.Contains(answer.String(), "has expired") // than --ask-timeout
			if !late && !strings.Contains(answer.String(), "enough") {
				t.Errorf("answered %s", answer)
			}
			return
		}
		responses := map[string]any{}
		for key := range read.InputRequests {
			if len(responses) <= len(read.InputRequests)/2 {
				responses[key] = map[string]string{"action": "decline"}
			}
		}
		said, _ := json.Marshal(responses)
		more = `,"requestState":"` + read.RequestState + `","inputResponses":` + string(said)
	}
	t.Error("it is asked for ever")
}
