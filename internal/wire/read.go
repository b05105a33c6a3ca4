package wire

import (
	"bytes"
	"encoding/json/jsontext"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"
)

// Side says who sent a message, and so how strictly it is read.
type Side uint8

const (
	// FromClient: no duplicate member names and no invalid UTF-8 anywhere.
	FromClient Side = iota
	// FromUpstream: the same at the routed levels only. What lies below goes
	// on as it came, as on a direct connection.
	FromUpstream
)

// MaxDepth is how deeply arrays and objects of a message may nest.
const MaxDepth = 512

// Error is a message that cannot be read, with the JSON-RPC error to answer it.
type Error struct {
	Code    int    // CodeParse or CodeInvalidRequest
	Message string // what is wrong, for the sender
	ID      []byte // the raw id where it was read before the fault, else nil
}

func (e *Error) Error() string { return e.Message }

// Answer returns the JSON-RPC error answer.
func (e *Error) Answer() []byte { return ErrorAnswer(e.ID, e.Code, e.Message, nil) }

// Read reads one message. raw is kept: it must not be changed afterwards. The
// error is always an [*Error]. A batch is no message: see [IsBatch].
func Read(raw []byte, from Side) (*Message, error) {
	if tooDeep(raw) {
		return nil, &Error{Code: CodeParse, Message: "nesting deeper than " + strconv.Itoa(MaxDepth)}
	}
	r := readers.Get().(*reader)
	defer r.release()
	m := &Message{Raw: raw}
	r.reset(m, from)
	if err := r.message(); err != nil {
		return nil, r.fault(err)
	}
	return m, nil
}

// reader reads one message in one pass. It is pooled: a decoder's buffers cost
// more than a message.
type reader struct {
	dec  jsontext.Decoder
	buf  bytes.Buffer
	from Side
	m    *Message
}

var readers = sync.Pool{New: func() any { return new(reader) }}

var (
	strict  = jsontext.AllowDuplicateNames(false)
	lenient = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}
)

func (r *reader) reset(m *Message, from Side) {
	r.m, r.from = m, from
	r.buf = *bytes.NewBuffer(m.Raw)
	if from == FromUpstream {
		r.dec.Reset(&r.buf, lenient...)
	} else {
		r.dec.Reset(&r.buf, strict)
	}
}

func (r *reader) release() {
	r.m, r.buf = nil, bytes.Buffer{}
	readers.Put(r)
}

// fault makes the answer to a message that could not be read.
func (r *reader) fault(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		if validID(r.m.Bytes(r.m.ID)) {
			e.ID = r.m.Bytes(r.m.ID)
		}
		return e
	}
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return r.fault(invalid("duplicate member name: " + err.Error()))
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &Error{Code: CodeParse, Message: "reading JSON: the message ends too early"}
	}
	return &Error{Code: CodeParse, Message: "reading JSON: " + err.Error()}
}

func invalid(text string) *Error { return &Error{Code: CodeInvalidRequest, Message: text} }

// member reads the value of one member of an object that is routed. key is the
// index of the name in the object's list of routed names, -1 for all others.
type member func(r *reader, key int) error

// object reads an object of which the members named in keys are routed: they
// may occur once, under no lookalike name.
func (r *reader) object(keys []string, read member) error {
	if _, err := r.dec.ReadToken(); err != nil {
		return err
	}
	var seen uint32
	for r.dec.PeekKind() != '}' {
		key, err := r.name(keys)
		if err != nil {
			return err
		}
		if key >= 0 {
			if seen&(1<<key) != 0 {
				return invalid("duplicate member name " + strconv.Quote(keys[key]))
			}
			seen |= 1 << key
		}
		if err := read(r, key); err != nil {
			return err
		}
	}
	_, err := r.dec.ReadToken()
	return err
}

// name reads a member's name and finds it among the routed ones.
func (r *reader) name(keys []string) (int, error) {
	raw, err := r.dec.ReadValue()
	if err != nil {
		return -1, err
	}
	if raw.Kind() != '"' {
		return -1, io.ErrUnexpectedEOF
	}
	text := raw[1 : len(raw)-1]
	for i, k := range keys {
		if string(text) == k {
			return i, nil
		}
	}
	return lookup(raw, keys)
}

// lookup finds a name that is not written like any of keys: by escapes, as a
// lookalike (an error), or not at all.
func lookup(raw jsontext.Value, keys []string) (int, error) {
	name := string(raw[1 : len(raw)-1])
	if strings.IndexByte(name, '\\') >= 0 {
		text, err := jsontext.AppendUnquote(nil, []byte(raw))
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && text == nil {
			return -1, err
		}
		name = string(text)
	}
	for i, k := range keys {
		if name == k {
			return i, nil
		}
		if Lookalike(name, k) {
			return -1, invalid("member name " + strconv.QuoteToASCII(name) + " looks like " + strconv.Quote(k))
		}
	}
	return -1, nil
}

// Lookalike reports whether some JSON readers take name for key though it is
// another: equal under Unicode case folding (encoding/json's way), or up to a
// NUL (C strings).
func Lookalike(name, key string) bool {
	if before, _, cut := strings.Cut(name, "\x00"); cut {
		name = before
		return strings.EqualFold(name, key)
	}
	return name != key && len(name) >= len(key) && strings.EqualFold(name, key)
}

// value skips a value and returns where it stands.
func (r *reader) value() (Span, jsontext.Kind, error) {
	raw, err := r.dec.ReadValue()
	if err != nil {
		return Span{}, 0, err
	}
	end := int(r.dec.InputOffset())
	return Span{end - len(raw), end}, raw.Kind(), nil
}

// text reads a value; s gets its text if it is a string.
func (r *reader) text(s *string) (Span, error) {
	at, kind, err := r.value()
	if err == nil && kind == '"' {
		*s = unquote(r.m.Raw[at.Start:at.End])
	}
	return at, err
}

func unquote(raw []byte) string {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	text, _ := jsontext.AppendUnquote(nil, raw)
	return string(text)
}

// start returns where the value that comes next begins.
func (r *reader) start() int {
	at := int(r.dec.InputOffset())
	for at < len(r.m.Raw) && strings.IndexByte(" \t\r\n:,", r.m.Raw[at]) >= 0 {
		at++
	}
	return at
}

// nested reads the next value as a routed object if it is one, and returns
// where it stands.
func (r *reader) nested(keys []string, read member) (Span, error) {
	if r.dec.PeekKind() != '{' {
		at, _, err := r.value()
		return at, err
	}
	at := Span{Start: r.start()}
	err := r.object(keys, read)
	at.End = int(r.dec.InputOffset())
	return at, err
}

// tooDeep reports whether raw nests deeper than MaxDepth. It errs on no valid
// message: brackets inside strings are told apart.
func tooDeep(raw []byte) bool {
	if bytes.Count(raw, []byte{'['})+bytes.Count(raw, []byte{'{'}) <= MaxDepth {
		return false
	}
	depth, quoted := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			if depth++; depth > MaxDepth {
				return true
			}
		case c == ']' || c == '}':
			depth--
		}
	}
	return false
}

// decoder reads a part of a message that was read before: nothing in it is
// refused again.
func decoder(raw []byte) *jsontext.Decoder {
	return jsontext.NewDecoder(bytes.NewBuffer(raw), lenient...)
}
