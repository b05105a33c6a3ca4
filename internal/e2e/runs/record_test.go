package runs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/stores"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// recorded is an entry as it is kept.
type recorded struct {
	Run                             string
	Seq                             uint64
	Type, Kind, Name, Outcome, From string
	Refusal, Rule, Subject          string
	Times, Begun                    uint64
	Microseconds                    int64
	To                              struct{ State string }
	Args                            json.RawMessage
	Args_bytes                      int64
	Digest                          string
	Time, Since                     time.Time
	text                            string
}

// entriesOf are the entries of the runs of a store, by the runs' ids.
func entriesOf(t *testing.T, url string) map[string][]recorded {
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
	out := map[string][]recorded{}
	for _, r := range rows {
		for x, err := range journal.All(t.Context(), s, r.ID) {
			e := recorded{text: string(x.Bytes)}
			if err == nil {
				err = json.Unmarshal(x.Bytes, &e)
			}
			if err != nil {
				t.Fatal(err)
			}
			out[r.ID] = append(out[r.ID], e)
		}
	}
	return out
}

// only are the entries of the one run of a store, once there are so many of a type.
func only(t *testing.T, url, of string, n int) (entries []recorded) {
	t.Helper()
	mcptest.Await(t, "the entries are kept", func() bool {
		entries = nil
		for _, of := range entriesOf(t, url) {
			entries = append(entries, of...)
		}
		return len(slices.DeleteFunc(slices.Clone(entries), func(e recorded) bool { return e.Type != of })) >= n
	})
	return entries
}

// summary says what entries tell, each in a word, and refusals that are alike together.
func summary(entries []recorded) string {
	var said []string
	for _, e := range entries {
		x := e.Type
		if e.Name != "" {
			x += ":" + e.Name
		}
		if e.Refusal != "" {
			x += ":" + e.Refusal
		}
		if e.Outcome != "" {
			x += ":" + e.Outcome
		}
		if x += "@" + e.From; len(said) == 0 || e.Type != "refused" || said[len(said)-1] != x {
			said = append(said, x)
		}
	}
	return strings.Join(said, " ")
}

// What changes nothing is kept, in its order: calls that stay, and those that are refused, each time that they are. Lists
// are not. The run goes on behind it.
func TestWhatChangesNothingIsKept(t *testing.T) {
	each(t, keys, func(t *testing.T, k key) {
		url := store(t)
		h := counted(t, k, steps, "--annotate", "meta", "--store", url)
		c := h.enter(k, "")
		for _, name := range []string{"ok", "elsewhere", "nothing", "nothing", "nothing", "once", "once", "ok"} {
			c.Call("tools/list", "{}")
			c.call(name, "")
		}
		const want = "began@start stayed:ok:success@start refused:elsewhere:invalid_transition@start refused:nothing:unknown_action@start begun:once@start ended:once:success@start refused:once:invalid_transition@after stayed:ok:success@after"
		entries := only(t, url, "stayed", 2)
		if got := summary(entries); got != want {
			t.Errorf("%s\nand not\n%s", got, want)
		}
		times := uint64(0)
		for i, e := range entries {
			if e.Seq != uint64(i+1) {
				t.Errorf("entry %d has the number %d", i+1, e.Seq)
			}
			if e.Name == "nothing" {
				times += max(e.Times, 1)
			}
			if (e.Type == "stayed" || e.Type == "ended") && e.Microseconds <= 0 {
				t.Errorf("how long it took is not told: %s", e.text)
			}
			if digest := len(e.Digest) == 64; digest != (e.Type == "begun" || e.Type == "stayed") || e.Name == "ok" && (e.Rule == "" || e.Begun != 0) {
				t.Errorf("%s", e.text)
			}
			if k.kind == "principal" && e.Type != "began" && e.Type != "ended" && e.Subject != "ann" {
				t.Errorf("whose it was is not told: %s", e.text)
			}
		}
		if times != 3 {
			t.Errorf("3 refusals are told of as %d", times)
		}
		h.again(os.Kill)
		if k.kind != "session" {
			c = h.enter(k, c.run())
		}
		if r := c.call("once", ""); r.verdict != "invalid_transition" || r.state != "after" {
			t.Error(r.raw)
		}
		more := only(t, url, "refused", len(slices.DeleteFunc(slices.Clone(entries), func(e recorded) bool { return e.Type != "refused" }))+1)
		if last := more[len(more)-1]; last.Type != "refused" || last.Seq != uint64(len(entries)+1) {
			t.Errorf("%s", last.text)
		}
		if n := verified(t, url); n != 1 {
			t.Errorf("%d runs are verified", n)
		}
	})
}

