package deadline

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestTimerFiresForEachDeadline checks that deadlines that share a timer expire
// when each would with a timer of its own.
func TestTimerFiresForEachDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var early, stopped, suspended, late Deadline
		var mu sync.Mutex
		fired := map[*Deadline]time.Duration{} // guarded by mu: what expired, and when
		begun := time.Now()
		a := new(Timer)
		a.Fire = func() {
			mu.Lock()
			defer mu.Unlock()
			for _, k := range []*Deadline{&early, &stopped, &suspended, &late} {
				if out, at := k.Expire(time.Now()); out {
					fired[k] = time.Since(begun)
				} else if !at.IsZero() {
					a.Set(at)
				}
			}
		}
		late.Start(time.Minute, a)
		early.Start(10*time.Second, a) // before what the timer was set to
		stopped.Start(20*time.Second, a)
		suspended.Suspend()
		suspended.Start(30*time.Second, a)
		<-time.After(15 * time.Second)
		stopped.Stop()
		suspended.Resume() // 30 s from now
		<-time.After(5 * time.Second)
		suspended.Suspend()
		suspended.Suspend()
		<-time.After(5 * time.Minute)
		suspended.Resume()
		suspended.Resume() // 25 s are left
		<-time.After(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		want := map[*Deadline]time.Duration{&early: 10 * time.Second, &late: time.Minute, &suspended: 5*time.Minute + 45*time.Second}
		for k, at := range want {
			if fired[k] != at {
				t.Errorf("expired after %v, want %v", fired[k], at)
			}
		}
		if len(fired) != len(want) {
			t.Errorf("%d expired, want %d", len(fired), len(want))
		}
	})
}
