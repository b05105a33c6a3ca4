package wire

import (
	"bytes"
	"encoding/json/jsontext"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
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

// MaxDepth is how deeply arrays and objects of a message may nest where
// [Limits] say nothing else.
const MaxDepth = 512

// Limits bound what is read. Zero values are MaxDepth and MaxBatch.
type Limits struct {
	Depth int // how deeply arrays and objects may nest
	Batch int // how many messages a batch may have
}

func (l Limits) depth() int { return orElse(l.Depth, MaxDepth) }
func (l Limits) batch() int { return orElse(l.Batch, MaxBatch) }

func orElse(value, def int) int {
	if value <= 0 {
		return def
	}
	return value
}

// Error is a message that cannot be read, with the JSON-RPC error to answer it.
type Error struct {
	Code    int    // CodeParse or CodeInvalidRequest
	Message string // what is wrong, for the sender
	ID      []byte // the raw id where it was read before the fault, else nil
}

// Error is the Message.
func (e *Error) Error() string { return e.Message }

// Answer returns the JSON-RPC error answer.
func (e *Error) Answer() []byte { return ErrorAnswer(e.ID, e.Code, e.Message, nil) }

// Read reads one message. raw is kept: it must not be changed afterwards. The
// error is always an [*Error]. A batch is no message: see [IsBatch].
func Read(raw []byte, from Side) (*Message, error) { return Limits{}.Read(raw, from) }

// Read is the function Read under these limits.
func (l Limits) Read(raw []byte, from Side) (*Message, error) {
	m := &Message{Raw: raw}
	r := readers.Get().(*reader)
	r.begin(m, from)
	r.depth = l.depth()
	err := r.check()
	if err == nil {
		err = r.message()
	}
	r.release()
	if err != nil {
		return nil, m.fault(err)
	}
	return m, nil
}

// reader reads one message: first whether it is JSON, then, in one walk that
// goes down only where routed members stand, what it says. It is pooled, since
// a decoder's buffers cost more than a message.
type reader struct {
	dec  jsontext.Decoder
	buf  bytes.Buffer
	from Side

	raw     []byte
	depth   int // how deeply it may nest
	at      int
	m       *Message
	version string
	method  Span
}

var readers = sync.Pool{New: func() any { return new(reader) }}

var (
	strict  = jsontext.AllowDuplicateNames(false)
	lenient = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}
)

func (r *reader) begin(m *Message, from Side) {
	r.m, r.raw, r.at, r.from = m, m.Raw, 0, from
	r.version, r.method = "", Span{}
}

func (r *reader) release() {
	r.m, r.raw, r.buf = nil, nil, bytes.Buffer{}
	readers.Put(r)
}

// check reports whether the message is one JSON value and nothing else. The
// walk over it need not look for faults again.
func (r *reader) check() error {
	if tooDeep(r.raw, r.depth) {
		return &Error{Code: CodeParse, Message: "nesting deeper than " + strconv.Itoa(r.depth)}
	}
	r.buf = *bytes.NewBuffer(r.raw)
	if r.from == FromUpstream {
		r.dec.Reset(&r.buf, lenient...)
	} else {
		r.dec.Reset(&r.buf, strict)
	}
	if _, err := r.dec.ReadValue(); err != nil {
		return err
	}
	if len(trimSpace(r.raw[r.dec.InputOffset():])) > 0 {
		return &Error{Code: CodeParse, Message: "data after the message's end"}
	}
	return nil
}

// fault makes the answer to a message that could not be read.
func (m *Message) fault(err error) *Error {
	if errors.Is(err, jsontext.ErrDuplicateName) {
		err = invalid("duplicate member name: " + err.Error())
	}
	if e, ok := errors.AsType[*Error](err); ok {
		if e.Code != CodeParse {
			e.ID = m.idBefore()
		}
		return e
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &Error{Code: CodeParse, Message: "reading JSON: the message ends too early"}
	}
	return &Error{Code: CodeParse, Message: "reading JSON: " + err.Error()}
}

// idBefore returns the id of a message that is at fault, as far as it can be
// read; nil if there is none, or if there are two.
func (m *Message) idBefore() (id []byte) {
	ids := 0
	_ = Members(m.Raw, func(name string, at Span) error {
		if name == "id" || Lookalike(name, "id") {
			id, ids = m.Raw[at.Start:at.End:at.End], ids+1
		}
		return nil
	})
	if ids != 1 || !validID(id) {
		return nil
	}
	return id
}

func invalid(text string) *Error { return &Error{Code: CodeInvalidRequest, Message: text} }

// member reads the value of one member of an object that is routed. key is the
// index of the name in the object's list of routed names, -1 for all others.
type member func(r *reader, key int) error

