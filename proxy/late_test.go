package proxy_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

// delayed has every connection but the first come up in a second.
func delayed(c *proxy.Config, u *server) {
	dial, slow := c.Dial, slowly(c.Dial, time.Second)
	c.Dial = func(ctx context.Context, with bridge.Opening, r wire.Receiver) (bridge.Conn, error) {
		if u.dialled() == 0 {
			return dial(ctx, with, r)
		}
		return slow(ctx, with, r)
	}
}

// late cuts the connection, has a request wait for the next one, and changes what holds meanwhile. It is an error if
// the request is sent all the same.
func (c *client) late(method, params string, change func()) {
	c.t.Helper()
	c.up.conn(c.up.dialled() - 1).end()
	before := len(c.up.reached())
	late := c.request(method, params)
	if !late.pending() {
		c.t.Fatal("it does not wait")
	}
	change()
	<-time.After(2 * time.Second) // of the bubble's own time
	for late.pending() {
		c.up.next().result(ok)
	}
	if answer := late.wait(); !strings.Contains(answer, `"error"`) && !strings.Contains(answer, `"isError"`) {
		c.t.Errorf("%s %s is answered %s", method, params, answer)
	}
	for _, sent := range c.up.reached()[before:] {
		if strings.HasPrefix(sent, method) && !strings.HasSuffix(method, "/list") {
			c.t.Errorf("%s has reached the server", sent)
		}
	}
}

// What nothing refuses in shadow, and had to wait for a connection, is not sent any more when the policy is enforced
// by then.
func TestAttackShadowCallThatWaitsForAConnection(t *testing.T) {
	for _, sent := range [][2]string{
		{"tools/call", `{"name":"rogue","task":{}}`},
		{"tools/call", `{"name":"rogue"}`},
		{"vendor/do", `{}`},
		{"completion/complete", `{"ref":{"type":"ref/prompt","name":"rogue"}}`},
		{"resources/subscribe", `{"uri":"file:///rogue"}`},
		{"resources/templates/list", ""},
	} {
		shadows(t, review, func(r *rig, _ *tally) {
			r.connect(plainHello).late(sent[0], sent[1], func() { r.p.SetMode(runs.Enforce) })
		}, delayed)
	}
}

// What a policy passes on, and had to wait for a connection, is not sent any more when the policy in force does not
// pass it on by then.
func TestAttackPassthroughThatWaitsForAConnection(t *testing.T) {
	bubble(t, review+"passthrough: [vendor/do]\n", func(r *rig) {
		next, findings := policy.Parse("p.yaml", []byte(review))
		if next == nil {
			t.Fatal(findings)
		}
		r.connect(plainHello).late("vendor/do", "{}", func() { r.p.Reload(next) })
	}, delayed)
}

// A hidden resource is not subscribed to by what a new connection is brought up with, either.
func TestAttackSubscriptionThatWaitsForAConnection(t *testing.T) {
	bubble(t, review, func(r *rig) {
		r.up.auto = lists(reviewTools...)
		r.connect(plainHello).late("resources/subscribe", `{"uri":"file:///other"}`, func() {})
	}, delayed)
}

// What a session keeps for the next connection is bounded: else a few sessions would fill the memory.
func TestAttackSessionsThatKeepMuch(t *testing.T) {
	bubble(t, review, func(r *rig) {
		r.up.auto = lists(reviewTools...)
		much := `"` + strings.Repeat("x", 1<<20) + `"`
		c := r.open()
		if answer := c.ask("initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":`+much+`}}`); !strings.Contains(answer, "256 KiB") {
			t.Errorf("initialize is answered %.200s", answer)
		}
		c = r.connect(plainHello)
		if answer := c.ask("logging/setLevel", `{"level":"info","_meta":{"a":`+much+`}}`); !strings.Contains(answer, "256 KiB") {
			t.Errorf("logging/setLevel is answered %.200s", answer)
		}
		c = r.open()
		c.ask("initialize", plainHello)
		c.notify("notifications/initialized", `{"_meta":{"a":`+much+`}}`)
		r.up.conn(r.up.dialled() - 1).end()
		c.ask("tools/list", "")
		if told := r.up.conn(r.up.dialled() - 1).notified(); len(told) != 1 || len(told[0]) > 100 {
			t.Errorf("the next connection is told %.300s", told)
		}
	})
}
