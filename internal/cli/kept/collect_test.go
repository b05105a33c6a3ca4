package kept

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/sqlite"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/stores"
	"github.com/fsm-proxy/fsm-proxy/proxy/durable"
)

func TestCollect(t *testing.T) {
	url, path := filled(t, nil)
	db, err := sql.Open("sqlite", path)
	if err == nil {
		_, err = db.ExecContext(t.Context(), `UPDATE runs SET ended = used - 7200000000 WHERE id = 'AAA1'`)
	}
	if err != nil {
		t.Fatal(err)
	}
	db.Close()
	runs := func() int {
		out, err := do(t, "", "ls", "--json", "--store", url)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(out, "\n")
	}
	if out, err := do(t, "", "gc", "--store", url); err == nil || !strings.Contains(err.Error(), "give one") {
		t.Errorf("%q, %v", out, err)
	}
	out, err := do(t, "", "gc", "--store", url, "--keep-completed", "1h", "--keep-idle", "0d1h", "--dry-run")
	if err != nil || !strings.HasPrefix(out, "AAA1  in b, used ") || !strings.HasSuffix(out, "It would remove 1 run.\n") || runs() != 2 {
		t.Errorf("%q, %v, %d", out, err, runs())
	}
	out, err = do(t, "", "gc", "--store", url, "--keep-completed", "1h")
	if err != nil || !strings.HasSuffix(out, "Removed: 1 run.\n") || runs() != 1 {
		t.Errorf("%q, %v, %d", out, err, runs())
	}
	out, err = do(t, "", "gc", "--store", url, "--keep-idle", "1ns")
	if err != nil || !strings.HasSuffix(out, "Removed: 1 run and 1 policy.\n") || runs() != 0 {
		t.Errorf("%q, %v, %d", out, err, runs())
	}
	if out, err := do(t, "", "ls", "--store", url); out != "The store has no runs.\n" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
}

