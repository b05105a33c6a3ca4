package proxy

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestAlarmRingsForEachClock checks that clocks that share an alarm run out
// when each would with a timer of its own.
func TestAlarmRingsForEachClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var early, halted, held, late clock
		var mu sync.Mutex
		clocks := map[*clock]time.Duration{} // guarded by mu: what ran out, and when
		begun := time.Now()
		a := new(alarm)
		a.ring = func() {
			mu.Lock()
			defer mu.Unlock()
			for _, k := range []*clock{&early, &halted, &held, &late} {
				if out, at := k.runOut(time.Now()); out {
					clocks[k] = time.Since(begun)
				} else if !at.IsZero() {
					a.set(at)
				}
			}
		}
		late.begin(time.Minute, a)
		early.begin(10*time.Second, a) // before what the alarm was set to
		halted.begin(20*time.Second, a)
		held.hold()
		held.begin(30*time.Second, a)
		<-time.After(15 * time.Second)
		halted.halt()
		held.release() // 30 s from now
		<-time.After(5 * time.Second)
		held.hold()
		held.hold()
		<-time.After(5 * time.Minute)
		held.release()
		held.release() // 25 s are left
		<-time.After(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		want := map[*clock]time.Duration{&early: 10 * time.Second, &late: time.Minute, &held: 5*time.Minute + 45*time.Second}
		for k, at := range want {
			if clocks[k] != at {
				t.Errorf("ran out after %v, want %v", clocks[k], at)
			}
		}
		if len(clocks) != len(want) {
			t.Errorf("%d clocks ran out, want %d", len(clocks), len(want))
		}
	})
}
