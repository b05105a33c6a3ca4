package limit_test

import (
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy/limit"
)

// What a snapshot makes counts on as the counts that it is of, and gives back what their calls have taken.
func TestSnapshotsCountOn(t *testing.T) {
	var c limit.Counts
	l := []limit.Limit{at("x", limit.Run, 3), at("x", limit.Minute, 2)}
	c.Take(noon, l...)
	second, _ := c.Take(noon.Add(10*time.Second), l...)
	s := c.Snapshot(nil, second)
	again, taken, err := s.Counts()
	if err != nil || len(taken) != 2 {
		t.Fatal(taken, err)
	}
	for _, step := range []struct {
		after time.Duration
		back  bool
	}{{20 * time.Second, false}, {time.Minute - 1, false}, {time.Minute, false}, {time.Minute, true}, {69 * time.Second, false}} {
		now := noon.Add(step.after)
		if step.back {
			c.GiveBack(second)
			again.GiveBack(taken[1])
		}
		_, want := c.Take(now, l...)
		_, got := again.Take(now, l...)
		if (got == nil) != (want == nil) || got != nil && *got != *want || show(again, now) != show(&c, now) {
			t.Errorf("after %s: %v, %s\nnot %v, %s", step.after, got, show(again, now), want, show(&c, now))
		}
	}
	if full := again.Full(noon.Add(70*time.Second), l...); full == nil || full.Span != limit.Run {
		t.Errorf("%+v", full)
	}
}

// A call that has gone counts, though a limit is full by the times that were written.
func TestWhatHasGoneCounts(t *testing.T) {
	var c limit.Counts
	l := at("x", limit.Minute, 1)
	c.Take(noon.Add(5*time.Second), l)
	c.Count(noon.Add(time.Minute), l)
	if full := c.Full(noon.Add(66*time.Second), l); full == nil || !full.Free.Equal(noon.Add(2*time.Minute)) {
		t.Errorf("%+v", full)
	}
}
