package proxy_test

import (
	"strings"
	"testing"
	"testing/synctest"
)

// A draft may sample, a review may elicit.
const asking = `version: 1
initial: draft
upstream_may: [sampling, elicitation]
states:
  draft:
    upstream_may: [sampling]
    tools: {status: stay, submit: {on_any: review}}
  review:
    upstream_may: [elicitation]
    tools: {status: stay, redo: {on_any: draft}}
`

// asks has the upstream ask, for a call or for none, and reports whether the client was asked. What it
// was not asked is answered -32601.
func asks(r *rig, c *client, up *conn, method string, of *upcall, sent func() []string) bool {
	r.t.Helper()
	before, answered := len(sent()), len(up.notified())
	up.says(`{"jsonrpc":"2.0","id":"q","method":"`+method+`","params":{}}`, of)
	synctest.Wait()
	asked, answer := len(sent()) > before, strings.Join(up.notified()[answered:], "")
	if asked != (answer == "") || !asked && !strings.Contains(answer, `"id":"q","error":{"code":-32601`) {
		r.t.Errorf("%s: asked %v, answered %s", method, asked, answer)
	}
	return asked
}

// What counts is the state when the upstream asks, be it for a call that began in another one, and
// also after a reload.
func TestUpstreamAsksInTheStateOfTheRun(t *testing.T) {
	bubble(t, asking, func(r *rig) {
		c := r.connect(ableHello)
		up := r.up.conn(0)
		has(t, r.up.asked[0], `"sampling"`, `"elicitation"`)
		if strings.Contains(r.up.asked[0], `"roots"`) {
			t.Errorf("told %s", r.up.asked[0])
		}
		long := c.call("status")
		k := r.up.next()
		in := func(state string, sampling, elicitation, roots bool) {
			t.Helper()
			for method, want := range map[string]bool{"sampling/createMessage": sampling, "elicitation/create": elicitation, "roots/list": roots} {
				if asks(r, c, up, method, k, long.messages) != want {
					t.Errorf("%s in %s: %v", method, state, !want)
				}
			}
		}
		in("draft", true, false, false)
		c.do("submit", ok)
		in("review", false, true, false)
		c.do("redo", ok)
		in("draft again", true, false, false)
		r.p.Reload(parse(t, strings.Replace(asking, "upstream_may: [sampling]", "upstream_may: [elicitation]", 1)))
		in("draft, reloaded", false, true, false)
		r.p.Reload(parse(t, strings.Replace(asking, "    upstream_may: [sampling]\n", "", 1)))
		in("draft without a list", true, true, false)
		r.p.Reload(parse(t, "renamed: {draft: planning}\n"+strings.Replace(review, "  planning:", "  planning:\n    upstream_may: []", 1)))
		in("what the reload has made of it", false, false, false)
		k.result(ok)
		long.wait()
	})
}

// A run that a reload leaves on its own policy may be asked what its state lets, and no more than the
// policy in force.
func TestPinnedRunIsAskedByBothPolicies(t *testing.T) {
	for _, tt := range []struct {
		inForce               string
		sampling, elicitation bool
	}{
		{"", true, false},
		{"upstream_may: [elicitation]\n", false, false},
		{"upstream_may: []\n", false, false},
		{"upstream_may: [sampling]\n", true, false},
	} {
		bubble(t, asking, func(r *rig) {
			c := r.connect(ableHello)
			r.p.Reload(parse(t, "on_reload: pin\n"+tt.inForce+review))
			if asks(r, c, r.up.conn(0), "sampling/createMessage", nil, c.own.messages) != tt.sampling || asks(r, c, r.up.conn(0), "elicitation/create", nil, c.own.messages) != tt.elicitation {
				t.Errorf("%q", tt.inForce)
			}
		})
	}
}

// What a client says of its roots goes up from the states in which the upstream may ask for them.
func TestRootsHaveChangedInAState(t *testing.T) {
	source := strings.NewReplacer("[sampling, elicitation]", "[roots]", "[sampling]", "[]", "[elicitation]", "[roots]").Replace(asking)
	bubble(t, source, func(r *rig) {
		c := r.connect(ableHello)
		up := r.up.conn(0)
		told := func() int { return strings.Count(strings.Join(up.notified(), ""), "roots/list_changed") }
		c.notify("notifications/roots/list_changed", "")
		equal(t, "told in draft", told(), 0)
		c.do("submit", ok)
		c.notify("notifications/roots/list_changed", "")
		equal(t, "told in review", told(), 1)
	})
}

// To a stateless upstream each request says what it may ask in the state that the run is in, and by an
// answer it asks no more.
func TestStatelessUpstreamAsksInTheStateOfTheRun(t *testing.T) {
	bubble(t, asking, func(r *rig) {
		c := r.modern()
		const required = `{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{"message":"m"}}}}`
		call := c.request("tools/call", meta(`{"name":"status"}`))
		k := r.up.next()
		if strings.Contains(string(k.m.Raw), "elicitation") {
			t.Errorf("offered in draft: %s", k.m.Raw)
		}
		k.result(required)
		has(t, call.wait(), "upstream_unavailable", "does not let it")
		long := c.request("tools/call", meta(`{"name":"status"}`))
		late := r.up.next() // is answered once the run is in review
		has(t, r.modernCall(c, "submit", `{"content":[]}`), "State is now 'review'")
		late.result(required)
		has(t, long.wait(), `"resultType":"input_required"`)
		call = c.request("tools/call", meta(`{"name":"status"}`))
		k = r.up.next()
		has(t, string(k.m.Raw), "elicitation")
		has(t, r.modernCall(c, "redo", `{"content":[]}`), "State is now 'draft'")
		k.result(required) // was offered, and is forbidden by now
		has(t, call.wait(), "upstream_unavailable", "does not let it")
	}, modernUpstream)
}

// A stateless client is asked by an upstream with a session in the state of the run, not in that of
// the call's beginning.
func TestStatelessClientIsAskedInTheStateOfTheRun(t *testing.T) {
	bubble(t, asking, func(r *rig) {
		c := r.modern()
		call := c.request("tools/call", meta(`{"name":"status"}`))
		k := r.up.next()
		k.conn.says(elicit, k)
		synctest.Wait()
		has(t, strings.Join(k.conn.notified(), ""), "-32601")
		has(t, r.modernCall(c, "submit", `{"content":[]}`), "State is now 'review'")
		k.conn.says(strings.Replace(elicit, `"id":7`, `"id":8`, 1), k)
		has(t, call.wait(), `"resultType":"input_required"`, `"elicitation/create"`)
	})
}

// In shadow all is asked, and what the state would have forbidden is noted.
func TestShadowNotesWhatAStateWouldNotLetBeAsked(t *testing.T) {
	shadows(t, asking, func(r *rig, o *tally) {
		c := r.connect(ableHello)
		for method, want := range map[string]string{"sampling/createMessage": "", "elicitation/create": "not_available"} {
			if !asks(r, c, r.up.conn(0), method, nil, c.own.messages) || strings.Join(o.take(), " ") != want {
				t.Errorf("%s is asked otherwise", method)
			}
		}
	})
}
