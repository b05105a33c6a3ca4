package attack

import (
	"crypto/tls"
	"flag"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

func TestMain(m *testing.M) {
	// Most of the time goes by with waiting for other processes.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	mcptest.Main(m, mcptest.Servers{"world": world(), "modern": {Handle: world().Handle, Modern: true}, "stubborn": {Handle: world().Handle, Stubborn: true},
		"kitchen": new(kitchen).server(false)})
}

// plan is the policy of most tests: what is bound and what is hidden, one edge that can be taken once, and a
// state behind it in which less is allowed.
const plan = `version: 1
name: attack
initial: start
states:
  start:
    description: Where all begins.
    tools:
      ok:
      read_*:
      swap:
      refuse:
      flood:
      noise:
      children:
      answer_for:
      wrong_id:
      hold_open:
      update:
      ask: {exclusive: true}
      elicit: {exclusive: true}
      sse:
      big:
      ambiguous:
      twice: after
      count: after
      once: after
      hold: after
      die: {on_unknown: after}
      truncate: {on_unknown: after}
      late: {on_success: after, on_unknown: lost}
      silent: {on_unknown: lost}
      command:
        by: command
        cases: {plan: stay, move: after}
      level:
        by: options.level
        cases: {100: stay, "200": stay, true: stay, "git *": stay, "git push*": none}
    resources:
      "w://shown":
    prompts:
      shown:
  after:
    tools: [ok, elsewhere]
  lost:
    tools: [ok, elsewhere]
`

// A way is how the client and the upstream are reached.
type way struct {
	client, upstream string // "stdio" or "http"; the client also "https"
	server           string // the process's name; default world
	policy           string // default plan
	modern           bool   // the upstream speaks revision 2026-07-28 and no other
	flags            []string
}

var (
	pipes   = way{client: "stdio", upstream: "stdio"}
	web     = way{client: "http", upstream: "http"}
	webTLS  = way{client: "https", upstream: "http"}
	webPipe = way{client: "http", upstream: "stdio"}
	pipeWeb = way{client: "stdio", upstream: "http"}

	pipesModern = way{client: "stdio", upstream: "stdio", modern: true}
	webModern   = way{client: "http", upstream: "http", modern: true}
)

func (w way) String() string {
	if w.modern {
		return w.client + " to modern " + w.upstream
	}
	return w.client + " to " + w.upstream
}

func (w way) with(flags ...string) way { w.flags = append(slices.Clone(w.flags), flags...); return w }

func (w way) under(policy string) way { w.policy = policy; return w }

// rig is a client before the proxy before the counting upstream.
type rig struct {
	*mcptest.Session
	t        *testing.T
	upstream *mcptest.Upstream
	process  *mcptest.Process
	web      *mcptest.Web    // nil on stdio
	url      string          // of the proxy; empty on stdio
	policy   string          // its file
	waits    []time.Duration // of calls that are to be served promptly
}

// each runs a test on several ways at the same time.
func each(t *testing.T, ways []way, run func(r *rig)) {
	t.Helper()
	t.Parallel()
	for _, w := range ways {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			run(w.open(t))
		})
	}
}

// both are the two ways that share no framing.
func both(t *testing.T, run func(r *rig)) { t.Helper(); each(t, []way{pipes, web}, run) }

// fronts runs a test on both kinds of address that face HTTP clients. What speaks HTTP/1.1 by hand meets the same
// server on both; the client of webTLS speaks HTTP/2.
func fronts(t *testing.T, run func(t *testing.T, front way)) {
	t.Helper()
	t.Parallel()
	for _, front := range []way{web, webTLS} {
		t.Run(front.client, func(t *testing.T) { t.Parallel(); run(t, front) })
	}
}

// open starts everything and initializes the session.
func (w way) open(t *testing.T) *rig {
	t.Helper()
	r := w.start(t)
	r.Initialize()
	return r
}

// start is open without the handshake.
func (w way) start(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t}
	if w.policy == "" {
		w.policy = plan
	}
	r.policy = mcptest.WritePolicy(t, w.policy)
	args := append([]string{"--policy", r.policy}, w.flags...)
	if w.upstream == "http" {
		var url string
		server := world()
		server.Modern = w.modern
		r.upstream, url = mcptest.HTTP(t, server)
		args = append(args, "--upstream", url)
	} else {
		if w.server == "" {
			w.server = "world"
			if w.modern {
				w.server = "modern"
			}
		}
		r.upstream = mcptest.Stdio(t, w.server)
		args = append(append(args, "--"), r.upstream.Command()...)
	}
	switch w.client {
	case "http":
		r.url, r.process = mcptest.Listen(t, args...)
		r.Session, r.web = mcptest.DialWeb(t, r.url)
	case "https":
		r.url, r.process = mcptest.ListenTLS(t, args...)
		r.Session, r.web = mcptest.DialWeb(t, r.url)
	default:
		r.Session, r.process = mcptest.Dial(t, append([]string{mcptest.Proxy(t), "run"}, args...)...)
	}
	return r
}

