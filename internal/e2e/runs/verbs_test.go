package runs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// does has the command of a verb done, as olga.
func (h *house) does(code int, args ...string) string {
	h.t.Helper()
	file := filepath.Join(h.t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token("olga")), 0o600); err != nil {
		h.t.Fatal(err)
	}
	cmd := exec.CommandContext(h.t.Context(), mcptest.Proxy(h.t), append(append([]string{"runs"}, args...), "--admin", h.admin, "--admin-bearer-file", file)...)
	out, err := cmd.CombinedOutput()
	if exited, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exited.ExitCode() != code) || err == nil && code != 0 {
		h.t.Fatalf("runs %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// noted is what of an entry says who had it be done.
type noted struct{ Type, Outcome, Who, Reason, Text string }

// notedOf are those of a run of a store.
func notedOf(t *testing.T, url, id string) (all []noted) {
	t.Helper()
	for _, x := range entriesOf(t, url)[id] {
		var e noted
		if err := json.Unmarshal([]byte(x.text), &e); err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// has reports whether one of the entries is this one.
func has(all []noted, e noted) bool { return slices.Contains(all, e) }

// one is the id of the one run that is found by a key.
func (h *house) one(k key) string {
	h.t.Helper()
	all := h.runs(k)
	if len(all) != 1 {
		h.t.Fatalf("there are %d runs: %+v", len(all), all)
	}
	return all[0].ID
}

// What an operator does to a run stands in its journal, with who and why, and holds though the proxy is killed behind it.
func TestVerbsAreKept(t *testing.T) {
	each(t, keys, func(t *testing.T, k key) {
		url := store(t)
		h := counted(t, k, steps, "--annotate", "meta", "--store", url, "--admin-tokens", tokensOf(t, "olga"))
		c := h.taken(h.enter(k, ""))
		id := h.one(k)
		if said := h.does(0, "annotate", id, "looked at"); !strings.Contains(said, "It is noted. Run "+id+": state 'after'") {
			t.Error(said)
		}
		h.again(os.Kill)
		if k.kind != "session" {
			c = h.enter(k, c.run())
		}
		h.once(c)
		if said := h.does(0, "reset", h.one(k), "--reason", "ticket 12"); !strings.Contains(said, "begins anew. Run ") || !strings.Contains(said, "state 'start'") {
			t.Error(said)
		}
		h.again(os.Kill)
		if k.kind != "session" {
			c = h.enter(k, c.run())
		}
		h.taken(c)
		kept := rowsOf(t, url)
		if len(kept) != 1 {
			t.Fatalf("%d runs are kept", len(kept))
		}
		if said := h.does(0, "end", h.one(k), "--reason", "enough"); !strings.Contains(said, "The run has ended.") {
			t.Error(said)
		}
		h.again(os.Kill)
		all := notedOf(t, url, kept[0].ID)
		for _, want := range []noted{
			{Type: "annotated", Who: "admin|olga", Text: "looked at"},
			{Type: "reset", Who: "admin|olga", Reason: "ticket 12"},
			{Type: "finished", Who: "admin|olga", Reason: "enough"},
		} {
			if !has(all, want) {
				t.Errorf("no %+v is kept:\n%+v", want, all)
			}
		}
		h.over(c)
		verified(t, url)
	})
}

// over fails the test unless the client's run, which had taken the edge, has ended: where its key begins runs there is
// another one, else it has none.
func (h *house) over(c *client) {
	h.t.Helper()
	switch c.key.kind {
	case "session":
		if r := c.web.Post(h.t.Context(), `{"jsonrpc":"2.0","id":7,"method":"ping"}`); r.Status != http.StatusNotFound {
			h.t.Errorf("its session goes on: %d %s", r.Status, r.Body)
		}
	case "path":
		if c.key.modern() {
			if r := c.call("once", ""); r.verdict != "run_expired" && r.verdict != "run_not_found" {
				h.t.Errorf("its URL is one still: %s", r.raw)
			}
			return
		}
		other := h.who(c.key, "")
		other.web.URL = c.web.URL
		h.refused("its URL", other)
	case "handle":
		if r := c.call("once", ""); r.verdict != "run_expired" {
			h.t.Errorf("its handle is one still: %s", r.raw)
		}
	default:
		if r := h.enter(c.key, "").call("once", ""); r.verdict != "success" || r.state != "after" {
			h.t.Errorf("its key begins no other: %s", r.raw)
		}
	}
}

// A run that has ended takes the sessions on it with it, and what its clients had under way moves nothing.
func TestEndWithCallsUnderWay(t *testing.T) {
	each(t, keys, func(t *testing.T, k key) {
		for _, lasts := range []bool{true, false} {
			url, flags := store(t), []string{"--annotate", "meta", "--admin-tokens", tokensOf(t, "olga")}
			if lasts {
				flags = append(flags, "--store", url)
			}
			h := counted(t, k, steps, flags...)
			c := h.enter(k, "")
			arguments := `{"who":"me"}`
			if c.handle != "" {
				arguments = fmt.Sprintf(`{"who":"me","fsm_run":%q}`, c.handle)
			}
			held := c.Request("tools/call", mcptest.ToolParams("hold", arguments))
			h.upstream.Await(t, 1, "tools/call", "hold")
			h.does(0, "end", h.one(k), "--reason", "now")
			h.upstream.Open("hold")
			if answer, before := c.Answer(held); read(answer, before).verdict == "success" && read(answer, before).state == "after" {
				t.Errorf("it has moved a run that has ended: %s", answer)
			}
			h.over(c)
			if !lasts {
				continue
			}
			h.again(os.Kill)
			rows, open, ends := rowsOf(t, url), 0, 0
			for _, r := range rows {
				if all := notedOf(t, url, r.ID); has(all, noted{Type: "finished", Who: "admin|olga", Reason: "now"}) {
					ends++
					if r.Ended.IsZero() || r.State != "start" {
						t.Errorf("it is kept as %+v", r)
					}
				}
				if r.Ended.IsZero() {
					open++
				}
			}
			if ends != 1 || open > 1 {
				t.Errorf("%d have ended so, and %d go on, of %+v", ends, open, rows)
			}
			verified(t, url)
		}
	})
}

// While clients go on and on, their runs are ended under them: each edge that can be taken once is taken once in each
// run, and each run but the last has ended.
func TestEndUnderLoad(t *testing.T) {
	each(t, []key{{"modern", byHeader}, {"legacy", byHeader}, {"modern", "process"}}, func(t *testing.T, k key) {
		const ends, clients = 12, 4
		url := store(t)
		h := counted(t, k, steps, "--annotate", "meta", "--store", url, "--admin-tokens", tokensOf(t, "olga"))
		first := h.enter(k, "")
		h.taken(first)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var walking sync.WaitGroup
		var mu sync.Mutex // guards taken and odd
		taken, odd := 1, ""
		for range clients {
			web := h.who(k, "").web
			if k.kind == byHeader {
				web.Header.Set(gatewayHeader, "the run")
			}
			walking.Go(func() {
				for ctx.Err() == nil {
					verdict, raw := h.tries(ctx, k, web)
					mu.Lock()
					switch verdict {
					case "success":
						taken++
					case "invalid_transition", "run_not_found", "run_expired", "not_available", "busy", "outcome_unknown", "ended", "":
					default:
						odd = raw
					}
					mu.Unlock()
				}
			})
		}
		for i := range ends {
			var id string
			mcptest.Await(t, "a run is there", func() bool {
				for _, r := range h.runs(k) {
					if r.State == "after" {
						id = r.ID
					}
				}
				return id != ""
			})
			h.does(0, "end", id, "--reason", fmt.Sprint("end ", i))
			mcptest.Await(t, "another begins", func() bool { mu.Lock(); defer mu.Unlock(); return taken >= i+2 })
		}
		stop()
		walking.Wait()
		if odd != "" {
			t.Error(odd)
		}
		h.again(os.Kill)
		ended, open, moved := 0, 0, 0
		for _, r := range rowsOf(t, url) {
			if r.Ended.IsZero() {
				open++
			} else {
				ended++
			}
			n := 0
			for _, e := range notedOf(t, url, r.ID) {
				if e.Type == "ended" && e.Outcome == "success" {
					n++
				}
			}
			if n > 1 {
				t.Errorf("run %s has taken its edge %d times", r.ID, n)
			}
			moved += n
		}
		if ended != ends || open > 1 || moved < taken {
			t.Errorf("%d runs have ended, and %d go on; of %d answers %d are kept", ended, open, taken, moved)
		}
		if n := h.upstream.Count("tools/call", "once"); n < taken {
			t.Errorf("%d calls were sent, and %d answered", n, taken)
		}
		verified(t, url)
	})
}

// tries has a client of its own try to take the edge, in whatever run there is.
func (h *house) tries(ctx context.Context, k key, web *mcptest.Web) (verdict, raw string) {
	ctx, stop := context.WithTimeout(ctx, 30*time.Second)
	defer stop()
	call := func(id int, method, params string) (mcptest.Message, bool) {
		if k.modern() {
			params = mcptest.Modern{}.Params(params)
		}
		r := web.Post(ctx, mcptest.Request(id, method, params))
		if r.Status == http.StatusNotFound {
			return mcptest.Message{}, false
		}
		for _, m := range r.Messages {
			if m.IsResponse() {
				return m, true
			}
		}
		return mcptest.Message{}, false
	}
	if !k.modern() {
		web.SetID("")
		if _, ok := call(1, "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}`); !ok {
			return "", ""
		}
		defer web.Delete()
	}
	m, ok := call(2, "tools/call", mcptest.ToolParams("once", `{}`))
	if !ok {
		return "", ""
	}
	r := read(m, nil)
	if strings.Contains(r.raw, "has ended") || strings.Contains(r.raw, "cancelled") {
		return "ended", r.raw
	}
	return r.verdict, r.raw
}

// Verbs that are switched off are refused, whoever asks, and over stdio the one run does not end.
func TestVerbsThatAreNotThere(t *testing.T) {
	t.Parallel()
	k := key{"modern", byHeader}
	h := counted(t, k, steps, "--annotate", "meta", "--admin-tokens", tokensOf(t, "olga"), "--admin-verbs", "annotate,signal")
	c := h.taken(h.enter(k, ""))
	id := h.one(k)
	for _, verb := range []string{"reset", "end"} {
		if said := h.does(1, verb, id); !strings.Contains(said, verb+" is switched off here") || !strings.Contains(said, "--admin-verbs") {
			t.Error(said)
		}
	}
	h.does(0, "annotate", id, "fine")
	if said := h.does(1, "annotate", id, strings.Repeat("n", 1025)); !strings.Contains(said, "longer than 1024 bytes") {
		t.Error(said)
	}
	h.once(c)
	s, own := atStdio(t, "legacy", steps, tokensOf(t, "olga"))
	s.taken(own)
	if said := s.does(1, "end", "process"); !strings.Contains(said, "reset has it begin anew") {
		t.Error(said)
	}
	s.does(0, "reset", "process")
	s.taken(own)
}

// A run that nobody has used since the proxy was killed is listed as the store lists it, looked at and acted on by its id
// or how that begins; a session whose run was looked at so goes on by itself.
func TestVerbsOnRunsAtRest(t *testing.T) {
	each(t, keys, func(t *testing.T, k key) {
		url := store(t)
		h := counted(t, k, steps, "--annotate", "meta", "--store", url, "--admin-tokens", tokensOf(t, "olga"))
		c := h.taken(h.enter(k, ""))
		h.again(os.Kill)
		kept := rowsOf(t, url)
		if len(kept) != 1 {
			t.Fatalf("%d runs are kept", len(kept))
		}
		id := kept[0].ID
		if all := h.known(); len(all) != 1 || all[0].ID != id || all[0].State != "after" || all[0].AtRest != (k.kind != "process") {
			t.Fatalf("%s is listed as %+v", id, all)
		}
		for _, like := range []string{id, strings.ToLower(id[:12])} {
			if at := h.show(like); at.ID != id || at.State != "after" || at.AtRest {
				t.Fatalf("%s is shown as %+v", like, at)
			}
		}
		h.does(0, "annotate", id[:12], "looked at")
		if said := h.does(1, "annotate", "ZZZZ", "looked at"); !strings.Contains(said, "run_not_found") {
			t.Error(said)
		}
		if k.kind != "session" {
			c = h.enter(k, c.run())
		}
		h.once(c)
		if all := h.known(); len(all) != 1 || all[0].ID != id {
			t.Errorf("it goes on as %+v", all)
		}
		h.again(os.Kill)
		h.does(0, "end", id[:12], "--reason", "enough")
		if said := h.does(1, "reset", id); !strings.Contains(said, "run_expired") {
			t.Error(said)
		}
		h.again(os.Kill)
		if all := notedOf(t, url, id); !has(all, noted{Type: "annotated", Who: "admin|olga", Text: "looked at"}) || all[len(all)-1] != (noted{Type: "finished", Who: "admin|olga", Reason: "enough"}) {
			t.Errorf("%+v", all)
		}
		if all := h.known(); len(all) != 0 && k.kind != "process" {
			t.Errorf("%+v is listed", all)
		}
		h.over(c)
		verified(t, url)
	})
}

// Runs of a store are listed page by page, each once, whether they are at rest or not; those of one owner alone too.
func TestRunsAreListed(t *testing.T) {
	t.Parallel()
	k := key{"modern", "handle"}
	url := store(t)
	h := counted(t, k, steps, "--annotate", "meta", "--store", url, "--admin-tokens", tokensOf(t, "olga"), "--tokens", tokens(t))
	want := map[string]bool{}
	handles := map[string][]string{}
	for _, who := range []string{"ann", "bob", "ann", "bob", "ann"} {
		c := h.who(k, who)
		c.handle = c.start(t)
		handles[who] = append(handles[who], c.handle)
		h.taken(c)
	}
	for _, r := range rowsOf(t, url) {
		want[r.ID] = true
	}
	h.again(os.Kill)
	again := h.who(k, "ann")
	again.handle = handles["ann"][1]
	if r := again.call("ok", ""); r.verdict != "success" {
		t.Fatal(r.raw)
	}
	type page struct {
		Items []known
		Next  string
	}
	seen, atRest := map[string]bool{}, 0
	for next, pages := "", 0; pages == 0 || next != ""; pages++ {
		var p page
		h.operator(http.MethodGet, "/v1/runs?limit=2&after="+next, &p)
		if pages > 3 || len(p.Items) > 2 {
			t.Fatalf("page %d: %+v", pages, p)
		}
		for _, r := range p.Items {
			if seen[r.ID] || !want[r.ID] || r.State != "after" {
				t.Errorf("%+v is listed", r)
			}
			if seen[r.ID] = true; r.AtRest {
				atRest++
			}
		}
		next = p.Next
	}
	if len(seen) != len(want) || len(want) != 5 || atRest != 4 {
		t.Errorf("%v are listed, %d of them at rest, of %v", seen, atRest, want)
	}
	for query, n := range map[string]int{"owner=ann": 3, "owner=bob": 2, "owner=eve": 0, "owner=ann&issuer=tokens": 3, "owner=ann&issuer=x": 0} {
		var p page
		h.operator(http.MethodGet, "/v1/runs?"+query, &p)
		if len(p.Items) != n {
			t.Errorf("%s: %+v", query, p.Items)
		}
		for _, r := range p.Items {
			if !strings.Contains(query, "owner="+r.Owner) {
				t.Errorf("%s: %+v", query, r)
			}
		}
	}
}

// A client is told its runs that nobody has used since the proxy was killed, without their handles, and nobody else's.
func TestListMineAcrossRestarts(t *testing.T) { listMineAcrossRestarts(t, store) }

func listMineAcrossRestarts(t *testing.T, store func(t *testing.T) string) {
	t.Parallel()
	k := key{"modern", "handle"}
	h := counted(t, k, steps, "--annotate", "meta", "--store", store(t), "--admin-tokens", tokensOf(t, "olga"), "--tokens", tokens(t))
	type mine struct {
		Run      string `json:"fsm_run"`
		Name     string
		State    string
		Complete bool
	}
	list := func(who string) (all []mine) {
		t.Helper()
		answer := h.who(k, who).Call("tools/call", mcptest.ToolParams("fsm_list_runs", ""))
		var result struct {
			StructuredContent struct{ Runs []mine }
		}
		if err := json.Unmarshal(answer.Result, &result); err != nil {
			t.Fatal(answer)
		}
		return result.StructuredContent.Runs
	}
	var handles []string
	for _, who := range []string{"ann", "ann", "bob"} {
		c := h.who(k, who)
		c.handle = c.start(t)
		handles = append(handles, c.handle)
		if who == "ann" {
			h.taken(c)
		}
	}
	if all := list("ann"); len(all) != 2 || all[0].Run != handles[0] || all[1].Run != handles[1] {
		t.Errorf("%+v", all)
	}
	h.again(os.Kill)
	all := list("ann")
	if len(all) != 2 || all[0].Run != "" || all[1].Run != "" || all[0].State != "after" || all[1].State != "after" || all[0].Name == all[1].Name {
		t.Fatalf("%+v", all)
	}
	ids := map[string]bool{}
	for _, r := range h.known() {
		ids[r.ID] = r.Owner == "ann"
	}
	if !ids[all[0].Name] || !ids[all[1].Name] {
		t.Errorf("%+v, of %v", all, ids)
	}
	c := h.who(k, "ann")
	c.handle = handles[1]
	if r := c.call("once", ""); r.verdict != "invalid_transition" || r.state != "after" {
		t.Error(r.raw)
	}
	if again := list("ann"); len(again) != 2 || again[0] != all[0] || again[1].Run != handles[1] || again[1].State != "after" {
		t.Errorf("%+v, then %+v", all, again)
	}
	h.does(0, "end", all[0].Name)
	if again := list("ann"); len(again) != 1 || again[0].Run != handles[1] {
		t.Errorf("%+v", again)
	}
	if bobs := list("bob"); len(bobs) != 1 || bobs[0].State != "start" {
		t.Errorf("%+v", bobs)
	}
}

// A run is begun before its first client comes, who finds it though the proxy was killed in between; a session's is not.
func TestStartedForClients(t *testing.T) { startedForClients(t, store) }

func startedForClients(t *testing.T, store func(t *testing.T) string) {
	each(t, keys, func(t *testing.T, k key) {
		url := store(t)
		flags := []string{"--annotate", "meta", "--store", url, "--admin-tokens", tokensOf(t, "olga")}
		if k.kind == "handle" {
			flags = append(flags, "--tokens", tokens(t))
		}
		h := counted(t, k, steps, flags...)
		kind, _, _ := strings.Cut(k.kind, ":")
		args := []string{"start", "--json", "--key", kind, "--reason", "ticket 12"}
		switch kind {
		case "session":
			if said := h.does(1, args...); !strings.Contains(said, "begins with its session") {
				t.Error(said)
			}
			return
		case "header":
			args = append(args, "--value", "the run")
		case "principal":
			args = append(args, "--issuer", "tokens", "--subject", "ann")
		}
		var began struct{ ID, Path, Key, Run, State string }
		if said := h.does(0, args...); json.Unmarshal([]byte(said), &began) != nil || began.State != "start" || began.Key != kind || (began.ID == "") != (kind != "path" && kind != "handle") {
			t.Fatal(said)
		}
		h.again(os.Kill)
		if began.ID == "" {
			if said := h.does(1, args...); !strings.Contains(said, "There is such a run") {
				t.Error(said)
			}
		}
		if said := h.does(1, "start", "--key", "session"); !strings.Contains(said, "begins with its session") {
			t.Error(said)
		}
		c, at := (*client)(nil), ""
		switch kind {
		case "path":
			at = strings.TrimSuffix(h.url, "/mcp") + began.Path
			c = h.enter(k, at)
		case "handle": // which is the first principal's who comes
			at = began.ID
			c = h.who(k, "ann")
			c.handle = at
		default:
			c = h.enter(k, "")
		}
		if r := c.call("once", ""); r.verdict != "success" || r.state != "after" {
			t.Fatal(r.raw)
		}
		if kind == "handle" {
			thief := h.who(k, "bob")
			thief.handle = at
			if r := thief.call("ok", ""); r.verdict != "run_not_found" {
				t.Errorf("another has the handle: %s", r.raw)
			}
		}
		rows := rowsOf(t, url)
		if len(rows) != 1 || rows[0].ID != began.Run || notedOf(t, url, began.Run)[0] != (noted{Type: "began", Who: "admin|olga", Reason: "ticket 12"}) {
			t.Errorf("%+v", rows)
		}
		verified(t, url)
	})
}
