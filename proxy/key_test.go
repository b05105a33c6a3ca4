package proxy_test

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/proxy"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

func keys(kind runs.Kind) func(*proxy.Config, *server) {
	return with(func(c *proxy.Config) {
		c.Keys[wire.Modern] = runs.Key{Kind: kind, Header: "X-Run"}
		if kind != runs.Handle {
			c.Keys[wire.Legacy] = c.Keys[wire.Modern]
		}
	})
}

var (
	ann = wire.Principal{Issuer: "https://id", Subject: "ann"}
	bob = wire.Principal{Issuer: "https://id", Subject: "bob"}
)

// as makes a modern client whose requests say this of themselves.
func (r *rig) as(peer observe.Peer) *client {
	c := r.modern()
	c.s.(*seated).peer = peer
	return c
}

// connectAs makes a legacy client that does.
func (r *rig) connectAs(peer observe.Peer) *client { return r.openFor(peer).greet(plainHello) }

// openFor makes a session without initializing it.
func (r *rig) openFor(peer observe.Peer) *client {
	r.t.Helper()
	c := &client{rig: r, log: &journal{}}
	c.own = c.stream("own")
	var err error
	if c.s, err = r.p.OpenFor(peer, c.own); err != nil {
		r.t.Fatal(err)
	}
	return c
}

func (r *rig) modernCall(c *client, tool, result string) string {
	r.t.Helper()
	call := c.request("tools/call", meta(`{"name":"`+tool+`"}`))
	r.up.next().result(result)
	return call.wait()
}

// A run belongs to who is asking: neither a reconnect nor another era begins it anew.
func TestReconnectContinuesAPrincipalsRun(t *testing.T) {
	bubble(t, review, func(r *rig) {
		r.connectAs(observe.Peer{Principal: ann}).do("write_plan", `{"content":[]}`)
		again := r.connectAs(observe.Peer{Principal: ann})
		has(t, again.ask("tools/call", `{"name":"write_plan"}`), "invalid_transition", "in state 'review'")
		has(t, r.as(observe.Peer{Principal: ann}).ask("tools/call", meta(`{"name":"write_plan"}`)), "in state 'review'")
		equal(t, "bob's tools", r.connectAs(observe.Peer{Principal: bob}).listed(wire.Tools), "status read_file list_a write_plan")
		if _, err := r.p.OpenFor(observe.Peer{}, r.open0().own); err == nil {
			t.Error("nobody got a session")
		}
		has(t, r.as(observe.Peer{}).ask("tools/call", meta(`{"name":"status"}`)), "run_not_found", "authenticate")
	}, keys(runs.Principal))
}

func (r *rig) open0() *client {
	c := &client{rig: r, log: &journal{}}
	c.own = c.stream("own")
	return c
}

// Two clients on one run share its turn, and both are told what changed.
func TestTwoClientsOnOneRun(t *testing.T) {
	bubble(t, review, func(r *rig) {
		a, b := r.connectAs(observe.Peer{Principal: ann}), r.connectAs(observe.Peer{Principal: ann})
		call := a.call("write_plan")
		k := r.up.next()
		waits := b.call("write_plan")
		if !waits.pending() {
			t.Error("the other client does not wait for the turn")
		}
		k.result(`{"content":[]}`)
		call.wait()
		has(t, waits.wait(), "invalid_transition")
		synctest.Wait()
		has(t, strings.Join(call.messages(), ""), "tools/list_changed")
		has(t, strings.Join(append(b.own.messages(), waits.messages()...), ""), "tools/list_changed")
		equal(t, "b's tools", b.listed(wire.Tools), "status ask")
		equal(t, "runs", len(r.p.Runs.Infos()), 1)
	}, keys(runs.Principal))
}

// Without its key, with two, or from elsewhere a request has no run, and begins none.
func TestDroppingTheKeyResetsNothing(t *testing.T) {
	bubble(t, review, func(r *rig) {
		header := func(values ...string) observe.Peer {
			return observe.Peer{Trusted: true, Header: func(name string) []string {
				if name != "X-Run" {
					return nil
				}
				return values
			}}
		}
		r.modernCall(r.as(header("one")), "write_plan", `{"content":[]}`)
		has(t, r.as(header("one")).ask("tools/call", meta(`{"name":"write_plan"}`)), "in state 'review'")
		untrusted := header("one")
		untrusted.Trusted = false
		for name, peer := range map[string]observe.Peer{"none": header(), "empty": header(""), "two": header("one", "two"), "no headers": {}, "untrusted": untrusted} {
			has(t, r.as(peer).ask("tools/call", meta(`{"name":"write_plan"}`)), "run_not_found")
			if _, err := r.p.OpenFor(peer, r.open0().own); err == nil {
				t.Errorf("%s: a session", name)
			}
		}
		equal(t, "runs", len(r.p.Runs.Infos()), 1)
	}, keys(runs.Header))
}

