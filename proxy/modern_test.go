package proxy_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/proxy"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
)

// seated is a session of a test's client whose messages are of the modern era, each
// on a stream of its own.
type seated struct {
	p    *proxy.Proxy
	peer observe.Peer
}

func (s *seated) Handle(m *wire.Message, out wire.Stream) wire.Pending {
	return s.p.Serve(m, out, s.peer)
}
func (*seated) Version() string { return wire.ModernRevision }
func (*seated) Listen()         {}
func (*seated) Close()          {}

const modernMeta = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":%s,` +
	`"io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"}`

// modern makes a client of the modern era.
func (r *rig) modern() *client {
	c := &client{rig: r, log: &journal{}}
	c.own = c.stream("own")
	c.s = &seated{p: r.p}
	return c
}

// meta are params with what a modern request needs in _meta; params has no _meta.
func meta(params string, more ...string) string {
	m := `"_meta":{` + fmt.Sprintf(modernMeta, `{"elicitation":{}}`) + strings.Join(append([]string{""}, more...), ",") + "}"
	if inner := strings.TrimSuffix(strings.TrimPrefix(params, "{"), "}"); inner != "" {
		m = inner + "," + m
	}
	return "{" + m + "}"
}

func TestModernOnLegacy(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.modern()
		has(t, c.ask("server/discover", meta("")), `"supportedVersions":["2026-07-28","2025-11-25"`, `"resultType":"complete"`, `"ttlMs":`,
			`"cacheScope":"private"`, `"io.modelcontextprotocol/serverInfo":{"name":"up","version":"1"}`, "Be kind.")
		list := c.ask("tools/list", meta(""))
		has(t, list, "[Allowed in state: planning]", "[Allowed in state: applying]", `"resultType":"complete"`, `"ttlMs":30000`, `"cacheScope":"private"`)
		call := c.request("tools/call", meta(`{"name":"write_plan"}`))
		k := r.up.next()
		if strings.Contains(string(k.m.Raw), "io.modelcontextprotocol") {
			t.Errorf("a legacy upstream got %s", k.m.Raw)
		}
		k.result(`{"content":[]}`)
		has(t, call.wait(), `"resultType":"complete"`, "State is now 'review'", `"fsm-proxy/state"`)
		has(t, c.ask("tools/call", meta(`{"name":"read_file"}`)), `"isError":true`, "invalid_transition", `"resultType":"complete"`)
		equal(t, "the static list", c.ask("tools/list", meta(""))[30:], list[30:])
		has(t, c.ask("resources/read", meta(`{"uri":"file:///other"}`)), "-32602")
		has(t, c.ask("ping", meta("")), "-32601")
	})
}

func TestModernOnModern(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.modern()
		call := c.request("tools/call", meta(`{"name":"status"}`))
		k := r.up.next()
		has(t, string(k.m.Raw), "io.modelcontextprotocol/protocolVersion")
		k.result(`{"resultType":"complete","content":[],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"other","version":"2"}}}`)
		has(t, call.wait(), `"serverInfo":{"name":"other","version":"2"}`[1:])
	}, modernUpstream)
}

func TestLegacyOnModern(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.connect(ableHello)
		call := c.call("status")
		k := r.up.next()
		has(t, string(k.m.Raw), `"io.modelcontextprotocol/protocolVersion":"2026-07-28"`, `"io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"}`,
			`"io.modelcontextprotocol/clientCapabilities":{"sampling":{},"elicitation":{"form":{}},"roots":{"listChanged":true}}`)
		k.result(`{"resultType":"complete","content":[]}`)
		call.wait()
		has(t, c.ask("resources/subscribe", `{"uri":"file:///plan"}`), `"result":{}`)
		equal(t, "listening", r.up.count("listen file:///plan"), 1)
	}, modernUpstream)
}

func modernUpstream(_ *proxy.Config, u *server) {
	u.era = wire.Modern
	u.hello = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true},"prompts":{}},` +
		`"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"up","version":"1"}}}`
}

func TestModernFaults(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c := r.modern()
		version := `"io.modelcontextprotocol/protocolVersion":`
		for params, code := range map[string]string{
			`{"_meta":{` + version + `"2027-01-01","io.modelcontextprotocol/clientCapabilities":{}}}`: "-32022",
			`{"_meta":{` + version + `"2026-07-28"}}`:                                                 "-32602",
			`{"_meta":{` + version + `"2026-07-28","io.modelcontextprotocol/clientCapabilities":[]}}`: "-32602",
			`{"_meta":{` + version + `20260728,"io.modelcontextprotocol/clientCapabilities":{}}}`:     "-32602",
		} {
			has(t, c.ask("tools/list", params), code)
		}
		equal(t, "dialled", r.up.dialled(), 0)
	})
}

// Two clients that number their requests alike are told apart.
func TestSameIDsOfTwoModernClients(t *testing.T) {
	bubble(t, review, func(r *rig) {
		a, b := r.modern(), r.modern()
		first := a.request("tools/call", meta(`{"name":"status","arguments":{"of":"a"}}`))
		k := r.up.next()
		second := b.request("tools/call", meta(`{"name":"status","arguments":{"of":"b"}}`))
		l := r.up.next()
		l.result(`{"content":[{"type":"text","text":"for b"}]}`)
		k.result(`{"content":[{"type":"text","text":"for a"}]}`)
		has(t, first.wait(), "for a")
		has(t, second.wait(), "for b")
	})
}

func TestListen(t *testing.T) {
	bubble(t, review, func(r *rig) {
		c, other := r.modern(), r.modern()
		l := c.request("subscriptions/listen", meta(`{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["file:///plan","file:///other"]}}`))
		synctest.Wait()
		equal(t, "acknowledged", strings.Join(l.messages(), ""), `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":`+
			`{"_meta":{"io.modelcontextprotocol/subscriptionId":1},"notifications":{"toolsListChanged":true,"resourceSubscriptions":["file:///plan"]}}}`)
		k := r.up.next()
		equal(t, "subscribed", k.m.Method, "resources/subscribe")
		k.result("{}")
		r.up.conn(0).says(`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"file:///plan"}}`, nil)
		synctest.Wait()
		has(t, l.messages()[1], `"uri":"file:///plan"`, `"io.modelcontextprotocol/subscriptionId":1`)
		o := other.request("subscriptions/listen", meta(`{"notifications":{"toolsListChanged":true}}`))
		synctest.Wait()
		r.p.Refuse()
		has(t, l.wait(), `"resultType":"complete"`, `"io.modelcontextprotocol/subscriptionId":1`)
		has(t, o.wait(), `"resultType":"complete"`)
	})
}
