package runs

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// brief has calls that somebody has to approve within seconds.
const brief = `version: 1
name: brief
initial: open
everywhere: {tools: [ok]}
states:
  open:
    tools:
      once: {approve: {by: operator, timeout: 3s}, on_success: paid, on_any: wrong}
      hold: {approve: {by: client, timeout: 1s}, on_any: wrong}
  paid:
  wrong:
`

// A call that nobody approves in time is denied once, whether it is held by then or comes again, and asked anew after
// that. Nobody says yes to what is out of time.
func TestApprovalTimesOutOfEachKey(t *testing.T) {
	each(t, those("session", "handle"), func(t *testing.T, k key) {
		for name, flags := range map[string][]string{"held": nil, "not held": {"--approval-hold", "20ms"}} {
			t.Run(name, func(t *testing.T) {
				h := counted(t, k, brief, append(flags, "--admin-tokens", tokensOf(t, "olga"))...)
				c := h.enter(k, "")
				call := c.begins("once", `"n":1`)
				x := h.approvals(1)[0]
				r := c.answered(call)
				if flags != nil {
					if r.verdict != "approval_pending" {
						t.Errorf("it is held on: %s", r.raw)
					}
					h.approvals(0)
					r = c.call("once", `"n":1`)
				}
				if r.verdict != "approval_denied" || r.state != "open" || !strings.Contains(r.text, "nobody has approved it in time") {
					t.Error(r.raw)
				}
				h.approvals(0)
				if s := h.answers(x.ID, "allow", ""); s.status != http.StatusNotFound && s.status != http.StatusConflict {
					t.Errorf("late: %d %s", s.status, s.text)
				}
				if n := h.upstream.Count("tools/call"); n != 0 {
					t.Errorf("%d were sent", n)
				}
				call = c.begins("once", `"n":1`)
				again := h.approvals(1)[0]
				if again.ID == x.ID {
					t.Error("it was not asked anew")
				}
				if s := h.answers(again.ID, "allow", ""); s.status != http.StatusOK {
					t.Errorf("%d %s", s.status, s.text)
				}
				if flags != nil { // the first may have gone by with less than a yes
					if r := c.answered(call); r.verdict != "success" && r.verdict != "approval_pending" {
						t.Error(r.raw)
					} else if r.verdict == "success" {
						return
					}
					call = c.begins("once", `"n":1`)
				}
				if r := c.answered(call); r.verdict != "success" {
					t.Error(r.raw)
				}
				if n := h.upstream.Count("tools/call", "once"); n != 1 {
					t.Errorf("%d were sent", n)
				}
			})
		}
	})
}

