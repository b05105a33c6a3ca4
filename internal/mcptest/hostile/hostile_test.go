package hostile

import (
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

func TestMain(m *testing.M) {
	mcptest.Main(m, mcptest.Servers{"wrong": wrong(), "stubborn": {Handle: wrong().Handle, Stubborn: true}})
}

// wrong is mcptest's failing upstream with things to hide.
func wrong() mcptest.Server {
	failing := mcptest.Failing()
	lists := mcptest.Script{Lists: map[string]string{
		"resources/list": `{"resources":[{"uri":"w://shown","name":"s"},{"uri":"w://hidden","name":"h"}]}`,
		"prompts/list":   `{"prompts":[{"name":"shown","arguments":[{"name":"a"}]},{"name":"hidden","arguments":[{"name":"a"}]}]}`,
	}}.Server()
	return mcptest.Server{Handle: func(e *mcptest.Exchange) {
		switch {
		case e.Method == "resources/list" || e.Method == "prompts/list":
			lists.Handle(e)
		case e.Method == "tools/list" && e.Argument("cursor") == "":
			pages(e)
		case e.Method == "tools/call" && (e.Name == "hidden" || e.Name == "page_two" || e.Name == "once"):
			e.Result(mcptest.Text(e.Name + " ran"))
		case e.Method == "completion/complete":
			e.Result(`{"completion":{"values":["completed"]}}`)
		default:
			failing.Handle(e)
		}
	}}
}

// pages lists the tools on two pages; what is hidden stands on both.
func pages(e *mcptest.Exchange) {
	if strings.Contains(string(e.Params), `"cursor":"two"`) {
		e.Result(`{"tools":[{"name":"page_two","inputSchema":{"type":"object"}},{"name":"hidden","inputSchema":{"type":"object"}}]}`)
		return
	}
	var tools []string
	for _, name := range strings.Fields("ok refuse broken die silent late twice wrong_id truncate noise flood children ask once") {
		tools = append(tools, `{"name":"`+name+`","inputSchema":{"type":"object"}}`)
	}
	e.Result(`{"nextCursor":"two","tools":[` + strings.Join(tools, ",") + `]}`)
}

const policy = `version: 1
name: hostile
initial: open
states:
  open:
    tools:
      ok:
      refuse:
      broken:
      die: {on_unknown: after}
      silent: {on_unknown: after}
      late: {on_success: after}
      twice:
      wrong_id:
      truncate: {on_unknown: after}
      noise:
      flood:
      children:
      ask:
      once: after
    resources:
      "w://shown":
    prompts:
      shown:
  after:
    tools:
      ok:
      hidden_too: open
`

// rig is a client before the proxy before the counting upstream.
type rig struct {
	*mcptest.Session
	upstream *mcptest.Upstream
	web      *mcptest.Web // nil on stdio
	process  *mcptest.Process
	url      string
}

// framings run a test with the client on stdio and over HTTP; the upstream is a process in both.
func framings(t *testing.T, run func(t *testing.T, r *rig), flags ...string) {
	t.Helper()
	t.Run("stdio", func(t *testing.T) { run(t, onStdio(t, "wrong", flags...)) })
	t.Run("http", func(t *testing.T) { run(t, onHTTP(t, flags...)) })
}

func onStdio(t *testing.T, server string, flags ...string) *rig {
	t.Helper()
	r := &rig{upstream: mcptest.Stdio(t, server)}
	argv := append([]string{mcptest.Proxy(t), "run", "--policy", mcptest.WritePolicy(t, policy)}, flags...)
	r.Session, r.process = mcptest.Dial(t, append(append(argv, "--"), r.upstream.Command()...)...)
	r.Initialize()
	return r
}

func onHTTP(t *testing.T, flags ...string) *rig {
	t.Helper()
	r := &rig{upstream: mcptest.Stdio(t, "wrong")}
	args := append([]string{"--policy", mcptest.WritePolicy(t, policy)}, flags...)
	r.url, r.process = mcptest.Listen(t, append(append(args, "--"), r.upstream.Command()...)...)
	r.Session, r.web = mcptest.DialWeb(t, r.url)
	r.Initialize()
	return r
}

// lives fails the test unless the session still answers.
func (r *rig) lives(t *testing.T) {
	t.Helper()
	if answer := r.Tool("ok", ""); string(answer.Result) != mcptest.Text("ok") {
		t.Errorf("the next call is answered %s", answer)
	}
}

// refused reports whether an answer is an error or a refusal.
func refused(m mcptest.Message) bool {
	return m.Error != nil || strings.Contains(string(m.Result), `"isError":true`)
}

// calls is how many tools/call of any name reached the upstream.
func (r *rig) calls() int { return r.upstream.Count("tools/call") }
