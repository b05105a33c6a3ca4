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

// unseen reports whether a character is none that is seen as what it is, one that the tables of Unicode here do not know
// yet among them. The line breaks and spaces between the members of a JSON text are.
func unseen(r rune) bool {
	if r < 0x7f {
		return false
	}
	const blank = 0x2800 // a Braille pattern without dots
	return r == utf8.RuneError || r == blank || !unicode.IsPrint(r) || unicode.In(r, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point)
}
