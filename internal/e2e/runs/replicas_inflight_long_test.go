//go:build long && unix

package runs

import (
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// posting is a POST that goes on beside the test.
type posting struct {
	answered chan mcptest.Response
	began    time.Time
}

// posting begins a request of an id, whose answer is one JSON document.
func (c *client) posting(t *testing.T, id int, method, params string) *posting {
	t.Helper()
	if c.key.modern() {
		params = mcptest.Modern{}.Params(params)
	}
	c.web.Accept = "application/json"
	p := &posting{make(chan mcptest.Response, 1), time.Now()}
	go func() { p.answered <- c.web.Post(t.Context(), mcptest.Request(id, method, params)) }()
	return p
}

// answer is the answer, which has to come within a time, with this status; the zero one where none has.
func (p *posting) answer(t *testing.T, within time.Duration, status int) mcptest.Message {
	t.Helper()
	select {
	case r := <-p.answered:
		if r.Err == nil && r.Status == status && len(r.Messages) == 1 && r.Messages[0].IsResponse() {
			return r.Messages[0]
		}
		t.Errorf("after %v: HTTP %d %q %v", time.Since(p.began), r.Status, r.Body, r.Err)
	case <-time.After(within):
		t.Errorf("no answer within %v", within)
	}
	return mcptest.Message{}
}

// A replica that ends, and has passed on a call whose answer does not come by then, says that nobody knows what became of it; of a
// list, that it was not served; and of a subscription, that it is over.
func TestReplicaThatEndsBeforeWhatItHasPassedOn(t *testing.T) {
	database := databases(t)
	each(t, []key{{"modern", "principal"}, {"legacy", "session"}, {"legacy", "principal"}}, func(t *testing.T, k key) {
		upstream, url := mcptest.HTTP(t, offering())
		r := replicate(t, k, offered, database(t), "--drain", "2s", "--upstream", url)
		c, owner, others := r.entered(k)
		r.come(owner)
		ending := others[0]
		call := c.at(t, ending).posting(t, 71, "tools/call", mcptest.ToolParams("hold", "{}"))
		upstream.Await(t, 1, "tools/call", "hold")
		list := c.at(t, ending).posting(t, 72, "prompts/list", "")
		upstream.Await(t, 1, "prompts/list")
		listens, listening := c.at(t, ending), 0
		if k.modern() {
			listening = listens.Request("subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`)
			if m := listens.Next(); m.Method != "notifications/subscriptions/acknowledged" {
				t.Fatal(m)
			}
		}
		ending.sends(syscall.SIGTERM)
		began := time.Now()
		if x := read(call.answer(t, 3*time.Second+slack, 200), nil); x.verdict != "outcome_unknown" {
			t.Errorf("the call: %s", x.raw)
		}
		status := 200
		if k.modern() {
			status = 503
		}
		if x := read(list.answer(t, slack, status), nil); !strings.Contains(x.raw, "store_unavailable") || !strings.Contains(x.raw, "try again") {
			t.Errorf("the list: %s", x.raw)
		}
		if k.modern() {
			if m, _ := listens.Answer(listening); !strings.Contains(string(m.Result), `"complete"`) {
				t.Errorf("the subscription: %s", m)
			}
		}
		ending.process.ExitCode()
		if took := time.Since(began); took < 2*time.Second || took > 3*time.Second+slack {
			t.Errorf("it has ended after %v", took)
		}
		upstream.Open("done")
		upstream.Open("said")
		if n := upstream.Count("tools/call", "hold"); n != 1 {
			t.Errorf("the call was sent %d times", n)
		}
		r.come(owner)
		if x := c.call("ok", ""); x.verdict != "success" {
			t.Error(x.raw)
		}
		if log := ending.process.Log().String(); strings.Contains(log, "panic") {
			t.Error(log)
		}
	})
}

// A call that waits for an approval at a replica that ends is asked anew at its run's next owner, and is answered before that
// replica is gone: it was not sent, and the same call again waits on, and goes once it is approved.
func TestApprovalAtAReplicaThatEnds(t *testing.T) {
	database := databases(t)
	each(t, []key{{"modern", "handle"}, {"modern", "principal"}, {"legacy", "session"}, {"legacy", "principal"}}, func(t *testing.T, k key) {
		upstream, url := mcptest.HTTP(t, server())
		r := replicate(t, k, paying, database(t), "--admin-tokens", tokensOf(t, "olga"), "--drain", "3s", "--upstream", url)
		c, was, others := r.entered(k)
		r.come(others...)
		call := c.at(t, was).posting(t, 71, "tools/call", mcptest.ToolParams("once", c.arguments()))
		before := was.approvals(1)[0]
		was.sends(syscall.SIGTERM)
		began := time.Now()
		mcptest.Await(t, "it is asked anew", func() bool { x := others[0].approvals(1)[0]; return x.ID != before.ID })
		if x := read(call.answer(t, 4*time.Second+slack, 200), nil); x.verdict != "approval_pending" {
			t.Errorf("it waits no longer: %s", x.raw)
		}
		was.process.ExitCode()
		if took := time.Since(began); took > 4*time.Second+slack {
			t.Errorf("it has ended after %v", took)
		}
		if k.kind == "principal" && !k.modern() { // whose session has gone with its process
			c = c.at(t, others[0])
		}
		again := c.begins("once", "")
		if s := others[1].answers(others[0].approvals(1)[0].ID, "allow", ""); s.status != 200 {
			t.Errorf("%d %s", s.status, s.text)
		}
		if x := c.answered(again); x.verdict != "success" {
			t.Error(x.raw)
		}
		if n := upstream.Count("tools/call", "once"); n != 1 {
			t.Errorf("it was sent %d times", n)
		}
	})
}

// Each request of a batch that was passed on to an owner which is killed is answered, once.
func TestBatchWhoseOwnerIsKilled(t *testing.T) {
	t.Parallel()
	k := key{"legacy", "session"}
	upstream, url := mcptest.HTTP(t, busy())
	r := replicate(t, k, busyPolicy, databases(t)(t), "--upstream", url)
	c := r.who(k, "")
	c.web.Version = "2025-03-26"
	c.InitializeAs(`{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}`)
	if x := c.call("ok", ""); x.verdict != "success" {
		t.Fatal(x.raw)
	}
	owner, others := r.owner()
	r.come(others...)
	answered := make(chan mcptest.Response, 1)
	go func() {
		answered <- c.web.Post(t.Context(), "["+strings.Join([]string{
			mcptest.Request(71, "ping", ""), mcptest.Request(72, "tools/call", mcptest.ToolParams("ok", "{}")),
			mcptest.Request(73, "tools/call", mcptest.ToolParams("hold", `{"who":"gate"}`)), mcptest.Request(74, "tools/call", mcptest.ToolParams("once", "{}")),
		}, ",")+"]")
	}()
	upstream.Await(t, 1, "tools/call", "hold")
	owner.ends(os.Kill)
	a := <-answered
	for _, id := range []string{"71", "72", "73", "74"} {
		if n := strings.Count(string(a.Body), `"id":`+id+`,`); a.Status != 200 || n != 1 {
			t.Errorf("%s is answered %d times: HTTP %d %s", id, n, a.Status, a.Body)
		}
	}
	upstream.Open("gate")
	if x := c.call("once", ""); x.verdict != "success" {
		t.Error(x.raw)
	}
	if n := upstream.Count("tools/call", "hold"); n != 1 {
		t.Errorf("hold was sent %d times", n)
	}
}

// A client whose event stream ends with the replica that has passed its call on comes back for the answer at another one. One that
// cannot is told that the outcome is unknown.
func TestStreamWhoseReplicaEnds(t *testing.T) {
	database := databases(t)
	each(t, []key{{"legacy", "session"}, {"legacy", "principal"}, {"modern", "principal"}}, func(t *testing.T, k key) {
		upstream, url := mcptest.HTTP(t, busy())
		r := replicate(t, k, busyPolicy, database(t), "--drain", "1s", "--upstream", url)
		c, _, others := r.entered(k)
		d := c.at(t, others[0])
		params := `{"name":"hold","arguments":{"who":"gate"},"_meta":{"progressToken":"p"}}`
		if k.modern() {
			params = mcptest.Modern{Meta: `"progressToken":"p"`}.Params(`{"name":"hold","arguments":{"who":"gate"}}`)
		}
		answered := make(chan mcptest.Response, 1)
		go func() { answered <- d.web.Post(t.Context(), mcptest.Request(71, "tools/call", params)) }()
		upstream.Await(t, 1, "tools/call", "hold")
		mcptest.Await(t, "the call's stream has begun", func() bool {
			return len(d.Received()) > 0 && d.Received()[len(d.Received())-1].Method == "notifications/progress"
		})
		others[0].ends(syscall.SIGTERM)
		a := <-answered
		if k.modern() {
			if x := a.Messages[len(a.Messages)-1]; read(x, nil).verdict != "outcome_unknown" {
				t.Errorf("the last message is %s", x)
			}
			return
		}
		ids := regexp.MustCompile(`(?m)^id: ?(.+)$`).FindAllStringSubmatch(string(a.Body), -1)
		if a.Err != nil || len(ids) == 0 || strings.Contains(string(a.Body), `"id":71`) {
			t.Fatalf("the stream ended with %s %v", a.Body, a.Err)
		}
		back := d.twin()
		back.Session, back.web = mcptest.DialWeb(t, others[1].url)
		back.web.Header = d.web.Header.Clone()
		back.web.SetID(d.web.ID())
		back.web.Header.Set("Last-Event-ID", ids[len(ids)-1][1])
		back.web.Listen()
		upstream.Open("gate")
		if x, _ := back.Answer(71); read(x, nil).text != "held" {
			t.Error(x)
		}
		if n := upstream.Count("tools/call", "hold"); n != 1 {
			t.Errorf("hold was sent %d times", n)
		}
	})
}
