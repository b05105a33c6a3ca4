package mcptest

import (
	"context"
	"net/http"
	"strings"
	"testing"
)

func TestMain(m *testing.M) {
	Main(m, Servers{
		"failing":    Failing(),
		ScriptedName: Scripted(),
		"stubborn":   {Handle: Failing().Handle, Stubborn: true},
		"modern":     {Handle: Failing().Handle, Modern: true},
	})
}

// bothWays runs a test with the raw client on a raw upstream, over stdio and over HTTP.
func bothWays(t *testing.T, run func(t *testing.T, s *Session, u *Upstream)) {
	t.Run("stdio", func(t *testing.T) {
		u := Stdio(t, "failing")
		s, _ := Dial(t, u.Command()...)
		s.Initialize()
		run(t, s, u)
	})
	t.Run("http", func(t *testing.T) {
		u, url := HTTP(t, Failing())
		s, web := DialWeb(t, url)
		s.Initialize()
		web.Listen()
		run(t, s, u)
	})
}

func TestRawCallIsAnsweredAndCounted(t *testing.T) {
	bothWays(t, func(t *testing.T, s *Session, u *Upstream) {
		answer := s.Tool("ok", `{"a":1}`)
		if string(answer.Result) != Text("ok") {
			t.Errorf("got %s", answer)
		}
		if n := u.Count("tools/call", "ok"); n != 1 {
			t.Errorf("%d calls were counted", n)
		}
		u.Await(t, 1, "notifications/initialized")
	})
}

func TestRawProgressComesBeforeTheAnswer(t *testing.T) {
	bothWays(t, func(t *testing.T, s *Session, u *Upstream) {
		id := s.Request("tools/call", `{"name":"progress","_meta":{"progressToken":"p"}}`)
		answer, before := s.Answer(id)
		if len(before) != 3 || before[2].Method != "notifications/progress" {
			t.Errorf("%d messages came before %s", len(before), answer)
		}
	})
}

func TestRawUpstreamAsksTheClient(t *testing.T) {
	bothWays(t, func(t *testing.T, s *Session, u *Upstream) {
		id := s.Request("tools/call", ToolParams("elicit", ""))
		question := s.Next()
		if question.Method != "elicitation/create" {
			t.Fatalf("got %s", question)
		}
		s.Send(Result(question.ID, `{"action":"decline"}`))
		if answer, _ := s.Answer(id); !strings.Contains(answer.String(), "decline") {
			t.Errorf("got %s", answer)
		}
	})
}

func TestRawGateHoldsAnAnswerBack(t *testing.T) {
	bothWays(t, func(t *testing.T, s *Session, u *Upstream) {
		late := s.Request("tools/call", ToolParams("late", ""))
		u.Await(t, 1, "tools/call", "late")
		s.Tool("ok", "")
		u.Open("late")
		if answer, _ := s.Answer(late); string(answer.Result) != Text("late") {
			t.Errorf("got %s", answer)
		}
	})
}

func TestRawDoubleAndForeignAnswers(t *testing.T) {
	bothWays(t, func(t *testing.T, s *Session, u *Upstream) {
		s.Answer(s.Request("tools/call", ToolParams("twice", "")))
		if second := s.Next(); string(second.Result) != Text("second") {
			t.Errorf("got %s", second)
		}
		id := s.Request("tools/call", ToolParams("wrong_id", ""))
		if foreign := s.Next(); string(foreign.ID) != `"nobody asked"` {
			t.Errorf("got %s", foreign)
		}
		u.Open("right")
		if answer, _ := s.Answer(id); string(answer.Result) != Text("for you") {
			t.Errorf("got %s", answer)
		}
	})
}

func TestRawProcessDies(t *testing.T) {
	u := Stdio(t, "failing")
	s, p := Dial(t, u.Command()...)
	s.Initialize()
	s.Request("tools/call", ToolParams("die", ""))
	if code := p.ExitCode(); code != 3 {
		t.Errorf("exit code %d", code)
	}
	u.AwaitLive(t, 0)
}

func TestRawProcessMakesNoiseAndFloods(t *testing.T) {
	u := Stdio(t, "failing")
	s, p := Dial(t, u.Command()...)
	s.Initialize()
	_, before := s.Answer(s.Request("tools/call", ToolParams("noise", "")))
	if len(before) != 1 || before[0].String() != "listening on port 3000" {
		t.Errorf("got %v", before)
	}
	s.Answer(s.Request("tools/call", ToolParams("flood", "")))
	p.Log().Await(t, strings.Repeat("a line of noise\n", 1<<16))
}

func TestRawProcessHasChildren(t *testing.T) {
	u := Stdio(t, "stubborn")
	s, p := Dial(t, u.Command()...)
	s.Initialize()
	s.Tool("children", "")
	u.AwaitLive(t, 2)
	p.stdin.Close()
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	u.AwaitLive(t, 1) // nobody has ended the child, which is what the proxy must do
	u.Open(endGate)
	u.AwaitLive(t, 0)
}

func TestRawHTTPFailures(t *testing.T) {
	_, url := HTTP(t, Failing())
	s, web := DialWeb(t, url)
	s.Initialize()
	for name, status := range map[string]int{"status_202": 202, "status_404": 404, "status_500": 500} {
		if r := web.Post(context.Background(), Request(9, "tools/call", ToolParams(name, ""))); r.Status != status {
			t.Errorf("%s was answered with %d", name, r.Status)
		}
	}
	if r := web.Post(context.Background(), Request(10, "tools/call", ToolParams("truncate", ""))); r.Err == nil {
		t.Errorf("the truncated answer was read whole: %s", r.Body)
	}
	if r := web.Post(context.Background(), Request(11, "tools/call", ToolParams("die", ""))); r.Err == nil || r.Status != 0 {
		t.Errorf("the dropped connection answered %d", r.Status)
	}
	if status := web.Delete(); status != http.StatusNoContent {
		t.Errorf("DELETE was answered with %d", status)
	}
}

func TestRawHTTPAnnouncesOnTheGetStream(t *testing.T) {
	server := Script{Tools: map[string]func(*Exchange){"change": func(e *Exchange) {
		e.Announce(Notification("notifications/tools/list_changed", ""))
		e.Result(Text("changed"))
	}}}.Server()
	_, url := HTTP(t, server)
	s, web := DialWeb(t, url)
	s.Initialize()
	s.Answer(s.Request("tools/call", ToolParams("change", "")))
	web.Listen()
	if m := s.Next(); m.Method != "notifications/tools/list_changed" {
		t.Errorf("got %s", m)
	}
}
