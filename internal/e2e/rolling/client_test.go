//go:build unix

package rolling

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// ledger is what clients were told of their calls, each of which has a name of its own.
type ledger struct {
	mu       sync.Mutex // guards what follows
	answered map[string]int
	refused  map[string]bool
}

func newLedger() *ledger {
	return &ledger{answered: make(map[string]int), refused: make(map[string]bool)}
}

func (l *ledger) note(call string, answered bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if answered {
		l.answered[call]++
	} else {
		l.refused[call] = true
	}
}

// count is how many calls were answered.
func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.answered)
}

// client calls tools through the balancer, and begins another session when its own is gone.
type client struct {
	t       *testing.T
	ctx     context.Context
	url     string
	http    *http.Client
	name    string
	ledger  *ledger
	session string
	calls   int
	streams sync.WaitGroup
}

func newClient(t *testing.T, ctx context.Context, url, name string, l *ledger) *client {
	transport := &http.Transport{MaxIdleConnsPerHost: 4}
	t.Cleanup(transport.CloseIdleConnections)
	return &client{t: t, ctx: ctx, url: url, name: name, ledger: l, http: &http.Client{Transport: transport}}
}

// post sends a message and returns the status and the messages of the answer.
func (c *client) post(raw string) (int, []mcptest.Message) {
	request, err := http.NewRequestWithContext(c.ctx, http.MethodPost, c.url, strings.NewReader(raw))
	if err != nil {
		c.t.Error(err)
		return 0, nil
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	if c.session != "" {
		request.Header.Set(headerSession, c.session)
	}
	answer, err := c.http.Do(request)
	if err != nil {
		c.t.Errorf("%s: %v", c.name, err)
		return 0, nil
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		c.t.Errorf("%s: reading the answer to %s: %v", c.name, raw, err)
	}
	if id := answer.Header.Get(headerSession); id != "" {
		c.session = id
	}
	return answer.StatusCode, messages(answer.Header.Get("Content-Type"), body)
}

// messages are those of an answer, as JSON or as events.
func messages(kind string, body []byte) (all []mcptest.Message) {
	if strings.HasPrefix(kind, "application/json") {
		return append(all, mcptest.ParseMessage(body))
	}
	for line := range bytes.Lines(body) {
		if data, ok := bytes.CutPrefix(line, []byte("data: {")); ok {
			all = append(all, mcptest.ParseMessage(append([]byte("{"), bytes.TrimSpace(data)...)))
		}
	}
	return all
}

// begin begins a session, with its GET stream. What is refused is tried again.
func (c *client) begin() {
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		c.session = ""
		if status, _ := c.post(mcptest.Request(0, "initialize", hello)); status == http.StatusOK {
			break
		}
		select {
		case <-again.C:
		case <-c.ctx.Done():
			return
		}
	}
	c.post(mcptest.Notification("notifications/initialized", ""))
	c.streams.Go(func() { c.listen(c.session) })
}

// listen reads a session's GET stream, which must end well.
func (c *client) listen(session string) {
	request, _ := http.NewRequestWithContext(c.ctx, http.MethodGet, c.url, nil)
	request.Header.Set("Accept", "text/event-stream")
	request.Header.Set(headerSession, session)
	answer, err := c.http.Do(request)
	if err != nil {
		if c.ctx.Err() == nil {
			c.t.Errorf("%s: GET: %v", c.name, err)
		}
		return
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil && c.ctx.Err() == nil {
		c.t.Errorf("%s: the GET stream ends with %v", c.name, err)
	}
}

// call calls a tool once, and again in another session for as long as it is refused, each time by another name. It
// returns the answer.
func (c *client) call(tool string) mcptest.Message {
	for c.ctx.Err() == nil {
		c.calls++
		name := fmt.Sprintf("%s/%d", c.name, c.calls)
		status, said := c.post(mcptest.Request(c.calls, "tools/call", mcptest.ToolParams(tool, `{"call":"`+name+`"}`)))
		answer, answered := c.answer(status, said)
		c.ledger.note(name, answered)
		if answered {
			return answer
		}
		c.begin()
	}
	return mcptest.Message{}
}

// answer is the answer to the last call; false where the call was refused by one that ends or has ended.
func (c *client) answer(status int, said []mcptest.Message) (answer mcptest.Message, ok bool) {
	for _, m := range said {
		if string(m.ID) != string(mcptest.ID(c.calls)) {
			continue
		}
		unsent := strings.Contains(string(m.Raw), "fsm-proxy is ending")
		if status == http.StatusOK && !unsent && (m.Error != nil || bytes.Contains(m.Result, []byte(`"isError"`))) {
			c.t.Errorf("%s: call %d is answered %s", c.name, c.calls, m)
		}
		return m, status == http.StatusOK && !unsent
	}
	switch status {
	case http.StatusServiceUnavailable, http.StatusNotFound:
	default:
		c.t.Errorf("%s: call %d: HTTP %d without its answer: %v", c.name, c.calls, status, said)
	}
	return answer, false
}

// sent counts the calls that have reached the upstream, by their names.
func sent(u *mcptest.Upstream) map[string]int {
	seen := make(map[string]int)
	for _, m := range u.Received() {
		if m.Method != "tools/call" {
			continue
		}
		var params struct {
			Arguments struct{ Call string }
		}
		if json.Unmarshal(m.Params, &params) == nil {
			seen[params.Arguments.Call]++
		}
	}
	return seen
}

// balanced fails the test unless every call that was sent was answered, once, and none that was refused was sent.
func (l *ledger) balanced(t *testing.T, u *mcptest.Upstream) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := sent(u)
	for call, n := range seen {
		if n != 1 || l.answered[call] != 1 {
			t.Errorf("call %s was sent %d times and answered %d times", call, n, l.answered[call])
		}
	}
	for call := range l.answered {
		if seen[call] == 0 {
			t.Errorf("call %s was answered and not sent", call)
		}
	}
	for call := range l.refused {
		if seen[call] > 0 {
			t.Errorf("call %s was refused and sent", call)
		}
	}
	t.Logf("%d calls sent and answered, %d refused", len(seen), len(l.refused))
}
