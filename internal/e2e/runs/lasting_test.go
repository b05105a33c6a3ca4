package runs

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	mcpserver "github.com/mark3labs/mcp-go/server"

	world "github.com/fsm-proxy/fsm-proxy/internal/crossroads"
	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/stores"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// crossroadsServer is the URL of a world that outlives the proxies in front of it.
func crossroadsServer(t *testing.T) string {
	t.Helper()
	url, _ := crossroadsCounted(t)
	return url
}

// crossroadsCounted is crossroadsServer, and how many calls it has got.
func crossroadsCounted(t *testing.T) (url string, calls *atomic.Int64) {
	t.Helper()
	calls = new(atomic.Int64)
	serve := mcpserver.NewStreamableHTTPServer(world.New(world.Config{KeyID: "brass"}))
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var text bytes.Buffer
		if _, err := text.ReadFrom(r.Body); err != nil {
			return // who has called is gone
		}
		if mcptest.ParseMessage(text.Bytes()).Method == "tools/call" {
			calls.Add(1)
		}
		r.Body = io.NopCloser(&text)
		serve.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	return web.URL, calls
}

// store is a file for runs.
func store(t *testing.T) string {
	t.Helper()
	return "sqlite:" + filepath.Join(t.TempDir(), "runs.db")
}

// Crossroads is played with the proxy stopped, or killed, between any two calls, and goes as it does without, and is kept
// so, entry by entry.
func TestCrossroadsAcrossRestarts(t *testing.T) {
	whole := slices.Concat(walk, lastDoor)
	each(t, keys, func(t *testing.T, k key) {
		url, policy := store(t), crossroads(t, restarts)
		h := open(t, k, policy, "--annotate", "meta", "--store", url, "--upstream", crossroadsServer(t))
		c := h.enter(k, "")
		for i, s := range whole {
			was, _ := last(t, url)
			if k.kind == "session" && i > 0 { // nobody knows which lists it has seen: with what is sent it is told
				s.changed = s.verdict != "invalid_transition"
			}
			c.play(t, []step{s})
			by := os.Signal(syscall.SIGTERM)
			if i%2 == 0 {
				by = os.Kill
				behind(t, url, was, s.tool)
			}
			h.again(by)
			if k.kind != "session" { // which goes on by itself
				c = h.enter(k, c.run())
			}
		}
		h.ends(syscall.SIGTERM)
		plain := store(t)
		h = open(t, k, policy, "--annotate", "meta", "--store", plain, "--upstream", crossroadsServer(t))
		h.enter(k, "").play(t, whole)
		h.ends(syscall.SIGTERM)
		sameEntries(t, url, plain)
	})
}

// sameEntries checks that the runs of two stores have the same entries, but for times and for where they were read again.
func sameEntries(t *testing.T, url, plain string) {
	t.Helper()
	texts := func(url string) (all []string) {
		for _, entries := range entriesOf(t, url) {
			for _, e := range entries {
				all = append(all, varies.ReplaceAllString(e.text, ""))
			}
		}
		return all
	}
	is, want := texts(url), texts(plain)
	if len(want) < len(walk) || !slices.Equal(is, want) {
		t.Errorf("kept were\n%s\nand without restarts\n%s", strings.Join(is, "\n"), strings.Join(want, "\n"))
	}
}

// varies is what of an entry is another with each run.
var varies = regexp.MustCompile(`"(run|whose|hash|prev|time|since|until|resumed|microseconds)":("[^"]*"|[^,}]*),?|[^"]*/policy\.yaml`)

// last is how many entries a store of one run has, and of what the last is.
func last(t *testing.T, url string) (n int, of string) {
	t.Helper()
	for _, entries := range entriesOf(t, url) {
		n, of = len(entries), entries[len(entries)-1].Name
	}
	return n, of
}

// behind waits until more entries are kept than were, and the last is of that: those of calls that stay are written soon.
func behind(t *testing.T, url string, was int, of string) {
	t.Helper()
	mcptest.Await(t, "the entry of a call that stays is kept", func() bool {
		n, name := last(t, url)
		return n > was && name == of
	})
}

