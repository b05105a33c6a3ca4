package stdio

import (
	"io"
	"strings"
	"testing"
)

func TestCorkGathers(t *testing.T) {
	s := sink{begun: make(chan struct{}, 10), hold: make(chan struct{})}
	close(s.hold)
	w := NewWriter(&s, 0)
	var c Cork
	w.Join(&c)
	c.cork()
	w.Write([]byte("one"))
	w.Write([]byte("two"))
	if len(s.begun) > 0 {
		t.Error("written while held")
	}
	c.cork()
	c.uncork() // any release writes what there is
	<-s.begun
	c.uncork()
	w.Write([]byte("three"))
	c.cork()
	w.Write([]byte("four"))
	w.Close() // and so does the end
	c.uncork()
	if got := strings.Join(s.writes, ""); !strings.HasPrefix(s.writes[0], "one\ntwo\n") || got != "one\ntwo\nthree\nfour\n" {
		t.Errorf("got %q", s.writes)
	}
}

func TestReaderHoldsTheCork(t *testing.T) {
	in, feed := io.Pipe()
	var c Cork
	r := NewReader(in, 100)
	r.Join(&c)
	held := func() bool { c.mu.Lock(); defer c.mu.Unlock(); return c.readers > 0 }
	for _, test := range []struct {
		feed string
		held []bool // after each line
	}{
		{"alone\n", []bool{false}},
		{"one\ntwo\nthree\n", []bool{true, true, true}},
		{"alone\nbegun", []bool{false}},
		{" and ended\n", []bool{false}},
	} {
		go feed.Write([]byte(test.feed))
		for i, want := range test.held {
			if _, err := r.Next(); err != nil || held() != want {
				t.Errorf("%q, line %d: held %v, %v", test.feed, i+1, held(), err)
			}
		}
	}
	go feed.Write([]byte("a\nb\n"))
	if _, err := r.Next(); err != nil || !held() {
		t.Error("not held", err)
	}
	r.Release()
	if held() {
		t.Error("held")
	}
	feed.Close()
	for {
		if _, err := r.Next(); err != nil {
			break
		}
	}
	if held() {
		t.Error("held after the end")
	}
}

// TestReaderLetsGoNowAndThen: of many lines that came in one read, what the first
// of them cause goes out while the others are still being handled.
func TestReaderLetsGoNowAndThen(t *testing.T) {
	var c Cork
	r := NewReader(strings.NewReader(strings.Repeat("line\n", 2*maxCorked)), 100)
	r.Join(&c)
	w := &Writer{w: io.Discard, cork: &c, limit: 1000, wake: make(chan struct{}, 1)}
	for i := range 2 * maxCorked {
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
		w.Write([]byte("answer"))
		if let := len(w.wake) > 0; let != (i >= maxCorked) {
			t.Errorf("after line %d: let go %v", i+1, let)
		}
	}
}
