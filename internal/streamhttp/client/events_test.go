package client

import (
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

func TestEvents(t *testing.T) {
	for name, tc := range map[string]struct {
		in     string
		want   []string // name|data
		lastID string
		retry  time.Duration
	}{
		"LF":                     {in: "data: a\n\ndata: b\n\n", want: []string{"|a", "|b"}},
		"CR":                     {in: "data: a\r\rdata: b\r\r", want: []string{"|a", "|b"}},
		"CRLF":                   {in: "data: a\r\n\r\ndata: b\r\n\r\n", want: []string{"|a", "|b"}},
		"mixed line ends":        {in: "data: a\r\n\ndata: b\n\rdata: c\r\r\n", want: []string{"|a", "|b", "|c"}},
		"multi-line data":        {in: "data: {\ndata: }\ndata\ndata:\n\n", want: []string{"|{\n}\n\n"}},
		"one space is dropped":   {in: "data:a\n\ndata:  b\n\n", want: []string{"|a", "| b"}},
		"comments":               {in: ": hello\n\n:\ndata: a\n: x\n\n", want: []string{"|a"}},
		"byte order mark":        {in: "\xef\xbb\xbfdata: a\n\n", want: []string{"|a"}},
		"mark only at the start": {in: "data: a\n\n\xef\xbb\xbfdata: b\n\n", want: []string{"|a"}},
		"event name":             {in: "event: ping\ndata: a\n\ndata: b\n\n", want: []string{"ping|a", "|b"}},
		"id":                     {in: "id: 7\ndata: a\n\n", want: []string{"|a"}, lastID: "7"},
		"id without data":        {in: "id: 7\n\n", lastID: "7"},
		"id with empty data":     {in: "id: 7\ndata:\n\n", want: []string{"|"}, lastID: "7"},
		"id stays":               {in: "id: 7\ndata: a\n\ndata: b\n\n", want: []string{"|a", "|b"}, lastID: "7"},
		"id with NUL is ignored": {in: "id: 7\ndata: a\n\nid: 8\x009\ndata: b\n\n", want: []string{"|a", "|b"}, lastID: "7"},
		"id of a cut event":      {in: "id: 7\ndata: a\n\nid: 8\ndata: b\n", want: []string{"|a"}, lastID: "7"},
		"retry":                  {in: "retry: 1500\ndata: a\n\n", want: []string{"|a"}, retry: 1500 * time.Millisecond},
		"retry must be digits":   {in: "retry: 1s\nretry: -3\nretry:\ndata: a\n\n", want: []string{"|a"}},
		"unknown field":          {in: "foo: bar\nDATA: x\ndata: a\n\n", want: []string{"|a"}},
		"cut off at the end":     {in: "data: a\n\ndata: b\n", want: []string{"|a"}},
		"cut off in a line":      {in: "data: a", want: nil},
		"empty":                  {},
		"colon in the value":     {in: "data: {\"a\":1}\n\n", want: []string{`|{"a":1}`}},
		"invalid UTF-8 is kept":  {in: "data: \xff\n\n", want: []string{"|\xff"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, r := range []io.Reader{strings.NewReader(tc.in), iotest.OneByteReader(strings.NewReader(tc.in)), iotest.DataErrReader(strings.NewReader(tc.in))} {
				events := NewEventReader(r, 100)
				var got []string
				for {
					e, err := events.Next()
					if err != nil {
						if err != io.EOF {
							t.Fatal(err)
						}
						break
					}
					got = append(got, e.Name+"|"+string(e.Data))
				}
				if !reflect.DeepEqual(got, tc.want) {
					t.Errorf("got %q, want %q", got, tc.want)
				}
				if events.LastID() != tc.lastID || events.Retry() != tc.retry {
					t.Errorf("id %q, retry %v", events.LastID(), events.Retry())
				}
			}
		})
	}
}

// endless gives the same bytes for ever, and counts them.
type endless struct{ n int }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	e.n += len(p)
	return len(p), nil
}

func TestEventGiantLine(t *testing.T) {
	src := &endless{}
	events := NewEventReader(io.MultiReader(strings.NewReader("data: "), src), 1<<20)
	if _, err := events.Next(); !errors.Is(err, ErrEventTooLong) {
		t.Fatal(err)
	}
	if src.n > 4<<20 {
		t.Errorf("%d bytes read for a limit of 1 MiB", src.n)
	}
	if _, err := events.Next(); !errors.Is(err, ErrEventTooLong) {
		t.Error("the stream went on:", err)
	}
}

func TestEventGiantByLines(t *testing.T) {
	in := strings.Repeat("data: 0123456789\n", 20)
	if _, err := NewEventReader(strings.NewReader(in+"\n"), 100).Next(); !errors.Is(err, ErrEventTooLong) {
		t.Fatal(err)
	}
}

// A line that is too long is, whether it comes in one piece or in several.
func TestEventLineTooLongInOnePiece(t *testing.T) {
	in := "data: a\n: " + strings.Repeat("c", 200) + "\n\n"
	if e, err := NewEventReader(strings.NewReader(in), 100).Next(); !errors.Is(err, ErrEventTooLong) {
		t.Fatal(e, err)
	}
}

func TestEventAtTheLimit(t *testing.T) {
	data := strings.Repeat("x", 1<<16)
	e, err := NewEventReader(strings.NewReader("data: "+data+"\n\n"), len(data)).Next()
	if err != nil || string(e.Data) != data {
		t.Fatal(len(e.Data), err)
	}
}

// An event is given out as soon as its last line has ended, though nobody can
// know yet whether an LF follows the CR.
func TestEventDoesNotWaitForLF(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	go func() { _, _ = w.Write([]byte("data: a\r\n\r")) }()
	if e, err := NewEventReader(r, 100).Next(); err != nil || string(e.Data) != "a" {
		t.Fatal(e, err)
	}
}

func FuzzEvents(f *testing.F) {
	f.Add("data: a\r\n\rid: 1\ndata\n\n")
	f.Add("\xef\xbb\xbf:\n\ndata:x\n\r")
	f.Add("data:\r" + strings.Repeat("i", 2000) + "\n\n")
	f.Fuzz(func(t *testing.T, in string) {
		whole := collect(NewEventReader(strings.NewReader(in), 1000))
		bytewise := collect(NewEventReader(iotest.OneByteReader(strings.NewReader(in)), 1000))
		if !reflect.DeepEqual(whole, bytewise) {
			t.Errorf("%q: %q in one piece, %q in bytes", in, whole, bytewise)
		}
	})
}

func collect(r *EventReader) (out []string) {
	for {
		e, err := r.Next()
		if err != nil {
			return append(out, r.LastID(), r.Retry().String())
		}
		out = append(out, e.Name, string(e.Data))
	}
}
