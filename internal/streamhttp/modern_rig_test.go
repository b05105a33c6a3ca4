package streamhttp

import (
	"fmt"
	"strings"
	"sync"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// modernMeta is what a request of the modern era says of itself.
const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// alone is a message of the modern era; params may be empty.
func alone(method, params string) string {
	if params != "" {
		params += ","
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{%s%s}}`, method, params, modernMeta)
}

// headed is a POST of a message with the headers of its revision and method; further
// ones replace those, or take them away.
func headed(body, method string, headers ...string) string {
	return post1(body, append([]string{"MCP-Protocol-Version: 2026-07-28", "Mcp-Method: " + method}, headers...)...)
}

// tool is a POST of a tool's call.
func tool(name string, headers ...string) string {
	return headed(alone("tools/call", fmt.Sprintf(`"name":%q`, name)), "tools/call", append([]string{"Mcp-Name: " + name}, headers...)...)
}

const listenParams = `"notifications":{"toolsListChanged":true}`

func listenPost(headers ...string) string {
	return headed(alone("subscriptions/listen", listenParams), "subscriptions/listen", headers...)
}

// standing is a request of the modern era that waits for the test, and its own
// wire.Pending.
type standing struct {
	m         *wire.Message
	out       wire.FailingStream
	cancelled chan struct{}
	over      chan struct{}
	detaches  bool

	once, ends sync.Once
	mu         sync.Mutex
	cancels    int // guarded by mu
}

func (s *standing) Cancel() {
	s.mu.Lock()
	s.cancels++
	s.mu.Unlock()
	s.once.Do(func() { close(s.cancelled) })
}

func (s *standing) times() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cancels
}

// answer answers the request; empty: with nothing.
func (s *standing) answer(raw string) {
	if raw == "" {
		s.out.Answer(nil)
	} else {
		s.out.Answer(result(s.m, raw))
	}
	s.end()
}

func (s *standing) end() { s.ends.Do(func() { close(s.over) }) }

func (s *standing) Wait() { <-s.over }

func (s *standing) Detach(done func()) bool {
	if s.detaches {
		go func() { <-s.over; done() }()
	}
	return s.detaches
}

// stands has requests wait for the test, which gets them from the channel. A request
// that is cancelled ends without an answer.
func stands(cfg ServerConfig, detaches bool) (ServerConfig, chan *standing) {
	came := make(chan *standing, 100)
	cfg.Modern = func(m *wire.Message, out wire.Stream, _ PeerInfo) wire.Pending {
		s := &standing{m: m, out: out.(wire.FailingStream), detaches: detaches,
			cancelled: make(chan struct{}), over: make(chan struct{})}
		if m.Method == "subscriptions/listen" {
			out.Send([]byte(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged"}`))
		}
		go func() {
			select {
			case <-s.cancelled:
				s.answer("")
			case <-s.over:
			}
		}()
		came <- s
		return s
	}
	return cfg, came
}

// answers has each request answered at once, by its name: a code's number fails with
// that.
func answers(cfg ServerConfig) ServerConfig {
	cfg.Modern = func(m *wire.Message, out wire.Stream, _ PeerInfo) wire.Pending {
		if m.Kind != wire.Request {
			return nil
		}
		var code int
		if _, err := fmt.Sscan(strings.TrimPrefix(m.P.Name, "code "), &code); err == nil {
			out.(wire.FailingStream).Fail(code, wire.ErrorAnswer(m.Bytes(m.ID), code, "no", nil))
			return nil
		}
		out.Answer(result(m, `{"resultType":"complete"}`))
		return nil
	}
	return cfg
}

// plainEvent is the next event that has data, which must have no id.
func (e *events) plainEvent(want string) {
	e.t.Helper()
	for {
		ev := e.next()
		if ev.data == "" {
			continue
		}
		if ev.id != "" || !strings.Contains(ev.data, want) {
			e.t.Fatalf("got event %+v, want %q without an id", ev, want)
		}
		return
	}
}
