package guard

import (
	"bytes"
	"encoding/binary"
	"encoding/json/jsontext"
	"math/bits"
	"strings"
	"unicode/utf8"

	"github.com/fsm-proxy/fsm-proxy/internal/lookalike"
)

// maxDepth is how deep the documents may nest that guards read.
const maxDepth = 512

// A node stands for a place in a document. What is read there, and beneath, is known at load.
type node struct {
	values   []int // the reads that want this value
	has      []int // the reads that ask whether it is there
	members  []member
	elements []element
}

type member struct {
	name string
	fold string
	at   *node
}

type element struct {
	index int64
	at    *node
}

// member returns the node of a member, which it adds where it is missing.
func (n *node) member(name string) *node {
	for _, m := range n.members {
		if m.name == name {
			return m.at
		}
	}
	at := &node{}
	n.members = append(n.members, member{name, lookalike.Fold(name), at})
	return at
}

func (n *node) element(index int64) *node {
	for _, e := range n.elements {
		if e.index == index {
			return e.at
		}
	}
	at := &node{}
	n.elements = append(n.elements, element{index, at})
	return at
}

// A found says where a value stands in its document.
type found struct {
	state      presence
	start, end int
}

// presence says what is known of a place in a document; the zero value is that nothing leads there.
type presence uint8

const (
	unreachable presence = iota // what it would stand in is missing, or holds no such things
	absent
	present
)

// A scanner walks over one document, strictly, and notes where the nodes stand.
type scanner struct {
	text  []byte
	at    int
	found []found // by read
}

// scan notes in found where each read of the tree stands. It reads the document to its end.
func scan(text []byte, root *node, found []found) *Error {
	s := scanner{text: text, found: found}
	s.space()
	if err := s.value(root, 0); err != nil {
		return err
	}
	s.space()
	if s.at != len(text) {
		return errSyntax
	}
	return nil
}

