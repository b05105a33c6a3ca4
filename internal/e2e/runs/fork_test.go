package runs

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/stores"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// forkable is a policy with what a fork takes over: %s is what may be irreversible.
const forkable = `version: 1
name: forks
initial: start
registers: {n: counter}
everywhere:
  tools: [ok]
states:
  start:
    tools: {once: {at_most: 2, on_success: {to: after, set: {n: {add: 1}}}}}
  after:
    tools:
      elsewhere: {timeout: 1m%s}
      hold: {on_success: start%s}
`

// forked is a run that was forked, as the proxy tells of it.
type forked struct {
	ID, Path, Key, Run, State, Parent string
	Seq, Fork                         uint64
	Since                             []struct {
		Seq, Begun          uint64
		Kind, Name, Outcome string
	}
}

// forks forks a run.
func (h *house) forks(id string, args ...string) (f forked) {
	h.t.Helper()
	said := h.does(0, append([]string{"fork", id, "--json"}, args...)...)
	if err := json.Unmarshal([]byte(said), &f); err != nil {
		h.t.Fatalf("%v: %s", err, said)
	}
	return f
}

// missed are the calls that a fork does not know of, in a word each.
func (f *forked) missed() string {
	var all []string
	for _, x := range f.Since {
		all = append(all, fmt.Sprintf("%d:%s:%s", x.Seq, x.Name, x.Outcome))
	}
	return strings.Join(all, " ")
}

// reach is a client of a fork.
func (h *house) reach(who string, f *forked) *client {
	h.t.Helper()
	k := key{"modern", f.Key}
	c := h.who(k, who)
	if f.Key == "path" {
		c.web.URL = strings.TrimSuffix(h.url, "/mcp") + f.Path
	} else {
		c.handle = f.ID
	}
	return c
}

// becomes has a client call a tool.
func (h *house) becomes(what string, c *client, tool, verdict, state string) {
	h.t.Helper()
	if r := c.call(tool, ""); r.verdict != verdict || state != "" && r.state != state {
		h.t.Errorf("%s: %s is %s in %s, want %s in %s: %s", what, tool, r.verdict, r.state, verdict, state, r.raw)
	}
}

// A fork is the run as it was, for who owns that, under a handle or URL of its own: both go on by themselves, whichever key
// the run has, and so they do though the proxy is killed behind it.
func TestForkGoesOn(t *testing.T) { forkGoesOn(t, store) }

func forkGoesOn(t *testing.T, store func(t *testing.T) string) {
	each(t, []key{{"modern", "handle"}, {"modern", "path"}, {"legacy", "session"}}, func(t *testing.T, k key) {
		url := store(t)
		h := counted(t, k, fmt.Sprintf(forkable, "", ""), "--annotate", "meta", "--store", url, "--admin-tokens", tokensOf(t, "olga"), "--tokens", tokens(t))
		c := h.who(k, "ann")
		switch k.kind {
		case "handle":
			c.handle = c.start(t)
		case "path":
			c.web.URL = h.newURL()
		default:
			c.Initialize()
		}
		h.becomes("the run", c, "ok", "success", "start")
		h.becomes("the run", c, "once", "success", "after")
		h.becomes("the run", c, "hold_open", "unknown_action", "after")
		id := h.one(k)
		first := h.forks(id, "--at", "1", "--reason", "ticket 12")
		kind := k.kind
		if kind == "session" { // whose runs are found by no secret
			kind = "handle"
		}
		if first.State != "start" || first.Key != kind || first.Fork != 1 || first.Seq != 1 || first.missed() != "2:ok:success 4:once:success" {
			t.Fatalf("%+v", first)
		}
		second := h.forks(id)
		if second.State != "after" || second.Fork < 4 || second.missed() != "" || second.Run == first.Run {
			t.Fatalf("%+v", second)
		}
		h.becomes("bob", h.reach("bob", &first), "ok", "run_not_found", "")
		h.becomes("the fork", h.reach("ann", &second), "ok", "success", "after")
		h.again(os.Kill)
		h.becomes("bob", h.reach("bob", &first), "ok", "run_not_found", "")
		h.becomes("the fork of the beginning", h.reach("ann", &first), "once", "success", "after")
		h.becomes("the other", h.reach("ann", &second), "once", "invalid_transition", "after")
		h.becomes("the other", h.reach("ann", &second), "hold_open", "unknown_action", "after")
		if k.kind != "session" { // of which the client has another connection now
			other := h.who(k, "ann")
			other.handle, other.web.URL = c.handle, c.web.URL
			c = other
		}
		h.becomes("the run", c, "ok", "success", "after")
		rows := rowsOf(t, url)
		if len(rows) != 3 {
			t.Fatalf("%+v", rows)
		}
		for _, r := range rows {
			if owner := (journal.Principal{Issuer: "tokens", Subject: "ann"}); r.Owner != owner && k.kind != "path" { // which is its first client's
				t.Errorf("%+v is kept as %+v's", r.ID, r.Owner)
			}
			switch r.ID {
			case first.Run:
				if r.Parent != first.Parent || r.Fork != 1 || notedOf(t, url, r.ID)[0] != (noted{Type: "forked", Who: "admin|olga", Reason: "ticket 12"}) {
					t.Errorf("%+v, %+v", r, notedOf(t, url, r.ID))
				}
			case first.Parent:
				for _, e := range notedOf(t, url, r.ID) {
					if e.Who != "" && e.Type != "began" {
						t.Errorf("the run has an entry of the fork: %+v", e)
					}
				}
			}
		}
		verified(t, url)
		if n := h.upstream.Count("tools/call", "once"); n != 2 {
			t.Errorf("once was sent %d times", n)
		}
	})
}

