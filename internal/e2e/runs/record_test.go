package runs

import (
	"bytes"
	"encoding/json"
	"fmt"
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
	Seq, Of, Run_seq                                      uint64
	Instance, Event, Decision, Reason, Run, Name, Outcome string
	From, To, Rule, State, Subject                        string
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
			if a.Name == "" || strings.HasPrefix(a.Name, "fsm_") {
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
	})
}
