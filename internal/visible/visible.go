// Package visible shows people texts that others have written, so that they see what is there.
package visible

import (
	"bytes"
	"fmt"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// JSON returns a JSON text with the characters escaped that people do not see, or that have them see others
// otherwise: controls, those of writing direction, those of no width. It means what it meant.
func JSON(text []byte) []byte {
	if !bytes.ContainsFunc(text, unseen) {
		return text
	}
	var out []byte
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if !unseen(r) {
			out = append(out, text[i:i+n]...)
		} else if high, low := utf16.EncodeRune(r); high != utf8.RuneError {
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		} else {
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		i += n
	}
	return out
}

// unseen reports whether a character is none that is seen as what it is. The line breaks and spaces between the members of
// a JSON text are.
func unseen(r rune) bool {
	switch {
	case r < 0x80:
		return r == 0x7f
	case r == utf8.RuneError, unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Cs, unicode.Variation_Selector):
		return true
	case unicode.Is(unicode.Zs, r), unicode.In(r, unicode.Other_Default_Ignorable_Code_Point):
		return true
	}
	return false
}
