//go:build long && unix

package runs

import (
	"testing"
)

// breaks are how a line breaks, by names.
var breaks = map[string]func(l *line){"reset": (*line).cut, "black hole": (*line).hold}

// An owner that is cut off from the database while it lives lists and decides nothing once its lease is out, and others go on
// with its run. What it has written meanwhile comes late, where it comes at all, and changes nothing.
func TestReplicaThatIsCutFromTheDatabase(t *testing.T) {
	t.Parallel()
	for name, breaks := range breaks {
		t.Run(name, func(t *testing.T) {
			twoOwners(t, lined, func(r *replicas, was *house) func() {
				breaks(r.data[was])
				return r.data[was].mend
			})
		})
	}
}
