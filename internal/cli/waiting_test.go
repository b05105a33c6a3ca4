package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A wait of less than 2 s is not told of, a longer one each second, and elsewhere than
// on a terminal ever more seldom.
func TestWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all, lines []time.Duration
		var p pace
		tell := func(waited time.Duration) {
			all = append(all, waited)
			if p.due(waited) {
				lines = append(lines, waited/time.Second)
			}
		}
		stop := whileWaiting(tell)
		time.Sleep(1900 * time.Millisecond)
		stop()
		if len(all) != 0 {
			t.Error("told of a short wait:", all)
		}
		stop = whileWaiting(tell)
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

// On a terminal the line is written over, is no wider than that, and makes room for
// what is logged.
func TestStatusLineInPlace(t *testing.T) {
	var out bytes.Buffer
	l := &statusLine{out: &out, columns: func() int { return 20 }}
	l.show(2*time.Second, "waiting: 2 s")
	l.show(3*time.Second, "waiting: 3 s, for all that it says")
	l.show(4*time.Second, "short")
	_, _ = l.Write([]byte("[WARN] x\n"))
	l.show(5*time.Second, "五百文字が一行に収まらない")
	l.clear()
	l.clear()
	want := "\rwaiting: 2 s" +
		"\rwaiting: 3 s, for …" +
		"\rshort" + strings.Repeat(" ", 14) +
		"\r     \r[WARN] x\n" +
		"\r五百文字が一行に収…" +
		"\r" + strings.Repeat(" ", 19) + "\r"
	if got := out.String(); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestStatusLineElsewhere(t *testing.T) {
	var out bytes.Buffer
	l := newStatusLine(&out)
	for s := range 10 {
		l.show(time.Duration(s+2)*time.Second, "waiting")
	}
	l.clear()
	if got := out.String(); got != "waiting\nwaiting\nwaiting\n" {
		t.Errorf("%q", got)
	}
}