// Of a run that its client has ended, and in which it was refused what it asked for, that is kept.
func TestRunOfRefusalsIsKept(t *testing.T) {
	t.Parallel()
	k, url := key{"legacy", "session"}, store(t)
	h := counted(t, k, steps, "--store", url)
	c := h.enter(k, "")
	for range 3 {
		c.call("elsewhere", "")
	}
	if status := c.web.Delete(); status >= 300 {
		t.Fatal(status)
	}
	entries := only(t, url, "finished", 1)
	if got := summary(entries); got != "began@start refused:elsewhere:invalid_transition@start finished@start" {
		t.Error(got)
	}
}

// audited is a line of the audit.
type audited struct {
	Seq, Of, Run_seq, Begun                               uint64
	Instance, Event, Decision, Reason, Run, Name, Outcome string
	From, To, Rule, State, Subject, Verb, Type, Note      string
	Remote                                                string
}

func auditOf(t *testing.T, path string) (lines []audited) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	whole := string(text[:bytes.LastIndexByte(text, '\n')+1])
	for line := range strings.Lines(whole) {
		var a audited
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		lines = append(lines, a)
	}
	return lines
}

// The audit says of each call what the record of its run says, and where: the run by the id that the store has of it, and
// the number of the entry. Its own numbers have no gaps within a process. What is counted is kept when the proxy ends.
func TestAuditNamesEntries(t *testing.T) {
	each(t, keys, func(t *testing.T, k key) {
		url, file := store(t), filepath.Join(t.TempDir(), "audit.jsonl")
		h := counted(t, k, steps, "--annotate", "meta", "--store", url, "--audit", file)
		c := h.enter(k, "")
		names := []string{"ok", "elsewhere", "nothing", "nothing", "nothing", "once"}
		for i := range 8 { // until the last are counted for seconds
			names = append(names, fmt.Sprint("nothing", i))
		}
		names = append(names, "nothing7", "nothing7")
		for _, name := range names {
			c.call(name, "")
		}
		refused := uint64(len(names) - 2)
		h.again(os.Interrupt)
		if k.kind != "session" {
			c = h.enter(k, c.run())
		}
		c.call("ok", "")
		entries := map[string]map[uint64]recorded{}
		for id, of := range entriesOf(t, url) {
			entries[id] = map[uint64]recorded{}
			for _, e := range of {
				entries[id][e.Seq] = e
			}
		}
		last := map[string]uint64{}
		told := map[string]uint64{}
		var lines []audited
		mcptest.Await(t, "the audit has lines of both processes", func() bool {
			lines = auditOf(t, file)
			return len(lines) > 0 && lines[len(lines)-1].Instance != lines[0].Instance && lines[len(lines)-1].Name == "ok"
		})
		for _, a := range lines {
			if last[a.Instance]++; a.Seq != last[a.Instance] || a.Instance == "" {
				t.Errorf("line %d of %q has the number %d", last[a.Instance], a.Instance, a.Seq)
			}
			if a.Name == "" || a.Event == "entry" || strings.HasPrefix(a.Name, "fsm_") {
				continue
			}
			e, ok := entries[a.Run][a.Run_seq]
			switch {
			case a.Name == "ok" && a.Event == "decision" && a.Run_seq == 0: // of which is told when it has ended
				continue
			case !ok && len(last) == 2: // it is not written yet
				continue
			case !ok:
				t.Errorf("no entry %d of run %s tells of %+v", a.Run_seq, a.Run, a)
			case a.Event == "outcome":
				ok = (e.Type == "ended" || e.Type == "stayed") && e.Outcome == a.Outcome && (e.From == e.To.State && a.From == "" || e.From == a.From && e.To.State == a.To)
			case a.Decision == "allow":
				ok = e.Type == "begun" && e.Rule == a.Rule && e.From == a.State
			default:
				ok = e.Type == "refused" && e.Refusal == a.Reason && e.From == a.State
			}
			if !ok || e.Name != a.Name || e.Type != "ended" && e.Subject != a.Subject {
				t.Errorf("%+v is not\n%s", a, e.text)
			}
			told[e.Type]++
		}
		if len(last) != 2 || told["stayed"] == 0 || told["begun"] != 1 || told["ended"] != 1 || told["refused"] != refused {
			t.Errorf("%d processes have told of %v", len(last), told)
		}
		times := uint64(0)
		for _, of := range entries {
			for _, e := range of {
				if e.Type == "refused" {
					times += max(e.Times, 1)
				}
			}
		}
		if times != refused {
			t.Errorf("%d refusals are told of as %d", refused, times)
		}
		h.ends(os.Interrupt)
		if _, fault := differ(t, url, file); fault != "" {
			t.Error(fault)
		}
	})
}

