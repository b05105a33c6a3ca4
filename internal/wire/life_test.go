package wire

import (
	"context"
	"testing"
)

type ender func()

func (e ender) End() { e() }

func TestLife(t *testing.T) {
	var l Life
	calls := 0
	call := ender(func() { calls++ })
	if !l.Hold(call) || l.Hold(call) || !l.Drop() || !l.Hold(call) {
		t.Error("holds one at a time")
	}
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
	if l.Err() != context.Canceled || calls != 1 || l.Drop() {
		t.Errorf("at the end: %v, %d calls", l.Err(), calls)
	}
	if !l.Hold(call) || calls != 2 {
		t.Error("after the end it is called at once")
	}
	if _, ok := l.Deadline(); ok || l.Value(1) != nil {
		t.Error("there is neither deadline nor value")
	}
}
