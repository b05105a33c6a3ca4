package runs

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// A key is how the clients of an era find their run.
type key struct {
	era, kind string // as --run-key has them; kind "" is stdio's default
}

func (k key) String() string {
	if k.kind == "" {
		return k.era + " over stdio"
	}
	return k.era + " by " + k.kind
}

func (k key) modern() bool { return k.era == "modern" }

const (
	gatewayHeader = "X-Run-Id"
	byHeader      = "header:" + gatewayHeader
)

// keys are all that HTTP clients can have.
var keys = []key{
	{"legacy", "process"}, {"legacy", "session"}, {"legacy", "principal"}, {"legacy", byHeader}, {"legacy", "path"},
	{"modern", "process"}, {"modern", "principal"}, {"modern", byHeader}, {"modern", "path"}, {"modern", "handle"},
}

// those are the keys of these kinds, of both eras.
func those(kinds ...string) (some []key) {
	for _, k := range keys {
		for _, kind := range kinds {
			if k.kind == kind {
				some = append(some, k)
			}
		}
	}
	return some
}

// each runs a test with each key at the same time.
func each(t *testing.T, some []key, run func(t *testing.T, k key)) {
	t.Helper()
	t.Parallel()
	for _, k := range some {
		t.Run(k.String(), func(t *testing.T) { t.Parallel(); run(t, k) })
	}
}

// house is a proxy with its operator.
type house struct {
	t          *testing.T
	url, admin string
	olga       string // the operator, whose token is sent; "": nobody's
	process    *mcptest.Process
	upstream   *mcptest.Upstream // nil: it does not count
	args       []string
}

// open starts a proxy whose clients find their runs by the key. It is named for its
// era alone: those of the other find them by it, too, where they can. more are further flags and what is wrapped.
func open(t *testing.T, k key, policy string, more ...string) *house {
	t.Helper()
	return openBehind(t, nil, k, policy, more...)
}

// openBehind is open with a command that becomes the proxy, nil for none.
func openBehind(t *testing.T, front []string, k key, policy string, more ...string) *house {
	t.Helper()
	h := &house{t: t, admin: mcptest.FreeAddress(t)}
	args := []string{"--policy", mcptest.WritePolicy(t, policy), "--admin", h.admin, "--run-key", k.era + "=" + k.kind}
	if i := slices.Index(more, "--store"); i >= 0 && strings.HasPrefix(more[i+1], "postgres:") {
		args = append(args, "--lease", "200ms") // for which the next one waits where a proxy was killed
	}
	switch k.kind {
	case "principal":
		args = append(args, "--tokens", tokens(t))
	case byHeader:
		if !slices.Contains(more, "--trusted-proxies") {
			args = append(args, "--trusted-proxies", "127.0.0.1")
		}
	}
	if slices.Contains(more, "--admin-tokens") {
		h.olga = "olga"
	}
	if h.args = append(args, more...); front == nil {
		h.url, h.process = mcptest.Listen(t, h.args...)
	} else {
		h.url, h.process = mcptest.ListenBehind(t, front, h.args...)
	}
	return h
}

// again ends the proxy by a signal, and starts it anew at the same address.
func (h *house) again(by os.Signal) {
	h.t.Helper()
	h.ends(by)
	h.anew()
}

// ends ends the proxy by a signal.
func (h *house) ends(by os.Signal) {
	h.t.Helper()
	h.sends(by)
	h.process.ExitCode()
}

// sends sends the proxy's process a signal, and does not wait for what that does.
func (h *house) sends(by os.Signal) {
	h.t.Helper()
	if err := h.process.Process.Signal(by); err != nil {
		h.t.Fatal(err)
	}
}

// anew starts the proxy again at the same address.
func (h *house) anew() {
	h.t.Helper()
	h.process = mcptest.ListenAt(h.t, strings.TrimSuffix(strings.TrimPrefix(h.url, "http://"), "/mcp"), h.args...)
}

// counted is open in front of an upstream that counts.
func counted(t *testing.T, k key, policy string, flags ...string) *house {
	t.Helper()
	upstream, url := mcptest.HTTP(t, server())
	h := open(t, k, policy, append(flags, "--upstream", url)...)
	h.upstream = upstream
	return h
}

// atStdio starts a proxy at standard input and output, with its one client and operators.
func atStdio(t *testing.T, era, policy, operators string) (*house, *client) {
	t.Helper()
	_, url := mcptest.HTTP(t, server())
	h, c := &house{t: t, admin: mcptest.FreeAddress(t), olga: "olga"}, &client{key: key{era: era}}
	c.Session, h.process = mcptest.Dial(t, mcptest.Proxy(t), "run", "--policy", mcptest.WritePolicy(t, policy), "--upstream", url, "--admin", h.admin, "--admin-tokens", operators)
	if c.key.modern() {
		c.Modern(mcptest.Modern{})
	} else {
		c.Initialize()
	}
	return h, c
}

// token is what somebody shows who they are with.
func token(who string) string { return "the-token-of-" + who }

func tokens(t *testing.T) string { return tokensOf(t, "ann", "bob") }

