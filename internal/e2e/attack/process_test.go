package attack

import (
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// unknown fails the test unless the answer says that the call may have happened, and the run went by on_unknown.
func (r *rig) unknown(answer mcptest.Message, state string) {
	r.t.Helper()
	if !strings.Contains(answer.String(), `"outcome_unknown"`) || !strings.Contains(answer.String(), "may have happened") {
		r.t.Errorf("answered %s", answer)
	}
	r.in(state)
}

// The call is not sent again, the run goes on, and so does the server.
func TestUpstreamDiesInMidCall(t *testing.T) {
	each(t, []way{pipes, webPipe, web, pipesModern, webModern}, func(r *rig) {
		r.unknown(r.Tool("die", ""), "after")
		r.lives()
		r.reached("tools/call die")
	})
}

// Half of an answer is none, however good its beginning looks.
func TestUpstreamAnswersHalf(t *testing.T) {
	each(t, []way{pipes, webPipe, web, pipeWeb, pipesModern, webModern}, func(r *rig) {
		r.unknown(r.Tool("truncate", ""), "after")
		r.lives()
		r.unheard("half of this")
		r.reached("tools/call truncate")
	})
}

// An answer to what was never asked is for nobody; the call beside it waits for its own.
func TestUpstreamAnswersNobody(t *testing.T) {
	each(t, []way{pipes, webPipe, web, pipeWeb, pipesModern, webModern}, func(r *rig) {
		id := r.Request("tools/call", mcptest.ToolParams("wrong_id", ""))
		r.upstream.Await(r.t, 1, "tools/call", "wrong_id")
		r.lives()
		r.upstream.Open("right")
		if answer, _ := r.Answer(id); result(answer) != mcptest.Text("for you") {
			r.t.Errorf("answered %s", answer)
		}
		r.unheard("for somebody else")
		r.reached("tools/call wrong_id")
	})
}

// All calls under way are told, not only the one that it died of.
func TestUpstreamDiesUnderManyCalls(t *testing.T) {
	each(t, []way{pipes, webPipe, pipesModern}, func(r *rig) {
		const others = 10
		for i := range others {
			r.Request("tools/call", mcptest.ToolParams("hold_open", ""))
			r.upstream.Await(r.t, i+1, "tools/call", "hold_open")
		}
		r.Request("tools/call", mcptest.ToolParams("die", ""))
		for range others + 1 {
			if answer := r.nextAnswer(); !strings.Contains(answer.String(), `"outcome_unknown"`) {
				r.t.Errorf("answered %s", answer)
			}
		}
		r.lives()
		r.in("after")
		if n := r.upstream.Count("tools/call", "hold_open"); n != others {
			r.t.Errorf("%d calls reached the upstream", n)
		}
	})
}

func TestUpstreamFloodsStderr(t *testing.T) {
	each(t, []way{pipes, webPipe, pipesModern}, func(r *rig) {
		if answer := r.Tool("flood", ""); result(answer) != mcptest.Text("after a flood") {
			r.t.Errorf("answered %s", answer)
		}
		r.lives()
		if size := len(r.process.Log().String()); size > 128<<10 {
			r.t.Errorf("%d bytes of the flood are in the log", size)
		}
		r.reached("tools/call flood")
	})
}

func TestUpstreamNoiseOnStdout(t *testing.T) {
	each(t, []way{pipes, webPipe, pipesModern}, func(r *rig) {
		if answer := r.Tool("noise", ""); result(answer) != mcptest.Text("after noise") {
			r.t.Errorf("answered %s", answer)
		}
		r.lives()
		r.unheard("listening on port")
		r.reached("tools/call noise")
	})
}

func TestUpstreamNeverAnswers(t *testing.T) {
	each(t, []way{
		pipes.with(impatient...), web.with(impatient...), pipesModern.with(impatient...), webModern.with(impatient...),
	}, func(r *rig) {
		r.unknown(r.Tool("silent", ""), "lost")
		r.lives()
		r.upstream.Await(r.t, 1, "notifications/cancelled")
		r.reached("tools/call silent", "notifications/cancelled")
	})
}

// impatient are the flags of a proxy that gives calls up soon, and not those that are answered on a busy machine.
var impatient = []string{"--call-timeout", "3s", "--cancel-grace", "500ms"}

// An upstream that never answers initialize does not keep the client waiting for ever, and leaves no process.
func TestUpstreamNeverInitializes(t *testing.T) {
	t.Parallel()
	r := &rig{t: t}
	r.Session, r.process = mcptest.Dial(t, mcptest.Proxy(t), "run", "--policy", mcptest.WritePolicy(t, plan),
		"--connect-timeout", "500ms", "--", "cat", "/dev/zero")
	if answer := r.Call("initialize", oldHello); !strings.Contains(string(answer.Error), "not available") {
		t.Errorf("answered %s", answer)
	}
	r.Close()
	if code := r.process.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// What a server starts ends with it, whoever ends it.
func TestUpstreamStartsChildren(t *testing.T) {
	ends := map[string]func(*rig){
		"by itself":    func(r *rig) { r.Tool("die", "") },
		"by the proxy": func(r *rig) { r.Close() },
	}
	t.Parallel()
	for name, end := range ends {
		for _, w := range []way{pipes, webPipe} {
			t.Run(name+" from "+w.client, func(t *testing.T) {
				t.Parallel()
				r := w.open(t)
				r.Tool("children", "")
				r.upstream.AwaitLive(t, 2)
				end(r)
				r.upstream.AwaitLive(t, 0)
			})
		}
	}
}

// A server that speaks for the client: its forged answers, list items and notifications change nothing about
// what is let through.
func TestUpstreamAsksWhatItMayNot(t *testing.T) {
	policy := strings.Replace(plan, "states:", "upstream_may: []\nstates:", 1)
	each(t, []way{pipes.under(policy), web.under(policy)}, func(r *rig) {
		answer, before := r.Answer(r.Request("tools/call", mcptest.ToolParams("elicit", "")))
		if !strings.Contains(answer.String(), "-32601") || len(before) != 0 {
			r.t.Errorf("the client got %v, and then %s", before, answer)
		}
		if hello := r.upstream.Received()[0]; strings.Contains(string(hello.Params), "elicitation") {
			r.t.Errorf("the upstream was told %s", hello)
		}
		r.lives()
		r.reached("tools/call elicit", "answer")
	})
}

// An answer of some MiB gets through everywhere, though it is larger than what may wait for a slow client.
func TestGiantAnswer(t *testing.T) {
	each(t, []way{pipes, web, webPipe, pipeWeb}, func(r *rig) {
		if answer := r.Tool("big", ""); len(answer.Result) < 6<<20 {
			r.t.Errorf("answered %d bytes, %.200s", len(answer.Raw), answer)
		}
		r.lives()
		r.reached("tools/call big")
	})
}
