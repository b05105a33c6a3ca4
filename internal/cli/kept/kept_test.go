package kept

import (
	"bytes"
	"database/sql"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/fsm-proxy/fsm-proxy/internal/exit"
	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/sqlite"
	"github.com/fsm-proxy/fsm-proxy/internal/policyfile"
	"github.com/fsm-proxy/fsm-proxy/internal/watch"
)

// filled is a store with two runs of five entries, AAA1 and AAB2.
func filled(t *testing.T, key []byte) (url, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "runs.db")
	fill(t, path, key, "AAA1", "AAB2")
	return "sqlite:" + path, path
}

// goesBy is the policy of these runs: its digest, and as it is kept.
func goesBy(t *testing.T) (digest string, kept []byte) {
	t.Helper()
	kept, err := policyfile.Pack(watch.File{Path: "p.yaml", Content: []byte("version: 1\nname: p\ninitial: a\nstates:\n  a: {tools: {go: b}}\n  b: {terminal: true}\n")})
	if err != nil {
		t.Fatal(err)
	}
	p, err := policyfile.Unpack(kept)
	if err != nil {
		t.Fatal(err)
	}
	return p.Digest(), kept
}

// fill writes runs of five entries to a file.
func fill(t *testing.T, path string, key []byte, runs ...string) {
	t.Helper()
	s, err := sqlite.Open(sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p, text := goesBy(t)
	if _, err := s.Commit(t.Context(), []journal.Change{{Objects: []journal.Object{{Kind: "policy", Name: p, Bytes: text}}}}); err != nil {
		t.Fatal(err)
	}
	chain := journal.NewChain(key)
	for _, id := range runs {
		change := journal.Change{Run: id}
		at := journal.Point{}
		for seq := 1; seq <= 5; seq++ {
			text := fmt.Sprintf(`{"run":%q,"seq":%d,"type":"ended","time":"2026-01-02T03:04:05Z","kind":"tool","name":"t%d","outcome":"success","from":"a","to":{"state":"b","policy":%q},"set":[{"register":"r","operation":"add","values":["x"]}]}`, id, seq, seq, p)
			if key != nil {
				text = strings.Replace(text, `,"type"`, `,"key":"`+chain.KeyID()+`","type"`, 1)
			}
			at = chain.Next(id, at, []byte(text))
			change.Records = append(change.Records, journal.Record{Seq: at.Seq, Hash: at.Hash, Bytes: []byte(text)})
		}
		change.Head = &journal.Head{At: at, State: "b", Policy: p, Used: time.Now()}
		change.Begin = &journal.Row{ID: id, Key: journal.Key{Kind: "principal", Hash: at.Hash}, Owner: journal.Principal{Subject: "ann"}, Began: time.Now()}
		each, err := s.Commit(t.Context(), []journal.Change{change})
		if err != nil || each[0] != nil {
			t.Fatal(each, err)
		}
	}
}

// do runs a command, and returns what it prints.
func do(t *testing.T, in string, args ...string) (out string, err error) {
	t.Helper()
	var printed bytes.Buffer
	root := &cobra.Command{Use: "fsm-proxy", SilenceErrors: true, SilenceUsage: true}
	c := Console{In: strings.NewReader(in), Out: &printed}
	root.AddCommand(OfRuns(c)...)
	root.AddCommand(OfStore(c)...)
	root.SetArgs(args)
	err = root.ExecuteContext(t.Context())
	return printed.String(), err
}

func TestListAndTail(t *testing.T) {
	url, _ := filled(t, nil)
	out, err := do(t, "", "ls", "--store", url)
	if want := "ID     KEY         SUBJECT   STATE   ENTRIES   USED     \nAAA1   principal   ann       b       5         0s ago   \nAAB2   principal   ann       b       5         0s ago   \n"; out != want || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	out, err = do(t, "", "ls", "--json", "--store", url)
	if strings.Count(out, "\n") != 2 || !strings.HasPrefix(out, `{"id":"AAA1","key":"principal","subject":"ann","state":"b","seq":5,"began":"`) || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	for owner, n := range map[string]int{"ann": 2, "bob": 0} {
		if out, err := do(t, "", "ls", "--json", "--owner", owner, "--store", url); strings.Count(out, "\n") != n || err != nil {
			t.Errorf("%s: %q, %v", owner, out, err)
		}
	}
	if out, err := do(t, "", "ls", "--owner", "bob", "--store", url); out != "The store has no runs of bob.\n" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	out, err = do(t, "", "tail", "aab", "--store", url)
	if want := "     1  2026-01-02 03:04:05.000  ended     tool t1  success  a → b; add r \"x\"\n"; !strings.HasPrefix(out, want) || strings.Count(out, "\n") != 5 || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	for args, says := range map[string]string{
		"tail AA --store " + url:            `several runs have ids that begin with "AA": AAA1, AAB2`,
		"tail x --store " + url:             "'fsm-proxy runs ls' names those that there are",
		"ls":                                "no store is named",
		"ls --store memory":                 "ask the running proxy",
		"ls --store ftp://x":                "one of memory, sqlite:PATH",
		"ls --store sqlite:/nowhere/x.db":   "there is no store /nowhere/x.db: give --store as the proxy has it",
		"import --store sqlite:/dev/null/x": "/dev/null",
	} {
		if out, err := do(t, "", strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %q, %v", args, out, err)
		}
	}
}

// An answer is told with who gave it and why, escaped, and the entries that use it and give it back name it.
func TestSentencesOfApprovals(t *testing.T) {
	const head = `{"type":"TYPE","time":"2026-01-02T03:04:05Z","kind":"tool","name":"pay","from":"a","to":{"state":"a"},`
	for _, x := range [][3]string{
		{"answered", `"answer":{"approval":"Q","said":"allow","by":"olga","note":"as\nagreed","until":"2026-01-02T03:14:05Z"}}`, `allow by "olga": "as\nagreed"  until 2026-01-02 03:14:05.000  in a`},
		{"answered", `"answer":{"approval":"Q","said":"deny","by":"\u001b[31m"}}`, `deny by "\x1b[31m"  in a`},
		{"begun", `"yes":5}`, "by the yes of entry 5  in a"},
		{"unsent", `"begun":6,"yes":5}`, "the yes of entry 5 may be used again  in a"},
	} {
		text := strings.Replace(head, "TYPE", x[0], 1) + x[1]
		want := fmt.Sprintf("     7  2026-01-02 03:04:05.000  %-8s  tool pay  %s", x[0], x[2])
		if is := (&printer{}).sentence(&journal.Record{Seq: 7, Bytes: []byte(text)}); is != want {
			t.Errorf("%s\nwant\n%s", is, want)
		}
	}
}

func TestExportAndImportOfStores(t *testing.T) {
	url, _ := filled(t, nil)
	all, err := do(t, "", "export", "--store", url)
	if err != nil {
		t.Fatal(err)
	}
	other := "sqlite:" + filepath.Join(t.TempDir(), "other.db")
	if out, err := do(t, all, "import", "--store", other); out != "Taken in: 2 runs.\n" || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	if again, err := do(t, "", "export", "--store", other); again != all || err != nil {
		t.Errorf("%s\nwas\n%s\n%v", again, all, err)
	}
	one, err := do(t, "", "export", "aaa", "--store", url)
	if strings.Contains(one, "AAB2") || !strings.Contains(one, "AAA1") || err != nil {
		t.Errorf("%s, %v", one, err)
	}
	if out, err := do(t, all, "import", "--store", other); out != "Taken in: 0 runs; there already: 2 runs.\n" || err != nil {
		t.Errorf("again: %q, %v", out, err)
	}
	changed := strings.ReplaceAll(one, `\"t5\"`, `\"t6\"`)
	changed = regexp.MustCompile(`("seq":5,"hash":")..`).ReplaceAllString(changed, "${1}00")
	if out, err := do(t, changed, "import", "--store", other); err == nil || !strings.Contains(err.Error(), "run AAA1: it is in the store already with other entries") {
		t.Errorf("another of its id: %q, %v", out, err)
	}
}

// Each damage is named, and the exit status is that of an error.
func TestVerify(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(strings.Repeat("k", 40)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ name, sql, says string }{
		{"nothing", "", ""},
		{"edited", `UPDATE entries SET bytes = CAST(replace(CAST(bytes AS TEXT), '"name":"t3"', '"name":"t9"') AS BLOB) WHERE seq = 3`, "entry 3: edited"},
		{"deleted", `DELETE FROM entries WHERE seq = 3`, "entry 4: gap"},
		{"copied behind it", `UPDATE entries SET seq = -seq - 1 WHERE seq > 3; UPDATE entries SET seq = -seq WHERE seq < 0;
			INSERT INTO entries (run, seq, hash, bytes) SELECT run, 4, hash, bytes FROM entries WHERE seq = 3`, "entry 4: duplicated: it says that it is record 3"},
		{"copied to the end", `INSERT INTO entries (run, seq, hash, bytes) SELECT run, 6, hash, bytes FROM entries WHERE seq = 2`, "entry 6: duplicated: it says that it is record 2"},
		{"copied behind the end", `INSERT INTO entries (run, seq, hash, bytes) SELECT run, 9, hash, bytes FROM entries WHERE seq = 2`, "entry 9: duplicated: it says that it is record 2"},
		{"in another's place", `UPDATE entries SET (hash, bytes) = (SELECT hash, bytes FROM entries AS e WHERE e.run = entries.run AND e.seq = 5) WHERE seq = 3`, "entry 3: reordered"},
		{"cut", `DELETE FROM entries WHERE seq > 3`, "cut tail"},
		{"without its policy", `DELETE FROM objects`, "entry 1: no policy: policy "},
		{"by another policy", `UPDATE objects SET bytes = CAST(replace(CAST(bytes AS TEXT), 'go: b', 'no: b') AS BLOB)`, "in the store is another one"},
		{"with another name", `UPDATE runs SET id = char(27) || '[31m' WHERE id = 'AAA1'`, `run \u001b[31m, entry 1: reordered`},
		{"gone", `DELETE FROM runs WHERE id = 'AAA1'`, "gone"},
	} {
		t.Run(x.name, func(t *testing.T) {
			url, path := filled(t, []byte(strings.Repeat("k", 40)))
			anchors := filepath.Join(t.TempDir(), "anchors")
			text, err := do(t, "", "anchor", "--store", url)
			if err != nil || strings.Count(text, "\n") != 2 || os.WriteFile(anchors, []byte(text), 0o600) != nil {
				t.Fatalf("%q, %v", text, err)
			}
			db, err := sql.Open("sqlite", path)
			if err == nil && x.sql != "" {
				_, err = db.ExecContext(t.Context(), x.sql)
			}
			if err != nil {
				t.Fatal(err)
			}
			db.Close()
			out, err := do(t, "", "verify", "--store", url, "--record-key", key, "--anchors", anchors)
			switch {
			case x.says == "" && (err != nil || out != "2 runs: what the store keeps is what was written.\n"):
				t.Errorf("%q, %v", out, err)
			case x.says != "" && (err == nil || !strings.Contains(out, x.says)):
				t.Errorf("%q, %v", out, err)
			}
		})
	}
	url, _ := filled(t, nil)
	if out, err := do(t, "", "verify", "--all", "--store", url); out != "2 runs: what the store keeps is what was written.\n" || err != nil {
		t.Errorf("--all: %q, %v", out, err)
	}
	if out, err := do(t, "", "verify", "aaa", "--all", "--store", url); out != "" || exit.Report(io.Discard, err) != exit.Usage || !strings.Contains(err.Error(), "give --all, or RUN") {
		t.Errorf("--all and a run: %q, %v", out, err)
	}
	url, _ = filled(t, []byte(strings.Repeat("k", 40)))
	if out, err := do(t, "", "verify", "--store", url); err == nil || !strings.Contains(out, "key wanted") {
		t.Errorf("without the key: %q, %v", out, err)
	}
	if out, err := do(t, "", "verify", "--json", "aaa", "--store", url); err == nil || !strings.HasPrefix(out, `{"run":"AAA1","seq":1,"damage":"key wanted"`) || strings.Contains(out, "AAB2") {
		t.Errorf("%q, %v", out, err)
	}
}

// Each thing that a run's row says and its entries do not is named.
func TestVerifyRows(t *testing.T) {
	digest, _ := goesBy(t)
	const row, cut = ` WHERE id = 'AAA1'`, `DELETE FROM entries WHERE run = (SELECT no FROM runs WHERE id = 'AAA1') AND seq <= `
	for statement, says := range map[string]string{
		`UPDATE runs SET used = 1` + row:       "",
		`UPDATE runs SET ended = used` + row:   `entry 5: other row: the row has it that the run has ended, and no record says so`,
		`UPDATE runs SET state = 'done'` + row: `entry 5: other row: the row has the state "done", and the record "b"`,
		`UPDATE runs SET complete = 1` + row:   `entry 5: other row: the row has it that the run is complete: true, and the record: false`,
		`UPDATE runs SET at_seq = 3, at_hash = (SELECT hash FROM entries WHERE run = no AND seq = 3)` + row: `entry 3: other row: the row tells of this record, and record 5 has moved the run since`,
		`UPDATE runs SET policy = 'q'` + row:                                 `entry 5: other row: the row has the policy q, and the record ` + digest,
		`UPDATE runs SET checkpoint = 4` + row:                               `entry 5: other row: the row has it that the last checkpoint is 4, and that is 0`,
		`UPDATE runs SET at_seq = 0, at_hash = x''` + row:                    `entry 0: other row: the row tells of this record, which is not there`,
		`UPDATE runs SET at_seq = 0, at_hash = x''` + row + `; ` + cut + `5`: `entry 0: cut tail: the run has no records`,
		`UPDATE runs SET base_seq = 3, base_hash = (SELECT hash FROM entries WHERE run = no AND seq = 3)` + row + `; ` + cut + `3`:                 `entry 4: gap: those before it are missing, and no checkpoint says what they come to`,
		`UPDATE runs SET checkpoint = 2, base_seq = 3, base_hash = (SELECT hash FROM entries WHERE run = no AND seq = 3)` + row + `; ` + cut + `3`: `entry 4: gap`,
		`UPDATE runs SET base_seq = at_seq, base_hash = at_hash` + row + `; ` + cut + `5`:                                                          `entry 5: cut tail: the run has no records`,
	} {
		url, path := filled(t, nil)
		db, err := sql.Open("sqlite", path)
		if err == nil {
			_, err = db.ExecContext(t.Context(), statement)
		}
		if err != nil {
			t.Fatal(err)
		}
		db.Close()
		out, err := do(t, "", "verify", "--store", url)
		if (err == nil) != (says == "") || says != "" && (strings.Count(out, "\n") != 1 || !strings.Contains(out, "run AAA1, "+says)) {
			t.Errorf("%s: %q, %v", statement, out, err)
		}
	}
}

// What changes nothing is told of in a line, too.
func TestSentenceOfWhatChangesNothing(t *testing.T) {
	for text, want := range map[string]string{
		`{"type":"refused","time":"2026-01-02T03:04:05Z","kind":"tool","name":"t","refusal":"unknown_action","times":3,"from":"a","to":{"state":"a"}}`: "     7  2026-01-02 03:04:05.000  refused   tool t  unknown_action, 3 times  in a",
		`{"type":"stayed","time":"2026-01-02T03:04:05Z","kind":"tool","name":"t","outcome":"error","from":"a","to":{"state":"a"}}`:                     "     7  2026-01-02 03:04:05.000  stayed    tool t  error  in a",
	} {
		if got := (&printer{}).sentence(&journal.Record{Seq: 7, Bytes: []byte(text)}); got != want {
			t.Errorf("%q is not %q", got, want)
		}
	}
}
