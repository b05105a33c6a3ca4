package kept

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
	"github.com/fsm-proxy/fsm-proxy/internal/journal/sqlite"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/stores"
)

// live is a file that is read while a proxy writes it, which does something each time before records are read.
type live struct {
	journal.Reader
	url    string
	write  journal.Store
	before func(run string)
}

// Records implements [journal.Reader].
func (l *live) Records(ctx context.Context, run string, after uint64, limit int) ([]journal.Record, error) {
	l.before(run)
	return l.Reader.Records(ctx, run, after, limit)
}

// watched opens the file with the runs AAA1 and AAB2.
func watched(t *testing.T) *live {
	t.Helper()
	url, path := filled(t, nil)
	w, err := sqlite.Open(sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	r, err := stores.OpenReader(t.Context(), stores.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	l := &live{Reader: r, url: url, write: w, before: func(string) {}}
	t.Cleanup(func() { l.close(t) })
	return l
}

func (l *live) close(t *testing.T) {
	if err := errors.Join(l.Reader.(journal.Store).Close(), l.write.Close()); err != nil {
		t.Error(err)
	}
}

func (l *live) commit(t *testing.T, changes ...journal.Change) {
	t.Helper()
	each, err := l.write.Commit(t.Context(), changes)
	if err = errors.Join(append(each, err)...); err != nil {
		t.Fatal(err)
	}
}

// goOn writes an entry to a run, by which it goes by a policy from then on. Before a checkpoint all is cut off.
func (l *live) goOn(t *testing.T, id, kind, policy, more string) {
	t.Helper()
	r, err := l.write.Row(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Appendf(nil, `{"run":%q,"seq":%d,"type":%q,"time":"2026-01-02T03:04:05Z","from":"b","to":{"state":"b","policy":%q}%s}`, id, r.Last.Seq+1, kind, policy, more)
	at := journal.NewChain(nil).Next(id, r.Last, text)
	head := r.Head
	c := journal.Change{Run: id, Head: &head, Records: []journal.Record{{Seq: at.Seq, Hash: at.Hash, Bytes: text}}}
	switch head.At, head.Policy = at, policy; kind {
	case "checkpoint":
		head.Checkpoint, c.Cut = at.Seq, r.Last.Seq
	case "finished":
		head.Ended = time.Now()
	}
	l.commit(t, c)
}

// cut writes a checkpoint to a run, and cuts off what is before it.
func (l *live) cut(t *testing.T, id string) {
	t.Helper()
	l.goOn(t, id, "checkpoint", "p", "")
}

// once does something before the first records of AAA1 are read.
func (l *live) once(do func()) {
	l.before = func(run string) {
		if run == "AAA1" {
			l.before = func(string) {}
			do()
		}
	}
}

// What a proxy cuts off or removes between a run's row and its records is no damage; what is damaged is named though it writes.
func TestVerifyOfWhatIsWritten(t *testing.T) {
	for name, x := range map[string]struct {
		do   func(l *live)
		says string
	}{
		"cut off":       {func(l *live) { l.cut(t, "AAA1") }, "2 runs: what the store keeps is what was written.\n"},
		"cut off twice": {func(l *live) { l.cut(t, "AAA1"); l.once(func() { l.cut(t, "AAA1") }) }, "2 runs: what the store keeps is what was written.\n"},
		"removed":       {func(l *live) { l.commit(t, journal.Change{Run: "AAA1", Remove: true}) }, "1 run: what the store keeps is what was written.\n"},
		"damaged": {func(l *live) {
			l.cut(t, "AAA1")
			l.commit(t, journal.Change{Run: "AAA1", Records: []journal.Record{{Seq: 7, Bytes: []byte("{}")}}})
		}, "run AAA1, entry 7: edited: "},
	} {
		l := watched(t)
		l.once(func() { x.do(l) })
		var out bytes.Buffer
		c := &command{Console: Console{Out: &out}}
		if err := c.verify(t.Context(), l, nil); (err == nil) != (name != "damaged") || !strings.HasPrefix(out.String(), x.says) {
			t.Errorf("%s: %q, %v", name, out.String(), err)
		}
	}
}

// Of runs that are named nothing else is read.
func TestVerifyReadsWhatIsNamed(t *testing.T) {
	l := watched(t)
	read := ""
	l.before = func(run string) { read += run + " " }
	var out bytes.Buffer
	c := &command{Console: Console{Out: &out}}
	if err := c.verify(t.Context(), l, []string{"aab", "AAB2"}); err != nil || out.String() != "1 run: what the store keeps is what was written.\n" || read != "AAB2 " {
		t.Errorf("%q, %v, read %s", out.String(), err, read)
	}
}

// A run is exported whole though some of it is cut off meanwhile, not at all when it is removed, and behind the policies that it
// names, whenever they came.
func TestExportOfWhatIsWritten(t *testing.T) {
	export := func(l *live) (string, *memory.Store) {
		t.Helper()
		var out bytes.Buffer
		c := &command{Console: Console{Out: &out}}
		if err := c.export(t.Context(), l, nil); err != nil {
			t.Fatal(err)
		}
		to := memory.New(0)
		if _, err := journal.Import(t.Context(), to, strings.NewReader(out.String())); err != nil {
			t.Errorf("%v\n%s", err, out.String())
		}
		return out.String(), to
	}
	l := watched(t)
	l.once(func() { l.cut(t, "AAA1") })
	_, to := export(l)
	if r, err := to.Row(t.Context(), "AAA1"); err != nil || r.Base.Seq != 5 || r.Last.Seq != 6 || r.Checkpoint != 6 {
		t.Errorf("%+v, %v", r, err)
	}
	l.once(func() { l.commit(t, journal.Change{Run: "AAA1", Remove: true}) })
	if text, _ := export(l); strings.Contains(text, "AAA1") || !strings.Contains(text, `{"end":"AAB2"}`) {
		t.Error(text)
	}

	l = watched(t)
	l.once(func() {
		l.commit(t, journal.Change{Objects: []journal.Object{{Kind: "policy", Name: "q", Bytes: []byte("Q")}}})
		l.goOn(t, "AAB2", "moved", "q", "")
	})
	text, to := export(l)
	if policy, err := to.Object(t.Context(), "policy", "q"); string(policy) != "Q" || err != nil {
		t.Errorf("%q, %v", policy, err)
	}
	if policy, run := strings.Index(text, `{"object":{"kind":"policy"`), strings.Index(text, `{"run":{"id":"AAB2"`); policy < 0 || run < policy {
		t.Error(text)
	}
}
