//go:build long && unix

package runs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

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
	r := replicate(t, k, steps, databases(t)(t), "--upstream", url)
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
	r := replicate(t, k, steps, databases(t)(t), "--upstream", url)
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
	database := databases(t)
	each(t, []key{{"modern", "principal"}, {"modern", "handle"}, {"legacy", "session"}}, func(t *testing.T, k key) {
		upstream, url := mcptest.HTTP(t, server())
		r := start(t, k, twice, database(t), "--surface", "dynamic", "--store-timeout", "2s", "--upstream", url)
		c, was, others := r.entered(k)
		r.come(others...)
		held := c.begins("hold", `"who":"me"`)
		upstream.Await(t, 1, "tools/call", "hold")
		number := one[string](t, r.store, "SELECT owner::text FROM fsm_proxy.runs WHERE ended IS NULL")
		began := time.Now()
		goOn := keeps(r, was)
		mcptest.Await(t, "its lease is out", func() bool {
			return one[int](t, r.store, "SELECT count(*) FROM fsm_proxy.leases WHERE ends > now() AND no = "+number) == 0
		})
		stale, late := c.at(t, was), c.at(t, was)
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
				answer, m := c.at(t, at).posts(t, "tools/call", hold)
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

// onceOnly has an edge that nobody may take twice.
const onceOnly = `version: 1
name: once only
initial: start
everywhere: {tools: [ok]}
states:
  start: {tools: {once: {on_success: after, on_unknown: lost}}}
  after: {}
  lost: {tools: [elsewhere]}
`

// passed are replicas and a client of a run, all of whose requests another replica passes on to the owner by a line.
func passed(t *testing.T, k key, store string) (upstream *mcptest.Upstream, r *replicas, c *client, door *line) {
	t.Helper()
	upstream, url := mcptest.HTTP(t, server())
	r = lined(t, k, onceOnly, store, "--upstream", url)
	for _, door := range r.doors {
		door.records()
	}
	c = r.enter(k, "")
	if x := c.call("ok", ""); x.verdict != "success" {
		t.Fatal(x.raw)
	}
	owner, others := r.owner()
	r.come(others[0])
	if x := c.call("ok", ""); x.verdict != "success" {
		t.Fatal(x.raw)
	}
	return upstream, r, c, r.doors[owner]
}

// Who has recorded what replicas say to each other, and says it again, gets nothing done.
func TestAttackByReplayedRequests(t *testing.T) {
	t.Parallel()
	upstream, _, c, door := passed(t, key{"modern", "principal"}, databases(t)(t))
	said := door.recorded()
	if len(said) == 0 || !slices.ContainsFunc(said, func(p []byte) bool { return len(p) > 1000 }) {
		t.Fatalf("nothing was recorded: %d connections", len(said))
	}
	for _, one := range said {
		again, err := net.Dial("tcp", door.to)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := again.Write(one); err != nil {
			t.Error(err)
		}
		_ = again.SetReadDeadline(time.Now().Add(mcptest.Patience))
		if _, err := io.Copy(io.Discard, again); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("the replica waits for more of it")
		}
		again.Close()
	}
	if n := upstream.Count("tools/call"); n != 2 {
		t.Errorf("%d calls were sent, want 2", n)
	}
	if x := c.call("once", ""); x.verdict != "success" || x.state != "after" {
		t.Error(x.raw)
	}
}

// A request that is altered on its way, or comes twice, is not done as it came then, and never twice: its client hears that
// nobody knows, or that nothing was done.
func TestAttackByAlteredRequests(t *testing.T) {
	database := databases(t)
	t.Parallel()
	for name, attack := range map[string]struct {
		alter func(p []byte) []byte
		most  int // so often it may be done
	}{
		"a flipped byte": {func(p []byte) []byte { p[len(p)-1] ^= 1; return p }, 0},
		"a second copy":  {func(p []byte) []byte { return append(p, p...) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, []key{{"modern", "principal"}, {"legacy", "session"}}, func(t *testing.T, k key) {
				upstream, r, c, door := passed(t, k, database(t))
				altered := 0
				door.alters(func(p []byte) []byte { // of the connection that there is
					if altered++; altered == 1 {
						return attack.alter(p)
					}
					return p
				})
				x := c.call("once", "")
				if x.verdict != "outcome_unknown" && (attack.most == 0 || x.verdict != "success") {
					t.Error(x.raw)
				}
				if altered == 0 {
					t.Error("nothing was altered")
				}
				door.alters(nil)
				r.come(r.all...)
				mcptest.Await(t, "the run is where its upstream has it be", func() bool {
					sent, is := upstream.Count("tools/call", "once"), c.call("elsewhere", "").state
					if sent > attack.most || x.verdict == "success" && is != "after" {
						t.Fatalf("it was sent %d times, and the run is in %s: %s", sent, is, x.raw)
					}
					return (sent == 0) == (is == "start")
				})
			})
		})
	}
}