// object reads an object of which the members named in keys are routed: they
// may occur once, under no lookalike name.
func (r *reader) object(keys []string, read member) error {
	r.at++ // the brace
	var seen uint32
	for r.next() != '}' {
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
	r.at++
	return nil
}

// name reads a member's name and finds it among the routed ones.
func (r *reader) name(keys []string) (int, error) {
	at := r.value()
	text := r.raw[at.Start+1 : at.End-1]
	for i, k := range keys {
		if string(text) == k {
			return i, nil
		}
	}
	return lookup(r.raw[at.Start:at.End], keys)
}

// lookup finds a name that is not written like any of keys: by escapes, as a
// lookalike (an error), or not at all.
func lookup(raw []byte, keys []string) (int, error) {
	name := raw[1 : len(raw)-1]
	if bytes.IndexByte(name, '\\') >= 0 {
		name = []byte(unquote(raw))
	}
	plain := plain(name)
	for i, k := range keys {
		if plain && len(name) != len(k) {
			continue
		}
		if string(name) == k {
			return i, nil
		}
		if len(name) >= len(k) && Lookalike(string(name), k) {
			return -1, invalid("member name " + strconv.QuoteToASCII(string(name)) + " looks like " + strconv.Quote(k))
		}
	}
	return -1, nil
}

// plain reports whether a name is a lookalike of names of its own length alone:
// it is of ASCII without NUL.
func plain(name []byte) bool {
	for _, c := range name {
		if c == 0 || c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// Lookalike reports whether some JSON readers take name for key though it is
// another: equal under Unicode case folding (encoding/json's way) or by upper
// case (Java's way, to which an i without or with a dot is an i), or up to a
// NUL (C strings).
func Lookalike(name, key string) bool {
	if before, _, cut := strings.Cut(name, "\x00"); cut {
		return sameFolded(before, key)
	}
	return name != key && len(name) >= len(key) && sameFolded(name, key)
}

// otherDots are the letters that are an i in upper or lower case alone.
var otherDots = strings.NewReplacer("\u0130", "i", "\u0131", "i")

func sameFolded(name, key string) bool {
	if strings.IndexByte(name, 0xc4) >= 0 { // both begin with it
		name = otherDots.Replace(name)
	}
	return strings.EqualFold(name, key)
}

// next returns the byte with which the next token begins, commas and colons
// left out.
func (r *reader) next() byte {
	for {
		switch c := r.raw[r.at]; c {
		case ' ', '\t', '\r', '\n', ',', ':':
			r.at++
		default:
			return c
		}
	}
}

// value skips a value and returns where it stands.
func (r *reader) value() Span {
	first := r.next()
	start := r.at
	switch first {
	case '"':
		r.text()
	case '{', '[':
		r.nest()
	default:
		r.scalar()
	}
	return Span{start, r.at}
}

// text skips a string.
func (r *reader) text() {
	for at := r.at + 1; ; {
		end := at + bytes.IndexByte(r.raw[at:], '"')
		at = end + 1
		back := end
		for r.raw[back-1] == '\\' {
			back--
		}
		if (end-back)%2 == 0 { // backslashes in pairs escape each other, not the quote
			r.at = at
			return
		}
	}
}

// nest skips an object or an array.
func (r *reader) nest() {
	for depth := 0; ; {
		switch r.raw[r.at] {
		case '"':
			r.text()
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		r.at++
		if depth == 0 {
			return
		}
	}
}

// scalar skips a number or a literal.
func (r *reader) scalar() {
	for r.at < len(r.raw) {
		switch r.raw[r.at] {
		case ' ', '\t', '\r', '\n', ',', ':', '}', ']':
			return
		}
		r.at++
	}
}

// common returns the strings that come with most messages, which need no memory
// of their own each time; empty for all others.
func common(text []byte) string {
	switch string(text) {
	case "2.0":
		return "2.0"
	case "tools/call":
		return "tools/call"
	case "notifications/progress":
		return "notifications/progress"
	}
	return ""
}

// string reads a value; s gets its text if it is a string.
func (r *reader) string(s *string) (Span, error) {
	at := r.value()
	if r.raw[at.Start] != '"' {
		return at, nil
	}
	if *s = common(r.raw[at.Start+1 : at.End-1]); *s != "" {
		return at, nil
	}
	if *s = unquote(r.raw[at.Start:at.End]); r.from == FromUpstream && !utf8.ValidString(*s) {
		return at, invalid("invalid UTF-8 in a member that the message's way depends on")
	}
	return at, nil
}

func unquote(raw []byte) string {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	text, _ := jsontext.AppendUnquote(nil, raw)
	return string(text)
}

// nested reads the next value as a routed object if it is one, and returns
// where it stands.
func (r *reader) nested(keys []string, read member) (Span, error) {
	if r.next() != '{' {
		return r.value(), nil
	}
	at := Span{Start: r.at}
	err := r.object(keys, read)
	at.End = r.at
	return at, err
}

// tooDeep reports whether raw nests deeper than most. It errs on no valid
// message: brackets inside strings are told apart.
func tooDeep(raw []byte, most int) bool {
	if bytes.Count(raw, []byte{'['})+bytes.Count(raw, []byte{'{'}) <= most {
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
			if depth++; depth > most {
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
