package run_test

import (
	"testing"

	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// What changes nothing leaves a run as fresh as it was.
func TestFresh(t *testing.T) {
	for _, x := range []struct {
		types []run.Type
		want  bool
	}{
		{[]run.Type{run.Began}, true},
		{[]run.Type{run.Began, run.Declined, run.Stayed}, true},
		{[]run.Type{run.Began, run.Begun}, false},
		{[]run.Type{run.Began, run.Begun, run.Ended, run.Declined}, false},
		{[]run.Type{run.Began, run.Begun, run.Ended, run.Reset, run.Stayed}, true},
		{[]run.Type{run.Stayed}, false},
	} {
		var entries []run.Entry
		for _, of := range x.types {
			entries = append(entries, run.Entry{Type: of})
		}
		if got := run.Fresh(entries); got != x.want {
			t.Errorf("%v: %t", x.types, got)
		}
	}
}
