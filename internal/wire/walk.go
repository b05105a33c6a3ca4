package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json/jsontext"
	"errors"
	"math/bits"
	"strconv"
	"unicode/utf8"

	"github.com/fsm-proxy/fsm-proxy/internal/lookalike"
)

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
// another.
func Lookalike(name, key string) bool { return lookalike.Is(name, key) }

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

// What the walk sees by itself is bounded; beyond that jsontext looks.
const (
	plainDepth = 32             // of values that are skipped
	plainReach = plainDepth + 3 // of a message, whose routed objects nest as deeply
	plainNames = 8              // of an object in which no name may stand twice
)

// names are those of one object so far, where it is the walk's to see that none
// stands twice.
type names struct {
	at [plainNames]Span
	n  int
}

// add enters a name. It reports false where the walk cannot know that it is a
// new one. An escape may write a name in two ways.
func (s *names) add(r *reader, at Span) bool {
	if r.checked || r.from == FromUpstream {
		return true
	}
	name := r.raw[at.Start:at.End]
	if s.n == plainNames || bytes.IndexByte(name, '\\') >= 0 {
		return false
	}
	for _, other := range s.at[:s.n] {
		if string(r.raw[other.Start:other.End]) == string(name) {
			return false
		}
	}
	s.at[s.n] = at
	s.n++
	return true
}

// plain reports whether the message ends here, and is UTF-8 where it must be.
func (r *reader) plain() bool {
	return r.peek() == 0 && r.at == len(r.raw) &&
		(r.beyond&highest == 0 || r.from == FromUpstream || utf8.Valid(r.raw))
}

// peek returns the byte with which the next token begins, 0 at the end.
func (r *reader) peek() byte {
	for ; r.at < len(r.raw); r.at++ {
		switch c := r.raw[r.at]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// value skips a value and returns where it stands.
func (r *reader) value() (Span, error) {
	first := r.peek()
	start := r.at
	var err error
	switch {
	case first == '"':
		err = r.text()
	case !r.checked:
		err = r.skip(plainDepth)
	case first == '{' || first == '[':
		r.nest()
	default:
		r.scalar()
	}
	return span(start, r.at), err
}

// skip skips a value of which it sees that it is one.
func (r *reader) skip(depth int) error {
	switch r.peek() {
	case '"':
		return r.text()
	case '{':
		return r.skipObject(depth - 1)
	case '[':
		return r.skipArray(depth - 1)
	case 't':
		return r.literal("true")
	case 'f':
		return r.literal("false")
	case 'n':
		return r.literal("null")
	}
	return r.number()
}

func (r *reader) skipObject(depth int) error {
	if depth == 0 {
		return errUnsure
	}
	var all names
	for more := r.enter(); more; {
		at, err := r.name()
		if err != nil {
			return err
		}
		if !all.add(r, at) {
			return errUnsure
		}
		if err = r.skip(depth); err != nil {
			return err
		}
		if more, err = r.another('}'); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) skipArray(depth int) error {
	if depth == 0 {
		return errUnsure
	}
	for more := r.enter(); more; {
		err := r.skip(depth)
		if err != nil {
			return err
		}
		if more, err = r.another(']'); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) literal(text string) error {
	if !bytes.HasPrefix(r.raw[r.at:], []byte(text)) {
		return errUnsure
	}
	r.at += len(text)
	return nil
}

// number skips a number. What may follow one is its caller's to see.
func (r *reader) number() error {
	r.accept('-')
	leading := r.byte()
	if n := r.digits(); n == 0 || n > 1 && leading == '0' {
		return errUnsure
	}
	if r.accept('.') && r.digits() == 0 {
		return errUnsure
	}
	if r.accept('e') || r.accept('E') {
		if !r.accept('+') {
			r.accept('-')
		}
		if r.digits() == 0 {
			return errUnsure
		}
	}
	return nil
}

// byte is the one here, 0 at the end.
func (r *reader) byte() byte {
	if r.at < len(r.raw) {
		return r.raw[r.at]
	}
	return 0
}

// accept skips a byte if it is c.
func (r *reader) accept(c byte) bool {
	if r.byte() != c {
		return false
	}
	r.at++
	return true
}

// digits skips digits and returns how many.
func (r *reader) digits() (n int) {
	for c := r.byte(); c >= '0' && c <= '9'; c = r.byte() {
		r.at++
		n++
	}
	return n
}

// text skips a string.
func (r *reader) text() error {
	if r.checked {
		r.skipText()
		return nil
	}
	for r.at++; ; {
		switch r.special() {
		case '"':
			r.at++
			return nil
		case '\\':
			if !r.escape() {
				return errUnsure
			}
		default:
			return errUnsure
		}
	}
}

// Eight bytes at once, each with its lowest, or its highest, bit set.
const (
	lowest  = 0x0101010101010101
	highest = 0x8080808080808080
)

// special goes on to the next quote, backslash or control character, and returns
// it, 0 at the end. It looks at eight bytes at once: in (x - lowest) &^ x &
// highest the first byte that is not 0 stands for the first of x that is 0.
func (r *reader) special() byte {
	for ; r.at+8 <= len(r.raw); r.at += 8 {
		w := binary.LittleEndian.Uint64(r.raw[r.at:])
		r.beyond |= w
		quote, backslash := w^'"'*lowest, w^'\\'*lowest
		found := (quote - lowest) &^ quote
		found |= (backslash - lowest) &^ backslash
		found |= (w - ' '*lowest) &^ w
		if found &= highest; found != 0 {
			r.at += bits.TrailingZeros64(found) / 8
			return r.raw[r.at]
		}
	}
	for ; r.at < len(r.raw); r.at++ {
		c := r.raw[r.at]
		if c == '"' || c == '\\' || c < ' ' {
			return c
		}
		r.beyond |= uint64(c)
	}
	return 0
}

// escape skips an escape, but for one of a surrogate.
func (r *reader) escape() bool {
	if r.at+2 > len(r.raw) {
		return false
	}
	switch r.raw[r.at+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		r.at += 2
		return true
	case 'u':
		return r.escapedRune()
	}
	return false
}

func (r *reader) escapedRune() bool {
	if r.at+6 > len(r.raw) {
		return false
	}
	for _, c := range r.raw[r.at+2 : r.at+6] {
		if !isHex(c) {
			return false
		}
	}
	surrogate := r.raw[r.at+2]|0x20 == 'd' && r.raw[r.at+3] > '7'
	r.at += 6
	return !surrogate
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// What follows skips in bytes that are known to be JSON.

// skipText skips a string.
func (r *reader) skipText() {
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
			r.skipText()
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
