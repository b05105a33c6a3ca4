//go:build long

//lint:file-ignore SA1019 what the newest revision deprecates is what clients of the legacy era use

package matrix

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// goClient plays scenarios with the official Go SDK.
type goClient struct {
	t           *testing.T
	session     *mcp.ClientSession
	answerAfter time.Duration

	mu       sync.Mutex // guards all below
	during   []json.RawMessage
	progress []json.RawMessage // of the whole session: the SDK may hand it over after the answer
	arrived  map[string]bool
	changed  chan struct{}
	abort    context.CancelFunc // of the call that runs, if it is to be cancelled at its first progress
}

// goStep is one step of a scenario; the SDK's own types read its parts.
type goStep struct {
	Op       string                     `json:"op"`
	Kind     string                     `json:"kind"`
	Name     string                     `json:"name"`
	URI      string                     `json:"uri"`
	Method   string                     `json:"method"`
	Level    mcp.LoggingLevel           `json:"level"`
	Args     json.RawMessage            `json:"args"`
	Ref      *mcp.CompleteReference     `json:"ref"`
	Argument mcp.CompleteParamsArgument `json:"argument"`
	Context  *mcp.CompleteContext       `json:"context"`
	Cancel   bool                       `json:"cancel"`
}

// playGo plays a scenario at revision 2025-11-25, the newest of the legacy era.
func playGo(t *testing.T, scenario string, u target, answerAfter int) []line {
	t.Helper()
	return playGoAt(t, scenario, u, answerAfter, "2025-11-25")
}

// playGoAt plays a scenario at one revision.
func playGoAt(t *testing.T, scenario string, u target, answerAfter int, revision string) []line {
	t.Helper()
	steps := readSteps(t, scenario)
	c := connectGo(t, u, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	c.answerAfter = time.Duration(answerAfter) * time.Second
	lines := []line{{Step: json.RawMessage(`{"op":"connect"}`), Result: generic(t, c.session.InitializeResult())}}
	for _, step := range steps {
		lines = append(lines, c.play(step))
	}
	return append(lines,
		line{Step: json.RawMessage(`{"op":"arrived"}`), Result: generic(t, c.methods())},
		line{Step: json.RawMessage(`{"op":"progress"}`), During: c.progress})
}

func readSteps(t *testing.T, scenario string) (steps []json.RawMessage) {
	t.Helper()
	text, err := os.ReadFile(scenario)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &steps); err != nil {
		t.Fatal(err)
	}
	return steps
}

func connectGo(t *testing.T, u target, options *mcp.ClientSessionOptions) *goClient {
	t.Helper()
	c := &goClient{t: t, arrived: map[string]bool{}, changed: make(chan struct{})}
	client := mcp.NewClient(&mcp.Implementation{Name: "fsm-proxy-matrix", Version: "1.0.0"}, c.handlers())
	client.AddRoots(&mcp.Root{URI: "file:///srv/project", Name: "project"})
	client.AddReceivingMiddleware(c.watch)
	session, err := client.Connect(t.Context(), u.transport(), options)
	if err != nil {
		t.Fatalf("connecting: %v", err)
	}
	t.Cleanup(func() { session.Close() })
	c.session = session
	return c
}

func (u target) transport() mcp.Transport {
	if u.url != "" {
		return &mcp.StreamableClientTransport{Endpoint: u.url}
	}
	command := exec.Command(u.argv[0], u.argv[1:]...)
	command.Env = append(os.Environ(), u.env...)
	return &mcp.CommandTransport{Command: command}
}

func (c *goClient) handlers() *mcp.ClientOptions {
	return &mcp.ClientOptions{
		CreateMessageHandler: func(context.Context, *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
			return &mcp.CreateMessageResult{Model: "a-model", Role: "assistant", StopReason: "endTurn", Content: &mcp.TextContent{Text: "sampled"}}, nil
		},
		ElicitationHandler: func(ctx context.Context, _ *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			select {
			case <-time.After(c.answerAfter):
			case <-ctx.Done():
			}
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ada", "check": true}}, nil
		},
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			c.advance(r.Params)
		},
	}
}

// toCancel is the progress token of calls that are cancelled at their first progress; how much more of it
// arrives is chance.
const toCancel = "to be cancelled"

