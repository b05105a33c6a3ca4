package attack

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// brittle is a client that takes answers as the Python SDK 1.x does: a status that is an error, other than 404, ends its
// transport, with every request under way, whatever it was for; and behind the result of a tool that it has not listed it
// lists, before its caller sees the result.
type brittle struct {
	web  *mcptest.Web
	ctx  context.Context // of the transport
	dies context.CancelCauseFunc

	mu     sync.Mutex // guards what follows
	ids    int
	listed bool
}

func newBrittle(t *testing.T, url string) *brittle {
	t.Helper()
	session, web := mcptest.DialWeb(t, url)
	session.Initialize()
	b := &brittle{web: web}
	b.ctx, b.dies = context.WithCancelCause(t.Context())
	t.Cleanup(func() { b.dies(nil) })
	return b
}

// post sends a message and returns its answer.
func (b *brittle) post(body, id string) (mcptest.Message, error) {
	answer := b.web.Post(b.ctx, body)
	switch {
	case b.ctx.Err() != nil:
		return mcptest.Message{}, context.Cause(b.ctx)
	case answer.Err != nil:
		b.dies(answer.Err)
		return mcptest.Message{}, answer.Err
	case answer.Status >= http.StatusBadRequest && answer.Status != http.StatusNotFound:
		b.dies(fmt.Errorf("HTTP %d %s", answer.Status, answer.Body))
		return mcptest.Message{}, context.Cause(b.ctx)
	}
	for _, m := range answer.Messages {
		if string(m.ID) == id {
			return m, nil
		}
	}
	if id == "" {
		return mcptest.Message{}, nil
	}
	return mcptest.Message{}, fmt.Errorf("%.80s… is never answered", body)
}

func (b *brittle) ask(method, params string) (mcptest.Message, error) {
	b.mu.Lock()
	b.ids++
	id := b.ids
	b.mu.Unlock()
	return b.post(mcptest.Request(id, method, params), string(mcptest.ID(id)))
}

// call is call_tool.
func (b *brittle) call(name, arguments string) (mcptest.Message, error) {
	result, err := b.ask("tools/call", mcptest.ToolParams(name, arguments))
	if err != nil || result.Error != nil || strings.Contains(string(result.Result), `"isError":true`) {
		return result, err
	}
	b.mu.Lock()
	listed := b.listed
	b.listed = true
	b.mu.Unlock()
	if listed {
		return result, nil
	}
	list, err := b.ask("tools/list", "{}")
	if err == nil && list.Error != nil {
		err = errors.New(list.String())
	}
	return result, err
}

// gone fails the test if anything has ended the client's transport.
func (b *brittle) gone(t *testing.T) {
	t.Helper()
	if err := context.Cause(b.ctx); err != nil {
		t.Errorf("the transport has ended: %v", err)
	}
}

// A client that a status ends, and that lists behind a result, loses none in a drain: not its call under way, nor the
// one that comes too late.
func TestDrainUnderABrittleClient(t *testing.T) {
	each(t, []way{web, webPipe, webTLS}, func(r *rig) {
		b := newBrittle(r.t, r.url)
		type outcome struct {
			answer mcptest.Message
			err    error
		}
		held := make(chan outcome)
		go func() {
			answer, err := b.call("hold_open", "")
			held <- outcome{answer, err}
		}()
		r.upstream.Await(r.t, 1, "tools/call", "hold_open")
		r.end()
		if late, err := b.ask("tools/call", mcptest.ToolParams("ok", "")); err != nil || late.Error == nil || !strings.Contains(late.String(), "is ending") {
			r.t.Errorf("a late call is answered %s, %v", late, err)
		}
		r.upstream.Open("hold_open")
		if o := <-held; o.err != nil || string(o.answer.Result) != mcptest.Text("the true answer") {
			r.t.Errorf("the call under way is answered %s, %v", o.answer, o.err)
		}
		b.gone(r.t)
		r.ended()
		r.reached("tools/call hold_open")
	})
}

// Neither does it lose its session for a message that is too large, or that cannot be read: a request, a notification,
// an answer.
func TestWhatABrittleClientCannotSend(t *testing.T) {
	each(t, []way{web, webTLS}, func(r *rig) {
		b := newBrittle(r.t, r.url)
		huge := strings.Repeat("x", 5<<20)
		for name, m := range map[string]struct{ body, id string }{
			"a call":                      {call("50", `{"name":"ok","arguments":{"a":"`+huge+`"}}`), "50"},
			"its id behind the rest":      {`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"ok","arguments":{"id":3,"a":"` + huge + `"}},"\u0069d":"last"}`, `"last"`},
			"a notification":              {`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"message":"` + huge + `"}}`, ""},
			"an answer":                   {`{"jsonrpc":"2.0","id":1,"result":{"content":"` + huge + `"}}`, ""},
			"too deep":                    {call("51", `{"name":"ok","arguments":{"a":`+strings.Repeat("[", 600)+strings.Repeat("]", 600)+`}}`), "51"},
			"a name twice":                {call("52", `{"name":"ok","arguments":{"a":1,"a":2}}`), "52"},
			"a lookalike":                 {call("53", `{"name":"ok","Name":"once"}`), "53"},
			"an answer with a name twice": {`{"jsonrpc":"2.0","id":1,"result":{"a":1,"a":2}}`, ""},
		} {
			answer, err := b.post(m.body, m.id)
			if err != nil || m.id != "" && answer.Error == nil {
				r.t.Errorf("%s is answered %.200s, %v", name, answer, err)
			}
		}
		b.gone(r.t)
		if answer, err := b.call("ok", ""); err != nil || string(answer.Result) != mcptest.Text("ok") {
			r.t.Errorf("the next call is answered %s, %v", answer, err)
		}
		r.reached("tools/call ok")
	})
}
