package upstream

import "strings"

const (
	wordsLine = 200 // of a line that much is kept, in bytes
	wordsBack = 30  // an error counts among the last words that many lines back
)

// lastWords is what a child is remembered by: of what it said last the error,
// which stands rarely in the last line. npm ends with where its log is, and
// Node.js with a stack and its version. The zero value is ready to use.
type lastWords struct {
	line    string // the last
	telling string // up to two lines that belong together and tell of an error
	lines   int    // in telling
	since   int    // how many lines ago that was
}

// keep takes the next line, which is not blank.
func (w *lastWords) keep(line string) {
	w.since++
	w.line = strings.ToValidUTF8(line[:min(len(line), wordsLine)], "")
	if !tellsOfError(line) {
		return
	}
	together := w.since == 1
	w.since = 0
	switch {
	case !together || w.lines == 0:
		w.telling, w.lines = w.line, 1
	case w.lines == 1:
		w.telling, w.lines = w.telling+" / "+w.line, 2
	}
}

// tellsOfError reports whether a line names an error and is no frame of a stack.
func tellsOfError(line string) bool {
	return strings.Contains(strings.ToLower(line), "error") && !strings.HasPrefix(strings.TrimSpace(line), "at ")
}

// String is the error, or the last line where there was none of late.
func (w *lastWords) String() string {
	if w.lines > 0 && w.since < wordsBack {
		return w.telling
	}
	return w.line
}
