package deadline

import (
	"context"
	"testing"
)

func TestLife(t *testing.T) {
	var l Life
	calls := 0
	call := func() { calls++ }
	stop := AfterFunc(&l, call)
	if !stop() || stop() {
		t.Error("what is stopped is stopped once")
	}
	late := l.AfterFunc(call)
	AfterFunc(&l, call)
	if l.Err() != nil || calls != 0 {
		t.Error("ended before its end")
	}
	done := l.Done()
	child, cancel := context.WithCancel(&l)
	defer cancel()
	l.End()
	l.End()
	<-done
	<-l.Done()
	<-child.Done()
	if l.Err() != context.Canceled || calls != 2 || late() {
		t.Errorf("at the end: %v, %d calls", l.Err(), calls)
	}
	if stop := l.AfterFunc(call); calls != 3 || stop() {
		t.Error("after the end it is called at once")
	}
	if _, ok := l.Deadline(); ok || l.Value(1) != nil {
		t.Error("there is neither deadline nor value")
	}
}
