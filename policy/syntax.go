package policy

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// syntax turns a decoder's error into a finding that says where, and, for the
// slips that happen, what to do.
func (r *reader) syntax(err error) {
	var load *yaml.LoadError
	if !errors.As(err, &load) {
		r.errorf(at{}, "syntax", "%v", err)
		return
	}
	mark, context := at{load.Mark.Line, load.Mark.Column}, at{load.ContextMark.Line, load.ContextMark.Column}
	for _, slip := range slips {
		if where, hint := slip(r, load.Message, mark, context); hint != "" {
			r.errorf(where, "syntax", "%s", hint)
			return
		}
	}
	text := load.Message
	if load.ContextMsg != "" {
		text = fmt.Sprintf("%s (%s, line %d)", text, load.ContextMsg, context.line)
	}
	r.errorf(mark, "syntax", "this is not YAML: %s", text)
}

// slips recognise one mistake each, from the decoder's message and what stands
// in the source there. They return "" if it is not theirs.
var slips = []func(r *reader, message string, mark, context at) (at, string){
	slipStar, slipTab, slipReserved, slipColon, slipSecondColon,
}

// slipStar: a bare `*` begins an alias in YAML.
func slipStar(r *reader, message string, mark, context at) (at, string) {
	for _, a := range []at{context, mark} {
		if r.char(a) != '*' {
			continue
		}
		word := r.word(a)
		if strings.HasPrefix(message, "unknown anchor") {
			return a, fmt.Sprintf(`%s is read as an alias, and nothing is anchored so; if it is a pattern, quote it: "%s"`, quote(word), word)
		}
		return a, fmt.Sprintf(`a bare * is read as an alias; quote it: "%s"`, word)
	}
	return at{}, ""
}

func slipTab(r *reader, _ string, mark, _ at) (at, string) {
	if r.char(mark) != '\t' {
		return at{}, ""
	}
	return mark, "a tab cannot indent in YAML; use spaces"
}

// slipReserved: @, ` and % begin nothing.
func slipReserved(r *reader, message string, mark, _ at) (at, string) {
	c := r.char(mark)
	if !strings.Contains(message, "cannot start any token") || c == 0 {
		return at{}, ""
	}
	return mark, fmt.Sprintf(`a text cannot begin with %q in YAML; quote it: "%s"`, c, r.word(mark))
}

var nameColon = regexp.MustCompile(`^\s*(?:- )?([^\s:#'"]+):([^\s:'"]+)\s*(?:#.*)?$`)

// slipColon: NAME:STATE on a line of its own is one word.
func slipColon(r *reader, message string, mark, context at) (at, string) {
	if !strings.Contains(message, "could not find expected ':'") {
		return at{}, ""
	}
	for _, a := range []at{context, mark} {
		if hint := r.joinedWord(a); hint != "" {
			return a, hint
		}
	}
	return context, fmt.Sprintf("%s is no key; a key ends in a colon", quote(strings.TrimSpace(r.line(context))))
}

// joinedWord shows how to write NAME:STATE, if that is what a line holds.
func (r *reader) joinedWord(a at) string {
	m := nameColon.FindStringSubmatch(r.line(a))
	if m == nil {
		return ""
	}
	return fmt.Sprintf("%s is one word in YAML; put a space after the colon: %s: %s", quote(m[1]+":"+m[2]), m[1], m[2])
}

// slipSecondColon: two keys on one line, a line indented too far, or a line
// above that is no key.
func slipSecondColon(r *reader, message string, mark, _ at) (at, string) {
	if !strings.Contains(message, "mapping values are not allowed") {
		return at{}, ""
	}
	if above := (at{mark.line - 1, 1}); r.joinedWord(above) != "" {
		above.column += len(r.line(above)) - len(strings.TrimLeft(r.line(above), " "))
		return above, r.joinedWord(above)
	}
	return mark, "no key can stand here; quote a text that holds a colon and a space, or check the indentation of this line and the one above"
}

// line returns the source line at a place, "" if there is none.
func (r *reader) line(a at) string {
	if a.line < 1 || a.line > len(r.lines) {
		return ""
	}
	return strings.TrimRight(string(r.lines[a.line-1]), "\r")
}

// rest returns the source line from a place on.
func (r *reader) rest(a at) string {
	if r.cached.number != a.line {
		r.cached = cacheLine(a.line, r.line(a))
	}
	if a.column < 1 || a.column > len(r.cached.offsets) {
		return ""
	}
	return r.cached.text[r.cached.offsets[a.column-1]:]
}

// cachedLine is a line with the byte offset of each of its characters: a line
// may be as long as the file.
type cachedLine struct {
	number  int
	text    string
	offsets []int
}

func cacheLine(number int, text string) cachedLine {
	c := cachedLine{number: number, text: strings.TrimPrefix(text, "\uFEFF")}
	for i := range c.text {
		c.offsets = append(c.offsets, i)
	}
	return c
}

func (r *reader) char(a at) rune {
	c, size := utf8.DecodeRuneInString(r.rest(a))
	if size == 0 {
		return 0
	}
	return c
}

// word returns the unquoted text that begins at a place, for a message that shows
// it quoted.
func (r *reader) word(a at) string {
	text := r.rest(a)
	if i := strings.IndexAny(text, " \t,]}#"); i >= 0 {
		text = text[:i]
	}
	return strings.TrimSuffix(text, ":")
}
