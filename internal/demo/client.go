package demo

import (
	"context"
	"encoding/json/v2"
	"fmt"
	"sync/atomic"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/upstream"
)

// client is an MCP client over Streamable HTTP, with one session.
type client struct {
	printer *printer
	server  *upstream.Server
	conn    *upstream.Conn
	// changed holds that list_changed has arrived, since it was last taken.
	changed atomic.Bool
}

const hello = `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"fsm-proxy-demo","version":"1"}}`

// dial opens the session.
func dial(ctx context.Context, url string, p *printer) (*client, error) {
	server, err := upstream.New(upstream.Config{URL: url})
	if err != nil {
		return nil, err
	}
	c := &client{printer: p, server: server}
	initialize, err := wire.Read(wire.RequestMessage(1, "initialize", []byte(hello)), wire.FromClient)
	if err != nil {
		return nil, err
	}
	if c.conn, err = server.Dial(ctx, upstream.Opening{Initialize: initialize}, c); err != nil {
		server.Close()
		return nil, err
	}
	return c, c.conn.Notify(wire.NotificationMessage("notifications/initialized", nil))
}

func (c *client) close() {
	c.conn.Close()
	c.server.Close()
}

// Receive prints a notification as it arrives: the answer to the call that
// brought it comes after it.
func (c *client) Receive(m *wire.Message, _ any) {
	if m.Kind != wire.Notification {
		return
	}
	if m.Method == wire.Tools.Changed() {
		c.changed.Store(true)
	}
	c.printer.notification(m.Method)
}

func (c *client) takeChanged() bool { return c.changed.Swap(false) }

// tools lists the names of the tools that there are now.
func (c *client) tools(ctx context.Context) ([]string, error) {
	var result struct{ Tools []struct{ Name string } }
	if _, err := c.request(ctx, "tools/list", "{}", &result); err != nil {
		return nil, err
	}
	names := make([]string, len(result.Tools))
	for i, t := range result.Tools {
		names[i] = t.Name
	}
	return names, nil
}

// reply is what came of one call.
type reply struct {
	verdict   verdict
	text      string
	state     string
	restarted bool // the call completed the run, and the next one has begun
	changed   bool // list_changed arrived before the answer
}

// call calls a tool.
func (c *client) call(ctx context.Context, tool, arguments string) (reply, error) {
	var result struct {
		Content []struct{ Text string }
		IsError bool `json:"isError"`
		Meta    struct {
			State struct {
				State     string
				Restarted bool
			} `json:"fsm-proxy/state"`
			Refusal struct{ Error, State string } `json:"fsm-proxy/refusal"`
		} `json:"_meta"`
	}
	changed, err := c.request(ctx, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, arguments), &result)
	if err != nil {
		return reply{}, err
	}
	r := reply{verdict: succeeded, state: result.Meta.State.State, restarted: result.Meta.State.Restarted, changed: changed}
	if len(result.Content) > 0 {
		r.text = result.Content[0].Text
	}
	switch {
	case result.Meta.Refusal.Error != "":
		r.verdict, r.state = refused, result.Meta.Refusal.State
	case result.IsError:
		r.verdict = failed
	}
	return r, nil
}

// request sends a request and reads its result. changed tells whether
// list_changed was there before the answer.
func (c *client) request(ctx context.Context, method, params string, result any) (changed bool, err error) {
	m, err := wire.Read(wire.RequestMessage(1, method, []byte(params)), wire.FromClient)
	if err != nil {
		return false, err
	}
	answer, err := c.conn.Start(m, nil).Wait(ctx)
	if err != nil {
		return false, err
	}
	changed = c.changed.Load()
	if answer.Kind != wire.Result {
		return changed, fmt.Errorf("%s was answered %s", method, answer.Bytes(answer.Error))
	}
	return changed, json.Unmarshal(answer.Bytes(answer.Result), result, json.MatchCaseInsensitiveNames(true))
}