// What a fork remembers is what the run did: its registers, and what is counted of its limits. Of a run at rest, and of one
// that has ended, there are forks, too.
func TestForkRemembers(t *testing.T) {
	t.Parallel()
	k, url := key{"modern", "handle"}, store(t)
	h := counted(t, k, fmt.Sprintf(forkable, "", ""), "--annotate", "meta", "--store", url, "--admin-tokens", tokensOf(t, "olga"), "--keep-entries", "0")
	c := h.enter(k, "")
	h.becomes("the run", c, "once", "success", "after")
	arguments := fmt.Sprintf(`{"who":"me","fsm_run":%q}`, c.handle)
	held := c.Request("tools/call", mcptest.ToolParams("hold", arguments))
	h.upstream.Await(t, 1, "tools/call", "hold")
	id := h.one(k)
	under := h.forks(id)
	if under.State != "after" || under.missed() != "4:hold:" {
		t.Errorf("%+v", under)
	}
	h.upstream.Open("hold")
	c.Answer(held)
	h.becomes("the run", c, "once", "success", "after")
	h.becomes("the fork", h.reach("", &under), "once", "invalid_transition", "after")
	h.again(os.Kill)
	rest := h.forks(strings.ToLower(id[:12]), "--at", "5")
	if rest.State != "start" || rest.missed() != "7:once:success" || rest.Parent != id {
		t.Errorf("%+v", rest)
	}
	for _, r := range h.known() {
		if r.ID == id && !r.AtRest {
			t.Error("the run was read into memory to be forked")
		}
	}
	child := h.reach("", &rest)
	var at struct{ Registers struct{ N int } }
	if h.operator(http.MethodGet, "/v1/runs/"+rest.Run, &at); at.Registers.N != 1 {
		t.Errorf("it remembers %+v", at)
	}
	h.becomes("the fork", child, "once", "success", "after")
	again := h.forks(rest.Run)
	h.becomes("the fork of the fork", h.reach("", &again), "hold", "success", "start")
	h.becomes("the fork of the fork", h.reach("", &again), "once", "limit_reached", "start")
	h.does(0, "end", id)
	ended := h.forks(id)
	if ended.State != "after" {
		t.Errorf("%+v", ended)
	}
	h.becomes("the fork of what has ended", h.reach("", &ended), "ok", "success", "after")
	if said := h.does(1, "fork", id, "--at", "99"); !strings.Contains(said, "no such entry yet") {
		t.Error(said)
	}
	if said := h.does(1, "fork", "ZZZZ"); !strings.Contains(said, "run_not_found") {
		t.Error(said)
	}
	verified(t, url)
}

