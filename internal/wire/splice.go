package wire

import "bytes"

// Edit replaces the bytes at At by With; where At is empty (Start == End) it
// inserts them.
type Edit struct {
	At   Span
	With []byte
}

// Splice returns raw with the edits made, all other bytes untouched. Edits must
// be in ascending order and not overlap. It always copies. This is the only
// place where bytes on their way through the proxy change; which edits there
// are is the closed list in docs/protocol.md.
func Splice(raw []byte, edits ...Edit) []byte {
	n := len(raw)
	for _, e := range edits {
		n += len(e.With) - int(e.At.End-e.At.Start)
	}
	out := make([]byte, 0, n)
	at := int32(0)
	for _, e := range edits {
		out = append(out, raw[at:e.At.Start]...)
		out = append(out, e.With...)
		at = e.At.End
	}
	return append(out, raw[at:]...)
}

// OneLine returns raw with the line breaks between its tokens made spaces, for
// framings in which a line break ends the message. Inside strings JSON allows
// none. raw itself is returned where there is nothing to do.
func OneLine(raw []byte) []byte {
	if bytes.IndexByte(raw, '\n') < 0 && bytes.IndexByte(raw, '\r') < 0 {
		return raw
	}
	out := bytes.Clone(raw)
	for i, c := range out {
		if c == '\n' || c == '\r' {
			out[i] = ' '
		}
	}
	return out
}
