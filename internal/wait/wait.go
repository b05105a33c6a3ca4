// Package wait tells of what takes long.
package wait

import (
	"strings"
	"time"
)

// quietly is how long a wait is not mentioned.
const quietly = 2 * time.Second

// While calls report with how long it has been: after quietly, and then each
// second until stop is called, which waits for report to return.
func While(report func(waited time.Duration)) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	began := time.Now()
	go func() {
		defer close(ended)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				if waited := time.Since(began).Round(time.Second); waited >= quietly {
					report(waited)
				}
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// Brief is a duration without what is zero in it: 2m, and not 2m0s.
func Brief(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// Pace spaces out the lines on one wait: at 2, 4, 8, 16, 32 and 64 s, and then each
// minute.
type Pace struct{ next time.Duration }

// Due reports whether something is to be printed now.
func (p *Pace) Due(waited time.Duration) bool {
	if waited < p.next {
		return false
	}
	p.next = waited + min(waited, time.Minute)
	return true
}
