//go:build long && unix

package runs

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// onceCall is a call of once by which a client of the modern era asks for a lot.
var onceCall = mcptest.Request(1, "tools/call", mcptest.Modern{}.Params(mcptest.ToolParams("once", "")))

// Who has no key that a lease names gets nothing done where replicas pass requests on to: not in plain text, not without a
// certificate, not with one of its own, whatever headers it sends.
func TestAttackByAPeerWithoutTheKey(t *testing.T) {
	t.Parallel()
	k := key{"modern", "principal"}
	upstream, url := mcptest.HTTP(t, server())
	r := replicate(t, k, steps, databases["PostgreSQL"](t)(t), "--upstream", url)
	c := r.enter(k, "")
	for range r.all { // some of which are passed on
		if x := c.call("ok", ""); x.verdict != "success" || x.state != "start" {
			t.Fatal(x.raw)
		}
	}
	peers := strings.Fields(one[string](t, r.store, "SELECT string_agg(address || '/' || no, ' ') FROM fsm_proxy.leases WHERE ends > now()"))
	if len(peers) != len(r.all) {
		t.Fatalf("replicas take requests of others at %q", peers)
	}
	for _, peer := range peers {
		address, number, _ := strings.Cut(peer, "/")
		for how, attempt := range map[string]*tls.Config{
			"plain text":          nil,
			"no certificate":      {InsecureSkipVerify: true},
			"its own certificate": {InsecureSkipVerify: true, Certificates: []tls.Certificate{mcptest.NewAuthority("a peer").Client("fsm-proxy", nil)}},
		} {
			client, scheme := &http.Client{Transport: &http.Transport{TLSClientConfig: attempt}, Timeout: mcptest.Patience}, "https://"
			if attempt == nil {
				scheme = "http://"
			}
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, scheme+address+"/mcp", strings.NewReader(onceCall))
			if err != nil {
				t.Fatal(err)
			}
			claims(request.Header, "ann", number)
			if answer, err := client.Do(request); err == nil {
				if answer.Body.Close(); answer.StatusCode < http.StatusBadRequest {
					t.Errorf("%s: HTTP %s", how, answer.Status)
				}
			}
			client.CloseIdleConnections()
		}
	}
	if n := upstream.Count("tools/call", "once"); n != 0 {
		t.Errorf("%d calls were sent", n)
	}
	if x := c.call("ok", ""); x.verdict != "success" || x.state != "start" {
		t.Error(x.raw)
	}
}

// claims says in headers what replicas say to each other, and what they might.
func claims(h http.Header, who, lease string) {
	h.Set("Content-Type", "application/json")
	h.Set("Accept", "application/json, text/event-stream")
	for name, value := range map[string]string{
		"Who": `{"subject":"` + who + `"}`, "Lease": lease, "Subject": who, "Greeting": "1", "Not-Here": "1", "Elsewhere": "1", "Passed": "1", "Remote": "127.0.0.1:1",
	} {
		h.Set("Fsm-Proxy-"+name, value)
	}
}

// A client that says in headers that it is a replica, and for whom it asks, is nobody else by that, at whichever replica, and
// nothing of it goes upstream.
func TestAttackByAPrincipalInAPeerHeader(t *testing.T) {
	t.Parallel()
	k := key{"modern", "principal"}
	upstream, url := mcptest.HTTP(t, server())
	r := replicate(t, k, steps, databases["PostgreSQL"](t)(t), "--upstream", url)
	ann, bob, nobody := r.who(k, "ann"), r.who(k, "bob"), r.who(k, "")
	if x := bob.call("once", ""); x.verdict != "success" || x.state != "after" {
		t.Fatal(x.raw)
	}
	number := one[string](t, r.store, "SELECT owner::text FROM fsm_proxy.runs WHERE owner <> 0 LIMIT 1")
	for _, c := range []*client{ann, nobody} {
		claims(c.web.Header, "bob", number)
	}
	for range r.all {
		if x := ann.call("ok", ""); x.verdict != "success" || x.state != "start" {
			t.Errorf("ann says she is bob: %s", x.raw)
		}
		if answer := nobody.web.Post(t.Context(), onceCall); answer.Status != http.StatusUnauthorized {
			t.Errorf("nobody says they are bob: %d %s", answer.Status, answer.Body)
		}
		if x := bob.call("ok", ""); x.verdict != "success" || x.state != "after" {
			t.Errorf("bob: %s", x.raw)
		}
	}
	for _, m := range upstream.Received() {
		for name := range m.Header {
			if strings.HasPrefix(name, "Fsm-Proxy-") {
				t.Errorf("%s goes upstream", name)
			}
		}
	}
	if n := upstream.Count("tools/call", "once"); n != 1 {
		t.Errorf("once has reached the upstream %d times", n)
	}
}

