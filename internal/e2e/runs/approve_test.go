package runs

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// paying has calls that somebody has to approve.
const paying = `version: 1
name: paying
initial: open
registers: {plan: text}
everywhere: {tools: [ok]}
states:
  open:
    tools:
      once: {approve: {by: operator, message: Fine?, timeout: 2m}, on_success: paid, on_any: stay}
      elsewhere: {set: {plan: args.plan}}
  paid: {tools: {hold: {approve: {by: client, message: Really?}, on_any: open}}}
`

// asked is a call that waits for an operator.
type asked struct {
	ID, Run, State, Kind, Name, Who, Message, Rule, Expires string
	Seq                                                     int
	Arguments, Registers                                    json.RawMessage
}

// approvals are the calls that wait for an operator, once there are so many.
func (h *house) approvals(n int) (all []asked) {
	h.t.Helper()
	mcptest.Await(h.t, fmt.Sprintf("%d calls wait for an approval", n), func() bool {
		var page struct{ Items []asked }
		h.operator(http.MethodGet, "/v1/approvals", &page)
		all = page.Items
		return len(all) == n
	})
	return all
}

// posts posts to the admin listener, with whatever headers.
func (h *house) posts(path, body string, header ...string) said {
	h.t.Helper()
	host := h.admin
	if strings.HasPrefix(host, "unix:") {
		host = "localhost"
	}
	r, err := http.NewRequestWithContext(h.t.Context(), http.MethodPost, "http://"+host+path, strings.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := dialer(h.admin).Do(r)
	if err != nil {
		h.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	s := said{status: answer.StatusCode, text: string(text)}
	_ = json.Unmarshal(text, &s) // what is none has no members
	return s
}

// answers answers an approval with the operator's token.
func (h *house) answers(id, answer, body string) said {
	h.t.Helper()
	return h.posts("/v1/approvals/"+id+"/"+answer, body, "Authorization", "Bearer "+token(h.olga))
}

// begins begins a call with arguments.
func (c *client) begins(tool, arguments string) int {
	if c.handle != "" {
		arguments = strings.Trim(fmt.Sprintf(`"fsm_run":%q,%s`, c.handle, arguments), ",")
	}
	return c.Request("tools/call", fmt.Sprintf(`{"name":%q,"arguments":{%s},"_meta":{"progressToken":"p"}}`, tool, arguments))
}

// An operator sees the call as it was sent, and allows it, once; another's run, and another call, wait on.
func TestOperatorsApproveOfEachKey(t *testing.T) {
	each(t, keys, func(t *testing.T, k key) {
		audit := filepath.Join(t.TempDir(), "audit.jsonl")
		h := counted(t, k, paying, "--admin-tokens", tokensOf(t, "olga"), "--audit", audit)
		c := h.enter(k, "")
		if r := c.call("elsewhere", `"plan":"p1"`); r.verdict != "success" {
			t.Fatal(r.raw)
		}
		call := c.begins("once", `"amount":12345678901234567890,"to":"`+"\u202e"+`x"`)
		x := h.approvals(1)[0]
		who := ""
		if k.kind == "principal" {
			who = "ann"
		}
		if x.Kind != "tool" || x.Name != "once" || x.State != "open" || x.Message != "Fine?" || x.Who != who || x.Rule == "" || x.Expires == "" || x.Run == "" ||
			!strings.Contains(string(x.Arguments), `12345678901234567890`) || !strings.Contains(string(x.Arguments), `\u202e`) || !strings.Contains(string(x.Registers), `"p1"`) {
			t.Errorf("%+v %s %s", x, x.Arguments, x.Registers)
		}
		if c.handle != "" && strings.Contains(string(x.Arguments), c.handle) {
			t.Error("the arguments tell the handle, which is a secret")
		}
		var at struct{ Approvals []asked }
		if h.operator(http.MethodGet, "/v1/runs/"+x.Run, &at); len(at.Approvals) != 1 || at.Approvals[0].ID != x.ID {
			t.Errorf("of the run: %+v", at)
		}
		if s := h.answers(x.ID, "allow", fmt.Sprintf(`{"seq":%d}`, x.Seq-1)); s.status != http.StatusConflict || s.Code != "run_moved" || s.Seq != x.Seq {
			t.Errorf("by what was before: %d %s", s.status, s.text)
		}
		if s := h.answers("no-such", "allow", ""); s.status != http.StatusNotFound || s.Code != "approval_not_found" {
			t.Errorf("no approval: %d %s", s.status, s.text)
		}
		if n := h.upstream.Count("tools/call", "once"); n != 0 {
			t.Errorf("%d were sent", n)
		}
		if s := h.answers(x.ID, "allow", fmt.Sprintf(`{"seq":%d,"note":"as\nagreed"}`, x.Seq)); s.status != http.StatusOK {
			t.Errorf("%d %s", s.status, s.text)
		}
		answer, before := c.Answer(call)
		if r := read(answer, before); r.verdict != "success" {
			t.Error(r.raw)
		}
		told := false
		for _, m := range before {
			told = told || m.Method == "notifications/progress" && strings.Contains(string(m.Params), "waits for an approval")
		}
		if !told {
			t.Errorf("nobody was told that the call waits: %v", before)
		}
		if s := h.answers(x.ID, "allow", ""); s.status != http.StatusNotFound && s.status != http.StatusConflict {
			t.Errorf("again: %d %s", s.status, s.text)
		}
		if n := h.upstream.Count("tools/call", "once"); n != 1 {
			t.Errorf("%d were sent", n)
		}
		h.process.Log().Await(t, "subject=olga run="+x.Run+" approval="+x.ID+" said=allow")
		mcptest.Await(t, "the audit has it", func() bool {
			text, err := os.ReadFile(audit)
			return err == nil && strings.Contains(string(text), `"said":"allow"`) && strings.Contains(string(text), `"note":"as\u000aagreed"`) && strings.Contains(string(text), `"subject":"olga"`)
		})

		// What only the client's user may say yes to.
		held := c.begins("hold", "")
		question, answers := c.asks(t, held, "hold")
		if !strings.Contains(question, "Really?") {
			t.Error(question)
		}
		h.approvals(0)
		held = answers(`{"action":"accept","content":{"approve":true}}`)
		h.upstream.Open("hold")
		if r := c.answered(held); r.verdict != "success" {
			t.Error(r.raw)
		}
	})
}

// Refused, or not answered while the client is held, nothing is sent; the same call again waits on, or is refused.
func TestOperatorsDeny(t *testing.T) {
	each(t, those("session", "handle"), func(t *testing.T, k key) {
		h := counted(t, k, paying, "--admin-tokens", tokensOf(t, "olga"), "--approval-hold", "20ms")
		c := h.enter(k, "")
		if r := c.call("once", `"n":1`); r.verdict != "approval_pending" || !strings.Contains(r.text, "Call it again") {
			t.Fatal(r.raw)
		}
		x := h.approvals(1)[0]
		if r := c.call("once", `"n":1`); r.verdict != "approval_pending" || h.approvals(1)[0].ID != x.ID {
			t.Error(r.raw)
		}
		if s := h.answers(x.ID, "deny", `{"note":"too much"}`); s.status != http.StatusOK {
			t.Errorf("%d %s", s.status, s.text)
		}
		for range 2 {
			if r := c.call("once", `"n":1`); r.verdict != "approval_denied" || r.state != "open" {
				t.Error(r.raw)
			}
		}
		if s := h.answers(x.ID, "allow", ""); s.status != http.StatusConflict || s.Code != "approval_answered" {
			t.Errorf("after a no: %d %s", s.status, s.text)
		}
		if r := c.call("once", `"n":1`); r.verdict != "approval_denied" {
			t.Error(r.raw)
		}
		if n := h.upstream.Count("tools/call", "once"); n != 0 {
			t.Errorf("%d were sent", n)
		}
	})
}

// The agent's shell is this user: it approves nothing without an operator's token, on loopback and at a socket.
func TestApprovingACallFromTheAgentsOwnShell(t *testing.T) {
	t.Parallel()
	k := key{"legacy", "session"}
	for name, flags := range map[string][]string{"no tokens": nil, "hashes": {"--admin-tokens", tokensOf(t, "olga")}} {
		for _, address := range []string{"loopback", "socket"} {
			t.Run(name+" on "+address, func(t *testing.T) {
				t.Parallel()
				more := append([]string{"--approval-hold", "20ms"}, flags...)
				socket := "unix:" + filepath.Join(t.TempDir(), "a")
				if address == "socket" {
					more = append(more, "--admin", socket)
				}
				h := counted(t, k, paying, more...)
				if address == "socket" {
					h.admin = socket
				}
				c := h.enter(k, "")
				c.call("once", "")
				h.process.Log().Await(t, "a call waits for an approval")
				_, rest, _ := strings.Cut(h.process.Log().String(), "approval=")
				id, _, _ := strings.Cut(rest, " ")
				want := http.StatusUnauthorized
				if flags == nil {
					want = http.StatusForbidden
				}
				for what, header := range map[string][]string{"nothing": nil, "a guess": {"Authorization", "Bearer guess"}, "a client's": {"Authorization", "Bearer " + token("ann")}} {
					for _, answer := range []string{"allow", "deny", "allow?access_token=" + strings.ReplaceAll(token("olga"), " ", "+")} {
						if s := h.posts("/v1/approvals/"+id+"/"+answer, "{}", header...); s.status != want {
							t.Errorf("%s, %s: %d %s", what, answer, s.status, s.text)
						}
					}
				}
				if r := c.call("once", ""); r.verdict != "approval_pending" {
					t.Error(r.raw)
				}
				if flags == nil {
					return
				}
				h.olga = "olga"
				if s := h.answers(id, "allow", ""); s.status != http.StatusOK {
					t.Errorf("with the token: %d %s", s.status, s.text)
				}
				if r := c.call("once", ""); r.verdict != "success" {
					t.Error(r.raw)
				}
			})
		}
	}
}

// The one client at standard input and output is held, too, and an operator answers by the command line.
func TestApprovalsCommand(t *testing.T) {
	t.Parallel()
	for _, era := range []string{"legacy", "modern"} {
		h, c := atStdio(t, era, paying, tokensWith(t, "paul", "a-token"))
		if r := c.call("ok", ""); r.verdict != "success" {
			t.Fatal(r.raw)
		}
		file := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(file, []byte("a-token\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		command := func(code int, args ...string) string {
			t.Helper()
			cmd := exec.Command(mcptest.Proxy(t), append(append([]string{"approvals"}, args...), "--admin", h.admin, "--admin-bearer-file", file)...)
			out, err := cmd.CombinedOutput()
			if cmd.ProcessState.ExitCode() != code {
				t.Fatalf("%v: %v\n%s", args, err, out)
			}
			return string(out)
		}
		if out := command(0, "ls"); out != "no call waits for an approval\n" {
			t.Error(out)
		}
		yes, no := c.begins("once", `"note":"\u001b[31m\u200b"`), c.begins("once", `"n":2`)
		all := h.approvals(2)
		if strings.Contains(string(all[1].Arguments), "u001b") {
			all[0], all[1] = all[1], all[0]
		}
		if out := command(0, "ls"); strings.Count(out, "\n") != 2 || !strings.Contains(out, all[0].ID+"  run ") || !strings.Contains(out, "  tool once  until ") {
			t.Error(out)
		}
		out := command(0, "show", all[0].ID)
		for _, want := range []string{"message    Fine?\n", "tool       once\n", "state      open\n", `"note": "\u001b[31m\u200b"`} {
			if !strings.Contains(out, want) || strings.ContainsAny(out, "\x1b\u200b") {
				t.Errorf("no %s in %s", want, out)
			}
		}
		if out := command(1, "allow", all[0].ID, "--seq", "99"); !strings.Contains(out, "run_moved") {
			t.Error(out)
		}
		if out := command(0, "deny", all[1].ID, "--note", "too much"); out != "once in run process: deny\n" {
			t.Error(out)
		}
		if r := c.answered(no); r.verdict != "approval_denied" {
			t.Error(r.raw)
		}
		if out := command(0, "allow", all[0].ID, "--seq", fmt.Sprint(all[0].Seq)); out != "once in run process: allow\n" {
			t.Error(out)
		}
		if r := c.answered(yes); r.verdict != "success" {
			t.Error(r.raw)
		}
		if out := command(1, "allow", all[0].ID); !strings.Contains(out, "approval_not_found") {
			t.Error(out)
		}
	}
}

// tokensWith is olga's token and another one.
func tokensWith(t *testing.T, who, secret string) string {
	path := tokensOf(t, "olga")
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, fmt.Appendf(text, "  %s: sha256:%x\n", who, sha256.Sum256([]byte(secret))), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// A webhook tells of each approval that is wanted, signed, and without the secrets by which clients find their runs;
// what it is answered with approves nothing.
func TestApprovalWebhook(t *testing.T) {
	each(t, those("session", "handle", "path"), func(t *testing.T, k key) {
		key := []byte("0123456789abcdef0123456789abcdef")
		posted := make(chan string, 10)
		hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			mac := hmac.New(sha256.New, key)
			fmt.Fprintf(mac, "%s.%s.%s", r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp"), body)
			if r.Header.Get("webhook-signature") != "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)) {
				t.Errorf("the signature of %s is %s", body, r.Header.Get("webhook-signature"))
			}
			_, _ = io.WriteString(w, `{"allow":true}`)
			posted <- string(body)
		}))
		defer hook.Close()
		file := filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(file, []byte("whsec_"+base64.StdEncoding.EncodeToString(key)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		h := counted(t, k, paying, "--admin-tokens", tokensOf(t, "olga"), "--approval-webhook", hook.URL, "--approval-webhook-key", file)
		c := h.enter(k, "")
		call := c.begins("once", `"to":"`+"\u202e"+`x"`)
		body := <-posted
		x := h.approvals(1)[0]
		for _, want := range []string{`"type":"approval.wanted"`, `"id":"` + x.ID + `"`, `"name":"once"`, `\u202e`, `"message":"Fine?"`} {
			if !json.Valid([]byte(body)) || !strings.Contains(body, want) {
				t.Errorf("no %s in %s", want, body)
			}
		}
		for _, secret := range []string{c.handle, c.web.ID(), c.web.URL[strings.LastIndex(c.web.URL, "/")+1:]} {
			if secret != "" && secret != "mcp" && strings.Contains(body, secret) {
				t.Errorf("%s is told in %s", secret, body)
			}
		}
		if s := h.answers(x.ID, "allow", ""); s.status != http.StatusOK {
			t.Errorf("%d %s", s.status, s.text)
		}
		if r := c.answered(call); r.verdict != "success" {
			t.Error(r.raw)
		}
	})
}
