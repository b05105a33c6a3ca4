package stdio

import (
	"bytes"
	"errors"
	"io"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// ErrTooLong is a line longer than the reader's limit.
var ErrTooLong = errors.New("reading a line: longer than the limit")

// readSize is how much a Reader asks for at once.
const readSize = 64 << 10

// Reader reads messages, one a line. It is not safe for concurrent use.
type Reader struct {
	r        io.Reader
	limit    int
	buf      []byte
	from, to int         // what is read and not yet given out: buf[from:to]
	skipping bool        // inside a line that is too long
	skipped  wire.IDScan // of the line that is too long, or was the last such
	err      error
	cork     *Cork
	corked   bool // the cork is, by this Reader
	given    int  // lines given out since then

	copied   []byte // a copy of several lines, some not yet given out
	copiedAt int    // where they stand in buf
}

// NewReader returns a reader of lines of at most limit bytes, line break not
// counted.
func NewReader(r io.Reader, limit int) *Reader {
	return &Reader{r: r, limit: limit, buf: make([]byte, readSize)}
}

// Join has what the lines cause to be written gather in c, from a line behind
// which another stands ready to the next that has to be waited for, 16 lines at
// most. c may be nil.
func (r *Reader) Join(c *Cork) { r.cork = c }

// Release lets go out what has gathered. Next does it by itself as long as it
// is called.
func (r *Reader) Release() {
	if r.corked {
		r.corked = false
		r.cork.uncork()
	}
}

// maxCorked is how many lines' writings go out together. More would be fewer
// writes still, but the other end would wait for the last of them, idle.
const maxCorked = 16

// Next returns the next line without its line break (LF or CRLF), in a slice
// that is the caller's to keep. Blank lines are skipped; a last line needs no
// line break. A line beyond the limit is skipped to its end and answered [ErrTooLong]:
// Next may be called again. Any other error is the end.
func (r *Reader) Next() ([]byte, error) {
	for {
		line, err := r.line()
		if err != nil {
			return nil, err
		}
		if len(bytes.TrimLeft(line, " \t")) > 0 {
			if r.corked && r.given == maxCorked {
				r.Release()
			}
			if r.cork != nil && !r.corked && bytes.IndexByte(r.buf[r.from:r.to], '\n') >= 0 {
				r.corked, r.given = true, 0
				r.cork.cork()
			}
			r.given++
			return r.keep(line), nil
		}
	}
}

// Skipped returns the id under which to answer the line that Next has just found too
// long, nil for none.
func (r *Reader) Skipped() (id []byte) {
	id, _ = r.skipped.Addressee()
	return id
}

// keepSize is how much is copied at once: little enough for one message that is
// kept for long to keep all of it.
const keepSize = 4 << 10

// keep copies a line that stands in the buffer, together with those behind it.
func (r *Reader) keep(line []byte) []byte {
	start := cap(r.buf) - cap(line)
	end := start + len(line)
	if r.copied == nil || end > r.copiedAt+len(r.copied) {
		most := min(start+keepSize, r.to)
		if most <= end || bytes.IndexByte(r.buf[end+1:most], '\n') < 0 {
			return bytes.Clone(line)
		}
		last := bytes.LastIndexByte(r.buf[end:most], '\n')
		r.copied, r.copiedAt = bytes.Clone(r.buf[start:end+last]), start
	}
	start, end = start-r.copiedAt, end-r.copiedAt
	return r.copied[start:end:end]
}

// line returns the next line where it stands in the buffer.
func (r *Reader) line() ([]byte, error) {
	seen := 0
	for {
		if i := bytes.IndexByte(r.buf[r.from+seen:r.to], '\n'); i >= 0 {
			line := r.buf[r.from : r.from+seen+i]
			r.from += seen + i + 1
			return r.checked(line)
		}
		seen = r.to - r.from
		if r.skipping || seen > r.limit+1 {
			r.skip(r.buf[r.from:r.to])
			r.from, r.to, seen = 0, 0, 0
		}
		r.Release()
		if r.err != nil {
			return r.last()
		}
		r.fill()
	}
}

// skip drops a part of a line that is too long, after it was scanned for an id.
func (r *Reader) skip(part []byte) {
	if !r.skipping {
		r.skipping, r.skipped = true, wire.IDScan{}
	}
	_, _ = r.skipped.Write(part)
}

// checked is a line, or the rest of one that is too long.
func (r *Reader) checked(line []byte) ([]byte, error) {
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	if r.skipping || len(line) > r.limit {
		r.skip(line)
		r.skipping = false
		return nil, ErrTooLong
	}
	return line, nil
}

// last gives out what stands before the end of input without a line break.
func (r *Reader) last() ([]byte, error) {
	line := r.buf[r.from:r.to]
	r.from, r.to = 0, 0
	if !r.skipping && (len(line) == 0 || r.err != io.EOF) {
		return nil, r.err
	}
	return r.checked(line)
}

// fill reads more, first making room for it.
func (r *Reader) fill() {
	r.copied = nil
	switch {
	case r.from == r.to:
		r.from, r.to = 0, 0
		if len(r.buf) > readSize { // after a long line
			r.buf = make([]byte, readSize)
		}
	case r.to == len(r.buf) && r.from > 0:
		r.to = copy(r.buf, r.buf[r.from:r.to])
		r.from = 0
	case r.to == len(r.buf):
		grown := make([]byte, min(2*len(r.buf), r.limit+readSize))
		copy(grown, r.buf)
		r.buf = grown
	}
	var n int
	n, r.err = r.r.Read(r.buf[r.to:])
	r.to += n
}
