package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestMain lets the harness under test re-execute this binary in a role, or
// run it as if it were fsm-proxy.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == roleWord {
		main()
		return
	}
	if len(os.Args) > 1 && os.Args[1] == "run" {
		if err := standIn(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// standIn takes fsm-proxy's command line and answers by itself.
func standIn(args []string) error {
	i := slices.Index(args, "--listen")
	if i < 0 {
		return serveStdio(newCanned(cannedText(32), false), os.Stdin, os.Stdout)
	}
	l, err := net.Listen("tcp", args[i+1])
	if err != nil {
		return err
	}
	if slices.Contains(args, "--peer-listen") { // and knows the sessions of others
		return (&httpUpstream{canned: newCanned(cannedText(32), false)}).serve(l)
	}
	return serveCanned(l, 32, false)
}

func roleCommand(args ...string) []string { return append([]string{os.Args[0], roleWord}, args...) }

// TestUpstreamSpeaksMCP drives the light upstream with the official SDK.
func TestUpstreamSpeaksMCP(t *testing.T) {
	http := func(t *testing.T, flags ...string) mcp.Transport {
		upstream, err := startListening(roleCommand(append([]string{"upstream-http"}, flags...)...))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(upstream.stop)
		return &mcp.StreamableClientTransport{Endpoint: "http://" + upstream.addr + mcpPath}
	}
	for name, transport := range map[string]func(*testing.T) mcp.Transport{
		"stdio": func(*testing.T) mcp.Transport {
			argv := roleCommand("upstream-stdio")
			return &mcp.CommandTransport{Command: exec.Command(argv[0], argv[1:]...)}
		},
		"http json": func(t *testing.T) mcp.Transport { return http(t) },
		"http sse":  func(t *testing.T) mcp.Transport { return http(t, "-sse") },
		"bare json": func(t *testing.T) mcp.Transport { return http(t, "-bare") },
		"bare sse":  func(t *testing.T) mcp.Transport { return http(t, "-bare", "-sse") },
	} {
		t.Run(name, func(t *testing.T) { speakMCP(t, transport(t)) })
	}
}

func speakMCP(t *testing.T, transport mcp.Transport) {
	ctx := t.Context()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(ctx, transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	listed, err := session.ListTools(ctx, nil)
	if err != nil || len(listed.Tools) != toolCount {
		t.Fatalf("tools/list: %v, %v", listed, err)
	}
	if err := session.Ping(ctx, nil); err != nil {
		t.Error(err)
	}
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"message": "x"}})
	if err != nil || result.IsError {
		t.Fatalf("tools/call: %v, %v", result, err)
	}
	if text, ok := result.Content[0].(*mcp.TextContent); !ok || text.Text != cannedText(32) {
		t.Errorf("tools/call: %v", result.Content)
	}
}

// TestRun measures every baseline once, in tiny windows.
func TestRun(t *testing.T) {
	var stdout, stderr strings.Builder
	err := run(context.Background(), strings.Fields(
		"-paths stdio-stdio,http-stdio,http-http-json,http-http-sse,lists -callers 2 -rounds 1 -window 50ms "+
			"-subjects direct,pipe,ReverseProxy,mcp-go,streamhttp"), &stdout, &stderr)
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, stdout.String(), stderr.String())
	}
	for _, row := range []string{"stdio-stdio    |       2 | pipe", "http-stdio     |       2 | mcp-go", "http-http-sse  |       2 | ReverseProxy", "mcp-go tools/list"} {
		if !strings.Contains(stdout.String(), row) {
			t.Errorf("no row %q in\n%s", row, stdout.String())
		}
	}
}

// TestRunOnBareUpstream measures with the lightest upstream, in both eras.
func TestRunOnBareUpstream(t *testing.T) {
	for _, era := range []string{"legacy", "modern"} {
		var stdout, stderr strings.Builder
		err := run(context.Background(), strings.Fields(
			"-upstream bare -paths http-http-json,http-http-sse -callers 2 -rounds 1 -window 50ms -subjects direct,ReverseProxy -era "+era), &stdout, &stderr)
		if err != nil {
			t.Fatalf("%v\n%s\n%s", err, stdout.String(), stderr.String())
		}
		for _, text := range []string{"over HTTP: bare connections", "| http-http-json |       2 | ReverseProxy", "| http-http-sse  |       2 | direct"} {
			if !strings.Contains(stdout.String(), text) {
				t.Errorf("no %q in\n%s", text, stdout.String())
			}
		}
	}
}

// TestProxy measures a binary that takes fsm-proxy's command line.
func TestProxy(t *testing.T) {
	var stdout, stderr strings.Builder
	err := run(context.Background(), append(strings.Fields(
		"-paths stdio-stdio,http-http-sse,lists,idle -callers 1 -rounds 1 -window 50ms -sessions 20 -subjects pipe,direct -fsm-proxy"), os.Args[0]), &stdout, &stderr)
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, stdout.String(), stderr.String())
	}
	for _, row := range []string{
		"| http-http-sse  |       1 | fsm-proxy ", "| stdio-stdio    | fsm-proxy | added p50 ÷ the pipe's, callers: 1", "| fsm-proxy | p50 of tools/list (100)", "| direct ping ",
		"| fsm-proxy | bytes an idle connection after a head of 28 KiB (20)",
	} {
		if !strings.Contains(stdout.String(), row) {
			t.Errorf("no %q in\n%s", row, stdout.String())
		}
	}
}

