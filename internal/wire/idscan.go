package wire

import (
	"bytes"
	"encoding/json/jsontext"
)

// maxScanned is how many bytes of a member's name, or of an id, an [IDScan] keeps.
// What is longer is none that it looks for.
const maxScanned = 1 << 10

// IDScan finds under which id a message is to be answered in bytes of which it keeps
// next to none: those of a message that is too large to be kept, or that cannot be
// read. It takes them for JSON without looking, and finds members of the outermost
// object alone, so nothing may be decided by what it finds. Its zero value is ready;
// it is not safe for concurrent use.
type IDScan struct {
	depth           int
	quoted, escaped bool
	valued          bool // a member's value is read, no name
	taking          bool // what is read is kept in text
	text            []byte

	begun, ended         bool // the outermost object
	unclear              bool // it is no object, or there is more than one, or a name that is too long or no JSON string
	isID                 bool // the member being read is the id
	id                   []byte
	ids                  int
	hasMethod, hasResult bool // an error counts as a result
}

// Write takes the bytes that come next. It never fails.
func (s *IDScan) Write(p []byte) (int, error) {
	for _, c := range p {
		s.next(c)
	}
	return len(p), nil
}

func (s *IDScan) next(c byte) {
	switch {
	case s.quoted:
		s.inText(c)
	case c == '{' || c == '[':
		s.open(c)
	case c == '}' || c == ']':
		s.close(c)
	case c == ' ' || c == '\t' || c == '\r' || c == '\n':
		s.keep(c)
	case s.depth == 0:
		s.unclear = true
	case c == '"':
		s.quoted = true
		s.keep(c)
	case s.depth == 1 && c == ':' && !s.valued:
		s.endName()
	case s.depth == 1 && c == ',':
		s.endMember()
	default:
		s.keep(c)
	}
}

func (s *IDScan) inText(c byte) {
	switch {
	case s.escaped:
		s.escaped = false
	case c == '\\':
		s.escaped = true
	case c == '"':
		s.quoted = false
	}
	s.keep(c)
}

func (s *IDScan) open(c byte) {
	if s.depth == 0 {
		s.unclear = s.unclear || s.begun || c != '{'
		s.begun, s.taking = true, true
	} else {
		s.keep(c)
	}
	s.depth++
}

func (s *IDScan) close(c byte) {
	switch s.depth {
	case 0:
		s.unclear = true
		return
	case 1:
		s.endMember()
		s.ended = true
	default:
		s.keep(c)
	}
	s.depth--
}

func (s *IDScan) keep(c byte) {
	if s.taking && len(s.text) <= maxScanned {
		s.text = append(s.text, c)
	}
}

// take returns what was kept, nil if it is too long.
func (s *IDScan) take() []byte {
	text := bytes.TrimSpace(s.text)
	if len(s.text) > maxScanned {
		text = nil
	}
	s.text = s.text[:0]
	return text
}

// endName takes a member's name, at the colon behind it.
func (s *IDScan) endName() {
	name, err := jsontext.AppendUnquote(nil, s.take())
	if err != nil {
		s.unclear = true
	}
	is := func(key string) bool { return string(name) == key || Lookalike(string(name), key) }
	s.isID = is("id")
	s.hasMethod = s.hasMethod || is("method")
	s.hasResult = s.hasResult || is("result") || is("error")
	s.valued, s.taking = true, s.isID
}

// endMember takes the value of a member that is the id, at the comma or brace behind it.
func (s *IDScan) endMember() {
	if s.isID {
		s.id = bytes.Clone(s.take())
		s.ids++
	}
	s.text = s.text[:0]
	s.isID, s.valued, s.taking = false, false, true
}

// Addressee returns the id under which a client's message is to be answered, nil for none.
// It is sure where the message is one object to its end that has exactly one id, or that
// needs no answer: then nobody waits for one under an id that is not told.
func (s *IDScan) Addressee() (id []byte, sure bool) {
	switch id := s.only(); {
	case s.unclear || !s.ended:
		return nil, false
	case s.hasResult && !s.hasMethod, s.ids == 0:
		return nil, true
	default:
		return id, id != nil
	}
}

// only returns the id of a message that is one object to its end and has exactly one.
func (s *IDScan) only() []byte {
	if s.unclear || !s.ended || s.ids != 1 || !ValidID(s.id) {
		return nil
	}
	return s.id
}

// Responds reports whether the message is a response: one object to its end, with a result or an error and no method.
func (s *IDScan) Responds() bool { return s.ended && !s.unclear && s.hasResult && !s.hasMethod }

// scanned scans a whole message.
func scanned(raw []byte) *IDScan {
	s := new(IDScan)
	_, _ = s.Write(raw)
	return s
}