// twice has an edge that nobody may take twice, and a state for when it is not known whether it was taken.
const twice = `version: 1
name: twice
initial: start
states:
  start: {tools: {ok: , hold: {on_success: after, on_unknown: lost}}}
  after: {tools: [once]}
  lost: {tools: [elsewhere]}
`

// An owner that was stopped until another has its run lists and decides nothing by what it knew, neither for clients that asked
// it meanwhile nor for those that ask later, and writes nothing of what was under way.
func TestAttackByTwoOwnersAtOnce(t *testing.T) {
	twoOwners(t, replicate, func(_ *replicas, was *house) func() { return was.pauses() })
}

// twoOwners has something keep a run's owner from its lease until that is out and others have the run, and it go on then.
func twoOwners(t *testing.T, start starter, keeps func(r *replicas, was *house) (goOn func())) {
	database := databases["PostgreSQL"](t)
	each(t, []key{{"modern", "principal"}, {"modern", "handle"}, {"legacy", "session"}}, func(t *testing.T, k key) {
		upstream, url := mcptest.HTTP(t, server())
		r := start(t, k, twice, database(t), "--surface", "dynamic", "--store-timeout", "2s", "--upstream", url)
		c := r.enter(k, "")
		if x := c.call("ok", ""); x.verdict != "success" {
			t.Fatal(x.raw)
		}
		was, others := r.owner()
		same := func(h *house) *client { // the same client with a connection to one replica
			d := c.twin()
			d.Session, d.web = mcptest.DialWeb(t, h.url)
			d.web.Header = c.web.Header
			d.web.SetID(c.web.ID())
			if k.modern() {
				d.Modern(mcptest.Modern{})
			}
			return d
		}
		r.come(others...)
		held := c.begins("hold", `"who":"me"`)
		upstream.Await(t, 1, "tools/call", "hold")
		number := one[string](t, r.store, "SELECT owner::text FROM fsm_proxy.runs WHERE ended IS NULL")
		began := time.Now()
		goOn := keeps(r, was)
		mcptest.Await(t, "its lease is out", func() bool {
			return one[int](t, r.store, "SELECT count(*) FROM fsm_proxy.leases WHERE ends > now() AND no = "+number) == 0
		})
		stale, late := same(was), same(was)
		hold := mcptest.ToolParams("hold", fmt.Sprintf(`{"who":"me","fsm_run":%q}`, c.handle))
		list := ""
		if c.handle != "" {
			list = fmt.Sprintf(`{"_meta":{"fsm-proxy/run":%q}}`, c.handle)
		}
		var meanwhile sync.WaitGroup
		meanwhile.Go(func() {
			if _, m := stale.posts(t, "tools/call", hold); m.ID != nil {
				if x := read(m, nil); x.verdict == "success" || x.state == "start" || x.state == "after" {
					t.Errorf("a call that came meanwhile: %s", x.raw)
				}
			}
		})
		meanwhile.Go(func() {
			if _, m := late.posts(t, "tools/list", list); strings.Contains(m.String(), `"hold"`) || strings.Contains(m.String(), `"once"`) {
				t.Errorf("a list that was asked for meanwhile: %s", m)
			}
		})
		x := c.answered(held)
		if took := time.Since(began); x.verdict != "outcome_unknown" || took > lease+time.Second+slack {
			t.Errorf("after %v: %s", took, x.raw)
		}
		if x := c.surely("elsewhere", ""); x.verdict != "success" || x.state != "lost" {
			t.Errorf("at the next owner: %s", x.raw)
		}
		if is, _ := r.owner(); is == was {
			t.Error("the run has the owner that is stopped")
		}
		upstream.Open("hold") // what comes of it is there when the process goes on
		goOn()
		meanwhile.Wait()
		for _, at := range []*house{was, others[0], others[1]} {
			mcptest.Await(t, "the replica is served by the run's owner", func() bool {
				answer, m := same(at).posts(t, "tools/call", hold)
				x := read(m, nil)
				if x.verdict == "invalid_transition" && x.state == "lost" {
					return true
				}
				if answer.Status != http.StatusServiceUnavailable && x.verdict != "store_unavailable" || x.state != "" { // it has no lease yet
					t.Fatalf("hold again: HTTP %d %s", answer.Status, answer.Body)
				}
				return false
			})
		}
		if n := upstream.Count("tools/call", "hold"); n != 1 {
			t.Errorf("hold was sent %d times", n)
		}
		r.end()
		ended := 0
		for _, entries := range entriesOf(t, r.store) {
			for _, e := range entries {
				if e.Name == "hold" && e.Type == "ended" {
					ended++
					if e.Outcome != "unknown" {
						t.Errorf("hold has ended: %s", e.text)
					}
				}
			}
		}
		if ended != 1 {
			t.Errorf("hold has ended %d times", ended)
		}
		verified(t, r.store)
	})
}
