// Command onecall serves fsm-proxy before an HTTP server of its own, and makes calls that step
// the run, over HTTP, in one legacy session with JSON answers. Built with coverage
// (-covermode=atomic) it leaves in folders 0, 1, … of a folder what later calls have entered.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime/coverage"
	"strconv"
	"strings"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/cli"
)

const policy = `version: 1
initial: closed
states:
  closed: {tools: {open: {on_success: opened}}}
  opened: {tools: {close: {on_success: closed}}}
`

func main() {
	folder := os.Args[1]
	watched := filepath.Join(folder, "policy") // a folder of its own, so that nothing is seen to change in it
	check(os.Mkdir(watched, 0o700))
	file := filepath.Join(watched, "policy.yaml")
	check(os.WriteFile(file, []byte(policy), 0o600))
	upstream := httptest.NewServer(http.HandlerFunc(serve))
	free, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	address := free.Addr().String()
	free.Close()
	go cli.Main(context.Background(), "", []string{"run", "--policy", file, "--listen", address, "--upstream", upstream.URL})
	c := &client{url: "http://" + address + "/mcp"}
	for range 200 { // tries, of 50 ms
		if connection, err := net.Dial("tcp", address); err == nil {
			connection.Close()
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	c.post(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"one","version":"1"}}}`)
	c.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	c.post(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
	for range 2 {
		c.call("open")
		c.call("close")
	}
	// What runs besides the calls differs from one to the next.
	for n := range 3 {
		into := filepath.Join(folder, strconv.Itoa(n))
		check(os.Mkdir(into, 0o700))
		check(coverage.ClearCounters())
		c.call("open")
		check(coverage.WriteCountersDir(into))
		check(coverage.WriteMetaDir(into))
		c.call("close")
	}
	os.Exit(0)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// client is a session, over one connection.
type client struct{ url, session string }

func (c *client) call(tool string) {
	answer := c.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":%q,"arguments":{}}}`, tool))
	if !strings.Contains(answer, `"isError":false`) {
		log.Fatalf("calling %s: %s", tool, answer)
	}
}

func (c *client) post(body string) string {
	r, err := http.NewRequest(http.MethodPost, c.url, strings.NewReader(body))
	check(err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if c.session != "" {
		r.Header.Set("Mcp-Session-Id", c.session)
		r.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	}
	answer, err := http.DefaultClient.Do(r)
	check(err)
	defer answer.Body.Close()
	if id := answer.Header.Get("Mcp-Session-Id"); id != "" {
		c.session = id
	}
	said, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode >= 300 {
		log.Fatalf("HTTP %d: %s %v", answer.StatusCode, said, err)
	}
	return string(said)
}

// serve is the wrapped server: two tools, JSON answers.
func serve(w http.ResponseWriter, r *http.Request) {
	var m struct {
		ID     json.RawMessage
		Method string
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || r.Method != http.MethodPost || json.Unmarshal(body, &m) != nil {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	result := `{"content":[{"type":"text","text":"done"}],"isError":false}`
	switch m.Method {
	case "initialize":
		w.Header().Set("Mcp-Session-Id", "upstream")
		result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"one","version":"1"}}`
	case "tools/list":
		result = `{"tools":[{"name":"open","inputSchema":{"type":"object"}},{"name":"close","inputSchema":{"type":"object"}}]}`
	}
	if m.ID == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}
