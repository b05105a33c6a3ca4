package cli

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

// A client that never reads our standard error must not hold up anything.
func TestLogsNobodyReadsBlockNothing(t *testing.T) {
	r, unread := io.Pipe()
	defer r.Close()
	w := newLogWriter(unread, false)
	line := []byte(strings.Repeat("x", 1023) + "\n")
	for range 2 * maxLogQueue / len(line) {
		if n, err := w.Write(line); n != len(line) || err != nil {
			t.Fatal(n, err)
		}
	}
	all := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(r)
		all <- string(b)
	}()
	w.Close()
	unread.Close()
	if text := <-all; !strings.Contains(text, "dropped") || len(text) > maxLogQueue+2*len(line)+1024*1024 {
		t.Errorf("%d bytes arrived, the end: %q", len(text), text[max(0, len(text)-100):])
	}
}

func TestLogsAreFlushedAtTheEnd(t *testing.T) {
	var out bytes.Buffer
	w := newLogWriter(&out, true)
	_, _ = w.Write([]byte("one\n"))
	_, _ = w.Write([]byte("two\n"))
	w.Close()
	if out.String() != "one\ntwo\n" {
		t.Errorf("%q", out.String())
	}
}
