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

// check recounts what the streams of a session keep count of.
func (s *session) check(t *rapid.T) {
	stored := 0
	streams := []*stream{&s.own}
	for _, b := range s.streams {
		streams = append(streams, b)
	}
	for _, b := range streams {
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
		if stored += sent; b.over {
			stored += streamCost
		}
		if !b.attached() {
			stored += queued
		}
	}
	if stored != s.stored {
		t.Fatalf("%d bytes are stored, counted as %d", stored, s.stored)
	}
	if bound := s.srv.cfg.Store + (300+streamCost)*len(s.over); stored > bound { // for errors in place of answers
		t.Fatalf("%d bytes are stored, the bound is %d", stored, bound)
	}
}

// Whatever clients and sessions do, the store is counted right and bounded,
// and what a stream has taken is given out in order.
func TestStreamsCountWhatTheyKeep(t *testing.T) {
	srv := NewServer(ServerConfig{Store: 2000, Queue: 1000, Open: func(wire.Stream, PeerInfo) (wire.Session, error) { return nil, nil }})
	defer srv.Close(context.Background())
	rapid.Check(t, func(t *rapid.T) {
		s := newSession(srv, owner{})
		s.version = revisionPriming
		streams := []*stream{&s.own}
		var writers []*eventWriter
		one := func(t *rapid.T) *stream { return streams[rapid.IntRange(0, len(streams)-1).Draw(t, "stream")] }
		writer := func(t *rapid.T) *eventWriter { return writers[rapid.IntRange(0, len(writers)-1).Draw(t, "writer")] }
		t.Repeat(map[string]func(*rapid.T){
			"": s.check,
			"open": func(t *rapid.T) {
				if len(streams) < 8 {
					streams = append(streams, s.openStream())
				}
			},
			"attach": func(t *rapid.T) {
				b := one(t)
				o := newEventWriter(b, httptest.NewRecorder())
				writers = append(writers, o)
				if b.num == 0 || !b.attached() {
					b.attach(o)
				} else {
					b.takeOver(o)
				}
			},
			"add": func(t *rapid.T) {
				b := one(t)
				if !b.over {
					b.add(make([]byte, rapid.IntRange(1, 400).Draw(t, "size")))
				}
			},
			"answer": func(t *rapid.T) {
				if b := one(t); b.num != 0 && !b.over {
					b.addLast(make([]byte, rapid.IntRange(1, 3000).Draw(t, "size")))
				}
			},
			"write": func(t *rapid.T) {
				if len(writers) == 0 {
					t.Skip()
				}
				o := writer(t)
				o.take(nil)
				if rapid.Bool().Draw(t, "fails") {
					o.failed()
				} else {
					o.finished()
				}
			},
			"leave": func(t *rapid.T) {
				if len(writers) > 0 {
					writer(t).leave()
				}
			},
			"resume": func(t *rapid.T) {
				last := string(one(t).appendID(nil, rapid.Uint64Range(0, s.seq).Draw(t, "last"), false))
				if out, _ := s.listen(httptest.NewRecorder(), []string{last}); out != nil {
					writers = append(writers, out)
				}
			},
			"time": func(t *rapid.T) {
				srv.clock.now.Add(20)
				s.expire(srv.clock.now.Load() - 60)
			},
			"kick": func(t *rapid.T) { one(t).detachAll() },
		})
	})
}

// Calls that end without an event, since their clients have called them off, leave no more than the store has room for.
func TestStreamsWithoutEventsAreCounted(t *testing.T) {
	srv := NewServer(ServerConfig{Store: 10 << 10, Open: func(wire.Stream, PeerInfo) (wire.Session, error) { return nil, nil }})
	defer srv.Close(context.Background())
	s := newSession(srv, owner{})
	s.mu.Lock()
	defer s.mu.Unlock()
	for range 10_000 {
		s.openStream().finish()
	}
	if most := 10 << 10 / streamCost; len(s.streams) > most || len(s.over) > most || s.stored > 10<<10 {
		t.Errorf("%d streams, %d over, %d bytes", len(s.streams), len(s.over), s.stored)
	}
}

// What the session's own stream has taken reaches the client, in order, once,
// through any number of connections that end in between.
func TestOwnStreamLosesNothing(t *testing.T) {
	srv := NewServer(ServerConfig{Store: 4000, Open: func(wire.Stream, PeerInfo) (wire.Session, error) { return nil, nil }})
	defer srv.Close(context.Background())
	rapid.Check(t, func(t *rapid.T) {
		s := newSession(srv, owner{})
		var taken, got []string
		var out *eventWriter
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

func doWith(out *eventWriter, do func()) {
	if out != nil {
		do()
	}
}

func FuzzEventID(f *testing.F) {
	srv := NewServer(ServerConfig{Open: func(wire.Stream, PeerInfo) (wire.Session, error) { return nil, nil }})
	f.Cleanup(func() { _ = srv.Close(context.Background()) })
	s := newSession(srv, owner{})
	b := s.openStream()
	b.append([]byte("x"))
	f.Add(string(b.appendID(nil, 1, false)))
	f.Add(s.life + ".0.0")
	f.Add(s.tag + "-before.1.2.Nw")
	f.Add(s.tag + ".0.0")
	f.Fuzz(func(t *testing.T, id string) {
		e := readEventID(id)
		found, seq := s.find(e), e.seq
		if found != nil && (!strings.HasPrefix(id, s.life+".") || seq > s.seq || found != b && found != &s.own) {
			t.Errorf("%q: stream %d, event %d", id, found.num, seq)
		}
		if before := s.before(e); before && (found != nil || !strings.HasPrefix(id, s.tag+"-")) || e.asked != nil && !wire.ValidID(e.asked) {
			t.Errorf("%q: from before %v, and of %s", id, before, e.asked)
		}
	})
}
