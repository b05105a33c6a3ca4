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
	ID      []byte // the raw id under which the client waits, or which the upstream answers, where it is found, else nil
	Sure    bool   // the client waits under ID, or not at all: see [IDScan.Addressee]
}

// Error is the Message.
func (e *Error) Error() string { return e.Message }

// Answer returns the JSON-RPC error answer.
func (e *Error) Answer() []byte { return ErrorAnswer(e.ID, e.Code, e.Message, nil) }

// Read reads one message. raw is kept: it must not be changed afterwards. The
// error is always an [*Error]. A batch is no message: see [IsBatch].
func Read(raw []byte, from Side) (*Message, error) { return Limits{}.Read(raw, from) }

// Read is the function Read under these limits.
//
// Most messages are plain: the walk that finds the routed members sees by itself
// that they are JSON. What it cannot be sure of, or finds at fault, jsontext
// judges, before the same walk over bytes that are known to be JSON.
func (l Limits) Read(raw []byte, from Side) (*Message, error) {
	m := newMessage(raw)
	r := reader{raw: raw, from: from, m: m}
	if len(raw) <= maxRaw && l.depth() >= plainReach && r.message() == nil {
		return m, nil
	}
	return l.readChecked(raw, from)
}

// newMessage sets fields one by one: a literal would be made on the stack and copied.
func newMessage(raw []byte) *Message {
	m := new(Message)
	m.Raw, m.P.RareParams, m.R.RareFields = raw, &noRare, &noFields
	return m
}

// readChecked reads a message that jsontext has looked at first.
func (l Limits) readChecked(raw []byte, from Side) (*Message, error) {
	m := newMessage(raw)
	err := l.check(raw, from)
	if err == nil {
		err = (&reader{raw: raw, from: from, m: m, checked: true}).message()
	}
	if err != nil {
		return nil, m.fault(err, from)
	}
	return m, nil
}

// reader walks over one message. It goes down where routed members stand, and
// skips all other values.
type reader struct {
	raw     []byte
	from    Side
	checked bool // the bytes are known to be JSON, and no name stands twice where none may
	at      int
	beyond  uint64 // has the highest bit of a byte set if the message is not ASCII
	m       *Message
	version string
	method  Span
}

// errUnsure is a message of which the walk does not know that it is JSON.
var errUnsure = errors.New("not plain")

var (
	strict  = jsontext.AllowDuplicateNames(false)
	lenient = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}
)

// judge is a decoder with its input. It is pooled, since a decoder's buffers
// cost more than a message.
type judge struct {
	dec jsontext.Decoder
	buf bytes.Buffer
}

var judges = sync.Pool{New: func() any { return new(judge) }}

// check reports whether a message is one JSON value and nothing else.
func (l Limits) check(raw []byte, from Side) error {
	if len(raw) > maxRaw {
		return &Error{Code: CodeInvalidRequest, Message: "a message of 2 GiB or more"}
	}
	if tooDeep(raw, l.depth()) {
		return &Error{Code: CodeParse, Message: "nesting deeper than " + strconv.Itoa(l.depth())}
	}
	j := judges.Get().(*judge)
	defer judges.Put(j)
	j.buf = *bytes.NewBuffer(raw)
	defer func() { j.buf = bytes.Buffer{} }()
	if from == FromUpstream {
		j.dec.Reset(&j.buf, lenient...)
	} else {
		j.dec.Reset(&j.buf, strict)
	}
	if _, err := j.dec.ReadValue(); err != nil {
		return err
	}
	if len(trimSpace(raw[j.dec.InputOffset():])) > 0 {
		return &Error{Code: CodeParse, Message: "data after the message's end"}
	}
	return nil
}

// fault makes the answer to a message that could not be read.
func (m *Message) fault(err error, from Side) *Error {
	if errors.Is(err, jsontext.ErrDuplicateName) {
		err = invalid("duplicate member name: " + err.Error())
	}
	e, ok := errors.AsType[*Error](err)
	switch {
	case ok:
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		e = &Error{Code: CodeParse, Message: "reading JSON: the message ends too early"}
	default:
		e = &Error{Code: CodeParse, Message: "reading JSON: " + err.Error()}
	}
	switch scan := scanned(m.Raw); {
	case from == FromClient:
		e.ID, e.Sure = scan.Addressee()
	case e.Code != CodeParse: // what is no JSON may be noise
		e.ID = scan.only()
	}
	return e
}

func invalid(text string) *Error { return &Error{Code: CodeInvalidRequest, Message: text} }

// object reads an object of which the members named in the level's keys are
// routed: they may occur once, under no lookalike name.
func (r *reader) object(l level) error {
	var seen uint32
	var others names
	for more := r.enter(); more; {
		at, err := r.name()
		if err != nil {
			return err
		}
		key, err := r.find(at, levelKeys[l])
		switch {
		case err != nil:
			return err
		case key < 0 && !others.add(r, at):
			return errUnsure
		case key >= 0 && seen&(1<<key) != 0:
			return invalid("duplicate member name " + strconv.Quote(levelKeys[l][key]))
		case key >= 0:
			seen |= 1 << key
		}
		if err := r.member(l, key); err != nil {
			return err
		}
		if more, err = r.another('}'); err != nil {
			return err
		}
	}
	return nil
}

// enter goes into an object or an array and reports whether it holds anything.
func (r *reader) enter() bool {
	end := r.raw[r.at] + 2 // of a bracket or a brace
	r.at++
	if r.peek() != end {
		return true
	}
	r.at++
	return false
}

// another goes beyond the comma, or the end, that follows a value.
func (r *reader) another(end byte) (more bool, err error) {
	c := r.peek()
	r.at++
	switch c {
	case ',':
		return true, nil
	case end:
		return false, nil
	}
	return false, errUnsure
}

// name reads a member's name, and the colon behind it.
func (r *reader) name() (at Span, err error) {
	if r.peek() != '"' {
		return Span{}, errUnsure
	}
	start := r.at
	if err := r.text(); err != nil {
		return Span{}, err
	}
	at = span(start, r.at)
	if r.peek() != ':' {
		return Span{}, errUnsure
	}
	r.at++
	return at, nil
}

// find finds a name among the routed ones; -1 is none of them.
func (r *reader) find(at Span, keys []string) (int, error) {
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
	case ModernRevision:
		return ModernRevision
	case ResultComplete:
		return ResultComplete
	}
	return ""
}

// string reads a value; s gets its text if it is a string.
func (r *reader) string(s *string) (Span, error) {
	at, err := r.value()
	if err != nil || r.raw[at.Start] != '"' {
		return at, err
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
func (r *reader) nested(l level) (Span, error) {
	if r.peek() != '{' {
		return r.value()
	}
	start := r.at
	err := r.object(l)
	return span(start, r.at), err
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
