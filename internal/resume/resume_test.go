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
	for _, ends := range []bool{false, true} {
		j := memory.New(0)
		s := durable.Open(durable.Config{Journal: j, Log: hclog.NewNullLogger()})
		defer s.Close(context.Background())
		u := &under{}
		ses := resume.New(u, "it", "ann", resume.Config{Store: s, Stays: func() bool { return false }, Log: hclog.NewNullLogger()})
		m, err := wire.Read([]byte(`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"info"}}`), wire.FromClient)
		if err != nil {
			t.Fatal(err)
		}
		given := make(answered)
		ses.Handle(m, given)
		if ends {
			ses.Close()
		}
		u.out.Answer([]byte(`{"jsonrpc":"2.0","id":1,"result":{}}`))
		<-given
		ses.Forgotten()
		switch _, err := j.Object(t.Context(), "session", durable.KeyOf("session", "it").Hash.String()); {
		case ends && !errors.Is(err, journal.ErrNone):
			t.Errorf("one that has ended is kept: %v", err)
		case !ends && err != nil:
			t.Errorf("one that goes on is not kept: %v", err)
		}
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
	m, err := wire.Read([]byte(`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"info"}}`), wire.FromClient)
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
	kept := func() string {
		text, err := j.Object(t.Context(), "session", durable.KeyOf("session", "it").Hash.String())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
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
	before := kept()
	u.moved = true
	subscribe("b://late")
	ses.Close()
	ses.Forgotten()
	if after := kept(); !ses.Moved() || after != before {
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
				if kept, err := j.Object(t.Context(), "session", durable.KeyOf("session", "it").Hash.String()); !errors.Is(err, journal.ErrNone) {
					t.Errorf("it stays: %s %v", kept, err)
				}
			})
		})
	}
}
