package streamhttp

import (
	"bytes"
	"strconv"
)

// knownHead is the head of a message that was read before, apart from the value
// of its Content-Length: what comes next on a connection mostly differs in
// nothing else, and need not be parsed again.
type knownHead struct{ before, after []byte }

// maxKnown is up to what size a head is kept.
const maxKnown = 2 << 10

// newKnownHead keeps a head, which ends with its empty line, if it has exactly
// one Content-Length, of digits, and no Transfer-Encoding. It keeps the slice.
func newKnownHead(head []byte) (k knownHead, ok bool) {
	if len(head) > maxKnown {
		return k, false
	}
	for rest := head; len(rest) > 0; {
		line, after, _ := bytes.Cut(rest, []byte{'\n'})
		name, value, _ := bytes.Cut(line, []byte{':'})
		switch {
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			return k, false
		case !bytes.EqualFold(name, []byte("Content-Length")):
		case k.after != nil:
			return k, false
		default:
			at := len(head) - len(rest) + len(name) + 1 + len(value) - len(bytes.TrimLeft(value, " \t"))
			n, _ := digits(head[at:])
			k = knownHead{head[:at:at], head[at+n:]}
			if n == 0 || k.after[0] != '\r' {
				return k, false
			}
		}
		rest = after
	}
	return k, k.after != nil
}

// clone takes the head out of the slice it was made of.
func (k *knownHead) clone() knownHead {
	return knownHead{bytes.Clone(k.before), bytes.Clone(k.after)}
}

// match reports whether b begins with the head, and gives its size there and the
// Content-Length.
func (k *knownHead) match(b []byte) (size int, length int64, ok bool) {
	if k.after == nil || !bytes.HasPrefix(b, k.before) {
		return 0, 0, false
	}
	b = b[len(k.before):]
	n, length := digits(b)
	if n == 0 || !bytes.HasPrefix(b[n:], k.after) {
		return 0, 0, false
	}
	return len(k.before) + n + len(k.after), length, true
}

// digits reads a number at the beginning of b; n is how many digits it has: 0
// where there is none, or where it is too long to be meant.
func digits(b []byte) (n int, value int64) {
	for n < len(b) && b[n] >= '0' && b[n] <= '9' {
		value = 10*value + int64(b[n]-'0')
		if n++; n > 15 {
			return 0, 0
		}
	}
	return n, value
}

// appendNumber appends a header line that holds a number.
func appendNumber(b []byte, name string, n int64) []byte {
	b = append(append(b, name...), ": "...)
	return append(strconv.AppendInt(b, n, 10), "\r\n"...)
}
