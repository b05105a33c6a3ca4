package kept

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/sqlite"
	"github.com/fsm-proxy/fsm-proxy/internal/policyfile"
	"github.com/fsm-proxy/fsm-proxy/internal/watch"
)

const planning = `version: 1
name: planning
initial: open
registers: {plan: text, reads: {set: text}}
states:
  open:
    tools:
      read: {at_most: {run: 3}, set: {reads: {add: args.path}}}
      plan: {on_any: ready, set: {plan: args.id}}
  ready:
    tools:
      apply: {on_success: done, on_error: ready, on_unknown: open}
  done: {tools: {read: done}}
`

// kept are runs of the policy above, by their ids: each entry is what stands between a record's number and its end, DIGEST in it
// the policy.
func store(t *testing.T, runs map[string][]string) (url string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "runs.db")
	s, err := sqlite.Open(sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	source, err := policyfile.Pack(watch.File{Path: "planning.yaml", Content: []byte(planning)})
	if err != nil {
		t.Fatal(err)
	}
	p, err := policyfile.Unpack(source)
	if err != nil {
		t.Fatal(err)
	}
	changes := []journal.Change{{Objects: []journal.Object{
		{Kind: "policy", Name: p.Digest(), Bytes: source},
		{Kind: "session", Name: "5e55", Bytes: []byte("what a client has said of itself")},
	}}}
	for id, entries := range runs {
		c := journal.Change{Run: id}
		var at journal.Point
		for i, text := range entries {
			text = strings.ReplaceAll(fmt.Sprintf(`{"run":%q,"seq":%d,"time":"2026-01-02T03:04:%02dZ",%s}`, id, i+1, i%60, text), "DIGEST", p.Digest())
			at = journal.Chain{}.Next(id, at, []byte(text))
			c.Records = append(c.Records, journal.Record{Seq: at.Seq, Hash: at.Hash, Bytes: []byte(text)})
		}
		began := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
		c.Begin = &journal.Row{ID: id, Key: journal.Key{Kind: "principal", Hash: at.Hash}, Began: began}
		c.Head = &journal.Head{At: at, State: "ready", Policy: p.Digest(), Used: began.Add(time.Minute), Due: began.Add(time.Hour)}
		c.Objects = []journal.Object{
			{Kind: "owner", Name: id, Run: id, Bytes: []byte(`{"Issuer":"https://issuer","Subject":"ann"}`)},
			{Kind: "session", Name: id, Run: id, Bytes: []byte("what a client has said of itself")},
		}
		changes = append(changes, c)
	}
	each, err := s.Commit(t.Context(), changes)
	for _, wrong := range append(each, err) {
		if wrong != nil {
			t.Fatal(wrong)
		}
	}
	return "sqlite:" + path
}

// Entries of a run.
const (
	began   = `"type":"began","from":"open","to":{"state":"open","policy":"DIGEST"}`
	reads   = `"type":"ended","kind":"tool","name":"read","outcome":"success","rule":"planning.yaml:8:7","from":"open","to":{"state":"open","policy":"DIGEST"},"set":[{"register":"reads","operation":"add","values":["a.txt"]}],"counted":[{"limit":"open\u0000tool\u0000read\u00000","span":"run","at_most":3}]`
	fails   = `"type":"ended","kind":"tool","name":"read","outcome":"error","rule":"planning.yaml:8:7","from":"open","to":{"state":"open","policy":"DIGEST"}`
	plans   = `"type":"ended","kind":"tool","name":"plan","outcome":"success","rule":"planning.yaml:9:7","from":"open","to":{"state":"ready","policy":"DIGEST"},"changed":true,"set":[{"register":"plan","operation":"assign","values":["p\u001b[31m7"]}]`
	applies = `"type":"begun","kind":"tool","name":"apply","turn":true,"rule":"planning.yaml:12:7","from":"ready","to":{"state":"ready","policy":"DIGEST"}`
	applied = `"type":"ended","begun":4,"kind":"tool","name":"apply","outcome":"success","rule":"planning.yaml:12:7","from":"ready","to":{"state":"done","policy":"DIGEST"},"changed":true`
)

