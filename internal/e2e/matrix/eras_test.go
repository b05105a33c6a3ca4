//go:build long

package matrix

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest/balancer"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest/postgres"
)

// A feature is what a cell of the matrix is about.
type feature int

const (
	listing feature = iota
	calling
	refusing
	stepping
	changing // the changed list, or the refusal where the list is static
	progressing
	eliciting
	cancelling
	features
)

func (f feature) String() string {
	return []string{"list", "call", "refused", "step", "changed", "progress", "elicit", "cancel"}[f]
}

// row is one client over one framing with one upstream; its verdicts by feature: "ok", what went wrong, or "§" and the
// sentence why it cannot be.
type row struct {
	client, downstream, upstream, framing string
	verdicts                              [features]string
}

// eraClient is a client of the matrix.
type eraClient struct {
	name   string
	modern bool // it speaks the modern era with a server that does
	play   func(t *testing.T, scenario string, u target) []line
	cannot map[feature]string // by the client
	alone  map[feature]string // over stdio besides, where each connection has a proxy of its own
	asks   bool               // it lists before it calls, and calls nothing that is not listed

	refusal  string   // what it makes of a result with isError; empty: it shows it as it is
	defaults bool     // the proxy has its default run keys, so that a modern client has a session over HTTP
	flags    []string // of the proxy
}

// modernOver reports whether it speaks the modern era with the proxy.
func (c *eraClient) modernOver(downstream string) bool {
	return c.modern && (downstream == "stdio" || !c.defaults)
}

var eraClients = []eraClient{
	{name: "TypeScript SDK 1.x", play: func(t *testing.T, s string, u target) []line { return playNode(t, "sdk1.mjs", s, u) }},
	{name: "TypeScript SDK 2.x legacy", play: func(t *testing.T, s string, u target) []line { return playNode(t, "sdk2.mjs", s, u) }},
	{name: "TypeScript SDK 2.x auto", modern: true, play: func(t *testing.T, s string, u target) []line {
		return playNode(t, "sdk2.mjs", s, u, "--negotiate", "auto")
	}},
	{name: "Go SDK 2024-11-05", play: goAt("2024-11-05")},
	{name: "Go SDK 2025-03-26", play: goAt("2025-03-26")},
	{name: "Go SDK 2025-06-18", play: goAt("2025-06-18")},
	{name: "Go SDK 2025-11-25", play: goAt("2025-11-25")},
	{name: "Go SDK 2026-07-28", modern: true, play: goAt(mcptest.ModernRevision)},
	{name: "Inspector CLI legacy", play: inspectorAt("legacy"), cannot: oneShot, alone: oneProcess, asks: true},
	{name: "Inspector CLI modern", modern: true, play: inspectorAt("modern"), cannot: oneShot, alone: oneProcess, asks: true},
	{name: "Python SDK 1.x", play: python(mcptest.PythonSDK1, "sdk1.py"), defaults: true, cannot: tellsNobody},
	{name: "Python SDK 2.x", modern: true, play: python(mcptest.PythonSDK2, "sdk2.py"), defaults: true},
	{name: "FastMCP 2", play: python(mcptest.PythonSDK1, "with_fastmcp.py"), defaults: true, cannot: tellsNobody, refusal: `"name":"ToolError"`},
	{name: "FastMCP 4", modern: true, play: python(mcptest.PythonSDK2, "with_fastmcp.py"), defaults: true, refusal: `"name":"ToolError"`},
	{name: "pydantic-ai", modern: true, play: python(mcptest.PythonSDK2, "with_pydantic_ai.py"), defaults: true, refusal: `"name":"ModelRetry"`},
	{name: "openai-agents", modern: true, play: python(mcptest.PythonSDK2, "with_openai_agents.py"), defaults: true, cannot: map[feature]string{
		progressing: "openai-agents asks for no progress", eliciting: "openai-agents declares no elicitation"}},
	{name: "langchain-mcp-adapters", play: python(mcptest.PythonSDK1, "with_langchain.py"), defaults: true, cannot: tellsNobody, refusal: `"status":"error"`,
		flags: []string{"--surface", "static"}},
}

// tellsNobody is version 1 of the Python SDK.
var tellsNobody = map[feature]string{cancelling: "version 1 of the Python SDK gives up on a call without a word to the server"}

