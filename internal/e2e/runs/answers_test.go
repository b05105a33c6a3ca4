package runs

import (
	"database/sql"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// agreed has calls that an operator has to approve: some stay, some lead on.
const agreed = `version: 1
name: agreed
initial: open
everywhere: {tools: {ok: {on_success: open, on_unknown: stay}}}
states:
  open:
    tools:
      elsewhere: {approve: {by: operator}}
      once: {approve: {by: operator}, on_success: paid, on_unknown: stay}
      hold: {approve: {by: operator}, on_success: paid, on_unknown: lost}
      hold_open: {approve: {by: operator}}
  paid:
  lost:
`

// signer is a client whose calls an operator answers, over restarts.
type signer struct {
	*house
	*client
	restart func(by os.Signal)
}

// becomes makes a call, which has to come to that.
func (s *signer) becomes(verdict, state, tool, arguments string) {
	s.house.t.Helper()
	if r := s.call(tool, arguments); r.verdict != verdict || r.state != state {
		s.house.t.Fatalf("%s %s: %s in %s, want %s in %s\n%s", tool, arguments, r.verdict, r.state, verdict, state, r.raw)
	}
}

// asks makes a call that nobody has approved, which is the one that waits then.
func (s *signer) asks(tool, arguments string) (id string) {
	s.house.t.Helper()
	s.becomes("approval_pending", "open", tool, arguments)
	for _, x := range s.approvals(1) {
		id = x.ID
	}
	return id
}

// said has an operator answer that call.
func (s *signer) said(answer, tool, arguments string) (id string) {
	s.house.t.Helper()
	id = s.asks(tool, arguments)
	if a := s.answers(id, answer, `{"note":"so"}`); a.status != http.StatusOK {
		s.house.t.Fatalf("%d %s", a.status, a.text)
	}
	s.approvals(0)
	return id
}

// sent checks how many calls of a tool have come to the upstream.
func (s *signer) sent(n int, tool string) {
	s.house.t.Helper()
	if is := s.upstream.Count("tools/call", tool); is != n {
		s.house.t.Fatalf("%d calls of %s were sent, want %d", is, tool, n)
	}
}

// walks has operators answer, with the proxy killed or ended after each answer and each use.
func (s *signer) walks() {
	t := s.house.t
	const first, second = `"n":1`, `"n":2`
	yes := s.said("allow", "elsewhere", first)
	s.restart(os.Kill)
	s.becomes("success", "open", "elsewhere", first)
	s.approvals(0)
	if a := s.answers(yes, "deny", ""); a.status != http.StatusNotFound {
		t.Errorf("a yes that was used: %d %s", a.status, a.text)
	}
	s.restart(syscall.SIGTERM)
	again := s.asks("elsewhere", first) // it is used
	s.restart(os.Kill)
	s.approvals(0)
	if id := s.asks("elsewhere", first); id == again || id == yes {
		t.Error("it was not asked anew")
	}
	s.sent(1, "elsewhere")
	s.restart(syscall.SIGTERM)

	no := s.said("deny", "elsewhere", second)
	for _, by := range []os.Signal{os.Kill, syscall.SIGTERM} {
		s.restart(by)
		s.becomes("approval_denied", "open", "elsewhere", second)
		s.becomes("approval_denied", "open", "elsewhere", second)
		if a := s.answers(no, "allow", ""); a.status != http.StatusConflict || a.Code != "approval_answered" {
			t.Errorf("after a no: %d %s", a.status, a.text)
		}
	}

	s.said("allow", "once", first)
	s.said("allow", "elsewhere", `"n":3`)
	s.restart(os.Kill)
	s.becomes("success", "paid", "once", first)
	s.restart(syscall.SIGTERM)
	s.becomes("success", "open", "ok", "")
	for _, arguments := range []string{second, `"n":3`} { // whose visit is over
		s.restart(os.Kill)
		s.asks("elsewhere", arguments)
	}
	s.restart(syscall.SIGTERM)
	s.sent(1, "elsewhere")

	for _, tool := range []string{"hold_open", "hold"} { // lost with the proxy
		s.said("allow", tool, `"who":"me"`)
		s.restart(os.Kill)
		s.begins(tool, `"who":"me"`)
		s.upstream.Await(t, 1, "tools/call", tool)
		s.restart(os.Kill)
		if tool == "hold_open" {
			s.asks(tool, `"who":"me"`)
			s.restart(os.Kill)
		}
	}
	s.becomes("success", "open", "ok", "")
	s.asks("hold", `"who":"me"`)
	s.sent(1, "hold_open")
	s.sent(1, "hold")
	s.upstream.Open("hold")
	s.upstream.Open("hold_open")
}

// What an operator has said of a call holds after a restart, by whatever signal: a yes lets it go without asking, once, and a
// no refuses it as long as the run is in the state. What nobody has answered is asked anew, and a call that was lost under way
// has used its yes, and takes its on_unknown.
func TestAnswersToApprovalsAcrossRestarts(t *testing.T) {
	each(t, append(those("principal", "session", "handle", byHeader, "path"), key{"legacy", ""}, key{"modern", ""}), func(t *testing.T, k key) {
		flags := []string{"--annotate", "meta", "--store", store(t), "--approval-hold", "20ms", "--admin-tokens", tokensOf(t, "olga")}
		s := &signer{}
		if k.kind == "" {
			s.house, s.client = &house{t: t, olga: "olga", admin: mcptest.FreeAddress(t)}, &client{key: k}
			upstream, url := mcptest.HTTP(t, server())
			s.upstream = upstream
			args := append([]string{mcptest.Proxy(t), "run", "--policy", mcptest.WritePolicy(t, agreed), "--run", "mine", "--admin", s.admin, "--upstream", url}, flags...)
			dial := func() {
				if s.Session, s.process = mcptest.Dial(t, args...); k.modern() {
					s.Modern(mcptest.Modern{})
					s.Call("tools/list", "") // by when it is there
				} else {
					s.Initialize()
				}
			}
			dial()
			s.restart = func(by os.Signal) {
				t.Helper()
				s.ends(by)
				dial()
			}
		} else {
			s.house = counted(t, k, agreed, flags...)
			s.client = s.enter(k, "")
			s.restart = func(by os.Signal) {
				t.Helper()
				if s.again(by); k.kind != "session" { // which goes on by itself
					s.client = s.enter(k, s.run())
				}
			}
		}
		s.walks()
	})
}

// While the store cannot be written nobody's answer counts: the operator is told so, and the call waits on. What was said
// before that was known counts when it is written, and then the call goes that waited for it.
func TestAnswersWhileTheStoreIsLocked(t *testing.T) {
	each(t, those(byHeader), func(t *testing.T, k key) {
		url := store(t)
		h := counted(t, k, agreed, "--annotate", "meta", "--store", url, "--store-timeout", "2s", "--approval-hold", "5m", "--admin-tokens", tokensOf(t, "olga"))
		c := h.enter(k, "")
		if r := c.call("ok", ""); r.verdict != "success" {
			t.Fatal(r.raw)
		}
		first := c.begins("elsewhere", `"n":1`)
		x := h.approvals(1)[0]

		db, err := sql.Open("sqlite", strings.TrimPrefix(url, "sqlite:"))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, statement := range []string{"PRAGMA busy_timeout = 60000", "BEGIN IMMEDIATE"} {
			if _, err := conn.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		if a := h.answers(x.ID, "allow", ""); a.status != http.StatusServiceUnavailable || a.Code != "outcome_unknown" {
			t.Errorf("what is not written: %d %s", a.status, a.text)
		}
		if a := h.answers(x.ID, "deny", ""); a.status != http.StatusConflict || a.Code != "approval_answered" {
			t.Errorf("another's answer meanwhile: %d %s", a.status, a.text)
		}
		h.process.Log().Await(t, "the store cannot be written")
		second := c.begins("elsewhere", `"n":2`)
		y := h.approvals(1)[0]
		if a := h.answers(y.ID, "allow", ""); a.status != http.StatusServiceUnavailable || a.Code != "store_unavailable" || y.ID == x.ID {
			t.Errorf("while it is known: %d %s", a.status, a.text)
		}
		h.approvals(1) // it waits on
		if n := h.upstream.Count("tools/call", "elsewhere"); n != 0 {
			t.Errorf("%d were sent", n)
		}
		if _, err := conn.ExecContext(t.Context(), "ROLLBACK"); err != nil {
			t.Fatal(err)
		}
		h.process.Log().Await(t, "the store can be written again")
		r := c.answered(first)
		for range 9 {
			if r.verdict == "store_unavailable" { // it is slow yet: what was not sent has not used the yes
				r = c.call("elsewhere", `"n":1`)
			}
		}
		if r.verdict != "success" {
			t.Error(r.raw)
		}
		if a := h.answers(y.ID, "deny", ""); a.status != http.StatusOK {
			t.Errorf("%d %s", a.status, a.text)
		}
		if r := c.answered(second); r.verdict != "approval_denied" {
			t.Error(r.raw)
		}
		if n := h.upstream.Count("tools/call", "elsewhere"); n != 1 {
			t.Errorf("%d were sent", n)
		}
	})
}

// A no holds for who comes again over another session, and their yes is there for the call.
func TestAnswersHoldForWhoReconnects(t *testing.T) {
	each(t, those("principal", byHeader, "path"), func(t *testing.T, k key) {
		for name, flags := range map[string][]string{"in memory": nil, "kept": {"--store", store(t)}} {
			t.Run(name, func(t *testing.T) {
				h := counted(t, k, agreed, append(flags, "--annotate", "meta", "--approval-hold", "20ms", "--admin-tokens", tokensOf(t, "olga"))...)
				s := &signer{house: h, client: h.enter(k, "")}
				s.said("deny", "elsewhere", `"n":1`)
				s.said("allow", "elsewhere", `"n":2`)
				s.asks("elsewhere", `"n":3`)
				if !k.modern() {
					if status := s.web.Delete(); status >= 300 {
						t.Fatal(status)
					}
					s.approvals(0) // what it has asked ends with it
				}
				s.client = h.enter(k, s.run())
				s.becomes("approval_denied", "open", "elsewhere", `"n":1`)
				s.becomes("success", "open", "elsewhere", `"n":2`)
				s.becomes("approval_pending", "open", "elsewhere", `"n":2`)
				s.sent(1, "elsewhere")
			})
		}
	})
}

// What a user says by the client ends with the process: they are asked anew, and nothing of it is in the store.
func TestAnswersOfUsersAreNotKept(t *testing.T) {
	each(t, those("session", "handle"), func(t *testing.T, k key) {
		url := store(t)
		h := counted(t, k, strings.ReplaceAll(agreed, "by: operator", "by: client"), "--annotate", "meta", "--store", url, "--admin-tokens", tokensOf(t, "olga"))
		c := h.enter(k, "")
		_, answers := c.asks(t, c.begins("elsewhere", ""), "elsewhere")
		if r := c.answered(answers(`{"action":"decline"}`)); r.verdict != "approval_denied" {
			t.Fatal(r.raw)
		}
		if r := c.call("elsewhere", ""); r.verdict != "approval_denied" {
			t.Fatal(r.raw)
		}
		h.again(os.Kill)
		if k.kind != "session" {
			c = h.enter(k, c.run())
		}
		_, answers = c.asks(t, c.begins("elsewhere", ""), "elsewhere")
		if r := c.answered(answers(`{"action":"accept","content":{"approve":true}}`)); r.verdict != "success" {
			t.Fatal(r.raw)
		}
		for _, r := range rowsOf(t, url) {
			if r.Last.Seq > 1 {
				t.Errorf("something is kept of it: %+v", r)
			}
		}
	})
}