func (c *goClient) advance(p *mcp.ProgressNotificationParams) {
	text, err := json.Marshal([]any{p.Progress, p.Total, p.Message})
	if err != nil {
		c.t.Error(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.ProgressToken != toCancel {
		c.progress = append(c.progress, text)
		return
	}
	if c.abort != nil {
		c.abort()
	}
}

// watch sees every request and notification from the server.
func (c *goClient) watch(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
		switch method {
		case "sampling/createMessage", "elicitation/create":
			c.note(method, r.GetParams())
		}
		c.mu.Lock()
		c.arrived[method] = true
		close(c.changed)
		c.changed = make(chan struct{})
		c.mu.Unlock()
		return next(ctx, method, r)
	}
}

func (c *goClient) note(method string, params any) {
	text, err := json.Marshal(map[string]any{"method": method, "params": params})
	if err != nil {
		c.t.Error(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.during = append(c.during, text)
}

func (c *goClient) methods() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var methods []string
	for method := range c.arrived {
		methods = append(methods, method)
	}
	slices.Sort(methods)
	return methods
}

// play runs one step and returns its line.
func (c *goClient) play(raw json.RawMessage) line {
	var step goStep
	if err := json.Unmarshal(raw, &step); err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*mcptest.Patience)
	defer cancel()
	c.mu.Lock()
	c.during, c.abort = nil, nil
	if step.Cancel {
		c.abort = cancel
	}
	c.mu.Unlock()
	result, err := c.run(ctx, step)
	l := line{Step: raw}
	if err != nil {
		l.Error = err.Error()
	} else {
		l.Result = generic(c.t, result)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l.During = c.during
	return l
}

func (c *goClient) run(ctx context.Context, step goStep) (any, error) {
	s := c.session
	switch step.Op {
	case "list":
		return c.list(ctx, step.Kind)
	case "call":
		params := &mcp.CallToolParams{Name: step.Name, Arguments: step.Args}
		if step.Args == nil {
			params.Arguments = map[string]any{}
		}
		params.SetProgressToken("progress of " + step.Name)
		if step.Cancel {
			params.SetProgressToken(toCancel)
		}
		return s.CallTool(ctx, params)
	case "read":
		return s.ReadResource(ctx, &mcp.ReadResourceParams{URI: step.URI})
	case "get":
		arguments := map[string]string{}
		if step.Args != nil && json.Unmarshal(step.Args, &arguments) != nil {
			return nil, errors.New("arguments of a prompt are strings")
		}
		return s.GetPrompt(ctx, &mcp.GetPromptParams{Name: step.Name, Arguments: arguments})
	case "complete":
		return s.Complete(ctx, &mcp.CompleteParams{Ref: step.Ref, Argument: step.Argument, Context: step.Context})
	default:
		return struct{}{}, c.tell(ctx, step)
	}
}

// tell runs the steps that have no result.
func (c *goClient) tell(ctx context.Context, step goStep) error {
	s := c.session
	switch step.Op {
	case "level":
		return s.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: step.Level})
	case "subscribe":
		return s.Subscribe(ctx, &mcp.SubscribeParams{URI: step.URI})
	case "unsubscribe":
		return s.Unsubscribe(ctx, &mcp.UnsubscribeParams{URI: step.URI})
	case "ping":
		return s.Ping(ctx, nil)
	case "wait":
		return c.await(ctx, step.Method)
	}
	return errors.New("no such operation: " + step.Op)
}

func (c *goClient) list(ctx context.Context, kind string) (any, error) {
	switch kind {
	case "tools":
		return c.session.ListTools(ctx, nil)
	case "resources":
		return c.session.ListResources(ctx, nil)
	case "prompts":
		return c.session.ListPrompts(ctx, nil)
	}
	return c.session.ListResourceTemplates(ctx, nil)
}

func (c *goClient) await(ctx context.Context, method string) error {
	for {
		c.mu.Lock()
		arrived, changed := c.arrived[method], c.changed
		c.mu.Unlock()
		if arrived {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errors.New("no " + method)
		}
	}
}

// generic returns a value as JSON decodes it, so that the transcript's rules apply to it.
func generic(t *testing.T, v any) any {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// The Go SDK opens with server/discover of the modern era; against a proxy that speaks the legacy one alone it must find
// its way back to initialize by itself.
func TestGoSDKFallsBackToInitialize(t *testing.T) {
	for _, downstream := range []string{"stdio", "http"} {
		t.Run(downstream, func(t *testing.T) {
			args := append([]string{"--protocol", "legacy", "--policy", openPolicy(t, nil)}, everything(t).arguments()...)
			proxied := target{argv: append([]string{mcptest.Proxy(t), "run"}, args...)}
			if downstream == "http" {
				url, _ := mcptest.Listen(t, args...)
				proxied = target{url: url}
			}
			c := connectGo(t, proxied, nil)
			result, err := c.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"message": "hello"}})
			if err != nil || result.IsError {
				t.Errorf("got %v, %v", result, err)
			}
		})
	}
}