// The process's run stays complete over a restart, and says so, and how to go on.
func TestCompleteRunOfProcessAcrossRestarts(t *testing.T) {
	each(t, those("process"), func(t *testing.T, k key) {
		h := open(t, k, crossroads(t, stops), "--annotate", "meta", "--store", store(t), "--upstream", crossroadsServer(t))
		c := h.enter(k, "")
		c.play(t, walk)
		c.play(t, []step{{"open_door_with_key", rightKey, "success", "door_left", true}})
		h.again(syscall.SIGTERM)
		if r := h.enter(k, "").call("open_door", ""); r.verdict != "run_complete" || !strings.Contains(r.raw, "another --run NAME") {
			t.Error(r.verdict, r.raw)
		}
		h.args = append(h.args, "--run", "another")
		h.again(syscall.SIGTERM)
		h.enter(k, "").play(t, []step{{"choose_left_path", "", "invalid_transition", "entry", false}})
	})
}

// Over stdio the run is the process's, and goes by its name.
func TestCrossroadsOverStdioAcrossRestarts(t *testing.T) {
	each(t, []key{{"legacy", ""}, {"modern", ""}}, func(t *testing.T, k key) {
		policy, file, url := mcptest.WritePolicy(t, crossroads(t, restarts)), store(t), crossroadsServer(t)
		for _, s := range append(append([]step{}, walk...), lastDoor...) {
			c := &client{key: k}
			var p *mcptest.Process
			c.Session, p = mcptest.Dial(t, mcptest.Proxy(t), "run", "--policy", policy, "--annotate", "meta", "--store", file, "--run", "mine", "--upstream", url)
			if k.modern() {
				c.Modern(mcptest.Modern{})
			} else {
				c.Initialize()
			}
			c.play(t, []step{s})
			if err := p.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			p.ExitCode()
		}
	})
}

