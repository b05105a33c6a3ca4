package asks

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// said is what somebody was sent.
type said struct {
	mu  sync.Mutex
	all []string
}

func (s *said) add(raw []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, string(raw))
}

func (s *said) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := strings.Join(s.all, "\n")
	s.all = nil
	return text
}

// server is a connection that keeps what it is answered.
type server struct {
	bridge.Conn
	said
}

func (s *server) Era() wire.Era           { return wire.Legacy }
func (s *server) Notify(raw []byte) error { s.add(raw); return nil }

// client keeps what it is asked, and takes nothing where it is deaf.
type client struct {
	said
	deaf bool
	late []string // what it has not answered in time
}

func (c *client) SendAsk(raw []byte, _ For) bool {
	if !c.deaf {
		c.add(raw)
	}
	return !c.deaf
}

func (c *client) Unanswered(method string) { c.late = append(c.late, method) }

// waits counts the requests that are open for a call.
type waits int

func (w *waits) Asked(open bool) {
	if open {
		*w++
	} else {
		*w--
	}
}

type rig struct {
	Config
	Open
	*server
	*client
	conn *bridge.Upstream
	call waits
}

func newRig() *rig {
	r := &rig{Config: Config{Timeout: time.Minute, Most: 2, Log: hclog.NewNullLogger()}, server: &server{}, client: &client{}}
	r.conn = bridge.NewUpstream(r.server, nil)
	return r
}

func (r *rig) ask(id string) {
	r.Ask(&r.Config, r.client, r.conn, wire.Made([]byte(`{"jsonrpc":"2.0","id":`+id+`,"method":"roots/list"}`)), &r.call)
}

func (r *rig) want(t *testing.T, who *said, parts ...string) {
	t.Helper()
	text := who.take()
	if len(parts) == 0 && text != "" {
		t.Errorf("said: %s", text)
	}
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s is not in: %s", part, text)
		}
	}
}

// Each goes under an id of the session's, and its answer back under the server's own.
func TestAnswerGoesBackUnderTheServersID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.ask(`"x"`)
		r.want(t, &r.client.said, `"id":1,"method":"roots/list"`)
		if r.call != 1 || !r.Any() {
			t.Errorf("the call waits for %d", r.call)
		}
		answer, err := wire.Read([]byte(`{"jsonrpc":"2.0","id":1,"result":{"roots":[]}}`), wire.FromClient)
		if err != nil {
			t.Fatal(err)
		}
		r.Answered(&r.Config, answer)
		r.want(t, &r.server.said, `"id":"x","result":{"roots":[]}`)
		r.Answered(&r.Config, answer) // again: to nothing that is open
		r.want(t, &r.server.said)
		if r.call != 0 || r.Any() {
			t.Errorf("the call waits for %d still", r.call)
		}
	})
}

// What a client does not answer in time the server gets an error for, and the client is told.
func TestUnansweredInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.ask("7")
		r.client.take()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		r.want(t, &r.client.said, `"notifications/cancelled"`, `"requestId":1`)
		r.want(t, &r.server.said, `"id":7`, unanswered)
		if !slices.Equal(r.late, []string{"roots/list"}) || r.call != 0 {
			t.Errorf("late: %v, open: %d", r.late, r.call)
		}
	})
}

// Too many, a client that takes none, and a session that has ended are errors to the server at once.
func TestRejectedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.ask("1")
		r.ask("2")
		r.ask("3")
		r.want(t, &r.server.said, `"id":3`, "too many requests are open")
		r.Close(&r.Config)
		r.want(t, &r.server.said, `"id":1`, `"id":2`, "the client's session has ended")
		r.ask("4")
		r.want(t, &r.server.said, `"id":4`, "the client's session has ended")
		if r.call != 0 || r.Any() {
			t.Errorf("the call waits for %d", r.call)
		}
		r = newRig()
		r.deaf = true
		r.ask("5")
		r.want(t, &r.server.said, `"id":5`, "takes no requests now")
		if r.call != 0 || r.Any() {
			t.Errorf("the call waits for %d", r.call)
		}
	})
}

// A server that withdraws a request, or is lost, is no more waited for by the client.
func TestWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		r.ask("1")
		r.ask("2")
		r.client.take()
		r.Cancelled(r.client, r.conn, wire.Made([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}`)))
		r.want(t, &r.client.said, `"requestId":2`)
		r.Withdraw(r.client, bridge.NewUpstream(r.server, nil), "") // another's
		r.want(t, &r.client.said)
		r.Withdraw(r.client, r.conn, "the upstream server has gone")
		r.want(t, &r.client.said, `"requestId":1`, "the upstream server has gone")
		if r.call != 0 {
			t.Errorf("the call waits for %d", r.call)
		}
	})
}

// The first request in a result that may not be made is found at every depth, and by what looks alike.
func TestExcess(t *testing.T) {
	may := func(method string) bool { return method == "roots/list" }
	for result, want := range map[string]string{
		`{"content":[]}`: "",
		`{"inputRequests":{"a":{"method":"roots/list"}}}`:                                     "",
		`{"inputRequests":{"a":{"method":"roots/list"},"b":{"method":"elicitation/create"}}}`: "elicitation/create",
		`{"task":{"inputRequests":{"a":{"method":"sampling/createMessage"}}}}`:                "sampling/createMessage",
		`{"task":{"result":{"inputRequests":{"a":{"method":"elicitation/create"}}}}}`:         "elicitation/create",
		`{"InputRequests":{"a":{"Method":"elicitation/create"}}}`:                             "elicitation/create",
		`{"inputRequests":null}`: "",
	} {
		method, found := Excess([]byte(result), may)
		if found != (want != "") || found && method != want {
			t.Errorf("%s: %q, %t", result, method, found)
		}
	}
	if _, found := Excess([]byte(`{"inputRequests":{"a":{}}}`), may); !found {
		t.Error("one without a method may be made")
	}
}