func (s *scanner) space() {
	for s.at < len(s.text) {
		switch s.text[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// peek returns the next byte; 0 is the end.
func (s *scanner) peek() byte {
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

// value goes over one value; a nil node wants nothing of it.
func (s *scanner) value(n *node, depth int) *Error {
	if depth > maxDepth {
		return errDepth
	}
	start := s.at
	var err *Error
	switch c := s.peek(); {
	case c == '"':
		_, err = s.string()
	case c == '{':
		err = s.object(n, depth)
	case c == '[':
		err = s.array(n, depth)
	case c == '-' || '0' <= c && c <= '9':
		err = s.number()
	default:
		err = s.word()
	}
	if err == nil && n != nil {
		s.note(n, present, start)
	}
	return err
}

// note notes that what stands at a node is there, or is not.
func (s *scanner) note(n *node, state presence, start int) {
	for _, reads := range [...][]int{n.values, n.has} {
		for _, read := range reads {
			s.found[read] = found{state, start, s.at}
		}
	}
}

func (s *scanner) object(n *node, depth int) *Error {
	var members []member
	if n != nil {
		members = n.members
	}
	var seen uint64 // one bit a member: a program reads no more than 64 places
	s.at++
	for first := true; ; first = false {
		s.space()
		if s.peek() == '}' && first {
			break
		}
		if s.peek() != '"' {
			return errSyntax
		}
		start := s.at
		escaped, err := s.string()
		if err != nil {
			return err
		}
		var child *node
		if len(members) > 0 {
			i, err := match(s.text[start:s.at], escaped, members)
			if err != nil {
				return err
			}
			if i >= 0 {
				if seen&(1<<i) != 0 {
					return unclear("%q stands twice in one object", members[i].name)
				}
				seen |= 1 << i
				child = members[i].at
			}
		}
		s.space()
		if s.peek() != ':' {
			return errSyntax
		}
		s.at++
		s.space()
		if err := s.value(child, depth+1); err != nil {
			return err
		}
		s.space()
		if s.peek() == '}' {
			break
		}
		if s.peek() != ',' {
			return errSyntax
		}
		s.at++
	}
	s.at++
	for missing := ^seen & (1<<len(members) - 1); missing != 0; missing &= missing - 1 {
		s.note(members[bits.TrailingZeros64(missing)].at, absent, s.at)
	}
	return nil
}

// match finds a member name, with its quotes, among those that are read; -1 is none of them. A name that some
// servers take for one of them is an error.
func match(quoted []byte, escaped bool, members []member) (int, *Error) {
	name := quoted[1 : len(quoted)-1]
	if escaped {
		name, _ = jsontext.AppendUnquote(nil, quoted)
	}
	plain := true
	for _, c := range name {
		if c == 0 || c >= utf8.RuneSelf {
			plain = false
			break
		}
	}
	for i := range members {
		m := &members[i]
		if string(name) == m.name {
			return i, nil
		}
		if plain && len(m.name) == len(m.fold) && (len(name) != len(m.name) || !strings.EqualFold(string(name), m.name)) {
			continue
		}
		if lookalike.Fold(string(name)) == m.fold {
			return -1, unclear("%q looks like %q", name, m.name)
		}
	}
	return -1, nil
}

func (s *scanner) array(n *node, depth int) *Error {
	s.at++
	s.space()
	if s.peek() == ']' {
		s.at++
		s.beyond(n, 0)
		return nil
	}
	for index := int64(0); ; index++ {
		var child *node
		if n != nil {
			for _, e := range n.elements {
				if e.index == index {
					child = e.at
				}
			}
		}
		s.space()
		if err := s.value(child, depth+1); err != nil {
			return err
		}
		s.space()
		if s.peek() == ']' {
			s.at++
			s.beyond(n, index+1)
			return nil
		}
		if s.peek() != ',' {
			return errSyntax
		}
		s.at++
	}
}

// beyond notes the elements that an array has not.
func (s *scanner) beyond(n *node, length int64) {
	if n != nil {
		for _, e := range n.elements {
			if e.index >= length {
				s.note(e.at, absent, s.at)
			}
		}
	}
}

// string goes over a string, and says whether it has escapes.
func (s *scanner) string() (escaped bool, err *Error) {
	text, i := s.text, s.at+1
	if end := bytes.IndexByte(text[i:], '"'); end >= 0 && plain(text[i:i+end]) {
		s.at = i + end + 1
		return false, nil
	}
	wide := false
	for ; i < len(text); i++ {
		c := text[i]
		if c == '"' {
			break
		}
		if c == '\\' {
			escaped = true
			i++
		} else if c < ' ' {
			return escaped, errSyntax
		}
		wide = wide || c >= utf8.RuneSelf
	}
	if i >= len(text) {
		return escaped, errSyntax
	}
	quoted := text[s.at : i+1]
	s.at = i + 1
	if escaped {
		if _, err := jsontext.AppendUnquote(nil, quoted); err != nil {
			return true, errSyntax
		}
	} else if wide && !utf8.Valid(quoted) {
		return false, errSyntax
	}
	return escaped, nil
}

// plain reports whether a text is of ASCII without controls and backslashes, eight bytes at a time. It may say no
// of one that is.
func plain(text []byte) bool {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	for ; len(text) >= 8; text = text[8:] {
		x := binary.LittleEndian.Uint64(text)
		backslash := x ^ '\\'*ones
		if (x|(x-' '*ones)|(backslash-ones)&^backslash)&high != 0 {
			return false
		}
	}
	for _, c := range text {
		if c < ' ' || c == '\\' || c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func (s *scanner) number() *Error {
	if s.peek() == '-' {
		s.at++
	}
	if s.peek() == '0' {
		s.at++
	} else if !s.digits() {
		return errSyntax
	}
	if s.peek() == '.' {
		s.at++
		if !s.digits() {
			return errSyntax
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.at++
		if c := s.peek(); c == '+' || c == '-' {
			s.at++
		}
		if !s.digits() {
			return errSyntax
		}
	}
	return nil
}

// digits goes over digits, and says whether there was one.
func (s *scanner) digits() bool {
	start := s.at
	for '0' <= s.peek() && s.peek() <= '9' {
		s.at++
	}
	return s.at > start
}

// word goes over true, false or null.
func (s *scanner) word() *Error {
	for _, word := range [...]string{"true", "false", "null"} {
		if len(s.text)-s.at >= len(word) && string(s.text[s.at:s.at+len(word)]) == word {
			s.at += len(word)
			return nil
		}
	}
	return errSyntax
}
