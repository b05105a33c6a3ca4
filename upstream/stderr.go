package upstream

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

	mu    sync.Mutex // guards words
	words lastWords
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
	s.keep(line)
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

func (s *stderrLog) keep(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.words.keep(line)
}

// lastLine is the last line that was kept.
func (s *stderrLog) lastLine() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.words.line
}

// last is what is to be told of a child that has ended.
func (s *stderrLog) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.words.String()
}

// escapes are the escape sequences that colour text and move a terminal's cursor.
var escapes = regexp.MustCompile(`\x1b(\[[0-9:;<=>?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[ -/]*[0-~])`)

// printable takes out what could steer a terminal or forge a line of the log.
func printable(line string) string {
	if strings.Contains(line, "\x1b") {
		line = escapes.ReplaceAllString(line, "")
	}
	return strings.Map(func(r rune) rune {
		if r == '\t' || unicode.IsGraphic(r) {
			return r
		}
		return -1
	}, strings.ToValidUTF8(line, "\ufffd"))
}
