package journal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/memory"
)

// moved is a store with some of everything.
func moved(t *testing.T) journal.Store {
	s := memory.New(0)
	a, b, c := &run{id: "a"}, &run{id: "b"}, &run{id: "c"}
	full := a.begin()
	full.Begin.Key = journal.Key{Kind: "principal", Hash: journal.Hash{1, 2}}
	full.Begin.Owner, full.Begin.Began = journal.Principal{Issuer: "https://idp", Subject: "ann\x00\u202e"}, time.UnixMicro(17)
	changes := []journal.Change{full, a.next(`{"n":1}`), a.next(`{"n":2}`), a.next("\"\u2028 <&\x00\""), a.next("\xff"), b.begin(), c.begin()}
	changes = append(changes, journal.Change{Run: "a", Cut: 1, Head: &journal.Head{At: a.last, State: "x\xff", Complete: true, Policy: "p", Checkpoint: 2, Due: time.UnixMicro(5), Used: time.UnixMicro(6)},
		Objects: []journal.Object{{Kind: "session", Name: "s\xff", Run: "a", Bytes: []byte{0, 255}}}})
	changes = append(changes, b.next("{}"), journal.Change{Run: "c", Head: &journal.Head{Ended: time.UnixMicro(9)}}, journal.Change{Objects: []journal.Object{{Kind: "policy", Name: "p", Bytes: []byte{}}}})
	each, err := s.Commit(context.Background(), changes)
	if err = errors.Join(append(each, err)...); err != nil {
		t.Fatal(err)
	}
	return s
}

func needsNothing([]byte) []journal.Object { return nil }

func export(t *testing.T, s journal.Store) []byte {
	t.Helper()
	var out bytes.Buffer
	x := journal.Exporter{From: s, To: &out, Needs: needsNothing}
	err := x.Objects(context.Background())
	for _, id := range []string{"a", "b", "c"} {
		err = errors.Join(err, x.Run(context.Background(), id))
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// What is exported from one store and imported into another is the same there, to the byte.
func TestExportAndImport(t *testing.T) {
	from, to := moved(t), memory.New(0)
	text := export(t, from)
	done, err := journal.Import(context.Background(), to, bytes.NewReader(text))
	if err != nil || fmt.Sprint(done) != "{[a b c] []}" {
		t.Fatal(done, err)
	}
	if again := export(t, to); !bytes.Equal(again, text) {
		t.Errorf("%s\n%s", text, again)
	}
	for _, id := range done.Runs {
		was, _ := from.Row(context.Background(), id)
		is, err := to.Row(context.Background(), id)
		if err != nil || is != was {
			t.Errorf("%+v, %v\n%+v", is, err, was)
		}
		if fault, err := chain.Verify(&is, journal.All(context.Background(), to, id)); fault != nil || err != nil {
			t.Error(fault, err)
		}
	}
	if done, err := journal.Import(context.Background(), to, bytes.NewReader(text)); fmt.Sprint(done) != "{[] [a b c]}" || err != nil {
		t.Errorf("again: %v, %v", done, err)
	}
	if again := export(t, to); !bytes.Equal(again, text) {
		t.Errorf("again:\n%s\n%s", text, again)
	}
}

// An import that was broken off goes on; a run that is another one in the store, or whose key another one has, is refused.
func TestImportGoesOn(t *testing.T) {
	text := string(export(t, moved(t)))
	first, _, _ := strings.Cut(text, `{"run":{"id":"b"`)
	to := memory.New(0)
	if done, err := journal.Import(context.Background(), to, strings.NewReader(first+`{"run":{"id":"b"`)); fmt.Sprint(done) != "{[a] []}" || err == nil {
		t.Errorf("%v, %v", done, err)
	}
	if done, err := journal.Import(context.Background(), to, strings.NewReader(text)); fmt.Sprint(done) != "{[b c] [a]}" || err != nil {
		t.Errorf("%v, %v", done, err)
	}
	if again := string(export(t, to)); again != text {
		t.Errorf("%s\n%s", text, again)
	}
	other, key := &run{id: "a"}, &run{id: "z"}
	full := key.begin()
	full.Begin.Key = journal.Key{Kind: "principal", Hash: journal.Hash{1, 2}}
	for _, change := range []journal.Change{other.begin(), full} {
		to := memory.New(0)
		each, err := to.Commit(context.Background(), []journal.Change{change})
		if err = errors.Join(append(each, err)...); err != nil {
			t.Fatal(err)
		}
		if done, err := journal.Import(context.Background(), to, strings.NewReader(text)); fmt.Sprint(done) != "{[] []}" || !errors.Is(err, journal.ErrThere) {
			t.Errorf("%s is there: %v, %v", change.Run, done, err)
		}
	}
}

// An export that was cut off, or is none, brings the runs that are in it whole, and says where it ends.
func TestImportOfWhatIsNone(t *testing.T) {
	lines := strings.SplitAfter(strings.TrimSuffix(string(export(t, moved(t))), "\n"), "\n")
	for n := range lines {
		for _, text := range []string{strings.Join(lines[:n], ""), strings.Join(lines[:n], "") + lines[n][:len(lines[n])/2]} {
			to := memory.New(0)
			done, err := journal.Import(context.Background(), to, strings.NewReader(text))
			runs := done.Runs
			rows, _ := to.List(context.Background(), journal.Query{})
			ends := strings.Count(text, `{"end":`)
			if len(rows) != len(runs) || len(runs) > ends || err == nil && text != "" && !strings.Contains(lines[n-1], `"end"`) && !strings.Contains(lines[n-1], `"policy","name"`) {
				t.Errorf("%d lines: %v, %d in the store, %v\n%s", n, runs, len(rows), err, text)
			}
		}
	}
	const begin, end = `{"run":{"id":"x","state":"s","policy":"p"}}` + "\n", `{"end":"x"}` + "\n"
	const record = `{"record":{"seq":1,"hash":"","text":"{}"}}` + "\n"
	for text, want := range map[string]string{
		begin + record + end:                       "",
		record:                                     "line 1: it does not follow",
		begin + begin:                              "line 2: it does not follow",
		begin + `{"end":"y"}`:                      "line 2: it does not follow",
		begin + record + record + end:              "line 4: journal: records of run x are not numbered",
		`{"run":{"id":""},"end":"x"}`:              "line 1: it does not follow",
		`{"run":{"id":"","state":"","policy":""}}`: "line 1: a run has no id",
		`{"more":1}`:                               "line 1: ",
		"no JSON":                                  "line 1: ",
		strings.Replace(begin, `"id"`, `"key_kind":"k","key_hash":"ff","id"`, 1): `line 1: json: cannot unmarshal JSON string into Go journal.Hash within "/run/key_hash": a hash has 32 bytes, not 1`,
	} {
		_, err := journal.Import(context.Background(), memory.New(0), strings.NewReader(text))
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(strings.ReplaceAll(err.Error(), "unable to", "cannot"), want)) { // encoding/json/v2 says one thing in two ways
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