func tokensOf(t *testing.T, names ...string) string {
	text := "version: 1\ntokens:\n"
	for _, who := range names {
		text += fmt.Sprintf("  %s: sha256:%x\n", who, sha256.Sum256([]byte(token(who))))
	}
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// operator asks the admin listener, and reads its answer.
func (h *house) operator(method, path string, answer any) {
	h.t.Helper()
	request, err := http.NewRequestWithContext(h.t.Context(), method, "http://"+h.admin+path, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if h.olga != "" {
		request.Header.Set("Authorization", "Bearer "+token(h.olga))
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		h.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode >= 300 || json.Unmarshal(body, answer) != nil {
		h.t.Fatalf("%s %s: %s %v\n%s", method, path, response.Status, err, body)
	}
}

// known are the runs that the operator sees.
func (h *house) known() (all []known) {
	h.t.Helper()
	var page struct{ Items []known }
	h.operator(http.MethodGet, "/v1/runs?limit=1000", &page)
	return page.Items
}

type known struct {
	ID, Key, Owner, State string
	Complete              bool
	Sessions              int
	AtRest                bool `json:"at_rest"`
}

// newURL is a run's that the operator begins.
func (h *house) newURL() string {
	h.t.Helper()
	var started struct{ Path string }
	h.operator(http.MethodPost, "/v1/runs", &started)
	return strings.TrimSuffix(h.url, "/mcp") + started.Path
}

// client is one of a house's clients, with what it needs to find a run.
type client struct {
	*mcptest.Session
	web    *mcptest.Web
	key    key
	handle string
}

// who is a client that has found no run yet.
func (h *house) who(k key, who string) *client {
	h.t.Helper()
	c := &client{key: k}
	c.Session, c.web = mcptest.DialWeb(h.t, h.url)
	if who != "" {
		c.web.Header.Set("Authorization", "Bearer "+token(who))
	}
	if k.modern() {
		c.Modern(mcptest.Modern{})
	}
	return c
}

// enter is a client of a run: ann's, where that is told apart. At is the run's URL
// or handle, of the keys that have those; empty begins a run.
func (h *house) enter(k key, at string) *client {
	h.t.Helper()
	who := ""
	if k.kind == "principal" {
		who = "ann"
	}
	c := h.who(k, who)
	switch k.kind {
	case byHeader:
		c.web.Header.Set(gatewayHeader, "the run")
	case "path":
		if at == "" {
			at = h.newURL()
		}
		c.web.URL = at
	case "handle":
		if c.handle = at; at == "" {
			c.handle = c.start(h.t)
		}
	}
	if !k.modern() {
		c.Initialize()
	}
	return c
}

// run is where another client finds the same run.
func (c *client) run() string {
	switch c.key.kind {
	case "path":
		return c.web.URL
	case "handle":
		return c.handle
	}
	return ""
}

// start calls the tool that starts a run, and returns the handle.
func (c *client) start(t *testing.T) string {
	t.Helper()
	answer := c.Call("tools/call", mcptest.ToolParams("fsm_start_run", ""))
	var result struct {
		StructuredContent struct {
			Run string `json:"fsm_run"`
		}
	}
	if err := json.Unmarshal(answer.Result, &result); err != nil || strings.Contains(answer.String(), `"isError":true`) {
		t.Fatalf("starting a run: %s", answer)
	}
	return result.StructuredContent.Run
}

// reply is what came of one call.
type reply struct {
	verdict string // success, error, or the refusal's code
	state   string
	changed bool // list_changed came before the answer
	text    string
	raw     string
}

// call calls a tool with arguments, as members of JSON.
func (c *client) call(tool, arguments string) reply {
	if c.handle != "" {
		arguments = strings.Trim(fmt.Sprintf(`"fsm_run":%q,%s`, c.handle, arguments), ",")
	}
	answer, before := c.Answer(c.Request("tools/call", mcptest.ToolParams(tool, "{"+arguments+"}")))
	return read(answer, before)
}

func read(answer mcptest.Message, before []mcptest.Message) reply {
	type refusal struct{ Error, State string }
	var result struct {
		Content []struct{ Text string }
		IsError bool
		Meta    struct {
			State   struct{ State string } `json:"fsm-proxy/state"`
			Refusal refusal                `json:"fsm-proxy/refusal"`
		} `json:"_meta"`
	}
	var failure struct {
		Message string
		Data    refusal
	}
	_ = json.Unmarshal(answer.Result, &result) // what cannot be read is no success
	_ = json.Unmarshal(answer.Error, &failure)
	r := reply{verdict: "success", state: result.Meta.State.State, text: failure.Message, raw: answer.String()}
	for _, content := range result.Content {
		r.text += content.Text
	}
	for _, m := range before {
		r.changed = r.changed || m.Method == "notifications/tools/list_changed"
	}
	switch {
	case result.Meta.Refusal.Error != "":
		r.verdict, r.state = result.Meta.Refusal.Error, result.Meta.Refusal.State
	case failure.Data.Error != "":
		r.verdict, r.state = failure.Data.Error, failure.Data.State
	case result.IsError, len(answer.Result) == 0:
		r.verdict = "error"
	}
	return r
}

// body is that of an answer.
func body(t *testing.T, answer *http.Response) string {
	t.Helper()
	all, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(all)
}
