package proxy_test

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/proxy"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

const impatient = `
version: 1
initial: start
states:
  start:
    tools:
      act: {timeout: 5s, on_success: succeeded, on_unknown: unsure}
      read_file: {timeout: 20m}
      status:
      wait: {exclusive: true}
    resources: {"file:///plan": {timeout: 7s, on_unknown: unsure}}
    prompts: {plan: {timeout: 8s, on_unknown: unsure}}
  succeeded: {tools: {status: }}
  unsure: {tools: {status: , act: start}}
`

// lasts are how long the answer to a request takes.
func lasts(f func() string) (d time.Duration, answer string) {
	begun := time.Now()
	answer = f()
	return time.Since(begun).Round(time.Second), answer
}

// A call is given up when its binding's time is over, be that before or after that of all calls, in both eras.
func TestTimeoutOfABinding(t *testing.T) {
	for _, modern := range []bool{false, true} {
		for _, x := range []struct {
			method, params string
			want           time.Duration
			state          string
		}{
			{"tools/call", `{"name":"act"}`, 5 * time.Second, "unsure"},
			{"tools/call", `{"name":"read_file"}`, 20 * time.Minute, "start"},
			{"tools/call", `{"name":"status"}`, 5 * time.Minute, "start"},
			{"resources/read", `{"uri":"file:///plan"}`, 7 * time.Second, "unsure"},
			{"prompts/get", `{"name":"plan"}`, 8 * time.Second, "unsure"},
		} {
			var log bytes.Buffer
			bubble(t, impatient, func(r *rig) {
				c := r.connect(plainHello)
				params, old := x.params, c
				if modern {
					c, params = r.modern(), meta(x.params)
				}
				took, answer := lasts(func() string { return c.request(x.method, params).wait() })
				if took != x.want {
					t.Errorf("modern %v, %s: given up after %v", modern, x.params, took)
				}
				has(t, answer, "outcome_unknown")
				old.in(x.state)
				says := "(the policy's timeout)"
				if x.want == 5*time.Minute {
					says = "(--call-timeout)"
				}
				has(t, log.String(), says)
			}, with(func(c *proxy.Config) { c.Log = hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Info}) }), keys(runs.Process))
		}
	}
}

// What a call waits for before it is sent is no part of its time.
func TestTimeoutCountsFromSending(t *testing.T) {
	bubble(t, impatient, func(r *rig) {
		c := r.connect(plainHello)
		holder := c.call("wait")
		k := r.up.next()
		waits := c.call("act")
		synctest.Wait()
		time.Sleep(20 * time.Second)
		k.result(ok)
		holder.wait()
		k = r.up.next()
		time.Sleep(4 * time.Second)
		k.result(ok)
		waits.wait()
		c.in("succeeded")
	})
}

// In shadow the policy bounds nothing.
func TestTimeoutInShadow(t *testing.T) {
	bubble(t, impatient, func(r *rig) {
		c := r.connect(plainHello)
		took, _ := lasts(func() string { return c.call("act").wait() })
		equal(t, "given up after", took, 5*time.Minute)
	}, with(func(c *proxy.Config) { c.Mode = runs.Shadow }))
}