// TestReload measures in this process, and every run moves.
func TestReload(t *testing.T) {
	var stdout, stderr strings.Builder
	if err := run(context.Background(), []string{"-paths", "reload", "-runs", "200", "-fsm-proxy", os.Args[0]}, &stdout, &stderr); err != nil {
		t.Fatalf("%v\n%s\n%s", err, stdout.String(), stderr.String())
	}
	for _, row := range []string{"| ms for 200 runs, all begin anew ", "| longest ms of a call meanwhile", "| bytes a session with its run "} {
		if !strings.Contains(stdout.String(), row) {
			t.Errorf("no %q in\n%s", row, stdout.String())
		}
	}
}

// TestRuns measures in this process, and every run is called in.
func TestRuns(t *testing.T) {
	var stdout, stderr strings.Builder
	if err := run(context.Background(), []string{"-paths", "runs", "-runs", "200", "-rounds", "1", "-window", "50ms", "-fsm-proxy", os.Args[0]}, &stdout, &stderr); err != nil {
		t.Fatalf("%v\n%s\n%s", err, stdout.String(), stderr.String())
	}
	for _, row := range []string{"| bytes an idle run (200) ", "| µs of a call, in any of 200 (p99 "} {
		if !strings.Contains(stdout.String(), row) {
			t.Errorf("no %q in\n%s", row, stdout.String())
		}
	}
}

// TestStore measures runs that are kept, in this process and over HTTP.
func TestStore(t *testing.T) {
	var stdout, stderr strings.Builder
	if err := run(context.Background(), []string{"-paths", "store", "-runs", "20", "-rounds", "1", "-window", "50ms", "-fsm-proxy", os.Args[0]}, &stdout, &stderr); err != nil {
		t.Fatalf("%v\n%s\n%s", err, stdout.String(), stderr.String())
	}
	for _, text := range []string{" that a step adds ", "| steps/s of 64 runs at once ÷ of one (", "| steps/s over HTTP ÷ in memory, callers: 32 ", "(20 runs) ", "- PostgreSQL was not measured"} {
		if !strings.Contains(stdout.String(), text) {
			t.Errorf("no %q in\n%s", text, stdout.String())
		}
	}
}

// TestReplicas says what it needs; what is passed on to whom is for a real database.
func TestReplicas(t *testing.T) {
	var stdout, stderr strings.Builder
	if err := run(context.Background(), []string{"-paths", "replicas", "-fsm-proxy", os.Args[0]}, &stdout, &stderr); err != nil {
		t.Fatalf("%v\n%s\n%s", err, stdout.String(), stderr.String())
	}
	if !strings.Contains(stdout.String(), "- replicas were not measured: name a database of PostgreSQL by -postgres URL") {
		t.Errorf("it does not say what is missing:\n%s", stdout.String())
	}
}

// TestCompareReplicas has the same sessions asked for at the one that has opened them, and at the other.
func TestCompareReplicas(t *testing.T) {
	c, err := parseFlags(strings.Fields("-rounds 1 -window 50ms"), nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{
		report: &report{config: c}, builds: []proxyBuild{{name: fsmProxy, binary: os.Args[0]}},
		site: site{self: os.Args[0], dir: t.TempDir(), payload: c.payload, procs: c.procs},
	}
	f := replicasFigure{callers: 2}
	if err := b.compareReplicas(t.Context(), &f, "postgres://shared", "postgres://single"); err != nil || !(f.owner > 0 && f.passed > 0 && f.beside > 0) {
		t.Errorf("%+v, %v", f, err)
	}
}

// TestMissingProxy says so, and measures the rest.
func TestMissingProxy(t *testing.T) {
	var stdout, stderr strings.Builder
	err := run(context.Background(), strings.Fields(
		"-paths stdio-stdio -callers 1 -rounds 1 -window 50ms -subjects direct -fsm-proxy /nonexistent/fsm-proxy -with again="+os.Args[0]), &stdout, &stderr)
	if err == nil || !strings.Contains(stdout.String(), "starting /nonexistent/fsm-proxy") {
		t.Errorf("%v\n%s", err, stdout.String())
	}
	if !strings.Contains(stdout.String(), "| direct ") || !strings.Contains(stdout.String(), "| again ") {
		t.Errorf("the rest was not measured:\n%s", stdout.String())
	}
}

func TestParseFlags(t *testing.T) {
	c, err := parseFlags(strings.Fields("-short -paths lists -with old=/a -with older=/b -proxy-flags=--no-hint"), nil)
	if err != nil || c.plan.rounds != 2 || len(c.callers) != 2 || len(c.others) != 2 || c.others[1].binary != "/b" || len(c.flags) != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	for _, wrong := range []string{"-paths nowhere", "-callers 0", "-callers x", "-rounds 0", "-upstream other", "-with old", "more"} {
		var stderr strings.Builder
		if _, err := parseFlags(strings.Fields(wrong), &stderr); err == nil {
			t.Errorf("%s: no error", wrong)
		}
	}
}