func TestPathRuns(t *testing.T) {
	bubble(t, review, func(r *rig) {
		id, err := r.p.Runs.Start(bridge.Stateless, ann)
		if err != nil {
			t.Fatal(err)
		}
		mine := r.as(observe.Peer{Principal: ann, Run: id})
		r.modernCall(mine, "write_plan", `{"content":[]}`)
		foreign := r.as(observe.Peer{Principal: bob, Run: id}).ask("tools/call", meta(`{"name":"status"}`))
		unknown := r.as(observe.Peer{Principal: bob, Run: runs.NewID()}).ask("tools/call", meta(`{"name":"status"}`))
		equal(t, "a foreign run's answer", foreign, unknown)
		has(t, foreign, "run_not_found", "which an operator hands out")
		time.Sleep(25 * time.Hour)
		synctest.Wait()
		has(t, mine.ask("tools/call", meta(`{"name":"status"}`)), "run_expired", "which an operator hands out")
		equal(t, "a foreign expired run's answer", r.as(observe.Peer{Principal: bob, Run: id}).ask("tools/call", meta(`{"name":"status"}`)), unknown)
		equal(t, "runs", len(r.p.Runs.Infos()), 0)
	}, keys(runs.Path))
}

// A URL that an operator hands out is the first one's who comes with it.
func TestMintedRunIsTheFirstComers(t *testing.T) {
	bubble(t, review, func(r *rig) {
		id, err := r.p.Runs.Start(bridge.Stateless, wire.Principal{})
		if err != nil {
			t.Fatal(err)
		}
		r.modernCall(r.as(observe.Peer{Principal: ann, Run: id}), "write_plan", `{"content":[]}`)
		has(t, r.as(observe.Peer{Principal: bob, Run: id}).ask("tools/call", meta(`{"name":"ask"}`)), "run_not_found")
		has(t, r.as(observe.Peer{Run: id}).ask("tools/call", meta(`{"name":"ask"}`)), "run_not_found")
		equal(t, "owner", r.p.Runs.Infos()[0].Owner, ann)
	}, keys(runs.Path))
}

