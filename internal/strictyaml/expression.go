package strictyaml

import (
	"bytes"
	"errors"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// Expressions are full of signs that YAML reads as its own: `!` begins a tag, `"a" in x` goes on behind a
// quoted text, and a comma, a colon or # ends it. What is found of them here is told with the line as it should be.

// expression is an expression without quotes, as a line has it.
type expression struct {
	key        string
	text       string
	start, end int // in the line, in bytes
}

// quoted is how to write it.
func (x expression) quoted() string {
	return x.key + ": '" + strings.ReplaceAll(x.text, "'", "''") + "'"
}

// How long an expression may be, and a line that is no YAML in which some are looked for, in bytes.
const (
	maxExpression     = 2 << 10
	maxExpressionLine = 8 << 10
)

var keyAndSpace = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`([A-Za-z_][A-Za-z0-9_]*):[ \t]+`)
})

// expressions returns the expressions without quotes in a line.
func (r *Reader) expressions(line string) (all []expression) {
	if r.lang.Expression == nil || len(line) > maxExpressionLine {
		return nil
	}
	for at := 0; at < len(line); {
		m := keyAndSpace().FindStringSubmatchIndex(line[at:])
		if m == nil {
			break
		}
		x := expression{key: line[at+m[2] : at+m[3]], start: at + m[1]}
		at = x.start
		text, ok := expressionIn(line[x.start:])
		if x.text, x.end = text, x.start+len(text); !ok || strings.Contains(line[:x.start], " #") || !r.lang.Expression(x.key, text) {
			continue
		}
		at = x.end
		if isQuoted(text) {
			continue
		}
		if inner, ok := withoutQuotes(text); ok {
			x.text = inner
		}
		all = append(all, x)
	}
	return all
}

// expressionIn returns the expression with which a text begins; ok is false where it is none, or goes on in the next line.
func expressionIn(line string) (text string, ok bool) {
	var open []byte
	conditional := 0 // `?` without their `:`
	end := len(line)
scan:
	for i := 0; i < len(line); i++ {
		switch c := line[i]; c {
		case '"', '\'':
			close := closingQuote(line, i)
			if close < 0 {
				return line, false
			}
			i = close
		case '(', '[', '{':
			open = append(open, c)
		case ')', ']', '}':
			if len(open) == 0 {
				end = i
				break scan
			}
			open = open[:len(open)-1]
		case ',':
			if len(open) == 0 {
				end = i
				break scan
			}
		case '#':
			if i > 0 && line[i-1] == ' ' {
				end = i
				break scan
			}
		case '?':
			conditional++
		case ':':
			if !bytes.ContainsRune(open, '{') {
				conditional--
			}
		}
	}
	text = strings.TrimRight(line[:end], " \t")
	return text, len(open) == 0 && conditional == 0 && text != ""
}

// closingQuote returns where the text ends whose quote is at i, -1 if it does not.
func closingQuote(line string, i int) int {
	raw := i > 0 && (line[i-1] == 'r' || line[i-1] == 'R')
	for j := i + 1; j < len(line); j++ {
		switch {
		case line[j] == '\\' && !raw:
			j++
		case line[j] == line[i]:
			return j
		}
	}
	return -1
}

// isQuoted reports whether a text is one scalar of YAML in quotes.
func isQuoted(text string) bool {
	var doc yaml.Node
	if text[0] != '"' && text[0] != '\'' || yaml.Unmarshal([]byte(text), &doc) != nil {
		return false
	}
	return len(doc.Content) == 1 && doc.Content[0].Kind == yaml.ScalarNode
}

// withoutQuotes returns what stands between the quotes of an expression that has quotes around it and of the same
// kind in it: "args.x == "a"".
func withoutQuotes(text string) (string, bool) {
	last := len(text) - 1
	if last < 2 || text[0] != text[last] || text[0] != '"' && text[0] != '\'' {
		return "", false
	}
	first := closingQuote(text, 0)
	if next := text[min(first+1, last)]; !isWord(next) && next != text[0] {
		return "", false
	}
	inner, ok := expressionIn(text[1:last])
	return inner, ok && len(inner) == last-1
}

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
}

