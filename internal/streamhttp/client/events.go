package client

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"
)

// ErrEventTooLong is an event whose data, or whose line, is longer than the
// reader's limit. The stream cannot be read on: where the event ends is unknown.
var ErrEventTooLong = errors.New("reading an event stream: event longer than the limit")

// Event is one event of a stream.
type Event struct {
	// Name is the event's type, empty where the stream names none.
	Name string
	// Data are the event's data lines, joined by line feeds. It is the
	// receiver's to keep. It may be empty: an event that only sets the id.
	Data []byte
}

// EventReader reads a stream of server-sent events as the HTML standard says:
// lines end with LF, CR or CRLF, a byte order mark at the start and comments are
// skipped, an event that the stream's end cuts off is dropped. It is not safe
// for concurrent use.
type EventReader struct {
	r     io.Reader
	limit int
	err   error

	buf     []byte // buf[start:] is read and not yet used
	start   int
	skipLF  bool // the last line ended with CR
	begun   bool
	event   Event
	hasData bool
	id      string // of the event being read
	lastID  string
	retry   time.Duration
}

// lineSlack is what a line may have beyond the limit: the field's name.
const lineSlack = 16

// NewEventReader reads events whose data is at most limit bytes long.
func NewEventReader(r io.Reader, limit int) *EventReader {
	return &EventReader{r: r, limit: limit}
}

// LastID is the id in force: that of the last whole event, or of one before it
// where that had none. It is empty where there was none.
func (r *EventReader) LastID() string { return r.lastID }

// Retry is how long the server wants the client to wait before it reconnects, 0
// where it has not said.
func (r *EventReader) Retry() time.Duration { return r.retry }

// Next returns the next event. At the stream's end the error is io.EOF.
func (r *EventReader) Next() (Event, error) {
	for {
		line, err := r.line()
		if err != nil {
			return Event{}, err
		}
		if len(line) > 0 {
			if err := r.field(line); err != nil {
				return Event{}, err
			}
			continue
		}
		if e, ok := r.dispatch(); ok {
			return e, nil
		}
	}
}

// dispatch ends the event being read. An event without data is none, but its
// id counts.
func (r *EventReader) dispatch() (Event, bool) {
	e, ok := r.event, r.hasData
	r.lastID = r.id
	r.event, r.hasData = Event{}, false
	return e, ok
}

func (r *EventReader) field(line []byte) error {
	name, value, _ := bytes.Cut(line, []byte{':'})
	value = bytes.TrimPrefix(value, []byte{' '})
	switch string(name) {
	case "data":
		return r.data(value)
	case "event":
		r.event.Name = string(value)
	case "id":
		if bytes.IndexByte(value, 0) < 0 {
			r.id = string(value)
		}
	case "retry":
		r.setRetry(string(value))
	}
	return nil
}

func (r *EventReader) data(value []byte) error {
	if len(r.event.Data)+len(value) > r.limit {
		return r.fail(ErrEventTooLong)
	}
	if r.hasData {
		r.event.Data = append(r.event.Data, '\n')
	}
	r.event.Data = append(r.event.Data, value...)
	r.hasData = true
	return nil
}

func (r *EventReader) setRetry(value string) {
	if value == "" || strings.Trim(value, "0123456789") != "" {
		return
	}
	if ms, err := strconv.ParseInt(value, 10, 32); err == nil {
		r.retry = time.Duration(ms) * time.Millisecond
	}
}

// line returns the next line without its end. It is valid until the next call.
// A CR ends a line at once: whether an LF follows is seen when it comes.
func (r *EventReader) line() ([]byte, error) {
	r.skipMark()
	scanned := 0
	for {
		r.skipFeed()
		end := -1
		if rest := r.buf[r.start+scanned:]; len(rest) > 0 {
			end = lineEnd(rest)
		}
		length := len(r.buf) - r.start // of the line, as far as it is here
		if end >= 0 {
			length = scanned + end
		}
		switch {
		case length > r.limit+lineSlack: // however it arrived
			return nil, r.fail(ErrEventTooLong)
		case end >= 0:
			return r.take(length), nil
		}
		scanned = length
		if r.err != nil {
			return nil, r.err
		}
		r.fill()
	}
}

const byteOrderMark = "\xef\xbb\xbf"

// skipMark drops a byte order mark at the stream's start.
func (r *EventReader) skipMark() {
	if r.begun {
		return
	}
	r.begun = true
	for len(r.buf) < len(byteOrderMark) && strings.HasPrefix(byteOrderMark, string(r.buf)) && r.err == nil {
		r.fill()
	}
	if bytes.HasPrefix(r.buf, []byte(byteOrderMark)) {
		r.start = len(byteOrderMark)
	}
}

// skipFeed drops the LF of a CRLF.
func (r *EventReader) skipFeed() {
	if !r.skipLF || r.start == len(r.buf) {
		return
	}
	if r.buf[r.start] == '\n' {
		r.start++
	}
	r.skipLF = false
}

// take returns the line of n bytes and steps over the byte that ends it.
func (r *EventReader) take(n int) []byte {
	line := r.buf[r.start : r.start+n]
	r.skipLF = r.buf[r.start+n] == '\r'
	r.start += n + 1
	return line
}

// lineEnd returns where the first CR or LF stands, -1 where there is none.
func lineEnd(b []byte) int {
	lf := bytes.IndexByte(b, '\n')
	if lf >= 0 {
		b = b[:lf]
	}
	if cr := bytes.IndexByte(b, '\r'); cr >= 0 {
		return cr
	}
	return lf
}

func (r *EventReader) fill() {
	if r.start == len(r.buf) {
		r.buf, r.start = r.buf[:0], 0
	}
	if len(r.buf) == cap(r.buf) {
		grown := make([]byte, 0, max(4096, 2*(len(r.buf)-r.start)))
		r.buf, r.start = append(grown, r.buf[r.start:]...), 0
	}
	n, err := r.r.Read(r.buf[len(r.buf):cap(r.buf)])
	r.buf = r.buf[:len(r.buf)+n]
	r.err = err
}

func (r *EventReader) fail(err error) error {
	r.err, r.buf, r.start = err, nil, 0
	return err
}
