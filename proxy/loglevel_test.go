package proxy_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
)

const atInfo = `"io.modelcontextprotocol/logLevel":"info"`

// logs says a log message of a level, as an upstream over stdio does: for no call.
func (r *rig) logs(level string) {
	r.up.conn(0).says(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":%q,"data":"said"}}`, level), nil)
	synctest.Wait()
}

// A log message of a legacy upstream over stdio reaches the modern call that is in
// flight and asked for it; the upstream is told the level first.
func TestLogLevelOfModernRequestOnLegacyUpstream(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.modern()
		call := c.request("tools/call", meta(`{"name":"status"}`, atInfo))
		k := r.up.next()
		has(t, string(k.m.Raw), "logging/setLevel", `"level":"info"`)
		k.result("{}")
		k = r.up.next()
		equal(t, "sent then", k.m.Method, "tools/call")
		r.logs("debug")
		r.logs("warning")
		equal(t, "log messages", strings.Count(strings.Join(call.messages(), ""), "notifications/message"), 1)
		k.result(`{"content":[]}`)
		call.wait()

		call = c.request("tools/call", meta(`{"name":"status"}`))
		k = r.up.next()
		r.logs("emergency")
		k.result(`{"content":[]}`)
		call.wait()
		if got := strings.Join(call.messages(), ""); strings.Contains(got, "notifications/message") {
			t.Errorf("a request that asked for no log messages got %s", got)
		}
		call = c.request("tools/call", meta(`{"name":"status"}`, atInfo))
		k = r.up.next()
		equal(t, "the level is set once", k.m.Method, "tools/call")
		k.result(`{"content":[]}`)
		call.wait()
	})
}