// Of a call that was found without an end it is told that its process wrote none: that was restarted, or lost the run to another one.
func TestTailOfACallWithoutAnEnd(t *testing.T) {
	lost := strings.Replace(applied, `"begun":4`, `"begun":2,"resumed":true`, 1)
	url := store(t, map[string][]string{"AAA1": {began, applies, strings.Replace(lost, "success", "unknown", 1)}})
	const want = "ended     tool apply  unknown, as the process that began it wrote no end of it  ready → done\n"
	if out, err := do(t, "", "tail", "aaa", "--store", url); err != nil || !strings.Contains(out, want) {
		t.Errorf("%s\n%v", out, err)
	}
}

func TestShow(t *testing.T) {
	url := store(t, map[string][]string{"AAA1": {began, reads, plans, applies}, "AAB2": {began, reads, `"type":"of another time","from":"open","to":{"state":"open","policy":"DIGEST"}`}})
	out, err := do(t, "", "show", "aaa", "--store", url)
	for _, want := range []string{
		"run        AAA1\nkey        principal\nowner      ann of https://issuer\nbegan      2026-01-02 03:04:00.000\nused       2026-01-02 03:05:00.000\nstate      ready\npolicy     ",
		" planning\ndue        2026-01-02 04:04:00.000\nlast       entry 4, ",
		"registers  {\"plan\":\"p\\u001b[31m7\",\"reads\":[\"a.txt\"]}\n" +
			"counted    1 of 3 a run: open tool read 0\n" +
			"open       tool apply, begun by entry 4 at 2026-01-02 03:04:03.000, and nobody knows yet how it ended\n",
	} {
		if !strings.Contains(out, want) || err != nil {
			t.Errorf("%s\n%v, and not\n%s", out, err, want)
		}
	}
	out, err = do(t, "", "show", "aaa", "--json", "--store", url)
	for _, want := range []string{
		`{"id":"AAA1","key":"principal","issuer":"https://issuer","subject":"ann","began":"2026-01-02T03:04:00Z","used":"2026-01-02T03:05:00Z","state":"ready","policy":"`,
		`"policy_name":"planning","registers":{"plan":`, `"counts":[{"limit":"open tool read 0","span":"run","at_most":3,"taken":1}]`,
		`"open":[{"seq":4,"time":"2026-01-02T03:04:03Z","kind":"tool","name":"apply"}]`,
	} {
		if !strings.Contains(out, want) || err != nil {
			t.Errorf("%s\n%v, and not\n%s", out, err, want)
		}
	}
	if out, err := do(t, "", "show", "aab", "--store", url); !strings.Contains(out, "\nmemory     unknown: record 3: there are no entries of type \"of another time\"\n") || strings.Contains(out, "registers") || err != nil {
		t.Errorf("%s\n%v", out, err)
	}
	for args, says := range map[string]string{
		"show x --store " + url:                     "the store has no run",
		"show aaa --admin unix:x --store " + url:    "give one of --store and --admin",
		"show --store " + url:                       "takes one argument",
		"show aaa --color red --store " + url:       "--color",
		"show aaa --admin unix:/nowhere/there/is/x": "is it running",
	} {
		if out, err := do(t, "", strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %q, %v", args, out, err)
		}
	}
}

// Of a run that was asked for by name only that is exported, and no session.
func TestExportOfOneRun(t *testing.T) {
	url := store(t, map[string][]string{"AAA1": {began}, "AAB2": {began}})
	out, err := do(t, "", "export", "aaa", "--store", url)
	if strings.Contains(out, "5e55") || strings.Contains(out, "session") || !strings.Contains(out, `"kind":"policy"`) || !strings.Contains(out, `"kind":"owner"`) || err != nil {
		t.Errorf("%s, %v", out, err)
	}
	if out, err := do(t, "", "export", "--store", url); strings.Count(out, `"kind":"session"`) != 3 || err != nil {
		t.Errorf("%s, %v", out, err)
	}
}