// The store says in turns that one of two replicas has a run and that the other has it, while a third passes on to them what
// it is asked. Nothing is passed on twice, and all is answered in a bounded time.
func TestAttackByCircles(t *testing.T) {
	t.Parallel()
	k := key{"modern", byHeader}
	upstream, url := mcptest.HTTP(t, server())
	r := replicate(t, k, onceOnly, databases(t)(t), "--upstream", url)
	asked := r.all[0]
	r.come(asked)
	var clients []*client
	for i := range 12 {
		c := r.who(k, "")
		c.web.Header.Set(gatewayHeader, fmt.Sprint("run ", i))
		if x := c.call("ok", ""); x.verdict != "success" {
			t.Fatal(x.raw)
		}
		clients = append(clients, c)
	}
	asked.again(syscall.SIGTERM) // and so has none of them
	var pair []string
	for _, h := range r.all[1:] {
		pair = append(pair, one[string](t, r.store, fmt.Sprintf("SELECT no::text FROM fsm_proxy.leases WHERE holder LIKE 'process %d %%'", h.process.Process.Pid)))
	}
	turned := make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var turning sync.WaitGroup
	turning.Go(func() {
		db, err := pgx.Connect(t.Context(), r.store)
		if err != nil {
			t.Error(err)
			return
		}
		defer db.Close(context.Background())
		for i := 0; ctx.Err() == nil; i++ {
			if _, err := db.Exec(t.Context(), "UPDATE fsm_proxy.runs SET owner = "+pair[i%2]+", fence = fence + 1"); err != nil {
				t.Error(err)
				return
			}
			if i == 0 {
				close(turned)
			}
		}
	})
	<-turned
	verdicts, began := map[string]int{}, time.Now()
	var under []int
	for _, c := range clients {
		under = append(under, c.begins("ok", ""))
	}
	for i, c := range clients {
		x := c.answered(under[i])
		if took := time.Since(began); took > patience+slack || x.verdict != "success" && x.verdict != "store_unavailable" && x.verdict != "outcome_unknown" {
			t.Errorf("after %v: %s", took, x.raw)
		}
		verdicts[x.verdict]++
	}
	stop()
	turning.Wait()
	passed := r.passedOn(t)
	if passed[0] < len(clients) || passed[1] != 0 || passed[2] != 0 {
		t.Errorf("replicas have passed on %v requests, and only the first was asked", passed)
	}
	if n := upstream.Count("tools/call", "ok") - len(clients); n < verdicts["success"] || n > verdicts["success"]+verdicts["outcome_unknown"] {
		t.Errorf("%d calls were sent, and answered were %v", n, verdicts)
	}
	t.Logf("answers: %v; passed on: %v", verdicts, passed)
	mcptest.Await(t, "the runs go on", func() bool {
		clients = slices.DeleteFunc(clients, func(c *client) bool {
			x := c.call("once", "")
			if x.verdict != "success" && x.verdict != "store_unavailable" {
				t.Fatal(x.raw)
			}
			return x.verdict == "success"
		})
		return len(clients) == 0
	})
	if n := upstream.Count("tools/call", "once"); n != verdicts["success"]+verdicts["store_unavailable"]+verdicts["outcome_unknown"] {
		t.Errorf("once was sent %d times", n)
	}
}

// passedOn is how many requests each replica has passed on.
func (r *replicas) passedOn(t *testing.T) (all []int) {
	t.Helper()
	for _, h := range r.all {
		n := 0
		for line := range strings.Lines(metrics(t, h.flag("--health"))) {
			if strings.HasPrefix(line, "fsm_proxy_passed_on_total{") {
				is, err := strconv.Atoi(strings.Fields(line)[1])
				if err != nil {
					t.Fatal(err)
				}
				n += is
			}
		}
		all = append(all, n)
	}
	return all
}