// Behind a call that is irreversible there is no fork, by what its binding said when it was sent: that holds while it is
// under way, when it has ended, after a restart, and whatever the policy says then.
func TestNoForkBehindWhatIsIrreversible(t *testing.T) {
	t.Parallel()
	const final = ", irreversible: true"
	k, url := key{"modern", "handle"}, store(t)
	h := counted(t, k, fmt.Sprintf(forkable, final, final), "--annotate", "meta", "--store", url, "--admin-tokens", tokensOf(t, "olga"))
	policies := h.args[1]
	c := h.enter(k, "")
	h.becomes("the run", c, "once", "success", "after")
	id := h.one(k)
	h.forks(id, "--at", "1") // once is not
	h.becomes("the run", c, "elsewhere", "success", "after")
	refused := func(at int, entry, outcome string) {
		t.Helper()
		said := h.does(1, "fork", id, "--at", fmt.Sprint(at))
		for _, want := range []string{"(irreversible)", "entry " + entry + " tells", outcome} {
			if !strings.Contains(said, want) {
				t.Errorf("at %d: no %q in %s", at, want, said)
			}
		}
	}
	refused(1, "5", `tool "elsewhere"`)
	refused(4, "5", "success") // when it had begun
	if f := h.forks(id, "--at", "5"); f.State != "after" {
		t.Errorf("%+v", f)
	}
	arguments := fmt.Sprintf(`{"who":"me","fsm_run":%q}`, c.handle)
	held := c.Request("tools/call", mcptest.ToolParams("hold", arguments))
	h.upstream.Await(t, 1, "tools/call", "hold")
	refused(6, "6", "under way")
	if said := h.does(1, "fork", id); !strings.Contains(said, "under way") {
		t.Error(said)
	}
	h.upstream.Open("hold")
	c.Answer(held)
	if f := h.forks(id); f.State != "start" {
		t.Errorf("%+v", f)
	}
	// The policy says nothing of that any more.
	h.ends(os.Kill)
	if err := os.WriteFile(policies, []byte(fmt.Sprintf(forkable, "", "")), 0o600); err != nil {
		t.Fatal(err)
	}
	h.anew()
	refused(4, "5", "success")
	c = h.enter(k, c.handle)
	h.becomes("the run", c, "once", "success", "after")
	at := len(entriesOf(t, url)[id])
	h.becomes("the run", c, "elsewhere", "success", "after")
	h.becomes("the run", c, "hold", "success", "start")
	if f := h.forks(id, "--at", fmt.Sprint(at)); f.State != "after" {
		t.Errorf("%+v", f)
	}
	// It says so again: of what was sent before it did not.
	h.ends(os.Kill)
	if err := os.WriteFile(policies, []byte(fmt.Sprintf(forkable, final, final)), 0o600); err != nil {
		t.Fatal(err)
	}
	h.anew()
	if f := h.forks(id, "--at", fmt.Sprint(at)); f.State != "after" {
		t.Errorf("%+v", f)
	}
	verified(t, url)
}

// Where runs are not kept, have no secret that finds them, or the verb is switched off, there are no forks, and the refusal
// says what to do.
func TestForksThatAreNotThere(t *testing.T) {
	t.Parallel()
	for what, x := range map[string]struct {
		k     key
		flags []string
		want  string
	}{
		"nothing is kept":  {key{"modern", "handle"}, nil, "--store"},
		"no secret":        {key{"modern", byHeader}, []string{"--store", store(t)}, "--run-key"},
		"switched off":     {key{"modern", "handle"}, []string{"--store", store(t), "--admin-verbs", "reset,end"}, "fork is switched off here"},
		"another wants it": {key{"modern", "handle"}, []string{"--store", store(t), "--admin-verbs", "fork"}, ""},
	} {
		h := counted(t, x.k, fmt.Sprintf(forkable, "", ""), append(x.flags, "--annotate", "meta", "--admin-tokens", tokensOf(t, "olga"))...)
		c := h.enter(x.k, "")
		h.becomes(what, c, "once", "success", "after")
		if id := h.one(x.k); x.want == "" {
			h.forks(id)
		} else if said := h.does(1, "fork", id); !strings.Contains(said, x.want) {
			t.Errorf("%s: %s", what, said)
		}
		h.becomes(what, c, "ok", "success", "after")
	}
}

// A run that is shut may have sent what its store does not know: it is not forked until somebody has looked at it. Nor is one
// whose server begins anew with each process.
func TestForksThatAreNotSafe(t *testing.T) {
	t.Parallel()
	k, url := key{"modern", "handle"}, store(t)
	h := counted(t, k, fmt.Sprintf(forkable, "", ""), "--annotate", "meta", "--store", url, "--admin-tokens", tokensOf(t, "olga"))
	c := h.enter(k, "")
	h.becomes("the run", c, "once", "success", "after")
	id := foreign(t, url, false)
	h.does(1, "annotate", id, "x") // finds out
	for _, like := range []string{id, id[:12]} {
		if said := h.does(1, "fork", like, "--at", "1"); !strings.Contains(said, "run_shut") || !strings.Contains(said, "runs accept") {
			t.Error(said)
		}
	}
	h.does(0, "accept", id)
	h.forks(id, "--at", "1")
	w := open(t, k, crossroads(t, restarts), append([]string{"--store", store(t), "--admin-tokens", tokensOf(t, "olga"), "--on-upstream-restart", "restart"}, wrapped(t)...)...)
	w.enter(k, "")
	if said := w.does(1, "fork", w.one(k)); !strings.Contains(said, "--on-upstream-restart") {
		t.Error(said)
	}
}

