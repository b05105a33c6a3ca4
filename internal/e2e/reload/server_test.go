package reload

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// server is a light upstream that counts what reaches it, and holds some calls until the policy has changed.
type server struct {
	url     string
	history *history
	once    sync.Once
	ended   chan struct{}

	mu      sync.Mutex // guards reached
	reached map[string]int
}

func newServer(t *testing.T, h *history) *server {
	s := &server{history: h, ended: make(chan struct{}), reached: map[string]int{}}
	web := httptest.NewServer(s)
	s.url = web.URL + "/mcp"
	t.Cleanup(func() { s.release(); web.CloseClientConnections(); web.Close() })
	return s
}

// release lets go what is held, and holds nothing from now on.
func (s *server) release() { s.once.Do(func() { close(s.ended) }) }

// ServeHTTP answers one message.
func (s *server) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		out.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	m := mcptest.ParseMessage(raw)
	if !m.IsRequest() {
		out.WriteHeader(http.StatusAccepted)
		return
	}
	out.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(out, mcptest.Result(m.ID, s.answer(m))) // a client that is gone is seen by its own test
}

func (s *server) answer(m mcptest.Message) string {
	switch m.Method {
	case "initialize":
		const changes = `{"listChanged":true}`
		return `{"protocolVersion":"2025-11-25","capabilities":{"tools":` + changes + `,"resources":` + changes + `,"prompts":` + changes +
			`},"serverInfo":{"name":"light","version":"1"}}`
	case "tools/list":
		return `{"tools":[` + tools() + `]}`
	case "resources/list":
		return `{"resources":[{"uri":"r://0","name":"zero"},{"uri":"r://1","name":"one"}]}`
	case "prompts/list":
		return `{"prompts":[{"name":"always"},{"name":"never"}]}`
	}
	s.count(m)
	return mcptest.Text("done")
}

func tools() string {
	names := []string{"always", "go", "back", "never"}
	for n := range marks {
		names = append(names, mark(n))
	}
	var all []string
	for _, name := range names {
		all = append(all, fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"}}`, name))
	}
	return strings.Join(all, ",")
}

// count notes the call, and holds some of those that step until the policy has changed meanwhile.
func (s *server) count(m mcptest.Message) {
	s.mu.Lock()
	s.reached[string(m.Params)]++
	s.mu.Unlock()
	if m.Name != "go" && m.Name != "back" || rand.IntN(20) > 0 {
		return
	}
	select {
	case <-s.history.next():
	case <-s.ended:
	}
}

func (s *server) times(params string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reached[params]
}
