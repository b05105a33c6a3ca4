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
	out wire.Stream
}

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
