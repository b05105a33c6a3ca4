package stdio

import (
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// sink records each write, and blocks while it is held.
type sink struct {
	mu     sync.Mutex
	writes []string
	begun  chan struct{}
	hold   chan struct{}
}

func (s *sink) Write(p []byte) (int, error) {
	if s.begun != nil {
		s.begun <- struct{}{}
		<-s.hold
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes = append(s.writes, string(p))
	return len(p), nil
}

func TestWriterWritesLines(t *testing.T) {
	var s sink
	w := NewWriter(&s, 0)
	for _, msg := range []string{`{"a":1}`, "{\"b\":\r\n2}"} {
		if !w.Write([]byte(msg)) {
			t.Error("not taken")
		}
	}
	w.Close()
	<-w.Done()
	if got := strings.Join(s.writes, ""); got != "{\"a\":1}\n{\"b\":  2}\n" {
		t.Errorf("got %q", got)
	}
	if w.Write([]byte("late")) || w.open() || !errors.Is(w.Err(), ErrClosed) {
		t.Error("taken after Close:", w.Err())
	}
	w.Close()
}

func TestWriterCoalesces(t *testing.T) {
	s := sink{begun: make(chan struct{}), hold: make(chan struct{})}
	w := NewWriter(&s, 0)
	w.Write([]byte("first"))
	<-s.begun
	for range 100 {
		w.Write([]byte("next")) // does not wait for the write under way
	}
	s.hold <- struct{}{}
	<-s.begun
	s.hold <- struct{}{}
	w.Close()
	if len(s.writes) != 2 || s.writes[1] != strings.Repeat("next\n", 100) {
		t.Errorf("got %q", s.writes)
	}
}

func TestWriterQueueIsBounded(t *testing.T) {
	s := sink{begun: make(chan struct{}), hold: make(chan struct{})}
	w := NewWriter(&s, 1000)
	if !w.Write([]byte(strings.Repeat("x", 5000))) {
		t.Error("a message alone may be of any size")
	}
	<-s.begun
	if w.Write([]byte("y")) || !errors.Is(w.Err(), ErrQueueFull) {
		t.Error("taken beyond the limit:", w.Err())
	}
	close(s.hold)
	<-w.Done()
	if len(s.writes) != 1 {
		t.Errorf("%d writes", len(s.writes))
	}
}

func TestWriterError(t *testing.T) {
	r, pipe := io.Pipe()
	r.Close()
	w := NewWriter(pipe, 0)
	w.Write([]byte("x"))
	<-w.Done()
	if !errors.Is(w.Err(), io.ErrClosedPipe) || w.Write([]byte("y")) {
		t.Error(w.Err())
	}
}

func TestWriterCloseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, pipe := io.Pipe()
		w := NewWriter(pipe, 0)
		w.Write([]byte("nobody reads"))
		begun := time.Now()
		w.Close()
		if waited := time.Since(begun); waited != flushTime {
			t.Errorf("waited %v", waited)
		}
		r.Close()
		<-w.Done()
	})
}