// differ says in what the audit differs from the entries of a store: each has one line, which has its number and tells the
// same, but that of a refusal may stand for several, and nothing tells of a checkpoint. No line names what there is not.
func differ(t *testing.T, url, file string) (types map[string]int, fault string) {
	t.Helper()
	types = map[string]int{}
	lines := map[string][]audited{}
	at := func(run string, seq uint64) string { return fmt.Sprint(run, " ", seq) }
	for _, a := range auditOf(t, file) {
		if a.Run_seq != 0 {
			lines[at(a.Run, a.Run_seq)] = append(lines[at(a.Run, a.Run_seq)], a)
		}
	}
	var faults []string
	for id, all := range entriesOf(t, url) {
		for _, e := range all {
			of := lines[at(id, e.Seq)]
			delete(lines, at(id, e.Seq))
			want := 1
			switch e.Type {
			case "refused":
				want = int(max(e.Times, 1))
			case "checkpoint":
				want = 0
			case "annotated":
				if strings.Contains(e.text, "admin|eve") { // who is not of this proxy
					want = 0
				}
			}
			types[e.Type]++
			if len(of) != want {
				faults = append(faults, fmt.Sprintf("%d lines tell of %s: %+v", len(of), e.text, of))
				continue
			}
			for _, a := range of {
				if !a.tells(&e) {
					faults = append(faults, fmt.Sprintf("%+v tells of %s", a, e.text))
				}
			}
		}
	}
	for _, of := range lines {
		faults = append(faults, fmt.Sprintf("there is no entry of %+v", of))
	}
	return types, strings.Join(faults, "\n")
}

// tells reports whether a line tells what an entry does.
func (a *audited) tells(e *recorded) bool {
	verbs := map[string]string{"start": "began", "reset": "reset", "end": "finished", "annotate": "annotated", "accept": "accepted"}
	switch {
	case a.Event == "verb":
		var n noted
		_ = json.Unmarshal([]byte(e.text), &n) // what cannot be read says nothing
		return verbs[a.Verb] == e.Type && a.Type == e.Type && a.From == e.From && n.Who == "admin|"+a.Subject && a.Note == n.Reason+n.Text && a.Remote != ""
	case a.Event == "entry":
		return a.Type == e.Type && a.From == e.From && (a.To == e.To.State || a.To == "" && e.From == e.To.State) && a.Name == e.Name && a.Begun == e.Begun && a.Outcome == e.Outcome
	case e.Type == "refused":
		return (a.Name == e.Name || e.Name == "") && (a.Reason == e.Refusal || a.Event == "outcome")
	case a.Event == "outcome":
		return (e.Type == "ended" || e.Type == "stayed") && a.Name == e.Name && a.Outcome == e.Outcome
	}
	return (e.Type == "begun" || e.Type == "answered") && a.Decision == "allow" && a.Name == e.Name && a.State == e.From && a.Rule == e.Rule
}