// So it is where the client's user is asked, who is told no more; a yes that comes late is none.
func TestApprovalByTheUserTimesOut(t *testing.T) {
	t.Parallel()
	k := key{"legacy", "session"}
	h := counted(t, k, brief)
	c := h.enter(k, "")
	call := c.begins("hold", "")
	var question mcptest.Message
	for question.Method != "elicitation/create" {
		question = c.Next()
	}
	answer, before := c.Answer(call)
	if r := read(answer, before); r.verdict != "approval_denied" || r.state != "open" || !strings.Contains(r.text, "nobody has approved it in time") {
		t.Error(r.raw)
	}
	c.Send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"approve":true}}}`, question.ID))
	again := c.begins("hold", "")
	for question.ID = nil; question.ID == nil; {
		if m := c.Next(); m.Method == "elicitation/create" { // a yes that counted would have let it go
			question = m
		}
	}
	if r := c.answered(again); r.verdict != "approval_denied" {
		t.Error(r.raw)
	}
	if n := h.upstream.Count("tools/call", "hold"); n != 0 {
		t.Errorf("%d were sent", n)
	}
}

// With --json the command prints what the admin interface says, byte for byte, and nothing else; of what goes wrong, too,
// which stands in words beside it.
func TestApprovalsCommandInJSON(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			h, c := atStdio(t, era, paying, tokensWith(t, "paul", "a-token"))
			if r := c.call("elsewhere", `"plan":"p1"`); r.verdict != "success" {
				t.Fatal(r.raw)
			}
			file := filepath.Join(t.TempDir(), "token")
			if err := os.WriteFile(file, []byte("a-token\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			command := func(code int, answer any, args ...string) (out, said string) {
				t.Helper()
				cmd := exec.Command(mcptest.Proxy(t), append(append([]string{"approvals"}, args...), "--json", "--admin", h.admin, "--admin-bearer-file", file)...)
				var words strings.Builder
				cmd.Stderr = &words
				text, err := cmd.Output()
				if cmd.ProcessState.ExitCode() != code || json.Unmarshal(text, answer) != nil || code == 0 != (words.Len() == 0) {
					t.Fatalf("%v: %v\n%s\n%s", args, err, text, words.String())
				}
				return string(text), words.String()
			}
			type approval struct {
				asked
				Asked string
			}
			var page struct{ Items []approval }
			if out, _ := command(0, &page, "ls"); page.Items == nil || len(page.Items) != 0 {
				t.Errorf("nothing waits: %s", out)
			}
			yes := c.begins("once", `"amount":12345678901234567890,"note":"\u001b[31m`+"\u202e"+`"`)
			h.approvals(1)
			no := c.begins("once", `"n":2`)
			h.approvals(2)
			out, _ := command(0, &page, "ls")
			var raw, one json.RawMessage
			if h.operator(http.MethodGet, "/v1/approvals?limit=1000", &raw); strings.TrimSpace(out) != strings.TrimSpace(string(raw)) || len(page.Items) != 2 {
				t.Errorf("listed\n%s\nwhich the proxy says so:\n%s", out, raw)
			}
			allow, deny := page.Items[0], page.Items[1]
			if strings.Contains(string(deny.Arguments), "amount") {
				allow, deny = deny, allow
			}
			var shown approval
			out, _ = command(0, &shown, "show", allow.ID)
			if h.operator(http.MethodGet, "/v1/approvals/"+allow.ID, &one); strings.TrimSpace(out) != strings.TrimSpace(string(one)) {
				t.Errorf("shown\n%s\nwhich the proxy says so:\n%s", out, one)
			}
			if shown.ID != allow.ID || shown.Run != "process" || shown.State != "open" || shown.Kind != "tool" || shown.Name != "once" || shown.Message != "Fine?" ||
				shown.Seq != allow.Seq || shown.Rule == "" || shown.Asked == "" || shown.Expires <= shown.Asked ||
				!strings.Contains(string(shown.Arguments), `12345678901234567890`) || !strings.Contains(string(shown.Registers), `"p1"`) {
				t.Errorf("shown: %s", out)
			}
			if strings.ContainsAny(out, "\x1b\u202e") || !strings.Contains(out, `\u001b[31m\u202e`) {
				t.Errorf("what people do not see is not escaped: %q", out)
			}
			fails := func(code string, args ...string) {
				t.Helper()
				var no struct{ Code, Error string }
				if out, words := command(1, &no, args...); no.Code != code || no.Error == "" || !strings.Contains(words, no.Error+" ("+code+")") {
					t.Errorf("%v: %s%s", args, out, words)
				}
			}
			fails("run_moved", "allow", allow.ID, "--seq", "99")
			fails("approval_not_found", "allow", "no-such")
			fails("approval_not_found", "show", "no-such")
			type said struct{ ID, Run, Name, Answer string }
			var answer said
			if out, _ := command(0, &answer, "deny", deny.ID, "--note", "too much"); answer != (said{deny.ID, "process", "once", "deny"}) {
				t.Error(out)
			}
			if r := c.answered(no); r.verdict != "approval_denied" {
				t.Error(r.raw)
			}
			fails("approval_answered", "allow", deny.ID)
			if out, _ := command(0, &answer, "allow", allow.ID, "--seq", fmt.Sprint(shown.Seq)); answer != (said{allow.ID, "process", "once", "allow"}) {
				t.Error(out)
			}
			if r := c.answered(yes); r.verdict != "success" {
				t.Error(r.raw)
			}
		})
	}
}

// claiming has calls that somebody approves for those of a team.
const claiming = `version: 1
name: claims
initial: open
everywhere: {tools: [ok]}
states:
  open:
    tools:
      once: {when: who.claims.team == "red", approve: {by: operator}, at_most: 2}
      elsewhere: {for: {claim: {team: red}}, approve: {by: operator}}
      hold_open:
        - {when: who.claims.team == "red", approve: {by: operator}}
        - {when: who.claims.team == "blue", approve: {by: operator}}
`

// A yes finds the call as the request that asked shows its principal: their claims of then, whatever another request of
// theirs has shown meanwhile. Where the call comes again, it is by the claims of that request, and what they do not
// allow goes by no yes, and uses none.
func TestClaimsChangeWhileACallIsHeld(t *testing.T) {
	each(t, those("session", "handle"), func(t *testing.T, k key) {
		issuer := mcptest.NewIssuer(t)
		for name, flags := range map[string][]string{"held": nil, "not held": {"--approval-hold", "20ms"}} {
			t.Run(name, func(t *testing.T) {
				h := counted(t, k, claiming, append(flags, "--admin-tokens", tokensOf(t, "olga"),
					"--oidc-issuer", issuer.URL, "--oidc-audience", mcptest.Audience)...)
				as := func(team string, of *client) *client {
					c := h.who(k, "")
					c.web.Header.Set("Authorization", "Bearer "+issuer.Token("ann", mcptest.Claims{"team": team}))
					switch {
					case of != nil:
						c.web.SetID(of.web.ID())
						c.handle = of.handle
						for range 9 { // no id of theirs is one of a call that is held
							c.call("ok", "")
						}
					case k.modern():
						c.handle = c.start(t)
					default:
						c.Initialize()
					}
					return c
				}
				red := as("red", nil)
				blue := as("blue", red)
				refused := map[string]string{"once": "guard_failed", "elsewhere": "unknown_action"}
				for _, tool := range []string{"once", "elsewhere"} {
					if r := blue.call(tool, `"n":1`); r.verdict != refused[tool] {
						t.Errorf("before: %s", r.raw)
					}
					call := red.begins(tool, `"n":1`)
					x := h.approvals(1)[0]
					if flags != nil { // nobody waits, when the yes comes
						if r := red.answered(call); r.verdict != "approval_pending" {
							t.Error(r.raw)
						}
					}
					if r := blue.call(tool, `"n":1`); r.verdict != refused[tool] {
						t.Errorf("while it waits: %s", r.raw)
					}
					if s := h.answers(x.ID, "allow", fmt.Sprintf(`{"seq":%d}`, x.Seq)); s.status != http.StatusOK {
						t.Fatalf("%d %s", s.status, s.text)
					}
					if flags != nil {
						if r := blue.call(tool, `"n":1`); r.verdict != refused[tool] {
							t.Errorf("by a yes to other claims: %s", r.raw)
						}
						call = red.begins(tool, `"n":1`)
					}
					if r := red.answered(call); r.verdict != "success" {
						t.Errorf("by the claims that asked: %s", r.raw)
					}
					if n := h.upstream.Count("tools/call", tool); n != 1 {
						t.Errorf("%d were sent of %s", n, tool)
					}
				}
				// By other claims it is another alternative's call, to which nobody has said yes.
				call := red.begins("hold_open", "")
				x := h.approvals(1)[0]
				if flags != nil {
					red.answered(call)
				}
				if s := h.answers(x.ID, "allow", ""); s.status != http.StatusOK {
					t.Fatalf("%d %s", s.status, s.text)
				}
				if flags == nil {
					h.upstream.Await(t, 1, "tools/call", "hold_open")
				}
				other := blue.begins("hold_open", "")
				if y := h.approvals(1)[0]; y.Rule == x.Rule || y.Who != "ann" {
					t.Errorf("asked: %+v after %+v", y, x)
				}
				h.upstream.Open("hold_open")
				if flags != nil {
					if r := blue.answered(other); r.verdict != "approval_pending" {
						t.Error(r.raw)
					}
					call = red.begins("hold_open", "")
				}
				if r := red.answered(call); r.verdict != "success" {
					t.Error(r.raw)
				}
				if n := h.upstream.Count("tools/call", "hold_open"); n != 1 {
					t.Errorf("%d were sent", n)
				}
			})
		}
	})
}
