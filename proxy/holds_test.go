package proxy_test

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/proxy"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

// away is a call that has asked its client, and was answered while that is away.
type away struct{ key, state string }

// leaves has a client call something that asks it and is answered before it comes
// back.
func (c *client) leaves(answer string) (a away, refused string) {
	c.t.Helper()
	call := c.request("tools/call", meta(`{"name":"status","arguments":{"n":12345678901234567890}}`))
	k := c.up.next()
	k.conn.says(elicit, k)
	if call.pending() {
		notified := k.conn.notified()
		has(c.t, notified[len(notified)-1], `"id":7,"error"`, "too many of its questions are open")
		k.result(answer)
		return away{}, call.wait()
	}
	k.result(answer)
	keys, state := required(c.t, call.wait())
	return away{keys[0], state}, ""
}

func (c *client) returns(a away) string {
	c.t.Helper()
	return c.comeBack("status", a.key, a.state, `{"action":"accept"}`).wait()
}

// flood has a client leave for as long as it is asked, and returns how often it was.
func (c *client) flood(most int) (all []away) {
	c.t.Helper()
	for range most {
		a, refused := c.leaves(ok)
		if refused != "" {
			has(c.t, refused, `"text":"ok"`, `"resultType":"complete"`)
			break
		}
		all = append(all, a)
	}
	synctest.Wait()
	return all
}

func inFlight(n int) func(*proxy.Config, *server) {
	return with(func(c *proxy.Config) { c.MaxInFlight = n })
}

// Answers that nobody comes back for are kept in no greater number than --max-in-flight
// in a run. One call more asks its client nothing and still has its answer.
func TestFloodOfHoldsInOneRun(t *testing.T) {
	bubble(t, review, func(r *rig) {
		a, b := r.as(observe.Peer{Principal: ann}), r.as(observe.Peer{Principal: bob})
		held := a.flood(100)
		equal(t, "held", len(held), 10)
		equal(t, "held for another", len(b.flood(3)), 3)
		for _, h := range held {
			has(t, a.returns(h), `"text":"ok"`)
		}
		equal(t, "held when all have come back", len(a.flood(100)), 10)
	}, keys(runs.Process), inFlight(10))
}

func TestFloodOfHoldsOfOnePrincipal(t *testing.T) {
	bubble(t, review, func(r *rig) {
		a, b := r.as(observe.Peer{Principal: ann}), r.as(observe.Peer{Principal: bob})
		equal(t, "held", len(a.flood(2000)), 1000)
		equal(t, "held for another", len(b.flood(1)), 1)
	}, keys(runs.Process), inFlight(5000))
}

func TestFloodOfHoldsInAll(t *testing.T) {
	bubble(t, review, func(r *rig) {
		equal(t, "held", len(r.modern().flood(20_000)), 10_000)
	}, inFlight(50_000))
}

// An answer for which there is no room is dropped, and neither the log nor its client
// is left in the dark.
func TestFloodOfKeptAnswers(t *testing.T) {
	var log bytes.Buffer
	bubble(t, review, func(r *rig) {
		c := r.modern()
		large := `{"content":[{"type":"text","text":"` + strings.Repeat("x", 3<<20) + `"}]}`
		first, _ := c.leaves(large)
		second, _ := c.leaves(large)
		third, _ := c.leaves(ok)
		has(t, c.returns(second), "-32603", "there was no room to keep the answer", "It may have happened")
		has(t, c.returns(third), `"text":"ok"`)
		has(t, c.returns(first), "xxx")
		fourth, _ := c.leaves(large)
		has(t, c.returns(fourth), "xxx")
		equal(t, "told", strings.Count(log.String(), "an answer was dropped: there is no room"), 1)
	}, with(func(c *proxy.Config) { c.Log = hclog.New(&hclog.LoggerOptions{Output: &log}) }))
}

func TestKeptAnswerExpires(t *testing.T) {
	var log bytes.Buffer
	bubble(t, review, func(r *rig) {
		c := r.modern()
		a, _ := c.leaves(ok)
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		has(t, c.returns(a), "-32602", "has expired")
		has(t, log.String(), "an answer was dropped: its client did not come back in time", "tool=status")
	}, with(func(c *proxy.Config) { c.Log = hclog.New(&hclog.LoggerOptions{Output: &log}) }))
}
