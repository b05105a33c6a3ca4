// Package ease puts garbage collection off while packages are initialized: the tables that libraries make then are no
// garbage, and the runtime collects after each 4 MiB. Packages are initialized in the order of their import paths, as
// far as what they import allows (The Go Programming Language Specification, "Program initialization"), so that this
// one, which imports next to nothing, comes before the large ones.
package ease

import (
	"os"
	"runtime/debug"
)

// Percent is how much garbage, in percent of the live heap, there may be while the heap is small.
const Percent = 1000

// Eased tells that the user has said nothing of garbage collection, so that it is eased.
var Eased = os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == ""

func init() {
	if Eased {
		debug.SetGCPercent(Percent)
	}
}