func python(sdk mcptest.PythonSDK, script string) func(*testing.T, string, target) []line {
	return func(t *testing.T, scenario string, u target) []line {
		return playScript(t, mcptest.Python(t, sdk), mcptest.PythonScript(script), scenario, u)
	}
}

var oneShot = map[feature]string{
	progressing: "the command line prints the result alone",
	eliciting:   "a command line declares no elicitation: \"Servers MUST NOT send [requests] that the client has not declared support for\" (basic/patterns/mrtr)",
	cancelling:  "the command line takes no call back",
}

var oneProcess = map[feature]string{
	stepping: "each command starts a proxy of its own: \"the client launches the MCP server as a subprocess\" (basic/transports/stdio)",
	changing: "as for the step",
}

func goAt(revision string) func(*testing.T, string, target) []line {
	return func(t *testing.T, scenario string, u target) []line { return playGoAt(t, scenario, u, 0, revision) }
}

// Every client of either era works with every server of either era, over every pairing of framings.
func TestMatrixOfEras(t *testing.T) {
	t.Parallel()
	var (
		mu    sync.Mutex
		table []row
	)
	t.Run("cells", func(t *testing.T) {
		for _, c := range eraClients {
			for _, downstream := range []string{"stdio", "http"} {
				for _, upstream := range []string{"legacy", "modern"} {
					for _, framing := range []string{"stdio", "http"} {
						r := row{client: c.name, downstream: downstream, upstream: upstream, framing: framing}
						t.Run(strings.Join([]string{c.name, downstream, upstream, framing}, "/"), func(t *testing.T) {
							t.Parallel()
							r.fill(t, c)
							mu.Lock()
							table = append(table, r)
							mu.Unlock()
						})
					}
				}
			}
		}
	})
	t.Log("\n" + printed(table))
}

// The same of every client that speaks HTTP, through three replicas on one database, each request to the next of them.
func TestMatrixThroughReplicas(t *testing.T) {
	t.Parallel()
	database := postgres.Start(t)
	for i, c := range eraClients {
		r := row{client: c.name, downstream: "replicas", upstream: "legacy", framing: "http"}
		if c.modern {
			r.upstream = "modern"
		}
		c.flags = append(slices.Clone(c.flags), "--store", database.URL(fmt.Sprint("runs", i)), "--peer-listen", "127.0.0.1:0", "--lease", "30s") // which a busy machine keeps
		t.Run(c.name, func(t *testing.T) { t.Parallel(); r.fill(t, c) })
	}
}

// replicas are three proxies behind one URL.
func replicas(t *testing.T, args ...string) (url string) {
	var all []string
	for range 3 {
		url, _ := mcptest.Listen(t, args...)
		all = append(all, url)
	}
	var turn atomic.Uint64
	return balancer.Start(t, func() string { return all[turn.Add(1)%uint64(len(all))] })
}

// fill plays the scenario, and fails the test for every feature that neither works nor has a reason not to.
func (r *row) fill(t *testing.T, c eraClient) {
	u, server := startWalked(t, r.upstream == "modern", r.framing)
	flags := append([]string{"--no-hint", "--cancel-grace", "200ms", "--policy", mcptest.WritePolicy(t, walk)}, c.flags...)
	if !c.defaults {
		flags = append(flags, "--run-key", "legacy=process")
	}
	args := append(flags, server.arguments()...)
	proxied := target{argv: append([]string{mcptest.Proxy(t), "run"}, args...)}
	switch r.downstream {
	case "http":
		url, _ := mcptest.Listen(t, args...)
		proxied = target{url: url}
	case "replicas":
		proxied = target{url: replicas(t, args...)}
	}
	seen := played{t: t, lines: c.play(t, scenarioFile(t, "eras", server), proxied), upstream: u, refusal: cmp.Or(c.refusal, `"isError":true`),
		static: c.modernOver(r.downstream) || slices.Contains(c.flags, "static"), asks: c.asks}
	for f := range features {
		r.verdicts[f] = "ok"
		reason := c.cannot[f]
		if reason == "" && r.downstream == "stdio" {
			reason = c.alone[f]
		}
		if reason != "" {
			r.verdicts[f] = "§" + reason
			continue
		}
		if wrong := seen.wrong(f); wrong != "" {
			r.verdicts[f] = "FAILED"
			t.Errorf("%s: %s", f, wrong)
		}
	}
}

// played is what a client saw of the scenario.
type played struct {
	t        *testing.T
	lines    []line
	static   bool
	asks     bool
	refusal  string
	upstream *mcptest.Upstream
}

