package streamhttp

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// polling is a behaviour whose calls are paused at once, and each time that more is
// called for, and says so; the call ends with what release brings.
func polling(retry time.Duration, more chan struct{}, release chan string) behaviour {
	return func(_ *script, m *wire.Message, to wire.Stream) wire.Pending {
		return pending(func() {
			to.(wire.Pauser).Pause(retry)
			for {
				select {
				case <-more:
					to.Send(note(1))
					to.(wire.Pauser).Pause(retry)
					more <- struct{}{}
				case text := <-release:
					to.Answer(result(m, `"`+text+`"`))
					return
				}
			}
		})
	}
}

func always() bool { return true }

// wantPaused wants the stream to end by telling the client when to come back, behind
// an event with this data (empty: the first, which has none), and returns that event's id.
func (e *events) wantPaused(data string) (last string) {
	e.t.Helper()
	if data != "" {
		last = e.message(data).id
	} else if first := e.next(); first.id != "" && first.data == "" {
		last = first.id
	} else {
		e.t.Fatalf("begins with %+v", first)
	}
	if line, err := e.br.ReadString('\n'); err != nil || line != "retry: 70\n" {
		e.t.Fatalf("got %q, %v; want when to come back", line, err)
	}
	e.end()
	return last
}

// A stream that is paused begins with an id, says when to come back, ends, and is resumed as often as it is paused.
// What comes meanwhile is kept, however big.
func TestPausedStreamsAreResumed(t *testing.T) {
	more, release := make(chan struct{}), make(chan string)
	r := newRig(t, ServerConfig{Polls: always, Store: 10 << 10}, polling(70*time.Millisecond, more, release))
	c := r.begin("2025-11-25")
	conn := c.open(call(1, "poll"))
	last := conn.events().wantPaused("")
	more <- struct{}{} // while the client is away
	<-more
	s := c.stream("Last-Event-ID: " + last)
	s.message(`"data":1`)
	more <- struct{}{}
	<-more
	last = s.wantPaused(`"data":1`)
	release <- strings.Repeat("x", 100<<10)
	eventually(t, "the call's end", func() bool { return r.srv.requests.n.Load() == 0 })
	s = c.stream("Last-Event-ID: " + last)
	s.message(`"result":"xxx`)
	s.end()
	conn.send(post1(call(2, "poll"), c.id)) // the connection goes on
	last = conn.events().wantPaused("")
	release <- "done"
	s = c.stream("Last-Event-ID: " + last)
	s.message("done")
	s.end()
	if ses := r.srv.table.all(nil)[0]; ses.busy != 0 {
		t.Errorf("%d requests are left under way", ses.busy)
	}
}

// Where the client could not come back, or would not understand, its response waits for the answer.
func TestUnpausedStreams(t *testing.T) {
	release := make(chan string, 1)
	release <- "done"
	for name, tc := range map[string]struct {
		version, accept string
		polls           func() bool
	}{
		"older revision": {"2025-06-18", "application/json, text/event-stream", always},
		"no events":      {"2025-11-25", "application/json", always},
		"never polls":    {"2025-11-25", "application/json, text/event-stream", nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, ServerConfig{Polls: tc.polls}, polling(70*time.Millisecond, nil, release))
			c := r.begin(tc.version)
			c.post(call(1, "poll"), "Accept: "+tc.accept).want(t, 200, "done").wantHeader(t, "Content-Type", typeJSON)
			release <- "done"
		})
	}
}

// Who never comes back is waited for as long as a slow reader is; from then on what is kept is bounded as ever.
func TestPausedStreamsAreGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan string)
		r := newBubbleRig(t, ServerConfig{Polls: always, Store: 10 << 10}, polling(time.Hour, nil, release))
		c := r.begin("2025-11-25")
		s := c.open(call(1, "poll")).events()
		s.next()
		if line, err := s.br.ReadString('\n'); err != nil || line != "retry: 60000\n" { // no longer than it is kept
			t.Fatalf("got %q, %v", line, err)
		}
		s.end()
		release <- strings.Repeat("x", 100<<10)
		synctest.Wait()
		ses := r.srv.table.all(nil)[0]
		ses.mu.Lock()
		if b := ses.streams[1]; len(b.records) != 1 || ses.stored != streamCost || ses.busy != 0 {
			t.Errorf("the answer is not kept for its client: %d records, %d bytes, %d under way", len(b.records), ses.stored, ses.busy)
		}
		ses.mu.Unlock()
		time.Sleep(2 * time.Minute)
		ses.mu.Lock()
		defer ses.mu.Unlock()
		if ses.stored != 0 || len(ses.streams) != 0 || ses.over != nil {
			t.Errorf("left: %d bytes, %d streams", ses.stored, len(ses.streams))
		}
	})
}

// A client of 2025-11-25 that names event streams first gets one for every answer.
func TestEventStreamsFirst(t *testing.T) {
	r := newRig(t, ServerConfig{}, nil)
	for version, kind := range map[string]string{"2025-11-25": typeSSE, "2025-06-18": typeJSON} {
		r.begin(version).post(call(1, "quick"), "Accept: text/event-stream, application/json").want(t, 200, `"result"`).wantHeader(t, "Content-Type", kind)
	}
}
