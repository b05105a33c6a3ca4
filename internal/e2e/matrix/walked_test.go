package matrix

import (
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// walk is a policy of one step, after which another list of tools holds.
const walk = `version: 1
name: eras
initial: start
states:
  start:
    description: Before the step.
    tools: {look: , progress: , ask: , slow: , step: moved}
  moved:
    tools: [look, later]
`

// walked is the upstream of the matrix of eras, in either of them.
func walked(modern bool) mcptest.Server {
	server := mcptest.Script{
		Capabilities: `{"tools":{"listChanged":true}}`,
		Tools: map[string]func(*mcptest.Exchange){
			"look": nil, "later": nil, "step": nil, "hidden": nil,
			"progress": func(e *mcptest.Exchange) {
				e.Progress(1, 2)
				e.Progress(2, 2)
				e.Result(mcptest.Text("progress"))
			},
			"ask":  ask,
			"slow": func(e *mcptest.Exchange) { e.Async(func() { e.Progress(1, 9); e.Silent() }) },
		},
	}.Server()
	server.Modern = modern
	return server
}

// startWalked starts it.
func startWalked(t *testing.T, modern bool, framing string) (*mcptest.Upstream, target) {
	if framing == "http" {
		u, url := mcptest.HTTP(t, walked(modern))
		return u, target{url: url}
	}
	u := mcptest.Stdio(t, map[bool]string{true: "walked modern", false: "walked"}[modern])
	return u, target{argv: u.Command()}
}

const question = `{"message":"Who is there?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}`

func ask(e *mcptest.Exchange) {
	if !e.Modern {
		e.Async(func() {
			e.Result(mcptest.Text("the person says " + string(e.Ask("elicitation/create", question).Result)))
		})
		return
	}
	if answer, ok := e.Require("who", "elicitation/create", question); ok {
		e.Result(mcptest.Text("the person says " + answer))
	}
}
