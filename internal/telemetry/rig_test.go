package telemetry_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
	"github.com/fsm-proxy/fsm-proxy/internal/streamhttp"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/notify"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/surface"
	"github.com/fsm-proxy/fsm-proxy/upstream"
)

func TestMain(m *testing.M) { mcptest.Main(m, nil) }

// plan is the policy of the tests here.
const plan = `version: 1
name: deploy
initial: start
states:
  start:
    tools: {look: , "read_*": , move: after, fail: {on_error: after}}
    resources: {"w://shown": }
  after:
    tools: [look, move]
`

// rig is a proxy between an upstream over HTTP and clients over HTTP, all in one
// process.
type rig struct {
	t        *testing.T
	proxy    *proxy.Proxy
	upstream *mcptest.Upstream
	url      string
}

func newRig(t *testing.T, tell observe.Telemetry) *rig {
	t.Helper()
	r := &rig{t: t}
	var url string
	r.upstream, url = mcptest.HTTP(t, mcptest.Script{Tools: map[string]func(*mcptest.Exchange){
		"look": nil, "read_a": nil, "move": nil, "hidden": nil,
		"fail":   func(e *mcptest.Exchange) { e.Result(mcptest.ErrorText("broken")) },
		"read_b": func(e *mcptest.Exchange) { e.Fail(-31999, "odd") },
	}}.Server())
	server, err := upstream.New(upstream.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	r.proxy, err = proxy.New(proxy.Config{
		Policy: parse(t, plan),
		Dial: func(ctx context.Context, with bridge.Opening, to wire.Receiver) (bridge.Conn, error) {
			return server.Dial(ctx, upstream.Opening(with), to)
		},
		Notifier:  func(send func(uint8) bool) surface.Notifier { return notify.New(send) },
		Telemetry: tell,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.proxy.Close)
	r.serve()
	return r
}

// serve puts the proxy behind an address.
func (r *rig) serve() {
	front := streamhttp.NewServer(streamhttp.ServerConfig{Loopback: true,
		Open: func(own wire.Stream, from streamhttp.PeerInfo) (wire.Session, error) {
			return r.proxy.OpenFor(observe.Peer{Session: from.Session, Remote: from.RemoteAddr}, own)
		}})
	web := httptest.NewServer(front)
	r.t.Cleanup(web.Close)
	r.t.Cleanup(func() { _ = front.Close(context.Background()) })
	r.url = web.URL + "/mcp"
}

// open begins a session.
func (r *rig) open() (*mcptest.Session, *mcptest.Web) {
	r.t.Helper()
	s, web := mcptest.DialWeb(r.t, r.url)
	s.Initialize()
	return s, web
}

func parse(t *testing.T, text string) *policy.Policy {
	t.Helper()
	p, findings := policy.Parse("plan.yaml", []byte(text))
	if p == nil {
		t.Fatal(findings)
	}
	return p
}

// scrape returns the lines of the metrics that begin with one of the prefixes.
func scrape(t *testing.T, h http.Handler, prefixes ...string) (lines []string) {
	t.Helper()
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(answer.Body.String()) {
		for _, p := range prefixes {
			if strings.HasPrefix(line, p) {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
	}
	return lines
}

func message(raw string) *wire.Message {
	m, err := wire.Read([]byte(raw), wire.FromClient)
	if err != nil {
		panic(err)
	}
	return m
}
