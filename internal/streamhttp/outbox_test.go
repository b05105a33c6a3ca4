package streamhttp

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// check recounts what the outboxes of a session keep count of.
func (s *session) check(t *rapid.T) {
	stored := 0
	boxes := []*outbox{&s.own}
	for _, b := range s.streams {
		boxes = append(boxes, b)
	}
	for _, b := range boxes {
		sent, queued := 0, 0
		for i := range b.records {
			if i < b.next {
				sent += b.records[i].size()
			} else {
				queued += b.records[i].size()
			}
			if i > 0 && b.records[i].seq <= b.records[i-1].seq {
				t.Fatalf("stream %d: events out of order", b.num)
			}
		}
		if sent != b.sent || queued != b.queued {
			t.Fatalf("stream %d: sent %d, queued %d, counted as %d, %d", b.num, sent, queued, b.sent, b.queued)
		}
		stored += sent
		if !b.attached() {
			stored += queued
		}
	}
	if stored != s.stored {
		t.Fatalf("%d bytes are stored, counted as %d", stored, s.stored)
	}
	if bound := s.srv.cfg.Store + 300*len(s.over); stored > bound { // for errors in place of answers
		t.Fatalf("%d bytes are stored, the bound is %d", stored, bound)
	}
}

// Whatever clients and sessions do, the store is counted right and bounded,
// and what an outbox has taken is given out in order.
func TestOutboxesCountWhatTheyKeep(t *testing.T) {
	srv := NewServer(ServerConfig{Store: 2000, Queue: 1000, Open: func(wire.Stream, PeerInfo) (wire.Session, error) { return nil, nil }})
	defer srv.Close(context.Background())
	rapid.Check(t, func(t *rapid.T) {
		s := newSession(srv, party{})
		s.version = revisionPriming
		boxes := []*outbox{&s.own}
		var outlets []*outlet
		box := func(t *rapid.T) *outbox { return boxes[rapid.IntRange(0, len(boxes)-1).Draw(t, "box")] }
		outlet := func(t *rapid.T) *outlet { return outlets[rapid.IntRange(0, len(outlets)-1).Draw(t, "outlet")] }
		t.Repeat(map[string]func(*rapid.T){
			"": s.check,
			"open": func(t *rapid.T) {
				if len(boxes) < 8 {
					boxes = append(boxes, s.openStream())
				}
			},
			"attach": func(t *rapid.T) {
				b := box(t)
				o := newOutlet(b, httptest.NewRecorder())
				outlets = append(outlets, o)
				if b.num == 0 || !b.attached() {
					b.attach(o)
				} else {
					b.takeOver(o)
				}
			},
			"add": func(t *rapid.T) {
				b := box(t)
				if !b.over {
					b.add(make([]byte, rapid.IntRange(1, 400).Draw(t, "size")))
				}
			},
			"answer": func(t *rapid.T) {
				if b := box(t); b.num != 0 && !b.over {
					b.addLast(make([]byte, rapid.IntRange(1, 3000).Draw(t, "size")))
				}
			},
			"write": func(t *rapid.T) {
				if len(outlets) == 0 {
					t.Skip()
				}
				o := outlet(t)
				o.take(nil)
				if rapid.Bool().Draw(t, "fails") {
					o.failed()
				} else {
					o.finished()
				}
			},
			"leave": func(t *rapid.T) {
				if len(outlets) > 0 {
					outlet(t).leave()
				}
			},
			"resume": func(t *rapid.T) {
				last := string(box(t).appendID(nil, rapid.Uint64Range(0, s.seq).Draw(t, "last")))
				if out, _ := s.listen(httptest.NewRecorder(), []string{last}); out != nil {
					outlets = append(outlets, out)
				}
			},
			"time": func(t *rapid.T) {
				srv.clock.now.Add(20)
				s.expire(srv.clock.now.Load() - 60)
			},
			"kick": func(t *rapid.T) { box(t).detachAll() },
		})
	})
}

// What the session's own stream has taken reaches the client, in order, once,
// through any number of connections that end in between.
func TestOwnStreamLosesNothing(t *testing.T) {
	srv := NewServer(ServerConfig{Store: 4000, Open: func(wire.Stream, PeerInfo) (wire.Session, error) { return nil, nil }})
	defer srv.Close(context.Background())
	rapid.Check(t, func(t *rapid.T) {
		s := newSession(srv, party{})
		var taken, got []string
		var out *outlet
		read := func() {
			chunk := out.take(nil)
			for line := range strings.Lines(string(chunk)) {
				if data, ok := strings.CutPrefix(line, "data: "); ok {
					got = append(got, strings.TrimSpace(data))
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"send": func(*rapid.T) {
				msg := fmt.Sprint("message ", len(taken))
				if (ownStream{s}).Send([]byte(msg)) {
					taken = append(taken, msg)
				}
			},
			"get": func(*rapid.T) {
				if out == nil {
					out, _ = s.listen(httptest.NewRecorder(), nil)
				}
			},
			"read":  func(*rapid.T) { doWith(out, read) },
			"leave": func(*rapid.T) { doWith(out, func() { out.leave(); out = nil }) },
		})
		if out == nil {
			out, _ = s.listen(httptest.NewRecorder(), nil)
		}
		read()
		if strings.Join(got, ",") != strings.Join(taken, ",") {
			t.Fatalf("taken %q, got %q", taken, got)
		}
	})
}

func doWith(out *outlet, do func()) {
	if out != nil {
		do()
	}
}

func FuzzEventID(f *testing.F) {
	srv := NewServer(ServerConfig{Open: func(wire.Stream, PeerInfo) (wire.Session, error) { return nil, nil }})
	f.Cleanup(func() { _ = srv.Close(context.Background()) })
	s := newSession(srv, party{})
	b := s.openStream()
	b.append([]byte("x"))
	f.Add(string(b.appendID(nil, 1)))
	f.Add(s.tag + ".0.0")
	f.Fuzz(func(t *testing.T, id string) {
		found, seq := s.find(id)
		if found != nil && (!strings.HasPrefix(id, s.tag+".") || seq > s.seq || found != b && found != &s.own) {
			t.Errorf("%q: stream %d, event %d", id, found.num, seq)
		}
	})
}
