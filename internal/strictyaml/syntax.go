package strictyaml

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// syntax turns a decoder's error into a finding that says where, and, for the
// slips that happen, what to do.
func (r *Reader) syntax(err error) {
	var load *yaml.LoadError
	if !errors.As(err, &load) {
		r.Errorf(Place{}, "syntax", "%v", err)
		return
	}
	mark, context := Place{Line: load.Mark.Line, Column: load.Mark.Column}, Place{Line: load.ContextMark.Line, Column: load.ContextMark.Column}
	if r.lang.Secrets {
		where := mark
		if strings.Contains(load.Message, noColon) {
			where = context
		}
		r.Errorf(where, "syntax", "this is not YAML here or in the line above: %s", plainCause(load.Message))
		return
	}
	if r.slipExpression(mark, context) {
		return
	}
	for _, slip := range slips {
		if where, hint := slip(r, load.Message, mark, context); hint != "" {
			r.Errorf(where, "syntax", "%s", hint)
			return
		}
	}
	text := load.Message
	if load.ContextMsg != "" {
		text = fmt.Sprintf("%s (%s, line %d)", text, load.ContextMsg, context.Line)
	}
	r.Errorf(mark, "syntax", "this is not YAML: %s", text)
}

// The decoder's words for two slips, and what is said of the second.
const (
	noColon   = "could not find expected ':'"
	noKeyHere = "mapping values are not allowed"
	noKeyHint = "no key can stand here; quote a text that holds a colon and a space, or check the indentation of this line and the one above"
)

// plainCause returns the cause of a syntax error without any text of the file.
func plainCause(message string) string {
	switch {
	case strings.HasPrefix(message, "unknown anchor"):
		return "a text that begins with * is read as an alias, and nothing is anchored so; quote it"
	case strings.Contains(message, "cannot start any token"):
		return "a text cannot begin so; quote it"
	case strings.Contains(message, noColon):
		return "a key ends in a colon with a space behind it"
	case strings.Contains(message, noKeyHere):
		return noKeyHint
	case strings.ContainsAny(message, `"'`):
		return "check the indentation, and quote texts that hold signs"
	}
	return message
}

// slips recognise one mistake each, from the decoder's message and what stands
// in the source there. They return "" if it is not theirs.
var slips = []func(r *Reader, message string, mark, context Place) (Place, string){
	slipStar, slipTab, slipReserved, slipColon, slipSecondColon,
}

// slipStar: a bare `*` begins an alias in YAML.
func slipStar(r *Reader, message string, mark, context Place) (Place, string) {
	for _, a := range []Place{context, mark} {
		if r.char(a) != '*' {
			continue
		}
		word := r.word(a)
		if strings.HasPrefix(message, "unknown anchor") {
			return a, fmt.Sprintf(`%s is read as an alias, and nothing is anchored so; if it is a pattern, quote it: "%s"`, Quote(word), word)
		}
		return a, fmt.Sprintf(`a bare * is read as an alias; quote it: "%s"`, word)
	}
	return Place{}, ""
}

func slipTab(r *Reader, _ string, mark, _ Place) (Place, string) {
	if r.char(mark) != '\t' {
		return Place{}, ""
	}
	return mark, "a tab cannot indent in YAML; use spaces"
}

// slipReserved: @, ` and % begin nothing.
func slipReserved(r *Reader, message string, mark, _ Place) (Place, string) {
	c := r.char(mark)
	if !strings.Contains(message, "cannot start any token") || c == 0 {
		return Place{}, ""
	}
	return mark, fmt.Sprintf(`a text cannot begin with %q in YAML; quote it: "%s"`, c, r.word(mark))
}

var nameColon = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^\s*(?:- )?([^\s:#'"]+):([^\s:'"]+)\s*(?:#.*)?$`)
})

// slipColon: NAME:STATE on a line of its own is one word.
func slipColon(r *Reader, message string, mark, context Place) (Place, string) {
	if !strings.Contains(message, noColon) {
		return Place{}, ""
	}
	for _, a := range []Place{context, mark} {
		if hint := r.joinedWord(a); hint != "" {
			return a, hint
		}
	}
	return context, fmt.Sprintf("%s is no key; a key ends in a colon", Quote(strings.TrimSpace(r.line(context))))
}

// joinedWord shows how to write NAME:STATE, if that is what a line holds.
func (r *Reader) joinedWord(a Place) string {
	m := nameColon().FindStringSubmatch(r.line(a))
	if m == nil {
		return ""
	}
	return fmt.Sprintf("%s is one word in YAML; put a space after the colon: %s: %s", Quote(m[1]+":"+m[2]), m[1], m[2])
}

// slipSecondColon: two keys on one line, a line indented too far, or a line
// above that is no key.
func slipSecondColon(r *Reader, message string, mark, _ Place) (Place, string) {
	if !strings.Contains(message, noKeyHere) {
		return Place{}, ""
	}
	if above := (Place{Line: mark.Line - 1, Column: 1}); r.joinedWord(above) != "" {
		above.Column += len(r.line(above)) - len(strings.TrimLeft(r.line(above), " "))
		return above, r.joinedWord(above)
	}
	return mark, noKeyHint
}

// line returns the source line at a place, "" if there is none.
func (r *Reader) line(a Place) string {
	if a.Line < 1 || a.Line > len(r.lines) {
		return ""
	}
	return strings.TrimRight(string(r.lines[a.Line-1]), "\r")
}

// rest returns the source line from a place on.
func (r *Reader) rest(a Place) string {
	if r.cached.number != a.Line {
		r.cached = cacheLine(a.Line, r.line(a))
	}
	if a.Column < 1 || a.Column > len(r.cached.offsets) {
		return ""
	}
	return r.cached.text[r.cached.offsets[a.Column-1]:]
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

// Within returns where a byte of a value stands that begins at a place: the place itself
// where the value is not written there as it is, in one line.
func (r *Reader) Within(a Place, value string, offset int) Place {
	written := r.rest(a)
	quote := 0
	if written != "" && (written[0] == '"' || written[0] == '\'') {
		quote = 1
	}
	if offset > len(value) || !strings.HasPrefix(written[quote:], value) {
		return a
	}
	a.Column += quote + utf8.RuneCountInString(value[:offset])
	return a
}

func (r *Reader) char(a Place) rune {
	c, size := utf8.DecodeRuneInString(r.rest(a))
	if size == 0 {
		return 0
	}
	return c
}

// word returns the unquoted text that begins at a place, for a message that shows
// it quoted.
func (r *Reader) word(a Place) string {
	text := r.rest(a)
	if i := strings.IndexAny(text, " \t,]}#"); i >= 0 {
		text = text[:i]
	}
	return strings.TrimSuffix(text, ":")
}
