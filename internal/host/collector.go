package host

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/fsm-proxy/fsm-proxy/internal/ease"
)

// How much garbage may lie about: a proxy's heap is small, and collecting it
// again after every 4 MiB, as the runtime would, costs a quarter of the time.
const garbage = 24 << 20 // bytes, as long as live memory is less than that

// containerShare is how much of its container's memory the process may take before garbage is collected without pause.
const containerShare = 0.9

// easeCollector makes garbage collections rarer while the heap is small, and has the collector know how much memory
// the container gives, once. What the user has said of either stays.
var easeCollector = sync.OnceFunc(func() {
	if os.Getenv("GOMEMLIMIT") == "" {
		// Where there is no container, or none that tells, there is no limit.
		_, _ = memlimit.Set(memlimit.WithProvider(memlimit.FromCgroup), memlimit.WithRatio(containerShare))
	}
	if ease.Eased {
		adjust(ease.Percent)
	}
})

// MemoryLimit is how many bytes the process may take, math.MaxInt64 where that is not bounded.
func MemoryLimit() int64 {
	easeCollector()
	return debug.SetMemoryLimit(-1)
}

// adjust sets the percentage that suits the live heap, now and after each
// collection.
func adjust(percent int) {
	if want := percentFor(liveHeap()); want < percent*9/10 || want > percent*11/10 {
		debug.SetGCPercent(want)
		percent = want
	}
	runtime.AddCleanup(new([16]byte), adjust, percent)
}

// percentFor is how much garbage, in percent of the live heap, there may be.
func percentFor(live uint64) int {
	return int(min(max(garbage*100/max(live, 1), 100), ease.Percent))
}

func liveHeap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	if sample[0].Value.Kind() != metrics.KindUint64 {
		return garbage
	}
	return sample[0].Value.Uint64()
}
