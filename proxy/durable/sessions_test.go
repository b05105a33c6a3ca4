package durable_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/memory"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
	"github.com/fsm-proxy/fsm-proxy/proxy/durable"
)

// outlives is a journal that another process has when this one is gone.
type outlives struct {
	journal.Store
	read   func()       // is called when a page of sessions was read; nil: nothing is
	commit func() error // is called before each commit; nil: likewise
}

func (outlives) Close() error { return nil }

func (o outlives) ObjectsOf(ctx context.Context, kind, after string, limit int) ([]journal.Object, error) {
	page, err := o.Store.ObjectsOf(ctx, kind, after, limit)
	if o.read != nil {
		o.read()
	}
	return page, err
}

func (o outlives) Commit(ctx context.Context, changes []journal.Change) ([]error, error) {
	if o.commit != nil {
		if err := o.commit(); err != nil {
			return nil, err
		}
	}
	return o.Store.Commit(ctx, changes)
}

// starts is a process that starts.
func starts(t *testing.T, j outlives) *durable.Store {
	t.Helper()
	s := durable.Open(durable.Config{Journal: j, Log: hclog.NewNullLogger()})
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// keep has it kept what is known of a session, nil to forget it.
func keep(t *testing.T, s *durable.Store, id string, text []byte) {
	t.Helper()
	wait, err := s.KeepSession(id, text)
	if err == nil {
		err = wait()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// names are the sessions that are kept, of these.
func names(t *testing.T, j journal.Store, ids ...string) (some []string) {
	t.Helper()
	for _, id := range ids {
		_, err := j.Object(t.Context(), "session", durable.KeyOf("session", id).Hash.String())
		switch {
		case err == nil:
			some = append(some, id)
		case !errors.Is(err, journal.ErrNone):
			t.Fatal(err)
		}
	}
	return some
}

// ends are the sessions of which it is asked that their runs end.
type ends struct {
	t    *testing.T
	s    *durable.Store
	ids  []string
	got  []string
	fail bool
	then func(id string)
}

func (e *ends) end(key journal.Key) bool {
	i := slices.IndexFunc(e.ids, func(id string) bool { return durable.KeyOf("session", id) == key })
	if i < 0 {
		e.t.Fatalf("the run of %+v is to end", key)
	}
	e.got = append(e.got, e.ids[i])
	if e.then != nil {
		e.then(e.ids[i])
	}
	return !e.fail
}

// go through the sessions, and say which ended and after how long it is to be looked again.
func (e *ends) at(now time.Time) (after time.Duration) {
	e.t.Helper()
	e.got = nil
	n, next, err := e.s.Abandoned(e.t.Context(), now, time.Hour, e.end)
	if err != nil || n != len(e.got) && !e.fail {
		e.t.Fatal(n, e.got, err)
	}
	keep(e.t, e.s, "written when all before is", nil)
	if next.IsZero() {
		return 0
	}
	return next.Sub(now)
}

var noon = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// A session to which nobody has come back ends once a process has waited for it so long, over restarts; one that somebody
// has come back to does not, and is waited for anew after the next restart.
func TestSessionsThatNobodyComesBackTo(t *testing.T) {
	j := outlives{Store: memory.New(0)}
	ids := []string{"back", "ended", "away"}
	first := starts(t, j)
	for _, id := range ids {
		keep(t, first, id, []byte(`{"owner":"`+id+`"}`))
	}
	e := &ends{t: t, ids: ids}
	e.s = first
	if after := e.at(noon.Add(100 * time.Hour)); after != 0 || e.got != nil {
		t.Errorf("%s, %v: they are here", after, e.got)
	}
	keep(t, first, "ended", nil)

	e.s = starts(t, j)
	if after := e.at(noon); after != time.Hour || e.got != nil {
		t.Errorf("%s, %v", after, e.got)
	}
	e.s = starts(t, j) // which does not begin to wait again
	if after := e.at(noon.Add(40 * time.Minute)); after != 20*time.Minute || e.got != nil {
		t.Errorf("%s, %v", after, e.got)
	}
	text, err := e.s.Session("back")
	if err != nil || string(text) != `{"owner":"back"}` {
		t.Fatalf("%s %v", text, err)
	}
	keep(t, e.s, "back", text)
	if after := e.at(noon.Add(time.Hour)); after != 0 || !slices.Equal(e.got, []string{"away"}) {
		t.Errorf("%s, %v", after, e.got)
	}
	if got := names(t, j, ids...); !slices.Equal(got, []string{"back"}) {
		t.Errorf("%v are kept", got)
	}
	e.s = starts(t, j)
	if after := e.at(noon.Add(2 * time.Hour)); after != time.Hour || e.got != nil {
		t.Errorf("one who was back is not waited for: %s, %v", after, e.got)
	}
	if after := e.at(noon.Add(time.Hour)); after != time.Hour || e.got != nil { // by a clock that was set back
		t.Errorf("%s, %v", after, e.got)
	}
	if after := e.at(noon.Add(2*time.Hour - 1)); after != 1 || e.got != nil {
		t.Errorf("%s, %v", after, e.got)
	}
	e.fail = true
	if after := e.at(noon.Add(2 * time.Hour)); after != time.Hour || len(names(t, j, ids...)) != 1 {
		t.Errorf("one whose run cannot end is tried again after %s, %v", after, names(t, j, ids...))
	}
	e.fail = false
	if e.at(noon.Add(3 * time.Hour)); len(names(t, j, ids...)) != 0 {
		t.Error("it does not end")
	}
}

// What was kept of a session before anything stood around it is read.
func TestSessionsThatWereKeptBefore(t *testing.T) {
	const text = `{"owner":"o","initialize":"{}"}`
	j := outlives{Store: memory.New(0)}
	if _, err := j.Store.Commit(t.Context(), []journal.Change{{Objects: []journal.Object{{Kind: "session", Name: durable.KeyOf("session", "it").Hash.String(), Bytes: []byte(text)}}}}); err != nil {
		t.Fatal(err)
	}
	e := &ends{t: t, ids: []string{"it"}}
	for range 2 { // as it was, and as one that is waited for
		e.s = starts(t, j)
		if got, err := e.s.Session("it"); string(got) != text || err != nil {
			t.Errorf("%s %v", got, err)
		}
		e.s.Left("it")
		if after := e.at(noon); after != time.Hour {
			t.Error(after)
		}
	}
	if e.at(noon.Add(time.Hour)); len(e.got) != 1 {
		t.Error("it does not end")
	}
}

// Whoever comes back at that very moment has the session, or it has ended for good.
func TestSessionsThatSomebodyComesBackToJustNow(t *testing.T) {
	away := func(j outlives) *ends { // for an hour
		keep(t, starts(t, j), "it", []byte(`{}`))
		e := &ends{t: t, ids: []string{"it"}, s: starts(t, j)}
		e.at(noon)
		return e
	}
	var read func()
	hooked := func() outlives { return outlives{Store: memory.New(0), read: func() { read() }} }
	nothing := func() {}

	read = nothing
	e := away(hooked())
	read = func() {
		if text, err := e.s.Session("it"); string(text) != "{}" || err != nil {
			t.Errorf("%s %v", text, err)
		}
	}
	if e.at(noon.Add(2 * time.Hour)); e.got != nil {
		t.Error("it is ended under its client")
	}

	read = nothing
	j := hooked()
	e = away(j)
	read = func() {
		_, _ = e.s.Session("it")
		keep(t, e.s, "it", nil)
	}
	if e.at(noon.Add(2 * time.Hour)); e.got != nil || len(names(t, j, "it")) != 0 {
		t.Errorf("one whose client has come back, and ended it, is ended again: %v, %v", e.got, names(t, j, "it"))
	}

	read = nothing
	j = hooked()
	e = away(j)
	e.then = func(id string) {
		if text, err := e.s.Session(id); text != nil || err != nil {
			t.Errorf("one that is being ended goes on: %s %v", text, err)
		}
	}
	if e.at(noon.Add(2 * time.Hour)); !slices.Equal(e.got, []string{"it"}) || len(names(t, j, "it")) != 0 {
		t.Errorf("%v %v", e.got, names(t, j, "it"))
	}

	e = away(hooked())
	_, _ = e.s.Session("it")
	e.s.Left("it") // it was not theirs
	if e.at(noon.Add(2 * time.Hour)); !slices.Equal(e.got, []string{"it"}) {
		t.Error("one that does not go on does not end")
	}
}

// A session to which its client has come back in another process just now is that one's: it is neither waited for nor ended.
func TestSessionsThatAnotherProcessHasJustNow(t *testing.T) {
	for _, due := range []bool{false, true} {
		var read func()
		j := outlives{Store: memory.New(0), read: func() { read() }}
		read = func() {}
		keep(t, starts(t, j), "it", []byte(`{}`))
		other := starts(t, j)
		e := &ends{t: t, ids: []string{"it"}, s: starts(t, j)}
		if due {
			e.at(noon)
		}
		back := func() (text string) {
			kept, err := j.Object(t.Context(), "session", durable.KeyOf("session", "it").Hash.String())
			if err != nil {
				t.Error(err)
			}
			return string(kept)
		}
		read = func() { keep(t, other, "it", []byte(`{"back":true}`)) }
		e.at(noon.Add(2 * time.Hour))
		if text := back(); e.got != nil || text != `{"session":{"back":true}}` {
			t.Errorf("due %v: %v are ended, and %s is kept", due, e.got, text)
		}
	}
}

// What is being forgotten, and not yet, is not written again.
func TestSessionsThatAreBeingForgotten(t *testing.T) {
	blocked, free := make(chan struct{}), make(chan struct{})
	stops := false
	j := outlives{Store: memory.New(0), commit: func() error {
		if stops {
			stops = false
			close(blocked)
			<-free
		}
		return nil
	}}
	s := starts(t, j)
	keep(t, s, "it", []byte(`{}`))
	stops = true
	wait, err := s.KeepSession("it", nil)
	if err != nil {
		t.Fatal(err)
	}
	<-blocked
	if text, err := s.Session("it"); text != nil || err != nil {
		t.Errorf("it goes on: %s %v", text, err)
	}
	if n, next, err := s.Abandoned(t.Context(), noon, time.Hour, func(journal.Key) bool { return true }); n != 0 || !next.IsZero() || err != nil {
		t.Error(n, next, err)
	}
	close(free)
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	keep(t, s, "written when all before is", nil)
	if len(names(t, j, "it")) != 0 {
		t.Error("it is kept again")
	}
}

// A session that cannot be forgotten now is here still, and is not waited for; one that was left is.
func TestASessionThatCannotBeForgottenNow(t *testing.T) {
	var away atomic.Bool
	j := outlives{Store: memory.New(0), commit: func() error {
		if away.Load() {
			return errors.New("no route to the database")
		}
		return nil
	}}
	e := &ends{t: t, ids: []string{"it"}, s: starts(t, j)}
	keep(t, e.s, "it", []byte(`{}`))
	away.Store(true)
	defer away.Store(false) // or it is waited for at the end
	if _, err := e.s.KeepSession("another", []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	mcptest.Await(t, "the store is down", func() bool { return e.s.Down() != nil })
	if _, err := e.s.KeepSession("it", nil); err == nil {
		t.Fatal("it is forgotten")
	}
	away.Store(false)
	mcptest.Await(t, "the store can be written", func() bool { return e.s.Down() == nil })
	if after := e.at(noon); after != 0 {
		t.Errorf("it ends after %v", after)
	}
	e.s.Left("it")
	if after := e.at(noon); after != time.Hour {
		t.Errorf("it ends after %v", after)
	}
}

// A session that has ended since nobody came back does not go on while that is being written.
func TestSessionsThatHaveJustEnded(t *testing.T) {
	blocked, free := make(chan struct{}), make(chan struct{})
	stops := false
	j := outlives{Store: memory.New(0), commit: func() error {
		if stops {
			stops = false
			close(blocked)
			<-free
		}
		return nil
	}}
	keep(t, starts(t, j), "it", []byte(`{}`))
	e := &ends{t: t, ids: []string{"it"}, s: starts(t, j)}
	e.at(noon)
	stops = true
	if n, _, err := e.s.Abandoned(t.Context(), noon.Add(time.Hour), time.Hour, e.end); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	<-blocked
	if text, err := e.s.Session("it"); text != nil || err != nil {
		t.Errorf("it goes on: %s %v", text, err)
	}
	close(free)
	keep(t, e.s, "written when all before is", nil)
	if len(names(t, j, "it")) != 0 {
		t.Error("it is kept")
	}
}

// However many there are, all end.
func TestManySessionsThatNobodyComesBackTo(t *testing.T) {
	const many = 200
	j := outlives{Store: memory.New(0)}
	e := &ends{t: t}
	first := starts(t, j)
	for i := range many {
		e.ids = append(e.ids, fmt.Sprint("session ", i))
		if _, err := first.KeepSession(e.ids[i], []byte(`{}`)); err != nil {
			t.Fatal(err)
		}
	}
	keep(t, first, "written when all before is", nil)
	e.s = starts(t, j)
	if after := e.at(noon); after != time.Hour {
		t.Error(after)
	}
	e.at(noon.Add(time.Hour))
	if slices.Sort(e.got); len(slices.Compact(e.got)) != many || len(names(t, j, e.ids...)) != 0 {
		t.Errorf("%d have ended, and %d are kept", len(e.got), len(names(t, j, e.ids...)))
	}
}
