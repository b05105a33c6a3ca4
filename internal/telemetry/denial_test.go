package telemetry_test

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/telemetry"
)

var counts = regexp.MustCompile(` count=(\d+) `)

// The log of denials is bounded, whoever knocks, and its counts add up: the first of an address for a reason is a line,
// what follows in ten seconds is another one, and what is left at the end, too.
func TestDenialLogUnderAFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		d := telemetry.NewDenialLog(hclog.New(&hclog.LoggerOptions{Output: &text}))
		const of, rounds = 5000, 3
		for range rounds {
			for i := range of {
				one := deniedFrom(fmt.Sprintf("10.%d.%d.1:5", i/250, i%250))
				one.Status, one.Why = 401, "it has no bearer token"
				d.Denied(one)
			}
			time.Sleep(11 * time.Second) // of the bubble's own time
			synctest.Wait()
		}
		d.Denied(deniedFrom("192.0.2.1:5"))
		d.Denied(deniedFrom("192.0.2.1:6"))
		d.Close()
		time.Sleep(time.Minute)
		synctest.Wait()
		lines, sum := strings.Count(text.String(), "\n"), 0
		for line := range strings.Lines(text.String()) {
			n := 1
			if m := counts.FindStringSubmatch(line); m != nil {
				n, _ = strconv.Atoi(m[1])
			}
			sum += n
		}
		if sum != of*rounds+2 {
			t.Errorf("%d requests are told, want %d", sum, of*rounds+2)
		}
		if lines > rounds*300 {
			t.Errorf("%d lines", lines)
		}
		if strings.Contains(text.String(), "s3cret") {
			t.Error("it tells what was given for a secret")
		}
	})
}
