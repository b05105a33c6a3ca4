package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// waitQuietly is how long a wait is not mentioned.
const waitQuietly = 2 * time.Second

// whileWaiting calls report with how long it has been: after waitQuietly, and then each
// second until stop is called, which waits for report to return.
func whileWaiting(report func(waited time.Duration)) (stop func()) {
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
				if waited := time.Since(began).Round(time.Second); waited >= waitQuietly {
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

// brief is a duration without what is zero in it: 2m, and not 2m0s.
func brief(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// pace spaces out the lines on one wait: at 2, 4, 8, 16, 32 and 64 s, and then each
// minute.
type pace struct{ next time.Duration }

// due reports whether something is to be printed now.
func (p *pace) due(waited time.Duration) bool {
	if waited < p.next {
		return false
	}
	p.next = waited + min(waited, time.Minute)
	return true
}

// statusLine is a line that shows how far something is. On a terminal it stands below
// the log and changes in place; elsewhere it is a new line now and then. The log is
// written through it.
type statusLine struct {
	out     io.Writer
	columns func() int // of the terminal; nil: it is none

	mu    sync.Mutex // guards what follows, and orders the writes to out
	pace  pace
	width int // of what stands there
}

func newStatusLine(out io.Writer) *statusLine {
	l := &statusLine{out: out}
	if isTerminal(out) {
		l.columns = func() int { return columns(out.(*os.File)) }
	}
	return l
}

// show shows a text after so long a wait.
func (l *statusLine) show(waited time.Duration, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.columns == nil {
		if l.pace.due(waited) {
			fmt.Fprintln(l.out, text)
		}
		return
	}
	text, width := fitting(text, l.columns()-1)
	fmt.Fprint(l.out, "\r", text, strings.Repeat(" ", max(l.width-width, 0)))
	l.width = width
}

// clear takes the line away.
func (l *statusLine) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clearLocked()
}

func (l *statusLine) clearLocked() {
	if l.width > 0 {
		fmt.Fprint(l.out, "\r", strings.Repeat(" ", l.width), "\r")
		l.width = 0
	}
}

// Write writes above the line.
func (l *statusLine) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clearLocked()
	return l.out.Write(p)
}

// fitting is as much of a text as so many columns hold, and how many it takes.
func fitting(text string, columns int) (shown string, width int) {
	var cells []cell
	for _, r := range text {
		cells = append(cells, cellOf(r))
		width += cells[len(cells)-1].width
	}
	var b strings.Builder
	ends := ""
	if width > columns {
		columns, ends = columns-1, ellipsis
	}
	width = len([]rune(ends))
	for _, c := range cells {
		if columns -= c.width; columns < 0 {
			break
		}
		b.WriteString(c.text)
		width += c.width
	}
	return b.String() + ends, width
}