// A line of JSON for each run and each policy tells programs what is removed, or would be.
func TestCollectAsJSON(t *testing.T) {
	l := watched(t)
	p, _ := goesBy(t)
	l.goOn(t, "AAA1", "finished", p, "")
	collect := func(args ...string) string {
		t.Helper()
		out, err := do(t, "", append([]string{"gc", "--json", "--store", l.url}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	first := collect("--keep-completed", "1us", "--dry-run")
	if !strings.HasPrefix(first, `{"id":"AAA1","key":"principal","subject":"ann","state":"b","seq":6,"began":"`) || strings.Count(first, "\n") != 1 {
		t.Error(first)
	}
	all := collect("--keep-completed", "1us", "--keep-idle", "1ns", "--dry-run")
	l.close(t)
	if removed := collect("--keep-completed", "1us"); removed != first {
		t.Errorf("%s\nand not\n%s", removed, first)
	}
	rest := collect("--keep-idle", "1ns")
	if !strings.HasPrefix(rest, `{"id":"AAB2",`) || !strings.HasSuffix(rest, "}\n"+`{"policy":"`+p+`"}`+"\n") || all != first+rest {
		t.Errorf("%s\nand\n%s\nwould be\n%s", first, rest, all)
	}
	if none := collect("--keep-idle", "1ns"); none != "" {
		t.Error(none)
	}
}

// leaving is a store of which a proxy removes a run before its row is read.
type leaving struct {
	journal.Store
	before func()
}

// Row implements [journal.Reader].
func (l *leaving) Row(ctx context.Context, run string) (journal.Row, error) {
	l.before()
	return l.Store.Row(ctx, run)
}

// What a proxy removes meanwhile would be removed by nobody else.
func TestCollectOfWhatIsRemoved(t *testing.T) {
	l := watched(t)
	l.goOn(t, "AAA1", "finished", "p", "")
	l.goOn(t, "AAB2", "finished", "p", "")
	var out bytes.Buffer
	c := &collector{command: printing(&out), dry: true, bounds: durable.Bounds{Runs: 1}}
	s := &leaving{l.Reader.(journal.Store), sync.OnceFunc(func() { l.commit(t, journal.Change{Run: "AAA1", Remove: true}) })}
	if err := (&collection{collector: c, s: s}).all(t.Context()); err != nil || out.Len() > 0 || c.runs != 0 {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// What no run names any more of the policies is removed, and nothing that a checkpoint, a fork or an answer names, or a record that
// cannot be read may name.
func TestCollectPolicies(t *testing.T) {
	l := watched(t)
	p, _ := goesBy(t)
	var policies []journal.Object
	for _, name := range []string{"answered", "begun", "cut", "forked", "moved", "next", "yes"} {
		policies = append(policies, journal.Object{Kind: "policy", Name: name, Bytes: []byte(name)})
	}
	policies = append(policies, journal.Object{Kind: "session", Name: "cut", Bytes: []byte("{}")})
	l.commit(t, journal.Change{Objects: policies})
	kept := func() (names string) {
		t.Helper()
		r, err := stores.OpenReader(t.Context(), stores.Config{URL: l.url})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		objects, err := r.Objects(t.Context(), "")
		for _, o := range objects {
			names += o.Kind + " " + o.Name + ", "
		}
		if err != nil {
			t.Error(err)
		}
		return names
	}
	l.goOn(t, "AAA1", "moved", "cut", "")
	l.goOn(t, "AAA1", "moved", "moved", "")
	const entry, answer = `{"type":"begun","to":{"state":"b","policy":"begun"}}`, `{"type":"answered","to":{"state":"b","policy":"moved"},"answer":{"policy":"answered","next":"next"}}`
	l.goOn(t, "AAA1", "checkpoint", p, `,"remembers":{"open":[{"seq":1,"entry":`+entry+`,"answer":{"seq":2,"entry":`+strings.Replace(answer, `"answered","next"`, `"yes","next"`, 1)+`}}],"answers":[{"seq":3,"entry":`+answer+`}]}`)
	l.goOn(t, "AAB2", "forked", "forked", `,"parent":"CCC3","fork":1,"remembers":{}`)
	l.goOn(t, "AAB2", "moved", p, "")
	collect := func(says string, args ...string) {
		t.Helper()
		if out, err := do(t, "", append([]string{"gc", "--keep-completed", "1us", "--store", l.url}, args...)...); err != nil || out != says {
			t.Errorf("%q, %v", out, err)
		}
	}
	collect("policy cut  named by no run\nIt would remove 0 runs and 1 policy.\n", "--dry-run")
	l.close(t)
	collect("policy cut  named by no run\nRemoved: 0 runs and 1 policy.\n")
	if names := kept(); names != "policy "+p+", policy answered, policy begun, policy forked, policy moved, policy next, policy yes, session cut, " {
		t.Error(names)
	}
	collect("Removed: 0 runs.\n")
	db, err := sql.Open("sqlite", strings.TrimPrefix(l.url, "sqlite:"))
	if err == nil {
		_, err = db.ExecContext(t.Context(), `DELETE FROM entries WHERE run = (SELECT no FROM runs WHERE id = 'AAB2') AND seq = 6; UPDATE entries SET bytes = x'00' WHERE run = (SELECT no FROM runs WHERE id = 'AAB2') AND seq = 3`)
	}
	if err != nil {
		t.Fatal(err)
	}
	db.Close()
	if out, err := do(t, "", "gc", "--keep-completed", "1us", "--store", l.url); err == nil || out != "" || !strings.Contains(err.Error(), "no policy is removed: record 3 of run AAB2 is no entry") {
		t.Errorf("%q, %v", out, err)
	}
	rest, err := do(t, "", "gc", "--keep-idle", "1ns", "--store", l.url)
	if err != nil || !strings.HasSuffix(rest, "Removed: 2 runs and 7 policies.\n") || kept() != "session cut, " {
		t.Errorf("%q, %v", rest, err)
	}
}

// What a store keeps beyond its bounds goes, those first that ended first, and nothing that has not ended.
func TestCollectByBounds(t *testing.T) {
	url, path := filled(t, nil)
	w, err := sqlite.Open(sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := range 40 {
		id := fmt.Sprintf("C%02d", 39-i)
		want = append(want, id)
		change := journal.Change{Run: id, Begin: &journal.Row{ID: id}, Head: &journal.Head{State: "a", Policy: "p", Ended: time.UnixMicro(int64(i + 1))}}
		text := fmt.Appendf(nil, `{"type":"finished","to":{"state":"a","policy":"p"},"reason":%q}`, strings.Repeat("x", 32<<10))
		change.Head.At = journal.NewChain(nil).Next(id, journal.Point{}, text)
		change.Records = []journal.Record{{Seq: 1, Hash: change.Head.At.Hash, Bytes: text}}
		each, err := w.Commit(t.Context(), []journal.Change{change})
		if err = errors.Join(append(each, err)...); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	collect := func(args ...string) (ids []string) {
		t.Helper()
		out, err := do(t, "", append([]string{"gc", "--json", "--store", url}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out) {
			ids = append(ids, strings.TrimPrefix(line, `{"id":"`)[:3])
		}
		return ids
	}
	same := func(ids, want []string) {
		t.Helper()
		if !slices.Equal(ids, want) {
			t.Errorf("%q, and not %q", ids, want)
		}
	}
	same(collect("--max-stored-runs", "37", "--dry-run"), want[:5])
	same(collect("--max-stored-runs", "37"), want[:5])
	same(collect("--max-stored-runs", "37"), nil)
	would := collect("--max-store-size", "1MiB", "--dry-run")
	size := collect("--max-store-size", "1MiB")
	if n := len(size); n < 5 || n > 20 || len(would) < n || len(would) > n+2 {
		t.Errorf("for their size %d go, and %d would", n, len(would))
	}
	same(size, want[5:5+len(size)])
	r, err := sqlite.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	stock, err := r.Stock(t.Context())
	if r.Close(); err != nil || stock.Used > 1<<20 || stock.Used < 1<<19 {
		t.Errorf("%+v, %v", stock, err)
	}
	same(collect("--max-stored-runs", "1", "--dry-run"), want[5+len(size):])
	same(collect("--max-stored-runs", "1"), want[5+len(size):])
	if out, err := do(t, "", "ls", "--json", "--store", url); strings.Count(out, "\n") != 2 || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	for args, says := range map[string]string{
		"--store postgres://h/d --max-store-size 1GiB": "bounds a file of SQLite",
		"--store " + url + " --max-stored-runs -1":     "give one",
		"--store " + url + " --max-store-size 1XB":     "is no size",
		"--store " + url: "give one",
	} {
		if out, err := do(t, "", append([]string{"gc"}, strings.Fields(args)...)...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %q, %v", args, out, err)
		}
	}
}