func TestRunsAreBounded(t *testing.T) {
	bubble(t, review, func(r *rig) {
		for range 2 {
			if _, err := r.p.Runs.Start(bridge.Stateless, ann); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := r.p.Runs.Start(bridge.Stateless, ann); err == nil {
			t.Error("ann has three runs")
		}
		id, err := r.p.Runs.Start(bridge.Stateless, bob)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.p.Runs.Start(bridge.Stateless, wire.Principal{}); err == nil {
			t.Error("there are four runs")
		}
		if _, why := r.p.Runs.Find(bridge.Stateless, &observe.Peer{Principal: ann}, id, false); why != runs.ErrNotFound {
			t.Errorf("ann finds bob's run: %v", why)
		}
		bobs, why := r.p.Runs.Find(bridge.Stateless, &observe.Peer{Principal: bob}, id, false)
		if why != nil || r.p.Runs.End(bobs) != nil {
			t.Errorf("bob's run does not end: %v", why)
		}
		if _, err := r.p.Runs.Start(bridge.Stateless, wire.Principal{}); err != nil {
			t.Error(err)
		}
	}, keys(runs.Handle), with(func(c *proxy.Config) { c.MaxRuns, c.MaxRunsPerPrincipal = 3, 2 }))
}

// A run that a call is under way for, or that is found again in time, lives on.
func TestRunsInUseDoNotExpire(t *testing.T) {
	bubble(t, review, func(r *rig) {
		id, _ := r.p.Runs.Start(bridge.Stateless, ann)
		c := r.as(observe.Peer{Principal: ann, Run: id})
		call := c.request("tools/call", meta(`{"name":"write_plan"}`))
		k := r.up.next()
		time.Sleep(30 * time.Hour)
		k.result(`{"content":[]}`)
		call.wait()
		time.Sleep(20 * time.Hour)
		has(t, c.ask("tools/call", meta(`{"name":"write_plan"}`)), "in state 'review'")
	}, keys(runs.Path), with(func(c *proxy.Config) { c.CallTimeout = 100 * time.Hour }))
}

func TestParseRunKey(t *testing.T) {
	for text, ok := range map[string][2]bool{
		"process": {true, true}, "session": {true, false}, "principal": {true, true}, "header:X-Run": {true, true}, "path": {true, true},
		"handle": {false, true}, "header": {false, false}, "header:": {false, false}, "header:a b": {false, false}, "default": {false, false}, "": {false, false}, "path:x": {false, false},
	} {
		for era, want := range ok {
			k, err := runs.ParseKey(bridge.ClientOf(wire.Era(era)), text)
			if (err == nil) != want {
				t.Errorf("%s %q: %v", wire.Era(era), text, err)
			}
			if err == nil && k.String() != text {
				t.Errorf("%q is %q again", text, k)
			}
		}
	}
}

// The log tells an operator of a request without a run what its client is told, and
// no handle.
func TestLogOfStrays(t *testing.T) {
	const id = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	for kind, advice := range map[runs.Kind]string{
		runs.Path:   "There is no such run. A new run begins at a new URL, which an operator hands out.",
		runs.Handle: "There is no such run. A new run begins with the tool fsm_start_run.",
	} {
		var log bytes.Buffer
		bubble(t, review, func(r *rig) {
			has(t, r.as(observe.Peer{Run: id}).ask("tools/call", of(id, "status")), advice)
			has(t, log.String(), "refused: ", "code=run_not_found", "method=tools/call", `reason="`+advice+`"`)
			if strings.Contains(log.String(), id) {
				t.Errorf("the log has the run's id: %s", &log)
			}
		}, keys(kind), with(func(c *proxy.Config) { c.Log = hclog.New(&hclog.LoggerOptions{Output: &log}) }))
	}
}

// Whoever comes back to an expired run begins at the initial state where the key begins
// runs by itself, and hears of the end where it does not.
func TestExpiryIsAReset(t *testing.T) {
	from := observe.Peer{Principal: ann, Run: "a-long-word-Nobody-guesses-42", Trusted: true, Header: func(string) []string { return []string{"one"} }}
	after := func(key runs.Kind, create bool, life time.Duration) (answer string) {
		bubble(t, review, func(r *rig) {
			c := r.as(from)
			r.modernCall(c, "write_plan", `{"content":[]}`)
			time.Sleep(32 * 24 * time.Hour)
			synctest.Wait()
			answer = c.ask("tools/call", meta(`{"name":"apply"}`))
		}, keys(key), with(func(c *proxy.Config) { c.PathCreate, c.RunIdle, c.RunAge = create, life, life }))
		return answer
	}
	const year = 8760 * time.Hour
	for _, key := range []runs.Kind{runs.Principal, runs.Header} {
		has(t, after(key, false, 0), "invalid_transition", "in state 'planning'")
		has(t, after(key, false, year), "invalid_transition", "in state 'review'")
	}
	has(t, after(runs.Path, true, 0), "invalid_transition", "in state 'planning'")
}

// Whoever gets no run is told what to do next, in both eras, and so is the log.
func TestStraysAreToldTheWayOn(t *testing.T) {
	header := func(values ...string) observe.Peer {
		return observe.Peer{Header: func(string) []string { return values }}
	}
	for _, c := range []struct {
		key    runs.Kind
		create bool
		from   observe.Peer
		advice string
	}{
		{runs.Path, false, observe.Peer{Run: "gone"}, "There is no such run. A new run begins at a new URL, which an operator hands out."},
		{runs.Path, false, observe.Peer{}, "Each run has a URL of its own here, which ends in /runs/ID: an operator hands them out."},
		{runs.Path, true, observe.Peer{Run: "short"}, "There is no such run, and none begins with an id that can be guessed: take 22 to 128 random letters, digits, '-' or '_'."},
		{runs.Header, false, header(), "The header X-Run says which run this is, and it is missing: the gateway in front has to set it."},
		{runs.Header, false, header("one"), "The header X-Run is taken from a trusted gateway only, which --trusted-proxies names."},
	} {
		var log bytes.Buffer
		bubble(t, review, func(r *rig) {
			has(t, r.as(c.from).ask("tools/call", meta(`{"name":"status"}`)), c.advice)
			if _, err := r.p.OpenFor(c.from, r.open0().own); err == nil || err.Error() != c.advice {
				t.Errorf("a session's client is told %v, want %s", err, c.advice)
			}
			has(t, log.String(), "method=tools/call", "method=initialize")
			equal(t, "lines that say it", strings.Count(log.String(), c.advice), 2)
		}, keys(c.key), with(func(cfg *proxy.Config) {
			cfg.PathCreate, cfg.Log = c.create, hclog.New(&hclog.LoggerOptions{Output: &log})
		}))
	}
}