// needsQuotes reports whether YAML reads an expression as something else where it stands.
func (x expression) needsQuotes(line string) bool {
	before, behind := "", ""
	if strings.ContainsAny(line[:x.start], "{[") {
		before, behind = "{", "}"
	}
	var doc yaml.Node
	if yaml.Unmarshal([]byte(before+"k: "+line[x.start:x.end]+behind), &doc) != nil || len(doc.Content) != 1 {
		return true
	}
	pair := doc.Content[0].Content
	return len(pair) != 2 || pair[1].Kind != yaml.ScalarNode || pair[1].Value != x.text
}

// slipExpression reports the expressions of a line that is no YAML, if it is YAML once they have quotes.
func (r *Reader) slipExpression(mark, context Place) bool {
	for _, at := range []int{mark.Line, context.Line} {
		line := r.line(Place{Line: at})
		var found []expression
		fixed, from := "", 0
		for _, x := range r.expressions(line) {
			if x.needsQuotes(line) {
				found = append(found, x)
				fixed += line[from:x.start] + strings.TrimPrefix(x.quoted(), x.key+": ")
				from = x.end
			}
		}
		if found == nil || !r.readsOn(at, fixed+line[from:], mark, context) {
			continue
		}
		for _, x := range found {
			r.Errorf(r.placeIn(at, x.start), "syntax", "YAML reads signs of this expression as its own; write: %s", x.quoted())
		}
		return true
	}
	return false
}

// readsOn reports whether the file is YAML beyond a line, with that line as given: it has no error any more, or another one.
func (r *Reader) readsOn(number int, line string, mark, context Place) bool {
	lines := append([][]byte{}, r.lines...)
	lines[number-1] = []byte(line)
	loader, err := yaml.NewLoader(bytes.NewReader(bytes.Join(lines, []byte("\n"))))
	if err == nil {
		var doc yaml.Node
		err = loader.Load(&doc)
	}
	var load *yaml.LoadError
	if !errors.As(err, &load) {
		return err == nil
	}
	same := load.Mark.Line == mark.Line && load.Mark.Column == mark.Column && load.ContextMark.Line == context.Line
	return load.Mark.Line > number && !same
}

// placeIn returns the place of a byte of a line.
func (r *Reader) placeIn(number, offset int) Place {
	line := strings.TrimPrefix(r.line(Place{Line: number}), "\uFEFF")
	return Place{Line: number, Column: 1 + utf8.RuneCountInString(line[:min(offset, len(line))])}
}

// mend reports the expressions of a mapping that YAML has read as something else, and puts back what is meant.
func (w *walker) mend(n *yaml.Node) {
	if w.r.lang.Expression == nil {
		return
	}
	kept := n.Content[:0]
	var cut Place // what stands in its line in front of its column belongs to an expression that a comma has cut
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Line == cut.Line && key.Column < cut.Column {
			continue
		}
		kept = append(kept, key, value)
		if key.Kind == yaml.ScalarNode && value.Kind == yaml.ScalarNode && IsPlain(value) && w.mendValue(key.Value, value) {
			cut = PlaceOf(value)
			cut.Column += utf8.RuneCountInString(value.Value)
		}
	}
	n.Content = kept
}

// mendValue is mend for one value.
func (w *walker) mendValue(key string, value *yaml.Node) bool {
	tagged := value.Style&yaml.TaggedStyle != 0
	if !tagged && !strings.ContainsAny(value.Value, `"'([{`) { // it is whole
		return false
	}
	at := PlaceOf(value)
	rest := w.r.rest(at)
	text, ok := expressionIn(rest[:min(len(rest), maxExpression)])
	x := expression{key: key, text: text}
	switch {
	case !ok:
		return false
	case tagged && text[0] == '!' && w.r.lang.Expression(key, text):
		w.r.Errorf(at, "tag", "an expression that begins with ! is read as a YAML tag; write: %s", x.quoted())
	case !tagged && len(text) > len(value.Value) && strings.HasPrefix(text, value.Value) && w.r.lang.Expression(key, text):
		w.r.Errorf(at, "unquoted", "YAML ends this expression behind %s; write: %s", Quote(value.Value), x.quoted())
	default:
		return false
	}
	value.Value, value.Tag, value.Style = text, "!!str", yaml.SingleQuotedStyle
	w.mended[value] = true
	return true
}