// A session goes on with its level and its subscriptions, for its owner alone; one that its client has ended does not.
func TestSessionGoesOn(t *testing.T) {
	t.Parallel()
	upstream, url := mcptest.HTTP(t, mcptest.Server{Handle: func(e *mcptest.Exchange) {
		switch e.Method {
		case "initialize":
			e.Result(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true},"logging":{}},"serverInfo":{"name":"raw","version":"1"}}`)
		case "tools/list":
			e.Result(`{"tools":[{"name":"once","inputSchema":{"type":"object"}}]}`)
		case "resources/list":
			e.Result(`{"resources":[{"uri":"file:///a","name":"a"},{"uri":"file:///b","name":"b"}]}`)
		case "tools/call":
			e.Result(mcptest.Text("done"))
		default:
			e.Result(`{}`)
		}
	}})
	k := key{"legacy", "session"}
	kept := store(t)
	h := open(t, k, "version: 1\nname: s\ninitial: start\neverywhere: {resources: [\"file:///*\"]}\nstates: {start: {tools: {once: after}}, after: {}}\n",
		"--annotate", "meta", "--tokens", tokens(t), "--store", kept, "--upstream", url)
	ann, ended := h.who(k, "ann"), h.who(k, "ann")
	ann.Initialize()
	ended.Initialize()
	ann.Call("logging/setLevel", `{"level":"warning"}`)
	for _, uri := range []string{"file:///a", "file:///b"} {
		if a := ann.Call("resources/subscribe", `{"uri":"`+uri+`"}`); len(a.Result) == 0 {
			t.Fatal(a)
		}
	}
	ann.Call("resources/unsubscribe", `{"uri":"file:///a"}`)
	if r := ann.call("once", ""); r.verdict != "success" || r.state != "after" {
		t.Fatal(r.raw)
	}
	if status := ended.web.Delete(); status >= 300 {
		t.Fatal(status)
	}
	mcptest.Await(t, "nothing is kept of a run in which nothing has happened", func() bool { return len(rowsOf(t, kept)) == 1 })
	h.again(os.Kill)
	count := func(method string) int { return upstream.Count(method) }
	levels, subscribed := count("logging/setLevel"), count("resources/subscribe")
	bob := h.who(k, "bob")
	bob.web.SetID(ann.web.ID())
	for who, c := range map[string]*client{"bob": bob, "one who has ended it": ended} {
		if r := c.web.Post(t.Context(), `{"jsonrpc":"2.0","id":7,"method":"ping"}`); r.Status != http.StatusNotFound {
			t.Errorf("%s: %d %s", who, r.Status, r.Body)
		}
	}
	if r := ann.call("once", ""); r.verdict != "invalid_transition" || r.state != "after" {
		t.Error(r.raw)
	}
	if count("logging/setLevel") != levels+1 || count("resources/subscribe") != subscribed+1 {
		t.Errorf("the level was set %d times, and %d subscriptions were made", count("logging/setLevel")-levels, count("resources/subscribe")-subscribed)
	}
	if status := ann.web.Delete(); status >= 300 {
		t.Fatal(status)
	}
	h.again(os.Interrupt)
	if r := ann.web.Post(t.Context(), `{"jsonrpc":"2.0","id":8,"method":"ping"}`); r.Status != http.StatusNotFound {
		t.Errorf("a session that was ended goes on: %d %s", r.Status, r.Body)
	}
	if rows := rowsOf(t, kept); len(rows) != 1 || rows[0].Ended.IsZero() || rows[0].State != "after" {
		t.Errorf("a run that has ended with its session is kept as %+v", rows)
	}
}

// rowsOf are the runs of a store.
func rowsOf(t *testing.T, url string) []journal.Row {
	t.Helper()
	s, err := stores.OpenReader(t.Context(), stores.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rows, err := s.List(t.Context(), journal.Query{Limit: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// A run that its client has ended stays ended, and what comes of a call that it had under way is kept behind that.
func TestEndedRunStaysEnded(t *testing.T) {
	each(t, those("handle"), func(t *testing.T, k key) {
		url := store(t)
		h := counted(t, k, steps, "--annotate", "meta", "--store", url)
		c := h.enter(k, "")
		held := c.Request("tools/call", mcptest.ToolParams("hold", fmt.Sprintf(`{"fsm_run":%q,"who":"me"}`, c.handle)))
		h.upstream.Await(t, 1, "tools/call", "hold")
		if r := c.call("fsm_end_run", ""); r.verdict != "success" {
			t.Fatal(r.raw)
		}
		h.upstream.Open("hold")
		c.Answer(held)
		h.again(os.Kill)
		if r := c.call("once", ""); r.verdict != "run_expired" {
			t.Error(r.raw)
		}
		if rows := rowsOf(t, url); len(rows) != 1 || rows[0].Ended.IsZero() {
			t.Errorf("%+v", rows)
		}
		if n := verified(t, url); n > 1 {
			t.Error(n)
		}
	})
}

// metrics are those at the address of --health.
func metrics(t *testing.T, health string) string {
	t.Helper()
	answer, err := http.Get("http://" + health + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	return body(t, answer)
}

// remembers is a policy with all that a run has beside its state.
const remembers = `version: 1
name: remembers
initial: start
registers: {seen: {set: text, max: 10}, n: counter}
states:
  start:
    tools:
      ok: {at_most: {run: 3}, set: {seen: {add: args.who}}}
      once: {when: size(registers.seen) == 2, on_success: waiting}
      hold: {on_success: waiting, on_unknown: {to: lost, set: {n: {add: 1}}}}
  waiting:
    after: {3s: {to: late, set: {n: {add: 5}}}}
  late: {tools: {elsewhere: {when: registers.n == 5, on_success: start}}}
  lost: {tools: {elsewhere: {when: registers.n == 1, on_success: start}}}
`

// Registers, limits and clocks go on, and a call whose end nobody learned takes its on_unknown.
func TestMemoryAcrossRestarts(t *testing.T) {
	each(t, those(byHeader, "session"), func(t *testing.T, k key) {
		h := counted(t, k, remembers, "--annotate", "meta", "--store", store(t))
		c := h.enter(k, "")
		again := func() {
			h.again(os.Kill)
			if k.kind != "session" {
				c = h.enter(k, c.run())
			}
		}
		must := func(tool, arguments, verdict, state string) {
			t.Helper()
			if r := c.call(tool, arguments); r.verdict != verdict || r.state != state {
				t.Fatalf("%s: %s in %s, want %s in %s\n%s", tool, r.verdict, r.state, verdict, state, r.raw)
			}
		}
		must("ok", `"who":"a"`, "success", "start")
		again()
		must("once", "", "guard_failed", "start")
		must("ok", `"who":"b"`, "success", "start")
		again()
		must("ok", `"who":"b"`, "success", "start")
		must("ok", `"who":"b"`, "limit_reached", "start")
		again()
		must("ok", `"who":"c"`, "limit_reached", "start")

		held := c.Request("tools/call", mcptest.ToolParams("hold", `{"who":"me"}`)) // which is lost with the proxy
		h.upstream.Await(t, 1, "tools/call", "hold")
		again()
		_ = held
		must("hold", "", "invalid_transition", "lost")
		must("elsewhere", "", "success", "start")
		h.upstream.Open("hold")

		must("once", "", "success", "waiting")
		if err := h.process.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		h.process.ExitCode()
		<-time.After(3200 * time.Millisecond) // by when the clock is due, and nobody has the run
		h.process = mcptest.ListenAt(t, strings.TrimSuffix(strings.TrimPrefix(h.url, "http://"), "/mcp"), h.args...)
		if k.kind == byHeader {
			h.process.Log().Await(t, "transition: run=") // whoever asks
			c = h.enter(k, c.run())
		}
		must("once", "", "invalid_transition", "late")
	})
}

// A run goes on under another policy as after a reload, by the names that states had when it was kept.
func TestPolicyThatChangedMeanwhile(t *testing.T) {
	each(t, those(byHeader), func(t *testing.T, k key) {
		h := counted(t, k, steps, "--annotate", "meta", "--store", store(t))
		c := h.taken(h.enter(k, ""))
		policy := h.args[1]
		if err := os.WriteFile(policy, []byte(strings.NewReplacer("after", "behind").Replace(steps)+"renamed: {after: behind}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		h.again(os.Kill)
		c = h.enter(k, c.run())
		if r := c.call("once", ""); r.verdict != "invalid_transition" || r.state != "behind" {
			t.Error(r.raw)
		}
		if r := c.call("elsewhere", ""); r.verdict != "success" || r.state != "behind" {
			t.Error(r.raw)
		}
		h.again(os.Kill)
		if r := h.enter(k, c.run()).call("elsewhere", ""); r.verdict != "success" || r.state != "behind" {
			t.Error(r.raw)
		}
	})
}

// A second process is told who has the store.
func TestStoreOfOneProcess(t *testing.T) {
	t.Parallel()
	k := key{"modern", "process"}
	h := counted(t, k, steps, "--store", store(t))
	second := mcptest.Start(t, nil, append([]string{mcptest.Proxy(t), "run", "--listen", mcptest.FreeAddress(t)}, without(h.args, "--admin")...)...)
	if code, log := second.ExitCode(), second.Log().String(); code == 0 || !strings.Contains(log, "is in use by process") || !strings.Contains(log, ": stop that, or name another file by --store") {
		t.Errorf("%d: %s", code, log)
	}
}

// without are arguments without a flag and its value.
func without(args []string, flag string) []string {
	i := slices.Index(args, flag)
	return slices.Delete(slices.Clone(args), i, i+2)
}

// kept is what stands in a store, by where that is: of each scheme of URLs.
var kept = map[string]func(t *testing.T, url string) map[string]string{
	"sqlite": func(t *testing.T, url string) map[string]string {
		t.Helper()
		files, err := filepath.Glob(strings.TrimPrefix(url, "sqlite:") + "*")
		if err != nil || len(files) < 2 {
			t.Fatal(files, err)
		}
		texts := map[string]string{}
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			texts[filepath.Base(name)] = string(text)
		}
		return texts
	},
}

// textsOf is all that stands in a store, and what the commands show of its runs, by where that is. Something of what stands
// there has the word: else the test looks at nothing.
func textsOf(t *testing.T, url, word string) map[string]string {
	t.Helper()
	scheme, _, _ := strings.Cut(url, ":")
	texts := kept[scheme](t, url)
	if !slices.ContainsFunc(slices.Collect(maps.Values(texts)), func(text string) bool { return strings.Contains(text, word) }) {
		t.Fatalf("nothing that is kept has %q", word)
	}
	rows := rowsOf(t, url)
	if len(rows) == 0 {
		t.Fatal("no run is kept")
	}
	for _, row := range rows {
		for _, args := range [][]string{{"report", row.ID}, {"runs", "show", row.ID}, {"runs", "tail", row.ID}, {"runs", "export", row.ID}} {
			out, err := exec.CommandContext(t.Context(), mcptest.Proxy(t), append(args, "--store", url)...).CombinedOutput()
			if err != nil || len(out) == 0 {
				t.Fatalf("%v: %v\n%s", args, err, out)
			}
			texts[strings.Join(args, " ")] = string(out)
		}
	}
	return texts
}

// What finds a run, and what calls bring, stands neither in the store, nor in what is shown of it, nor in the log.
func TestSecretsAreNotKept(t *testing.T) { secretsAreNotKept(t, store) }

func secretsAreNotKept(t *testing.T, store func(t *testing.T) string) {
	each(t, keys, func(t *testing.T, k key) {
		url := store(t)
		h := counted(t, k, steps, "--store", url)
		c := h.enter(k, "")
		if r := c.call("once", `"password":"a secret argument"`); r.verdict != "success" {
			t.Fatal(r.raw)
		}
		secrets := []string{"a secret argument", token("ann"), c.handle, c.web.ID()}
		switch k.kind {
		case byHeader:
			secrets = append(secrets, "the run")
		case "path":
			secrets = append(secrets, filepath.Base(c.web.URL))
		}
		written := textsOf(t, url, "once")
		written["the log"] = h.process.Log().String()
		for where, text := range written {
			for _, secret := range secrets {
				if secret != "" && strings.Contains(text, secret) {
					t.Errorf("%q stands in %s", secret, where)
				}
			}
		}
	})
}

// A session whose server is not there yet after a restart is told to come again, and has lost nothing then.
func TestSessionGoesOnWhenItsServerDoes(t *testing.T) {
	t.Parallel()
	upstream, _ := mcptest.HTTP(t, server())
	address := mcptest.FreeAddress(t)
	serve := func() *http.Server {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		web := &http.Server{Handler: upstream.Handler(), ReadHeaderTimeout: time.Minute}
		go func() { _ = web.Serve(l) }()
		return web
	}
	web := serve()
	k := key{"legacy", "session"}
	h := open(t, k, steps, "--annotate", "meta", "--store", store(t), "--connect-timeout", "1s", "--upstream", "http://"+address+"/mcp")
	h.upstream = upstream
	c := h.taken(h.enter(k, ""))
	web.Close()
	h.again(os.Kill)
	r := c.web.Post(t.Context(), `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"ok","arguments":{}}}`)
	if r.Status != http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "" {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	web = serve()
	defer web.Close()
	h.once(c)
}

// What has ended is kept for as long as is said, and what goes on is kept on, whichever process has written it.
func TestEndedRunsAreForgotten(t *testing.T) { endedRunsAreForgotten(t, store) }

func endedRunsAreForgotten(t *testing.T, store func(t *testing.T) string) {
	each(t, those("handle"), func(t *testing.T, k key) {
		url := store(t)
		h := counted(t, k, steps, "--annotate", "meta", "--store", url)
		stays, before, ends := h.taken(h.enter(k, "")), h.taken(h.enter(k, "")), h.taken(h.enter(k, ""))
		if n := len(rowsOf(t, url)); n != 3 {
			t.Fatalf("%d runs are kept", n)
		}
		if r := before.call("fsm_end_run", ""); r.verdict != "success" {
			t.Fatal(r.raw)
		}
		h.args = append(h.args, "--keep-completed", "1ms", "--run-idle", "16s")
		h.again(os.Interrupt)
		stays, ends = h.enter(k, stays.handle), h.enter(k, ends.handle)
		if r := ends.call("fsm_end_run", ""); r.verdict != "success" {
			t.Fatal(r.raw)
		}
		h.process.Log().Await(t, "runs are kept no longer")
		mcptest.Await(t, "one run alone is kept", func() bool { return len(rowsOf(t, url)) == 1 })
		if r := stays.call("once", ""); r.verdict != "invalid_transition" || r.state != "after" {
			t.Error(r.raw)
		}
	})
}
