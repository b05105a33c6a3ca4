package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/fsm-proxy/fsm-proxy/internal/admin"
	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/journaltest"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/memory"
)

// asked is a store that is read by a proxy's admin interface.
type asked struct {
	journal.Store // that the proxy has
	by            *Journal
	web           *httptest.Server
	closed        atomic.Bool
}

// ask serves a journal as a proxy does; nil: it has none.
func ask(j journal.Reader) (*Journal, *httptest.Server) {
	web := httptest.NewServer((&admin.Admin{Journal: j}).Handler())
	return NewJournal(&Client{Address: web.Listener.Addr().String()}), web
}

func (a *asked) err() error {
	if a.closed.Load() {
		return journal.ErrClosed
	}
	return nil
}

func (a *asked) Row(ctx context.Context, run string) (journal.Row, error) {
	r, err := a.by.Row(ctx, run)
	return r, or(a.err(), err)
}

func (a *asked) List(ctx context.Context, q journal.Query) ([]journal.Row, error) {
	rows, err := a.by.List(ctx, q)
	return rows, or(a.err(), err)
}

func (a *asked) Records(ctx context.Context, run string, after uint64, limit int) ([]journal.Record, error) {
	records, err := a.by.Records(ctx, run, after, limit)
	return records, or(a.err(), err)
}

func (a *asked) Object(ctx context.Context, kind, name string) ([]byte, error) {
	o, err := a.by.Object(ctx, kind, name)
	return o, or(a.err(), err)
}

func (a *asked) Objects(ctx context.Context, run string) ([]journal.Object, error) {
	all, err := a.by.Objects(ctx, run)
	return all, or(a.err(), err)
}

func (a *asked) Close() error {
	if !a.closed.Swap(true) {
		a.by.Close()
		a.web.Close()
	}
	return a.Store.Close()
}

func or(first, second error) error {
	if first != nil {
		return first
	}
	return second
}

type home struct{}

func (home) Open(rapid.TB) journal.Store {
	s := memory.New(0)
	j, web := ask(s)
	return &asked{Store: s, by: j, web: web}
}

func (home) Empty(rapid.TB) {}

// What is true of every store is true of one that is read through a proxy.
func TestJournal(t *testing.T) { journaltest.Test(t, home{}, false) }

// However much there is, each answer is bounded, and all of it comes.
func TestJournalIsAskedInPages(t *testing.T) {
	s := memory.New(0)
	j, web := ask(s)
	defer web.Close()
	var changes []journal.Change
	for i := range 1500 {
		id := fmt.Sprintf("R%04d", i)
		changes = append(changes, journal.Change{Run: id, Begin: &journal.Row{ID: id}, Head: &journal.Head{State: "a"}})
	}
	big, first := bytes.Repeat([]byte("x"), 600<<10), &changes[0]
	var at journal.Point
	for i := range 1500 {
		text := []byte("x")
		if i < 5 {
			text = big
		}
		at = journal.Chain{}.Next(first.Run, at, text)
		first.Records = append(first.Records, journal.Record{Seq: at.Seq, Hash: at.Hash, Bytes: text})
	}
	for i := range 5 {
		first.Objects = append(first.Objects, journal.Object{Kind: "policy", Name: fmt.Sprint(i), Run: first.Run, Bytes: big})
	}
	if each, err := s.Commit(t.Context(), changes); err != nil || errors.Join(each...) != nil {
		t.Fatal(each, err)
	}
	rows, err := j.List(t.Context(), journal.Query{Limit: 1400})
	if len(rows) != 1400 || rows[1399].ID != "R1399" || err != nil {
		t.Errorf("%d rows, %v", len(rows), err)
	}
	records, err := j.Records(t.Context(), first.Run, 0, 2000)
	if len(records) != 1500 || records[1499].Seq != 1500 || err != nil {
		t.Errorf("%d records, %v", len(records), err)
	}
	objects, err := j.Objects(t.Context(), first.Run)
	if len(objects) != 5 || !bytes.Equal(objects[4].Bytes, big) || err != nil {
		t.Errorf("%d objects, %v", len(objects), err)
	}
	for _, path := range []string{"runs/R0000/records?limit=1000", "runs/R0000/objects"} {
		said, err := j.of.Read(t.Context(), "GET", "/v1/journal/"+path, "")
		if len(said) > 4<<20 || !strings.Contains(string(said), `"more": true`) || err != nil {
			t.Errorf("%s: %d bytes, %v", path, len(said), err)
		}
	}
}

func TestJournalSaysWhatIsWrong(t *testing.T) {
	j, web := ask(nil)
	defer web.Close()
	if _, err := j.List(t.Context(), journal.Query{}); err == nil || err.Error() != "this proxy keeps no runs: give it --store (no_store)" {
		t.Error(err)
	}
	kept, there := ask(memory.New(0))
	defer there.Close()
	for path, says := range map[string]string{
		"runs?limit=0": "limit is", "runs?limit=1001": "limit is", "runs?due_by=noon": "due_by is a time", "runs/x/records?after=-1": "after is the number",
		"runs/x": "(not_kept)", "object?kind=policy&name=x": "(not_kept)", "nothing": "there is no /v1/journal/nothing here",
	} {
		if _, err := kept.of.Read(t.Context(), "GET", "/v1/journal/"+path, ""); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := kept.of.Read(t.Context(), "POST", "/v1/journal/runs", "{}"); err == nil || !strings.Contains(err.Error(), "GET") {
		t.Error(err)
	}
	there.Close()
	if _, err := kept.Row(t.Context(), "x"); err == nil || errors.Is(err, journal.ErrNone) || !strings.Contains(err.Error(), "is it running") {
		t.Error(err)
	}
}
