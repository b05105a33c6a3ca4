package hostile

import (
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// unknown fails the test unless the answer says that the call may have happened, and the run went on to after.
func unknown(t *testing.T, r *rig, answer mcptest.Message) {
	t.Helper()
	if !strings.Contains(answer.String(), `"outcome_unknown"`) || !strings.Contains(answer.String(), "may have happened") {
		t.Errorf("answered %s", answer)
	}
	if next := r.Tool("refuse", ""); !strings.Contains(next.String(), "'after'") {
		t.Errorf("on_unknown did not lead to after: %s", next)
	}
}

func TestUpstreamDiesInMidCall(t *testing.T) {
	framings(t, func(t *testing.T, r *rig) {
		unknown(t, r, r.Tool("die", ""))
		r.lives(t)
		if n := r.upstream.Count("tools/call", "die"); n != 1 {
			t.Errorf("the call was sent %d times", n)
		}
		if n := r.upstream.Started(); n < 2 {
			t.Errorf("%d processes were started", n)
		}
	})
}

func TestUpstreamAnswersHalf(t *testing.T) {
	framings(t, func(t *testing.T, r *rig) { unknown(t, r, r.Tool("truncate", "")) })
}

func TestUpstreamNeverAnswers(t *testing.T) {
	framings(t, func(t *testing.T, r *rig) {
		unknown(t, r, r.Tool("silent", ""))
		r.lives(t)
	}, "--call-timeout", "300ms", "--cancel-grace", "100ms")
}

func TestUpstreamFloodsStderr(t *testing.T) {
	framings(t, func(t *testing.T, r *rig) {
		if answer := r.Tool("flood", ""); string(answer.Result) != mcptest.Text("after a flood") {
			t.Errorf("answered %s", answer)
		}
		if size := len(r.process.Log().String()); size > 256<<10 {
			t.Errorf("%d bytes of the flood are in the log", size)
		}
	})
}

func TestUpstreamWritesNoiseToStdout(t *testing.T) {
	framings(t, func(t *testing.T, r *rig) {
		if answer := r.Tool("noise", ""); string(answer.Result) != mcptest.Text("after noise") {
			t.Errorf("answered %s", answer)
		}
		r.lives(t)
		for _, m := range r.Received() {
			if strings.Contains(m.String(), "listening on port") {
				t.Errorf("the client got %s", m)
			}
		}
	})
}

// An upstream that answers nobody's request is not believed.
func TestAnswerToAnotherID(t *testing.T) {
	framings(t, func(t *testing.T, r *rig) {
		id := r.Request("tools/call", mcptest.ToolParams("wrong_id", ""))
		r.upstream.Await(t, 1, "tools/call", "wrong_id")
		r.lives(t)
		r.upstream.Open("right")
		if answer, _ := r.Answer(id); string(answer.Result) != mcptest.Text("for you") {
			t.Errorf("answered %s", answer)
		}
	})
}

// The process, its children, and what ignores every polite request end with the proxy.
func TestNothingOutlivesTheProxy(t *testing.T) {
	for _, server := range []string{"wrong", "stubborn"} {
		t.Run(server, func(t *testing.T) {
			r := onStdio(t, server)
			r.Tool("children", "")
			r.upstream.AwaitLive(t, 2)
			r.Close()
			r.upstream.AwaitLive(t, 0)
			if code := r.process.ExitCode(); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// A deleted session takes its process along.
func TestDeletedSessionEndsItsProcess(t *testing.T) {
	r := onHTTP(t)
	r.Tool("children", "")
	r.upstream.AwaitLive(t, 2)
	r.web.Delete()
	r.upstream.AwaitLive(t, 0)
}
