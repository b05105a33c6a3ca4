package strictyaml

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// plainScalar are the texts that every YAML reader takes as they stand, but for
// the words below.
var plainScalar = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_./-]*$`)

// yamlWords are words that some YAML reader takes for no string.
var yamlWords = map[string]bool{
	"true": true, "false": true, "null": true, "yes": true, "no": true, "on": true, "off": true, "y": true, "n": true,
}

// Scalar writes a text as a YAML scalar, quoted where it must be.
func Scalar(text string) string {
	if plainScalar.MatchString(text) && !yamlWords[strings.ToLower(text)] {
		return text
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		b.WriteString(escaped(r))
	}
	b.WriteByte('"')
	return b.String()
}

// escaped writes one character of a double-quoted scalar.
func escaped(r rune) string {
	switch {
	case r == '"' || r == '\\':
		return `\` + string(r)
	case r == '\uFEFF' || !unicode.IsPrint(r) && r <= 0xFFFF:
		return fmt.Sprintf(`\u%04x`, r)
	case !unicode.IsPrint(r):
		return fmt.Sprintf(`\U%08x`, r)
	}
	return string(r)
}

// Comment makes a text fit for a comment: one line, and not endless.
func Comment(text string) string {
	if text == "" {
		return "(no name)"
	}
	if runes := []rune(text); len(runes) > 128 {
		text = string(runes[:128]) + "…"
	}
	if strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 {
		return fmt.Sprintf("%q", text)
	}
	return text
}

// Printable makes a text fit for one line of a terminal: what does not print is
// escaped, and white space is spaces.
func Printable(text string) string {
	if !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case unicode.IsSpace(r):
			b.WriteByte(' ')
		default:
			fmt.Fprintf(&b, "\\u%04x", r)
		}
	}
	return b.String()
}
