package wait

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A wait of less than 2 s is not told of, a longer one each second, and elsewhere than
// on a terminal ever more seldom.
func TestWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all, lines []time.Duration
		var p Pace
		tell := func(waited time.Duration) {
			all = append(all, waited)
			if p.Due(waited) {
				lines = append(lines, waited/time.Second)
			}
		}
		stop := While(tell)
		time.Sleep(1900 * time.Millisecond)
		stop()
		if len(all) != 0 {
			t.Error("told of a short wait:", all)
		}
		stop = While(tell)
		time.Sleep(200*time.Second + time.Millisecond) // behind the last tick
		stop()
		if len(all) < 199 || all[0] != 2*time.Second {
			t.Errorf("told of %d times, first %v", len(all), all[0])
		}
		if got, want := lines, []time.Duration{2, 4, 8, 16, 32, 64, 124, 184}; !slices.Equal(got, want) {
			t.Errorf("lines at %d", got)
		}
	})
}
