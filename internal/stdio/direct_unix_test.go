//go:build unix

package stdio

import (
	"bytes"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
)

// TestDirectWrites checks that a caller writes by itself what a pipe has room
// for, that the goroutine goes on where there is none, and that nothing is lost
// or mixed up on the way.
func TestDirectWrites(t *testing.T) {
	r, pipe, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	w := NewWriter(pipe, 16<<20)
	w.Write([]byte("at once"))
	w.mu.Lock()
	if w.state != idle || len(w.queue) > 0 {
		t.Errorf("the caller did not write: state %d, queue %q", w.state, w.queue)
	}
	w.mu.Unlock()
	want := bytes.NewBufferString("at once\n")
	for i := range 3000 {
		line := bytes.Repeat([]byte{byte('a' + i%26)}, i%700+1)
		w.Write(line)
		want.Write(append(line, '\n'))
	}
	got := make(chan []byte)
	go func() {
		all, _ := io.ReadAll(r)
		got <- all
	}()
	w.Close()
	pipe.Close()
	if all := <-got; !bytes.Equal(all, want.Bytes()) {
		t.Errorf("%d bytes of %d, or others", len(all), want.Len())
	}
}

func TestDirectWriterOfManyCallers(t *testing.T) {
	r, pipe, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	w := NewWriter(pipe, 16<<20)
	var c Cork
	w.Join(&c)
	lines := make(chan int)
	go func() {
		all, _ := io.ReadAll(r)
		lines <- strings.Count(string(all), strings.Repeat("x", 999)+"\n")
	}()
	var callers sync.WaitGroup
	for i := range 8 {
		callers.Go(func() {
			for range 200 {
				if i%4 == 0 {
					c.cork()
				}
				w.Write(bytes.Repeat([]byte{'x'}, 999))
				if i%4 == 0 {
					c.uncork()
				}
			}
		})
	}
	callers.Wait()
	w.Close()
	pipe.Close()
	if n := <-lines; n != 1600 {
		t.Errorf("%d lines of 1600", n)
	}
}

func TestDirectWriteError(t *testing.T) {
	r, pipe, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	r.Close()
	w := NewWriter(pipe, 0)
	w.Write([]byte("x"))
	<-w.Done()
	if w.Err() == nil || w.Write([]byte("y")) {
		t.Error(w.Err())
	}
}
