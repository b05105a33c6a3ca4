package resume_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/memory"
	"github.com/fsm-proxy/fsm-proxy/internal/resume"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/proxy/durable"
)

// under is a session that answers its only request when it is told to.
type under struct {
	wire.Session
	out   wire.Stream
	moved bool
}

func (u *under) Version() string { return "2025-11-25" }

func (u *under) Moved() bool { return u.moved }

func (u *under) Handle(_ *wire.Message, out wire.Stream) wire.Pending { u.out = out; return nil }
func (u *under) Close()                                               {}

// answered is the stream of a request, closed by its answer.
type answered chan struct{}

func (a answered) Send([]byte) bool { return true }
func (a answered) Answer([]byte)    { close(a) }
func (a answered) Listening() bool  { return true }

// What a session is answered once it has ended does not keep it: it has ended for good.
func TestASessionThatIsAnsweredOnceItHasEnded(t *testing.T) {
	for how, end := range map[string]func(ses *resume.Session) error{
		"": nil, "closed": func(ses *resume.Session) error { ses.Close(); return nil }, "forgotten": (*resume.Session).Forget,
	} {
		j := memory.New(0)
		s := durable.Open(durable.Config{Journal: j, Log: hclog.NewNullLogger()})
		defer s.Close(context.Background())
		u := &under{}
		ses := resume.New(u, "it", "ann", resume.Config{Store: s, Stays: func() bool { return false }, Log: hclog.NewNullLogger()})
		m, err := wire.Read([]byte(setLevel), wire.FromClient)
		if err != nil {
			t.Fatal(err)
		}
		given := make(answered)
		ses.Handle(m, given)
		if end != nil {
			if err := end(ses); err != nil {
				t.Error(err)
			}
		}
		u.out.Answer([]byte(`{"jsonrpc":"2.0","id":1,"result":{}}`))
		<-given
		written(t, s)
		if is := keeps(t, j) != ""; is != (end == nil) {
			t.Errorf("%s: it is kept: %v", how, is)
		}
	}
}

const setLevel = `{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"info"}}`

// keeps is what is kept of the session, "" for nothing.
func keeps(t *testing.T, j journal.Store) string {
	t.Helper()
	text, err := j.Object(t.Context(), "session", durable.KeyOf("session", "it").Hash.String())
	if err != nil && !errors.Is(err, journal.ErrNone) {
		t.Fatal(err)
	}
	return string(text)
}

