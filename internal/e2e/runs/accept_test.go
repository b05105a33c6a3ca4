package runs

import (
	"database/sql"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/stores"
)

// foreign writes the next record of the one run of a store, as somebody else who has it; edited: as nobody would.
func foreign(t *testing.T, url string, edited bool) (id string) {
	t.Helper()
	s, err := stores.OpenReader(t.Context(), stores.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	row := rowsOf(t, url)[0]
	var last journal.Record
	for x, err := range journal.All(t.Context(), s, row.ID) {
		if err != nil {
			t.Fatal(err)
		}
		last = x
	}
	at := journal.Point{Seq: last.Seq, Hash: last.Hash}
	text := string(last.Bytes)
	to := text[strings.Index(text, `"to":{`):]
	to = to[:strings.Index(to, "}")+1]
	text = fmt.Sprintf(`{"run":%q,"seq":%d,"type":"annotated","time":"2026-11-26T10:00:00Z","from":%q,%s,"who":"admin|eve","text":"elsewhere"}`, row.ID, last.Seq+1, row.State, to)
	next := journal.NewChain(nil).Next(row.ID, at, []byte(text))
	if edited {
		text = strings.Replace(text, "eve", "bob", 1)
	}
	db, err := sql.Open("sqlite", strings.TrimPrefix(url, "sqlite:")+"?_pragma=busy_timeout(30000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), "INSERT INTO entries (run, seq, hash, bytes) SELECT no, ?, ?, ? FROM runs WHERE id = ?", int64(next.Seq), next.Hash[:], []byte(text), row.ID); err != nil {
		t.Fatal(err)
	}
	return row.ID
}

// A run that somebody else has written is shut until an operator has it go on as the store has it: that stands in its
// journal, and holds though the proxy is killed behind it.
func TestAcceptedAsTheStoreHasIt(t *testing.T) {
	each(t, those("process", "principal", byHeader, "path", "handle"), func(t *testing.T, k key) {
		url := store(t)
		h := counted(t, k, steps, "--annotate", "meta", "--store", url, "--admin-tokens", tokensOf(t, "olga"))
		c := h.taken(h.enter(k, ""))
		if said := h.does(1, "accept", h.one(k)); !strings.Contains(said, "not_accepted") || !strings.Contains(said, "nothing to accept") {
			t.Error(said)
		}
		id := foreign(t, url, false)
		if said := h.does(1, "reset", id); !strings.Contains(said, "run_shut") || !strings.Contains(said, "runs accept") {
			t.Error(said)
		}
		if said := h.does(1, "end", id); !strings.Contains(said, "run_shut") {
			t.Error(said)
		}
		if r := c.call("ok", ""); r.verdict != "store_unavailable" {
			t.Errorf("something is allowed in a run that is shut: %s", r.raw)
		}
		if k.kind == "handle" {
			if r := c.call("fsm_end_run", ""); r.verdict == "success" {
				t.Errorf("its client has ended it: %s", r.raw)
			}
		}
		if said := h.does(0, "accept", id, "--reason", "looked at the server"); !strings.Contains(said, "Run "+id+": state 'after'") {
			t.Error(said)
		}
		c = h.enter(k, c.run())
		h.once(c)
		if r := c.call("ok", ""); r.verdict != "success" {
			t.Error(r.raw)
		}
		h.again(os.Kill)
		h.once(h.enter(k, c.run()))
		all := notedOf(t, url, id)
		if !has(all, noted{Type: "accepted", Who: "admin|olga", Reason: "looked at the server"}) || !has(all, noted{Type: "annotated", Who: "admin|eve", Text: "elsewhere"}) || has(all, noted{Type: "reset", Who: "admin|olga"}) {
			t.Errorf("%+v", all)
		}
		verified(t, url)
	})
}

// What was edited is not accepted, and the refusal says what to do.
func TestEditedIsNotAccepted(t *testing.T) {
	t.Parallel()
	k, url := key{"modern", byHeader}, store(t)
	h := counted(t, k, steps, "--annotate", "meta", "--store", url, "--admin-tokens", tokensOf(t, "olga"))
	c := h.taken(h.enter(k, ""))
	id := foreign(t, url, true)
	h.does(1, "annotate", id, "x")
	for range 2 {
		if said := h.does(1, "accept", id); !strings.Contains(said, "run_damaged") || !strings.Contains(said, "edited") || !strings.Contains(said, "backup") || !strings.Contains(said, "run "+id) {
			t.Error(said)
		}
		if r := c.call("ok", ""); r.verdict != "store_unavailable" {
			t.Errorf("something is allowed in it: %s", r.raw)
		}
	}
	h.again(os.Kill)
	if said := h.does(1, "accept", id); !strings.Contains(said, "run_damaged") || !strings.Contains(said, "fsm-proxy verify") {
		t.Error(said)
	}
	if r := h.enter(k, "").call("ok", ""); r.verdict != "store_unavailable" {
		t.Error(r.raw)
	}
	for _, e := range notedOf(t, url, id) {
		if e.Type == "accepted" {
			t.Errorf("%+v", e)
		}
	}
}
