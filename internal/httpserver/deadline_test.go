package httpserver

import (
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// TestDeadline: a read ends at the deadline that there is then, however it was moved before and meanwhile.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer ours.Close()
		defer theirs.Close()
		srv := &Server{}
		srv.fill()
		c := &conn{Conn: ours, srv: srv}
		const none, past = time.Duration(0), -time.Hour
		for _, test := range []struct {
			name      string
			moves     []time.Duration // before the read, from now
			meanwhile []time.Duration // after 1 s, 2 s, …; from the beginning
			ends      time.Duration   // the read
		}{
			{"set", []time.Duration{10 * time.Second}, nil, 10 * time.Second},
			{"moved to later", []time.Duration{10 * time.Second, 30 * time.Second}, nil, 30 * time.Second},
			{"moved to earlier", []time.Duration{30 * time.Second, 10 * time.Second}, nil, 10 * time.Second},
			{"taken away and set again", []time.Duration{10 * time.Second, none, 20 * time.Second}, nil, 20 * time.Second},
			{"passed, and taken away", []time.Duration{past, none, 40 * time.Second}, nil, 40 * time.Second},
			{"moved to later meanwhile", []time.Duration{10 * time.Second}, []time.Duration{25 * time.Second}, 25 * time.Second},
			{"taken away meanwhile, and set again", []time.Duration{10 * time.Second}, []time.Duration{none, 15 * time.Second}, 15 * time.Second},
			{"aborted", []time.Duration{10 * time.Second, none}, []time.Duration{past}, time.Second},
			{"aborted when one has passed that was taken away", []time.Duration{time.Second / 2, none}, []time.Duration{past}, time.Second},
		} {
			begun := time.Now()
			move := func(to time.Duration) {
				if to == none {
					_ = c.SetReadDeadline(time.Time{})
				} else {
					_ = c.SetReadDeadline(begun.Add(to))
				}
			}
			for _, to := range test.moves {
				move(to)
			}
			go func() {
				for _, to := range test.meanwhile {
					time.Sleep(time.Second)
					move(to)
				}
			}()
			_, err := c.Read(make([]byte, 1))
			if took := time.Since(begun); !errors.Is(err, os.ErrDeadlineExceeded) || took != test.ends {
				t.Errorf("%s: %v after %v, want it after %v", test.name, err, took, test.ends)
			}
		}
	})
}
