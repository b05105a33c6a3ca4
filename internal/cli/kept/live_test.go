package kept

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/fsm-proxy/fsm-proxy/internal/exit"
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
	url, _ := filled(t, nil)
	return opened(t, url)
}

// opened opens a file.
func opened(t *testing.T, url string) *live {
	t.Helper()
	w, err := sqlite.Open(sqlite.Config{Path: strings.TrimPrefix(url, "sqlite:")})
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
	text := fmt.Appendf(nil, `{"run":%q,"seq":%d,"type":%q,"time":"2026-01-02T03:04:05Z","from":%q,"to":{"state":%q,"policy":%q}%s}`, id, r.Last.Seq+1, kind, r.State, r.State, policy, more)
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
	p, _ := goesBy(t)
	l.goOn(t, id, "checkpoint", p, "")
}

// once does something before the first records of AAA1 are read.
func (l *live) once(do func()) { l.page(1, do) }

// page does something before the nth page of the records of AAA1 is read.
func (l *live) page(n int, do func()) {
	l.before = func(run string) {
		if run != "AAA1" {
			return
		}
		if n--; n == 0 {
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

// telling are the commands that tell of AAA1.
var telling = map[string]func(ctx context.Context, c *command, s journal.Reader) error{
	"show":   func(ctx context.Context, c *command, s journal.Reader) error { return c.show(ctx, s, "AAA1") },
	"report": func(ctx context.Context, c *command, s journal.Reader) error { return c.report(ctx, s, "AAA1") },
	"diff": func(ctx context.Context, c *command, s journal.Reader) error {
		if err := c.diff(ctx, s, "AAA1", "AAB2"); !errors.Is(err, exit.ErrReported) {
			return fmt.Errorf("it reports no difference: %w", err)
		}
		return nil
	},
}

// printing is a command with its flags as they are when none is given.
func printing(out io.Writer) *command {
	c := &command{Console: Console{Out: out}}
	c.colored(&cobra.Command{})
	return c
}

// long opens a file with a run of two pages, AAA1, which has a checkpoint on the second of them, and a short one, AAB2.
func long(t *testing.T) *live {
	t.Helper()
	entries := append([]string{began}, slices.Repeat([]string{fails}, 1099)...)
	entries[1019], entries[1099] = reads, plans
	entries[1049] = `"type":"checkpoint","from":"open","to":{"state":"open","policy":"DIGEST"}` + remembering(`null`)
	return opened(t, store(t, map[string][]string{"AAA1": entries, "AAB2": {began, fails}}))
}

// remembering is what a checkpoint says, with what is in the register plan.
func remembering(plan string) string {
	return `,"remembers":{"memory":{"began":"2026-01-02T03:04:00Z","entered":"2026-01-02T03:04:00Z","registers":{"plan":` + plan + `,"reads":["a.txt"]},"counts":{"time":"2026-01-02T03:05:00Z"}}}`
}

// What is told of a run is what there is after some of it was cut off, where that happens while it is read, and no picture with a hole.
func TestTellingOfWhatIsCutOff(t *testing.T) {
	cutTo := func(l *live, seq uint64) { // up to a checkpoint that is there
		r, err := l.write.Row(t.Context(), "AAA1")
		if err != nil {
			t.Fatal(err)
		}
		r.Checkpoint = seq
		l.commit(t, journal.Change{Run: "AAA1", Head: &r.Head, Cut: seq - 1})
	}
	cutAll := func(l *live) {
		r, err := l.write.Row(t.Context(), "AAA1")
		if err != nil {
			t.Fatal(err)
		}
		l.goOn(t, "AAA1", "checkpoint", r.Policy, remembering(`"p8"`))
	}
	for what, x := range map[string]struct {
		page int
		do   func(l *live)
		base uint64
	}{
		"before the first page":               {1, func(l *live) { cutTo(l, 1050) }, 1049},
		"behind the first page":               {2, func(l *live) { cutTo(l, 1050) }, 1049},
		"all that the row knows of":           {2, cutAll, 1100},
		"all, when it is read the first time": {1, cutAll, 1100},
		"twice":                               {2, func(l *live) { cutTo(l, 1050); l.once(func() { cutAll(l) }) }, 1100},
	} {
		for name, tell := range telling {
			l := long(t)
			l.page(x.page, func() { x.do(l) })
			var out, after bytes.Buffer
			if err := tell(t.Context(), printing(&out), l); err != nil {
				t.Errorf("%s, %s: %v", name, what, err)
			}
			if r, err := l.write.Row(t.Context(), "AAA1"); err != nil || r.Base.Seq != x.base {
				t.Fatalf("%s, %s: %+v, %v", name, what, r, err)
			}
			if err := tell(t.Context(), printing(&after), l); err != nil || out.String() != after.String() {
				t.Errorf("%s, %s: it told\n%.2000s\nand tells afterwards\n%.2000s\n%v", name, what, out.String(), after.String(), err)
			}
			if says := fmt.Sprintf("entries from %d on are kept\n", x.base+1); name == "show" && (!strings.Contains(out.String(), says) || !strings.Contains(out.String(), `"reads":["a.txt"]`)) {
				t.Errorf("%s, %s: %s", name, what, out.String())
			}
		}
	}
}

// Of a run that is removed while it is read nothing is told but that; tail has told of its entries before.
func TestTellingOfWhatIsRemoved(t *testing.T) {
	const says = "run AAA1 was removed while it was read: it is not in the store; 'fsm-proxy runs ls'"
	for page := 1; page <= 2; page++ {
		for name, tell := range telling {
			l := long(t)
			l.page(page, func() { l.commit(t, journal.Change{Run: "AAA1", Remove: true}) })
			var out bytes.Buffer
			err := tell(t.Context(), printing(&out), l)
			if err == nil || !strings.Contains(err.Error(), says) || out.Len() > 0 {
				t.Errorf("%s, before page %d: %q, %v", name, page, out.String(), err)
			}
		}
	}
	l := long(t)
	l.page(2, func() { l.commit(t, journal.Change{Run: "AAA1", Remove: true}) })
	var out bytes.Buffer
	if err := printing(&out).tail(t.Context(), l, "AAA1"); err == nil || !strings.Contains(err.Error(), says) || strings.Count(out.String(), "\n") != 1000 {
		t.Errorf("tail: %q, %v", out.String(), err)
	}
}