// address is where the proxy listens.
func (r *rig) address() string {
	_, rest, _ := strings.Cut(r.url, "://")
	return strings.TrimSuffix(rest, "/mcp")
}

// dial opens a connection to the proxy, over which HTTP/1.1 is spoken by hand.
func (r *rig) dial() (net.Conn, error) {
	if strings.HasPrefix(r.url, "https:") {
		return tls.Dial("tcp", r.address(), mcptest.TrustTLS())
	}
	return net.Dial("tcp", r.address())
}

// join opens another session at the same proxy, over HTTP.
func (r *rig) join() *rig {
	r.t.Helper()
	other := &rig{t: r.t, upstream: r.upstream, process: r.process, url: r.url}
	other.Session, other.web = mcptest.DialWeb(r.t, r.url)
	other.Initialize()
	return other
}

// say sends raw bytes and returns the answer's bytes: a line, or the body of the response.
func (r *rig) say(raw string) string {
	r.t.Helper()
	if r.web == nil {
		r.Send(raw)
		return r.Next().String()
	}
	answer := r.web.Post(r.t.Context(), raw)
	if answer.Err != nil {
		r.t.Errorf("posting: %v", answer.Err)
	}
	return string(answer.Body)
}

// result is an answer's, as a server of the legacy era gives it.
func result(answer mcptest.Message) string {
	return strings.Replace(string(answer.Result), `"resultType":"complete",`, "", 1)
}

// lives fails the test unless the session still answers. What was sent before has reached the upstream then,
// if it does at all.
func (r *rig) lives() {
	r.t.Helper()
	if answer := r.Tool("ok", `{"alive":true}`); result(answer) != mcptest.Text("ok") {
		r.t.Errorf("the next call is answered %s", answer)
	}
}

// reached fails the test unless exactly these gated messages have reached the upstream, in any order, besides
// those of lives. Each is "METHOD NAME". One that is on its way, as a notification may be behind an answer, is waited for.
func (r *rig) reached(want ...string) {
	r.t.Helper()
	patience := time.After(mcptest.Patience)
	got := r.traffic()
	for late := false; len(got) < len(want) && !late; got = r.traffic() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-patience:
			late = true
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		r.t.Errorf("what reached the upstream: %q, want %q", got, want)
	}
}

// called is reached of the tools/call alone, for a session that ended with calls under way: whether they were still to
// be cancelled then is chance.
func (r *rig) called(want ...string) {
	r.t.Helper()
	var got []string
	for _, seen := range r.traffic() {
		if name, ok := strings.CutPrefix(seen, "tools/call "); ok {
			got = append(got, name)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		r.t.Errorf("the tools that were called: %q, want %q", got, want)
	}
}

// traffic is what has reached the upstream, less the proxy's own housekeeping.
func (r *rig) traffic() (seen []string) {
	housekeeping := []string{"initialize", "notifications/initialized", "tools/list", "resources/list", "prompts/list",
		"resources/templates/list", "DELETE", "ping", "server/discover", "subscriptions/listen"}
	for _, m := range r.upstream.Received() {
		switch {
		case slices.Contains(housekeeping, m.Method), strings.Contains(string(m.Params), `"alive":true`):
		case m.IsResponse():
			seen = append(seen, "answer")
		default:
			seen = append(seen, strings.TrimSpace(m.Method+" "+m.Name))
		}
	}
	return seen
}

// untouched fails the test if the session is dead, or if anything gated has reached the upstream.
func (r *rig) untouched() {
	r.t.Helper()
	r.lives()
	r.reached()
}

// in fails the test unless the run is in the state.
func (r *rig) in(state string) {
	r.t.Helper()
	if answer := r.Tool("nowhere", ""); !strings.Contains(answer.String(), `"state":"`+state+`"`) {
		r.t.Errorf("the run is not in %s: %s", state, answer)
	}
}

// unheard fails the test if the text is in anything that the client got.
func (r *rig) unheard(text string) {
	r.t.Helper()
	for _, m := range r.Received() {
		if strings.Contains(m.String(), text) {
			r.t.Errorf("the client got %s", m)
		}
	}
}

// denied reports whether an answer is an error or a refusal.
func denied(answer string) bool {
	return strings.Contains(answer, `"error":{"code"`) || strings.Contains(answer, `"isError":true`)
}

// call is a tools/call of these bytes.
func call(id, params string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":` + params + `}`
}
