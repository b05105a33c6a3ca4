package stdio

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestReader(t *testing.T) {
	long := strings.Repeat("x", 100)
	huge := strings.Repeat("y", 300_000)
	for _, test := range []struct {
		name, in string
		want     string // messages and errors, separated by |
	}{
		{"lines", "a\nb\n", "a|b|EOF"},
		{"no line break at the end", "a\nb", "a|b|EOF"},
		{"CRLF", "a\r\nb\r\n\r\nc", "a|b|c|EOF"},
		{"a CR of its own is kept", "a\rb\n", "a\rb|EOF"},
		{"blank lines", "\n  \n\t\na\n\n \n", "a|EOF"},
		{"nothing", "", "EOF"},
		{"byte for byte", "\xef\xbb\xbf \x00\xff\n", "\xef\xbb\xbf \x00\xff|EOF"},
		{"just short enough", long + "\n" + long + "\r\n" + long, long + "|" + long + "|" + long + "|EOF"},
		{"too long", long + "x\na\n", "long|a|EOF"},
		{"much too long", huge + "\na\n" + huge + huge + "\r\nb\n", "long|a|long|b|EOF"},
		{"too long at the end", "a\n" + long + "x", "a|long|EOF"},
		{"much too long at the end", "a\n" + huge, "a|long|EOF"},
	} {
		for how, in := range map[string]io.Reader{
			"whole":  strings.NewReader(test.in),
			"bytes":  iotest.OneByteReader(strings.NewReader(test.in)),
			"halves": iotest.HalfReader(iotest.DataErrReader(strings.NewReader(test.in))),
		} {
			if got := readAll(NewReader(in, 100)); got != test.want {
				t.Errorf("%s, %s: got %.200q", test.name, how, got)
			}
		}
	}
}

func readAll(r *Reader) string {
	var got []string
	for {
		msg, err := r.Next()
		switch {
		case errors.Is(err, ErrTooLong):
			got = append(got, "long")
		case err != nil:
			return strings.Join(append(got, err.Error()), "|")
		default:
			got = append(got, string(msg))
		}
	}
}

func TestReaderGivesSlicesToKeep(t *testing.T) {
	r := NewReader(strings.NewReader(strings.Repeat("abc\n", 50_000)), 100)
	first, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	for {
		msg, err := r.Next()
		if err != nil {
			break
		}
		if string(msg) != "abc" {
			t.Fatalf("got %q", msg)
		}
		_ = append(msg, "overwritten"...)
		copy(msg, "xyz")
	}
	if string(first) != "abc" {
		t.Errorf("the first message is %q now", first)
	}
}

func TestReaderLargeMessages(t *testing.T) {
	big := bytes.Repeat([]byte("z"), 5<<20)
	r := NewReader(bytes.NewReader(append(append(bytes.Clone(big), '\n'), "a\nb\n"...)), 8<<20)
	if msg, err := r.Next(); err != nil || !bytes.Equal(msg, big) {
		t.Fatalf("%d bytes, %v", len(msg), err)
	}
	if got := readAll(r); got != "a|b|EOF" {
		t.Error(got)
	}
	if len(r.buf) > readSize {
		t.Errorf("keeps a buffer of %d bytes", len(r.buf))
	}
}

func TestReaderError(t *testing.T) {
	broken := errors.New("broken")
	if got := readAll(NewReader(io.MultiReader(strings.NewReader("a\ncut off"), iotest.ErrReader(broken)), 100)); got != "a|broken" {
		t.Error(got)
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte("a\r\n\nb"), 10)
	f.Add([]byte("aaaaaaaaaaaaaaaaa\nb"), 3)
	f.Fuzz(func(t *testing.T, in []byte, limit int) {
		if limit < 1 || limit > 1000 {
			return
		}
		var want []string
		for line := range bytes.Lines(in) {
			line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte{'\n'}), []byte{'\r'})
			switch {
			case len(line) > limit:
				want = append(want, "long")
			case len(bytes.TrimLeft(line, " \t")) > 0:
				want = append(want, string(line))
			}
		}
		all := strings.Join(append(want, "EOF"), "|")
		for _, r := range []io.Reader{bytes.NewReader(in), iotest.OneByteReader(bytes.NewReader(in))} {
			if got := readAll(NewReader(r, limit)); got != all {
				t.Errorf("got %q, want %q", got, all)
			}
		}
	})
}
