package runs

import (
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// steps is a policy with an edge that can be taken once.
const steps = `version: 1
name: runs
initial: start
everywhere:
  tools: [ok, hold_open]
states:
  start:
    tools: {once: after, hold: after}
  after:
    tools: [elsewhere]
`

// server answers every tool with its name; hold and hold_open wait for the gate of
// that name.
func server() mcptest.Server {
	return mcptest.Server{Handle: func(e *mcptest.Exchange) {
		switch {
		case e.Method == "initialize":
			e.Result(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"raw","version":"1"}}`)
		case e.Method == "tools/list":
			var all []string
			for _, name := range strings.Fields("ok once hold hold_open elsewhere") {
				all = append(all, `{"name":"`+name+`","inputSchema":{"type":"object"}}`)
			}
			e.Result(`{"tools":[` + strings.Join(all, ",") + `]}`)
		case e.Method != "tools/call":
			e.Fail(-32601, "no such method")
		case strings.HasPrefix(e.Name, "hold"):
			e.Async(func() { e.Gate(e.Name); e.Result(mcptest.Text(e.Argument("who"))) })
		default:
			e.Result(mcptest.Text(e.Name))
		}
	}}
}
