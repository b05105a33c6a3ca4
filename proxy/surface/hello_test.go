package surface

import (
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

func parsed(t *testing.T, more string) *policy.Policy {
	t.Helper()
	p, findings := policy.Parse("test.yaml", []byte("version: 1\ninitial: a\nstates:\n  a: {tools: {status: }}\n"+more))
	if p == nil {
		t.Fatal(findings)
	}
	return p
}

func message(t *testing.T, text string, from wire.Side) *wire.Message {
	t.Helper()
	m, err := wire.Read([]byte(text), from)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestGreeting is an introduction there and back, without a proxy.
func TestGreeting(t *testing.T) {
	p := parsed(t, "upstream_may: [sampling]\n")
	at := run.Snapshot{Policy: p}
	request := message(t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2031-01-01",`+
		`"capabilities":{"sampling":{},"roots":{},"vendor":{}},"clientInfo":{"name":"claude-ai (via mcp-remote)","version":"1"}}}`, wire.FromClient)
	config := &Config{}
	g := config.Greet(request, at)
	opening, err := g.Opening()
	if err != nil {
		t.Fatal(err)
	}
	if sent := string(opening.Initialize.Raw); !strings.Contains(sent, `"capabilities":{"sampling":{}}`) || strings.Contains(sent, "2031") {
		t.Errorf("sent %s", sent)
	}
	answer := func(version string) *wire.Message {
		return message(t, `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"`+version+`","capabilities":{"tools":{}},"serverInfo":{}}}`, wire.FromUpstream)
	}
	result, h, err := g.Welcome(answer("2025-11-25"), p)
	if err != nil || !h.Static() || h.Annotate != AnnotateText || h.May != (policy.UpstreamMay{Sampling: true}) || !h.Lists[wire.Tools] || h.Lists[wire.Prompts] {
		t.Errorf("settled %+v, %v", h, err)
	}
	if !strings.Contains(string(result), `"tools":{"listChanged":true}`) {
		t.Errorf("answered %s", result)
	}
	if _, _, err := g.Welcome(answer("2031-01-01"), p); err == nil {
		t.Error("an unknown revision")
	}
}

// TestKeepsAreBounded by what all sessions keep, and given back when one ends.
func TestKeepsAreBounded(t *testing.T) {
	var keeps Keeps
	large := &wire.Message{Raw: make([]byte, maxKept)}
	all := make([]Kept, 1000)
	n := 0
	for ; ; n++ {
		if _, refusal := keeps.Keep(&all[n], Level, large); refusal != "" {
			break
		}
	}
	if n != maxKeptAll/2/maxKept {
		t.Errorf("%d sessions keep large messages", n)
	}
	keeps.Drop(&all[0])
	if _, refusal := keeps.Keep(&all[n], Level, large); refusal != "" {
		t.Error(refusal)
	}
	if _, refusal := keeps.Keep(&all[1], Level, large); refusal != "" {
		t.Errorf("in place of the last: %s", refusal)
	}
}
