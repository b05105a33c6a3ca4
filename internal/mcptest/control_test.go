package mcptest

import (
	"fmt"
	"sync"
	"testing"
)

// What was reported has been counted, however many report at once: an answer that follows must not overtake it.
func TestReportedIsCounted(t *testing.T) {
	u := newUpstream("counted", Server{})
	u.control = listenControl(t, u, "127.0.0.1:0")
	r, err := dialControl(u.control.address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.line.Close() })
	var reporting sync.WaitGroup
	for worker := range 16 {
		reporting.Go(func() {
			for i := range 200 {
				method := fmt.Sprintf("%d/%d", worker, i)
				r.report([]byte(Notification(method, "{}")))
				if u.Count(method) != 1 {
					t.Errorf("%s has been reported, and not counted", method)
					return
				}
			}
		})
	}
	reporting.Wait()
}