// facts has every type of entry happen.
const facts = `version: 1
name: facts
initial: start
everywhere: {tools: [ok]}
states:
  start:
    tools:
      once: {on_success: brief, on_unknown: start}
      hold: {on_success: start, on_unknown: lost}
      elsewhere: {approve: {by: operator}}
  brief: {after: {1s: start}}
  lost:
    tools: {once: {on_success: start, on_unknown: lost}}
`

// The audit tells of each entry, whatever its type, once, and of nothing else: also where the proxy is killed, and of what an
// operator had be done that has come to nothing.
func TestEachEntryHasOneLine(t *testing.T) {
	each(t, those("principal", "path", "handle"), func(t *testing.T, k key) {
		url, file := store(t), filepath.Join(t.TempDir(), "audit.jsonl")
		upstream, _ := mcptest.HTTP(t, server())
		front := httptest.NewServer(upstream.Handler())
		t.Cleanup(front.Close)
		h := open(t, k, facts, "--annotate", "meta", "--store", url, "--audit", file, "--reload-debounce", "5ms", "--approval-hold", "20ms", "--admin-tokens", tokensOf(t, "olga"), "--upstream", front.URL+"/mcp")
		h.upstream = upstream
		c := h.enter(k, "")
		gets := func(verdict, tool string) {
			t.Helper()
			if r := c.call(tool, ""); r.verdict != verdict {
				t.Fatalf("%s: %s", tool, r.raw)
			}
		}
		equals := func() (types map[string]int) {
			t.Helper()
			fault := ""
			defer func() {
				if fault != "" {
					t.Error(fault)
				}
			}()
			mcptest.Await(t, "each entry has its line", func() bool {
				types, fault = differ(t, url, file)
				return fault == ""
			})
			return types
		}
		gets("success", "ok")
		gets("unknown_action", "nothing")
		gets("success", "once")
		only(t, url, "expired", 1)
		gets("approval_pending", "elsewhere")
		if said := h.answers(h.approvals(1)[0].ID, "allow", "{}"); said.status != http.StatusOK {
			t.Fatal(said.text)
		}
		gets("success", "elsewhere")
		id := h.one(k)
		h.does(0, "annotate", id, "looked at")
		h.does(0, "reset", id, "--reason", "ticket 12")
		equals()
		foreign(t, url, false)
		h.does(1, "reset", id)
		h.does(0, "accept", id, "--reason", "looked at the server")
		c = h.enter(k, c.run())
		gets("success", "ok")
		c.begins("hold", "")
		only(t, url, "begun", 3)
		equals()
		h.ends(os.Kill)
		upstream.Open("hold")
		policy := h.args[slices.Index(h.args, "--policy")+1]
		becomes := func(text string) {
			t.Helper()
			if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		becomes(facts + "  added: {tools: [ok]}\n")
		h.anew()
		c = h.enter(k, c.run())
		gets("success", "ok")
		front.CloseClientConnections()
		front.Close()
		gets("upstream_unavailable", "once") // which is unsent, unless it is known already that the server is gone
		becomes(strings.ReplaceAll(facts, "lost", "gone"))
		h.process.Log().Await(t, "the policy was reloaded")
		gets("unknown_action", "nothing") // and the run stays in what is gone
		h.does(0, "end", id, "--reason", "enough")
		h.ends(os.Interrupt)
		types := equals()
		for _, of := range strings.Fields("began begun ended stayed refused expired moved stranded reset answered annotated accepted finished") {
			if types[of] == 0 {
				t.Errorf("there is no entry of type %s: %v", of, types)
			}
		}
	})
}
