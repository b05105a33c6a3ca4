package attack

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

const atOnce = `version: 1
name: at-once
initial: start
registers: {n: counter, seen: {set: text, max: 10}, won: boolean}
states:
  start:
    tools:
      limited: {at_most: 3}
      counted: {when: registers.n < 3, set: {n: {add: 1}}}
      remembered: {set: {seen: {add: args.x}}}
      once: {when: '!has(registers.won)', set: {won: 'true'}}
      lost: {when: registers.n < 3, timeout: 1s, on_unknown: {to: start, set: {n: {add: 1}}}, exclusive: true}
      ok: stay
`

// Of however many calls at once exactly those are sent that a limit, a counter, a set
// or a flag has room for, and they are right when all have been answered.
func TestSixtyFourAtOnceThroughTheBinary(t *testing.T) {
	t.Parallel()
	for tool, want := range map[string]int{"limited": 3, "counted": 3, "remembered": 10, "once": 1} {
		for _, s := range speakers {
			t.Run(tool+" by "+s.String(), func(t *testing.T) {
				t.Parallel()
				tools := map[string]func(*mcptest.Exchange){"ok": nil, "limited": nil, "counted": nil, "remembered": nil, "once": nil}
				r := s.speaks(t, tools, atOnce)
				var ids []int
				for i := range 64 {
					ids = append(ids, r.Request("tools/call", mcptest.ToolParams(tool, fmt.Sprintf(`{"x":"%d"}`, i))))
				}
				sent := 0
				for _, answer := range r.answers(ids...) {
					switch {
					case strings.Contains(answer, `"text":"`+tool+`"`):
						sent++
					case !strings.Contains(answer, "limit_reached") && !strings.Contains(answer, "guard_failed"):
						t.Errorf("answered %s", answer)
					}
				}
				if n := r.upstream.Count("tools/call", tool); n != want || sent != want {
					t.Errorf("%d were sent and %d answered, want %d", n, sent, want)
				}
			})
		}
	}
}

// A counter that counts what is unknown, too, agrees with the guard that reads it: of calls that are given up on, or
// cancelled, no more are sent than it permits.
func TestCounterAndGuardUnderUnknownAndCancel(t *testing.T) {
	t.Parallel()
	for _, s := range speakers {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			r := s.speaks(t, map[string]func(*mcptest.Exchange){"ok": nil, "lost": func(e *mcptest.Exchange) { e.Async(e.Silent) }}, atOnce, "--cancel-grace", "50ms")
			var ids []int
			ask := func() { ids = append(ids, r.Request("tools/call", mcptest.ToolParams("lost", ""))) }
			if ask(); !s.modern {
				r.upstream.Await(t, 1, "tools/call", "lost") // before it is cancelled it has to be there
			}
			for range 7 {
				ask()
			}
			if !s.modern {
				r.Notify("notifications/cancelled", fmt.Sprintf(`{"requestId":%d}`, ids[0]))
				ids = ids[1:]
			}
			r.answers(ids...)
			if got := r.code("lost", ""); got != "guard_failed" {
				t.Errorf("another: %s", got)
			}
			if n := r.upstream.Count("tools/call", "lost"); n != 3 {
				t.Errorf("%d were sent, want 3", n)
			}
		})
	}
}

const namedAlike = `version: 1
name: alike
initial: start
use: {part: part.yaml}
states:
  start:
    tools:
      "*": stay
      go: {at_most: 1}
      a/draft: stay
    prompts: {go: stay, a/draft: stay}
    signals: {go: a, stay: stay}
  a: {part: part, exits: {"*": start}}
`

// A name is of its kind: what a tool, a prompt, a signal and a state have in common is nothing, slashes are characters, and
// what the server calls as the proxy calls its own tool is never reached.
func TestNamesOfSeveralKinds(t *testing.T) {
	t.Parallel()
	for _, s := range speakers {
		for _, surface := range []string{"dynamic", "static"} {
			t.Run(s.String()+", "+surface, func(t *testing.T) {
				t.Parallel()
				tools := map[string]func(*mcptest.Exchange){"go": nil, "a/draft": nil, "a/other": nil, "fsm_signal": nil, "stay": nil}
				r := &rig{t: t}
				var url string
				script := mcptest.Script{Tools: tools, Lists: map[string]string{"prompts/list": `{"prompts":[{"name":"go"},{"name":"a/draft"},{"name":"a/other"}]}`}}
				r.upstream, url = mcptest.HTTP(t, script.Server())
				policy := mcptest.WritePolicy(t, namedAlike)
				part := `{version: 1, name: part, initial: draft, states: {draft: {tools: {a/draft: second}}, second: {tools: {a/draft: draft}, signals: {back: draft}}}}`
				if err := os.WriteFile(filepath.Join(filepath.Dir(policy), "part.yaml"), []byte(part), 0o600); err != nil {
					t.Fatal(err)
				}
				args := []string{"--policy", policy, "--upstream", url, "--surface", surface}
				if s.client == "http" {
					r.url, r.process = mcptest.Listen(t, append(args, "--run-key", "modern=process")...)
					r.Session, r.web = mcptest.DialWeb(t, r.url)
				} else {
					r.Session, r.process = mcptest.Dial(t, append([]string{mcptest.Proxy(t), "run"}, args...)...)
				}
				if s.modern {
					r.Modern(mcptest.Modern{})
				} else {
					r.Initialize()
				}
				signal := func(name string) string { return r.Tool("fsm_signal", `{"name":"`+name+`"}`).String() }
				for _, tool := range []string{"go", "a/draft", "a/other", "stay"} {
					if got := r.code(tool, ""); got != "sent" {
						t.Errorf("the tool %s: %s", tool, got)
					}
				}
				if got := r.code("go", ""); got != "limit_reached" {
					t.Errorf("the tool go again: %s", got)
				}
				for _, no := range []string{"a/draft", "a/other", "a/draft/go", "*", ""} {
					if answer := signal(no); !denied(answer) {
						t.Errorf("the signal %q: %s", no, answer)
					}
				}
				if answer := r.Call("prompts/get", `{"name":"a/other"}`).String(); !denied(answer) {
					t.Errorf("a prompt that is not bound: %s", answer)
				}
				r.in("start")
				signal("stay")
				signal("go")
				r.in("a/draft")
				if answer := signal("go"); !denied(answer) {
					t.Errorf("a signal of another state: %s", answer)
				}
				r.code("a/draft", "")
				r.in("a/second")
				signal("back")
				r.in("a/draft")
				if got := r.code("a/other", ""); got == "sent" {
					t.Error("a tool of another state was sent")
				}
				if n := r.upstream.Count("tools/call", "fsm_signal"); n != 0 {
					t.Errorf("%d calls have reached the server's fsm_signal", n)
				}
			})
		}
	}
}