// written waits until all is written that was handed over.
func written(t *testing.T, s *durable.Store) {
	t.Helper()
	wait, err := s.KeepSession("another", []byte("{}"))
	if err == nil {
		err = wait()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// movable is the stream of a request that is moved where to says so.
type movable struct {
	answered
	to *error
}

func (m movable) Move(why error) bool {
	if m.to != nil {
		*m.to = why
	}
	return m.to != nil
}

// What is kept before it is answered is served elsewhere, or stays, as its stream says.
func TestMove(t *testing.T) {
	why := errors.New("gateway-1 has it")
	m, err := wire.Read([]byte(setLevel), wire.FromClient)
	if err != nil {
		t.Fatal(err)
	}
	u := &under{}
	ses := resume.New(u, "it", "ann", resume.Config{Log: hclog.NewNullLogger()})
	var to error
	rest := ses.Handle(m, movable{make(answered), &to})
	if !wire.MoveOn(u.out, why) || !errors.Is(to, why) {
		t.Errorf("moved to %v", to)
	}
	rest.Wait()
	for _, out := range []wire.Stream{movable{make(answered), nil}, make(answered)} {
		rest := ses.Handle(m, out)
		if wire.MoveOn(u.out, why) {
			t.Error("it was moved")
		}
		u.out.Answer(wire.ErrorAnswer([]byte("1"), wire.CodeInternal, "no", nil))
		rest.Wait()
	}
}

// A session that goes on elsewhere is not forgotten as it ends here, nor kept as it was.
func TestASessionThatHasMoved(t *testing.T) {
	j := memory.New(0)
	s := durable.Open(durable.Config{Journal: j, Log: hclog.NewNullLogger()})
	defer s.Close(context.Background())
	u := &under{}
	ses := resume.New(u, "it", "ann", resume.Config{Store: s, Stays: func() bool { return false }, Log: hclog.NewNullLogger()})
	subscribe := func(uri string) {
		m, err := wire.Read([]byte(`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"`+uri+`"}}`), wire.FromClient)
		if err != nil {
			t.Fatal(err)
		}
		rest := ses.Handle(m, make(answered))
		u.out.Answer([]byte(`{"jsonrpc":"2.0","id":1,"result":{}}`))
		rest.Wait()
	}
	subscribe("a://here")
	before := keeps(t, j)
	u.moved = true
	subscribe("b://late")
	if err := ses.Forget(); err == nil {
		t.Error("its client is told that it has ended")
	}
	ses.Close()
	written(t, s)
	if after := keeps(t, j); !ses.Moved() || after != before {
		t.Errorf("kept: %s, and before it moved: %s", after, before)
	}
}

// away is a journal whose database is away now and then.
type away struct {
	journal.Store
	is atomic.Bool
}

func (a *away) Commit(ctx context.Context, changes []journal.Change) ([]error, error) {
	if a.is.Load() {
		return nil, errors.New("no route to the database")
	}
	return a.Store.Commit(ctx, changes)
}

// said is the stream of a request: what it was answered, and whether it was declined.
type said struct {
	answered
	text     *string
	declined *bool
}

func (s said) Answer(msg []byte)  { *s.text = string(msg); s.answered.Answer(msg) }
func (s said) Decline(msg []byte) { *s.declined = true; s.Answer(msg) }

// A session that could not be kept has not begun where other processes would go on with it: its client is told to try again, and
// nothing of it stays once the database is back. A process that has that alone goes on with it.
func TestASessionThatBeginsAndIsNotKept(t *testing.T) {
	for name, x := range map[string]struct {
		shared, known, draining bool // that the database is away is known before
		moves                   bool // the run, and the database is there
	}{
		"alone": {}, "alone, known": {known: true}, "alone, moved": {moves: true},
		"shared": {shared: true}, "shared, known": {shared: true, known: true},
		"shared, draining": {shared: true, draining: true}, "shared, moved": {shared: true, moves: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := &away{Store: memory.New(0)}
				s := durable.Open(durable.Config{Journal: j, Timeout: time.Second, Log: hclog.NewNullLogger()})
				defer s.Close(context.Background())
				u := &under{}
				ses := resume.New(u, "it", "ann", resume.Config{Store: s, Shared: x.shared, Stays: func() bool { return x.draining }, Log: hclog.NewNullLogger()})
				j.is.Store(!x.moves)
				if x.known {
					if _, err := s.KeepSession("another", []byte("{}")); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
					if s.Down() == nil {
						t.Fatal("it can be written")
					}
				}
				m, err := wire.Read([]byte(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`), wire.FromClient)
				if err != nil {
					t.Fatal(err)
				}
				defer j.is.Store(false) // or it is waited for at the end
				text, declined := "", false
				rest := ses.Handle(m, said{make(answered), &text, &declined})
				u.moved = x.moves
				u.out.Answer([]byte(`{"jsonrpc":"2.0","id":1,"result":{}}`))
				rest.Wait()
				refused := strings.Contains(text, `"id":1,"error":{"code":-32603`) && strings.Contains(text, "try again") && !strings.Contains(text, "route")
				if refused != x.shared || declined != x.shared || (ses.Version() == "") != x.shared {
					t.Errorf("answered %s, declined %v, of revision %q", text, declined, ses.Version())
				}
				if !x.shared {
					return
				}
				ses.Close()
				j.is.Store(false)
				for s.Waiting() > 0 || s.Down() != nil {
					time.Sleep(time.Second) // as the store is tried
				}
				if kept := keeps(t, j); kept != "" {
					t.Errorf("it stays: %s", kept)
				}
			})
		})
	}
}

// A session goes on whose end is written only once the process has begun to end, also where that has closed it by then: so does its run.
func TestASessionThatEndsWhileTheProcessDoes(t *testing.T) {
	for _, closed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			j := &away{Store: memory.New(0)}
			s := durable.Open(durable.Config{Journal: j, Timeout: time.Minute, Log: hclog.NewNullLogger()})
			defer s.Close(context.Background())
			u, draining := &under{}, atomic.Bool{}
			ses := resume.New(u, "it", "ann", resume.Config{Store: s, Stays: draining.Load, Log: hclog.NewNullLogger()})
			m, err := wire.Read([]byte(setLevel), wire.FromClient)
			if err != nil {
				t.Fatal(err)
			}
			rest := ses.Handle(m, make(answered))
			u.out.Answer([]byte(`{"jsonrpc":"2.0","id":1,"result":{}}`))
			rest.Wait()
			j.is.Store(true)
			ended := make(chan error)
			go func() { ended <- ses.Forget() }()
			synctest.Wait()
			draining.Store(true)
			if closed {
				ses.Close()
			}
			j.is.Store(false)
			if err := <-ended; err == nil {
				t.Error("its client is told that it has ended")
			}
			for s.Waiting() > 0 || s.Down() != nil {
				time.Sleep(time.Second) // as the store is tried
			}
			if keeps(t, j) == "" {
				t.Error("it is forgotten, and its run is nobody's")
			}
		})
	}
}

// A session whose end cannot be written goes on as if nothing had been asked for, and ends once it can be.
func TestASessionThatCannotEndNow(t *testing.T) {
	for name, known := range map[string]bool{"known": true, "not known": false} { // that the database is away
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := &away{Store: memory.New(0)}
				s := durable.Open(durable.Config{Journal: j, Timeout: time.Second, Log: hclog.NewNullLogger()})
				defer s.Close(context.Background())
				u, draining := &under{}, false
				ses := resume.New(u, "it", "ann", resume.Config{Store: s, Stays: func() bool { return draining }, Log: hclog.NewNullLogger()})
				answer := func(request string) {
					m, err := wire.Read([]byte(request), wire.FromClient)
					if err != nil {
						t.Fatal(err)
					}
					rest := ses.Handle(m, make(answered))
					u.out.Answer([]byte(`{"jsonrpc":"2.0","id":1,"result":{}}`))
					rest.Wait()
				}
				answer(setLevel)
				before := keeps(t, j)
				j.is.Store(true)
				defer j.is.Store(false) // or it is waited for at the end
				if known {
					if _, err := s.KeepSession("another", []byte("{}")); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
				}
				if err := ses.Forget(); err == nil {
					t.Error("its client is told that it has ended")
				}
				if text, err := s.Session("it"); text == nil || err != nil {
					t.Errorf("it does not go on: %v", err)
				}
				j.is.Store(false)
				for s.Waiting() > 0 || s.Down() != nil {
					time.Sleep(time.Second) // as the store is tried
				}
				if after := keeps(t, j); before == "" || after != before {
					t.Errorf("kept: %s, and before %s", after, before)
				}
				answer(strings.Replace(setLevel, "info", "error", 1))
				if after := keeps(t, j); !strings.Contains(after, `\"error\"`) {
					t.Errorf("what it says then is not kept: %s", after)
				}
				draining = true
				if err := ses.Forget(); err == nil || keeps(t, j) == "" {
					t.Error("it ends, and its run goes on")
				}
				draining = false
				if err := ses.Forget(); err != nil || keeps(t, j) != "" {
					t.Errorf("it stays: %v", err)
				}
				j.is.Store(true)
				if err := ses.Forget(); err != nil {
					t.Errorf("who ends it at the same time is told that it goes on: %v", err)
				}
			})
		})
	}
}
