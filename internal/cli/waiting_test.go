package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

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