// at returns the n-th line of a step, counted from 0, as text.
func (p played) at(op, name string, n int) string {
	for _, l := range p.lines {
		var step struct{ Op, Kind, Name string }
		if json.Unmarshal(l.Step, &step) != nil || step.Op != op || step.Kind+step.Name != name {
			continue
		}
		if n == 0 {
			text, err := json.Marshal(l)
			if err != nil {
				p.t.Fatal(err)
			}
			return string(text)
		}
		n--
	}
	return "nothing"
}

// tools are the names that the n-th list had.
func (p played) tools(n int) []string {
	var read struct {
		Result struct{ Tools []struct{ Name string } }
	}
	_ = json.Unmarshal([]byte(p.at("list", "tools", n)), &read) // what cannot be read has none
	names := []string{}
	for _, tool := range read.Result.Tools {
		names = append(names, tool.Name)
	}
	slices.Sort(names)
	return names
}

// wrong says what is wrong with a feature; empty: nothing.
func (p played) wrong(f feature) string {
	before, after := []string{"ask", "look", "progress", "slow", "step"}, []string{"later", "look"}
	if p.static {
		before = []string{"ask", "later", "look", "progress", "slow", "step"}
		after = before
	}
	switch f {
	case listing:
		return differs(p.tools(0), before)
	case calling:
		return lacks(p.at("call", "look", 0), `"text":"look"`)
	case refusing:
		return p.unrefused("later", 0, "start")
	case stepping:
		return lacks(p.at("call", "step", 0), `"text":"step"`) + lacks(p.at("call", "later", 1), `"text":"later"`) + p.unrefused("step", 1, "moved")
	case changing:
		return differs(p.tools(1), after)
	case progressing:
		return p.noProgress()
	case eliciting:
		return lacks(p.at("call", "ask", 0), "the person says", "Ada")
	case cancelling:
		p.upstream.Await(p.t, 1, "notifications/cancelled")
		return lacks(p.at("call", "slow", 0), `"error":`)
	}
	return "no such feature"
}

// unrefused says what is wrong with the n-th call of a tool, which the state refuses.
func (p played) unrefused(tool string, n int, state string) string {
	if p.asks && !p.static {
		return lacks(p.at("call", tool, n), "Tool '"+tool+"' not found") // by the client itself
	}
	return lacks(p.at("call", tool, n), "Tool '"+tool+"' is not allowed in state '"+state+"'", p.refusal)
}

// noProgress looks at all calls: the TypeScript SDK forgets whom progress is for when the answer comes in the same read.
func (p played) noProgress() string {
	for _, l := range p.lines {
		op, _ := l.op()
		for _, event := range l.During {
			if op == "progress" || strings.Contains(string(event), "notifications/progress") {
				return lacks(p.at("call", "progress", 0), `"text":"progress"`)
			}
		}
	}
	return "no progress arrived"
}

func differs(got, want []string) string {
	if slices.Equal(got, want) {
		return ""
	}
	return fmt.Sprintf("listed %q, want %q", got, want)
}

func lacks(text string, parts ...string) string {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return fmt.Sprintf("%q is not in %.600s", part, text)
		}
	}
	return ""
}

// printed is the matrix as a table, with the reasons below.
func printed(table []row) string {
	slices.SortFunc(table, func(a, b row) int {
		return strings.Compare(a.client+a.downstream+a.upstream+a.framing, b.client+b.downstream+b.upstream+b.framing)
	})
	var out, notes strings.Builder
	fmt.Fprintf(&out, "%-26s %-11s %-16s", "client", "downstream", "upstream")
	for f := range features {
		fmt.Fprintf(&out, " %-9s", f)
	}
	var reasons []string
	for _, r := range table {
		fmt.Fprintf(&out, "\n%-26s %-11s %-16s", r.client, r.downstream, r.upstream+" "+r.framing)
		for _, verdict := range r.verdicts {
			if reason, ok := strings.CutPrefix(verdict, "§"); ok {
				if !slices.Contains(reasons, reason) {
					reasons = append(reasons, reason)
					fmt.Fprintf(&notes, "\n(%d) %s", len(reasons), reason)
				}
				verdict = fmt.Sprintf("(%d)", slices.Index(reasons, reason)+1)
			}
			fmt.Fprintf(&out, " %-9s", verdict)
		}
	}
	return out.String() + "\n" + notes.String()
}
