package resume_test

import (
	"context"
	"errors"
	"testing"

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
