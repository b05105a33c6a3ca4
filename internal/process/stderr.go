package process

import (
	"bufio"
	"io"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/hashicorp/go-hclog"
)

const (
	stderrLine  = 2 << 10                // a line is cut here, in bytes
	stderrBurst = 100                    // lines that are logged at once
	stderrEvery = 100 * time.Millisecond // and one more in each of these
)

// stderrLog writes a child's standard error to the log, line by line, no more
// than a log can take.
type stderrLog struct {
	log     hclog.Logger
	dropped *atomic.Uint64 // counts over all children
	done    chan struct{}

	tokens  int
	filled  time.Time
	skipped int // lines since the last one that was logged

	mu    sync.Mutex // guards lines
	lines lastLines
}

// run reads until the child's standard error ends.
func (s *stderrLog) run(r io.Reader) {
	defer close(s.done)
	s.tokens, s.filled = stderrBurst, time.Now()
	lines := bufio.NewReaderSize(r, stderrLine)
	for cut := false; ; {
		raw, more, err := lines.ReadLine()
		if err != nil {
			s.report()
			return
		}
		if !cut {
			s.take(printable(string(raw)), more)
		}
		cut = more
	}
}

func (s *stderrLog) take(line string, cut bool) {
	if strings.TrimSpace(line) == "" {
		return
	}
	s.mu.Lock()
	s.lines.keep(line)
	s.mu.Unlock()
	if !s.allowed(time.Now()) {
		s.skipped++
		s.dropped.Add(1)
		return
	}
	s.report()
	if cut {
		line += " …"
	}
	s.log.Info(line)
}

// allowed takes a token, of which one comes back every stderrEvery.
func (s *stderrLog) allowed(now time.Time) bool {
	if n := int(now.Sub(s.filled) / stderrEvery); n > 0 {
		s.tokens = min(stderrBurst, s.tokens+n)
		s.filled = s.filled.Add(time.Duration(n) * stderrEvery)
	}
	if s.tokens == 0 {
		return false
	}
	s.tokens--
	return true
}

// report says how many lines were left out.
func (s *stderrLog) report() {
	if s.skipped > 0 {
		s.log.Warn("the upstream writes more to standard error than is logged", "lines left out", s.skipped)
		s.skipped = 0
	}
}

func (s *stderrLog) last() lastLines {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lines
}

const (
	keptLine = 200 // of a line that much is kept, in bytes
	errorAge = 30  // an error is told of until that many lines came after it
)

// lastLines are what a child is remembered by: of what it said last the error,
// which stands rarely in the last line. npm ends with where its log is, and
// Node.js with a stack and its version. The zero value is ready to use.
type lastLines struct {
	line  string // the last
	error string // up to two lines that belong together and tell of an error
	lines int    // in error
	since int    // how many lines ago that was
}

// keep takes the next line, which is not blank.
func (l *lastLines) keep(line string) {
	l.since++
	l.line = strings.ToValidUTF8(line[:min(len(line), keptLine)], "")
	if !tellsOfError(line) {
		return
	}
	together := l.since == 1
	l.since = 0
	switch {
	case !together || l.lines == 0:
		l.error, l.lines = l.line, 1
	case l.lines == 1:
		l.error, l.lines = l.error+" / "+l.line, 2
	}
}

// tellsOfError reports whether a line names an error and is no frame of a stack.
func tellsOfError(line string) bool {
	return strings.Contains(strings.ToLower(line), "error") && !strings.HasPrefix(strings.TrimSpace(line), "at ")
}

// String returns the error, or the last line where there was none of late.
func (l lastLines) String() string {
	if l.lines > 0 && l.since < errorAge {
		return l.error
	}
	return l.line
}

// escapes are the escape sequences that colour text and move a terminal's cursor.
var escapes = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\x1b(\[[0-9:;<=>?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[ -/]*[0-~])`)
})

// printable takes out what could steer a terminal or forge a line of the log.
func printable(line string) string {
	if strings.Contains(line, "\x1b") {
		line = escapes().ReplaceAllString(line, "")
	}
	return strings.Map(func(r rune) rune {
		if r == '\t' || unicode.IsGraphic(r) {
			return r
		}
		return -1
	}, strings.ToValidUTF8(line, "\ufffd"))
}
