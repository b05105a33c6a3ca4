package host

import (
	"runtime"
	"testing"
)

func TestPercentFor(t *testing.T) {
	for _, c := range []struct {
		live uint64
		want int
	}{{0, 1000}, {1 << 20, 1000}, {6 << 20, 400}, {12 << 20, 200}, {24 << 20, 100}, {1 << 30, 100}} {
		if got := percentFor(c.live); got != c.want {
			t.Errorf("%d live bytes: got %d, want %d", c.live, got, c.want)
		}
	}
	runtime.GC()
	if live := liveHeap(); live == 0 || live > 1<<30 {
		t.Errorf("the live heap has %d bytes", live)
	}
}