// What is looked at in a store tells what a fork is one of, and an export takes that along.
func TestForksAreShown(t *testing.T) {
	t.Parallel()
	const final = ", irreversible: true"
	k, url := key{"modern", "handle"}, store(t)
	h := counted(t, k, fmt.Sprintf(forkable, final, ""), "--annotate", "meta", "--store", url, "--admin-tokens", tokensOf(t, "olga"))
	c := h.enter(k, "")
	h.becomes("the run", c, "once", "success", "after")
	h.becomes("the run", c, "elsewhere", "success", "after")
	id := h.one(k)
	f := h.forks(id, "--reason", "ticket 12")
	h.becomes("the run", c, "hold_open", "unknown_action", "after")
	h.becomes("the fork", h.reach("", &f), "elsewhere", "success", "after")
	said := h.does(0, "fork", id, "--at", "5")
	if !strings.Contains(said, "is a fork of run "+id+" at entry 5, in state 'after'. Its handle is ") {
		t.Error(said)
	}
	h.ends(os.Interrupt)
	command := func(code int, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), mcptest.Proxy(t), args...)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != code {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	for _, x := range []struct {
		args []string
		want []string
		not  string
	}{
		{[]string{"runs", "show", f.Run}, []string{fmt.Sprintf("parent     %s, at entry %d", id, f.Fork)}, ""},
		{[]string{"runs", "ls", "--json"}, []string{fmt.Sprintf(`"parent":%q,"fork":%d`, id, f.Fork)}, ""},
		{[]string{"runs", "tail", f.Run}, []string{fmt.Sprintf("forked    of run %s, at entry %d  in after  by admin|olga  \"ticket 12\"", id, f.Fork), "tool elsewhere  irreversible"}, ""},
		{[]string{"report", f.Run}, []string{fmt.Sprintf("| fork of | `%s`, at entry %d |", id, f.Fork), fmt.Sprintf("`forked` of `%s`, at entry %d", id, f.Fork), "`tool elsewhere`, irreversible | `success`"}, ""},
		{[]string{"verify"}, []string{"3 runs"}, ""},
	} {
		out := command(0, append(x.args, "--store", url)...)
		for _, want := range x.want {
			if !strings.Contains(out, want) {
				t.Errorf("%v: no %q in\n%s", x.args, want, out)
			}
		}
	}
	for _, both := range [][]string{{id, f.Run}, {f.Run, id}} {
		out := command(1, "runs", "diff", both[0], both[1], "--store", url)
		if strings.Contains(out, "once") || strings.Contains(out, "began") || !strings.Contains(out, "unknown_action") || !strings.Contains(out, "elsewhere") {
			t.Errorf("they differ in\n%s", out)
		}
	}
	other := store(t)
	exported := command(0, "runs", "export", "--store", url)
	into := exec.CommandContext(t.Context(), mcptest.Proxy(t), "runs", "import", "--store", other)
	into.Stdin = strings.NewReader(exported)
	if out, err := into.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	verified(t, other)
	other = store(t) // where the other run is not
	into = exec.CommandContext(t.Context(), mcptest.Proxy(t), "runs", "import", "--store", other)
	into.Stdin = strings.NewReader(command(0, "runs", "export", f.Run, "--store", url))
	if out, err := into.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	i := slices.Index(h.args, "--store")
	h.args[i+1] = other
	h.anew()
	h.becomes("the fork, imported", h.reach("", &f), "once", "invalid_transition", "after")
	if again := h.forks(f.Run); again.State != "after" || again.Parent != f.Run {
		t.Errorf("%+v", again)
	}
	s, err := stores.OpenReader(t.Context(), stores.Config{URL: other})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if row, err := s.Row(t.Context(), f.Run); err != nil || row.Parent != id || row.Fork != f.Fork {
		t.Errorf("%+v, %v", row, err)
	}
}
