package reload

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// client is one session over Streamable HTTP, with its GET stream, that lists its tools again whenever it is told.
type client struct {
	t       *testing.T
	url, id string
	web     *http.Client
	history *history
	last    atomic.Int64
	told    [3]atomic.Int64 // by kinds
	dirty   chan struct{}   // the tools have to be listed again
	end     context.CancelFunc
	running sync.WaitGroup

	mu    sync.Mutex // guards what follows
	tools []string   // as listed last
	deeds []deed
	fresh chan struct{} // closed when tools change
}

// kinds are the lists there are, by their notifications.
var kinds = [...]string{"tools", "resources", "prompts"}

// deed is a call, or a list, and what became of it.
type deed struct {
	tool           string // "" for a list
	sent, answered time.Duration
	version        int      // that the answer names; -1 if none
	code           string   // of the refusal; "" if allowed
	state          string   // that the refusal names
	names          []string // listed; or the params of the call, which no other has
}

const hello = `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"load","version":"1"}}`

// join opens a session, lists all there is, and begins to listen.
func join(t *testing.T, web *http.Client, url string, h *history) *client {
	t.Helper()
	ctx, end := context.WithCancel(context.Background())
	c := &client{t: t, url: url, web: web, history: h, dirty: make(chan struct{}, 1), end: end, fresh: make(chan struct{})}
	t.Cleanup(c.close)
	if _, err := c.request("initialize", hello); err != nil {
		t.Fatal(err)
	}
	if _, err := c.post(mcptest.Notification("notifications/initialized", "")); err != nil {
		t.Fatal(err)
	}
	c.listen(ctx)
	for _, kind := range kinds {
		if _, err := c.request(kind+"/list", ""); err != nil {
			t.Fatal(err)
		}
	}
	c.list()
	c.running.Go(func() { c.relist(ctx) })
	return c
}

func (c *client) close() {
	c.end()
	c.running.Wait()
}

func (c *client) request(method, params string) (mcptest.Message, error) {
	return c.post(mcptest.Request(c.last.Add(1), method, params))
}

// post sends a message and returns the answer, if it has one.
func (c *client) post(body string) (mcptest.Message, error) {
	request, err := http.NewRequest(http.MethodPost, c.url, strings.NewReader(body))
	if err != nil {
		return mcptest.Message{}, err
	}
	answer, err := c.web.Do(c.decorated(request))
	if err != nil {
		return mcptest.Message{}, err
	}
	defer answer.Body.Close()
	if id := answer.Header.Get("Mcp-Session-Id"); id != "" {
		c.id = id
	}
	switch answer.StatusCode {
	case http.StatusAccepted:
		return mcptest.Message{}, nil
	case http.StatusOK:
		return c.read(answer)
	}
	return mcptest.Message{}, fmt.Errorf("posting %s: HTTP %s", body, answer.Status)
}

func (c *client) decorated(request *http.Request) *http.Request {
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	if c.id != "" {
		request.Header.Set("Mcp-Session-Id", c.id)
		request.Header.Set("MCP-Protocol-Version", "2025-11-25")
	}
	return request
}

// read takes the answer out of a body, and hears the notifications before it.
func (c *client) read(answer *http.Response) (result mcptest.Message, err error) {
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		return result, err
	}
	if !strings.HasPrefix(answer.Header.Get("Content-Type"), "text/event-stream") {
		return mcptest.ParseMessage(raw), nil
	}
	for each := range bytes.Lines(raw) {
		if m, ok := event(each); ok && m.IsResponse() {
			result = m
		} else if ok {
			c.hear(m)
		}
	}
	if result.ID == nil {
		err = fmt.Errorf("a stream without the answer: %s", raw)
	}
	return result, err
}

// event is the message in one line of a stream. The proxy writes each on one.
func event(each []byte) (m mcptest.Message, ok bool) {
	data, ok := bytes.CutPrefix(bytes.TrimSpace(each), []byte("data:"))
	if !ok || len(data) < 2 {
		return m, false
	}
	return mcptest.ParseMessage(data), true
}

func (c *client) hear(m mcptest.Message) {
	for i, kind := range kinds {
		if m.Method == "notifications/"+kind+"/list_changed" {
			c.told[i].Add(1)
		}
	}
	select {
	case c.dirty <- struct{}{}:
	default:
	}
}

// listen opens the GET stream.
func (c *client) listen(ctx context.Context) {
	c.t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, nil)
	must(c.t, err)
	answer, err := c.web.Do(c.decorated(request))
	must(c.t, err)
	c.running.Go(func() {
		defer answer.Body.Close()
		lines := bufio.NewReader(answer.Body)
		for {
			each, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			if m, ok := event(each); ok {
				c.hear(m)
			}
		}
	})
}

// relist lists the tools each time that the session is told of a change.
func (c *client) relist(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.dirty:
			c.list()
		}
	}
}

// list lists the tools and remembers them.
func (c *client) list() {
	d := deed{sent: c.history.now(), version: -1}
	m, err := c.request("tools/list", "")
	d.answered = c.history.now()
	if err != nil {
		c.t.Errorf("listing: %v", err)
		return
	}
	var result struct{ Tools []struct{ Name string } }
	if err := json.Unmarshal(m.Result, &result); err != nil {
		c.t.Errorf("listing: %v: %s", err, m)
	}
	for _, tool := range result.Tools {
		d.names = append(d.names, tool.Name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tools = d.names
	c.deeds = append(c.deeds, d)
	close(c.fresh)
	c.fresh = make(chan struct{})
}

// call calls a tool, under a number of its own, and remembers what became of it.
func (c *client) call(tool string) (d deed, ok bool) {
	d = deed{tool: tool, sent: c.history.now(), version: -1}
	params := c.params(tool)
	m, err := c.request("tools/call", params)
	d.answered = c.history.now()
	if err != nil {
		c.t.Errorf("calling %s: %v", params, err)
		return d, false
	}
	d.read(c.t, m)
	d.names = []string{params}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deeds = append(c.deeds, d)
	return d, true
}

var calls atomic.Int64

func (c *client) params(tool string) string {
	return mcptest.ToolParams(tool, fmt.Sprintf(`{"call":%d}`, calls.Add(1)))
}

// read takes the verdict out of an answer.
func (d *deed) read(t *testing.T, m mcptest.Message) {
	var result struct {
		IsError bool
		Meta    struct {
			Refusal *struct{ Error, State, Message string } `json:"fsm-proxy/refusal"`
		} `json:"_meta"`
	}
	if err := json.Unmarshal(m.Result, &result); err != nil {
		t.Errorf("%s was answered %s", d.tool, m)
		return
	}
	r := result.Meta.Refusal
	if r == nil {
		if result.IsError {
			t.Errorf("%s was answered %s", d.tool, m)
		}
		return
	}
	d.code, d.state = r.Error, r.State
	if at := strings.Index(r.Message, "(version "); at >= 0 {
		_, _ = fmt.Sscanf(r.Message[at:], "(version %d)", &d.version) // -1 stays if it says no number
	}
}

// awaitTools waits until what was listed last is this, in any order.
func (c *client) awaitTools(want []string) {
	c.t.Helper()
	timeout := time.NewTimer(mcptest.Patience)
	defer timeout.Stop()
	slices.Sort(want)
	for {
		c.mu.Lock()
		got, fresh := slices.Sorted(slices.Values(c.tools)), c.fresh
		c.mu.Unlock()
		if slices.Equal(got, want) {
			return
		}
		select {
		case <-fresh:
		case <-timeout.C:
			c.t.Errorf("the session has listed %q last, want %q", got, want)
			return
		}
	}
}