const anew = `version: 1
name: anew
initial: start
registers: {seen: {set: text, max: 1}, n: counter}
at_most: 9
states:
  start:
    tools:
      hold: {set: {seen: {add: args.x}, n: {add: 1}}, at_most: 1}
      ok: stay
      end: {on_success: {terminal: true}}
      used: {when: 'args.x in registers.seen || registers.n > 0'}
      fill: {set: {seen: {add: args.x}}}
`

// What a call of a run that is over would set or count is neither set nor counted in the one that began anew, nor does it
// take room there; its client gets the answer.
func TestCallOfARunThatBeganAnewSetsNothing(t *testing.T) {
	t.Parallel()
	for _, s := range speakers {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			hold := func(e *mcptest.Exchange) { e.Async(func() { e.Gate("hold"); e.Result(mcptest.Text("held")) }) }
			r := s.speaks(t, map[string]func(*mcptest.Exchange){"ok": nil, "hold": hold, "end": nil, "used": nil, "fill": nil}, anew)
			old := r.Request("tools/call", mcptest.ToolParams("hold", `{"x":"a"}`))
			r.upstream.Await(t, 1, "tools/call", "hold")
			for _, tool := range []string{"hold", "fill"} {
				if got := r.code(tool, `{"x":"b"}`); got != "limit_reached" {
					t.Errorf("%s beside it: %s", tool, got)
				}
			}
			if got := r.code("end", ""); got != "sent" {
				t.Fatal(got)
			}
			if got := r.code("fill", `{"x":"b"}`); got != "sent" {
				t.Errorf("the room of the run that is over is kept: %s", got)
			}
			r.upstream.Open("hold")
			if answer := r.answers(old)[old]; !strings.Contains(answer, `"text":"held"`) {
				t.Errorf("answered %s", answer)
			}
			if got := r.code("used", `{"x":"a"}`); got != "guard_failed" {
				t.Errorf("what it would set is there: %s", got)
			}
			if got := r.code("hold", `{"x":"b"}`); got != "sent" {
				t.Errorf("it is counted in the new run: %s", got)
			}
			if got := r.code("used", `{"x":"a"}`); got != "sent" {
				t.Errorf("the new run's is not counted: %s", got)
			}
		})
	}
}

// A clock that is due while a call has the turn takes nothing from it: the call leads where it leads, and what waits behind
// it is decided there. Another run, whose clock began later and has gone off, tells that it is due.
func TestClockDueWhileACallHasTheTurn(t *testing.T) {
	t.Parallel()
	r := web.under(`version: 1
name: clock
initial: start
states:
  start: {tools: {once: timed}}
  timed: {after: {1s: late}, tools: {hold: moved, elsewhere: {on_any: wrong}}}
  moved: {tools: {ok: stay}}
  late: {tools: {ok: stay}}
  wrong:
`).open(t)
	r.Tool("once", "")
	held := r.Request("tools/call", mcptest.ToolParams("hold", ""))
	r.upstream.Await(t, 1, "tools/call", "hold")
	queued := r.Request("tools/call", mcptest.ToolParams("elsewhere", ""))
	later := r.join()
	later.Tool("once", "")
	for later.code("ok", `{"alive":true}`) != "sent" { // until its clock has gone off
	}
	r.in("timed")
	r.upstream.Open("hold")
	answers := r.answers(held, queued)
	if !strings.Contains(answers[held], `"text":"held"`) || !strings.Contains(answers[queued], "invalid_transition") {
		t.Errorf("answered %v", answers)
	}
	r.in("moved")
	r.reached("tools/call once", "tools/call once", "tools/call hold")
}
