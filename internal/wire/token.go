package wire

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxClipped is how many characters of a name Clip leaves.
const maxClipped = 128

// Clip escapes and cuts a name that a peer sent, so that a text about it is no carrier
// of text of its own.
func Clip(name string) string {
	quoted := strconv.Quote(name)
	name = quoted[1 : len(quoted)-1]
	if utf8.RuneCountInString(name) <= maxClipped {
		return name
	}
	return string([]rune(name)[:maxClipped]) + "…"
}

// IsToken reports whether a text can be the name of a header, or a part of one (RFC
// 9110, 5.6.2).
func IsToken[T ~string | ~[]byte](text T) bool {
	return len(text) > 0 && MadeOf(text, "!#$%&'*+-.^_`|~")
}

// MadeOf reports whether a text is made of ASCII letters, digits and some marks.
func MadeOf[T ~string | ~[]byte](text T, marks string) bool {
	for i := range len(text) {
		b := text[i]
		letter := b|0x20 >= 'a' && b|0x20 <= 'z'
		if !letter && (b < '0' || b > '9') && strings.IndexByte(marks, b) < 0 {
			return false
		}
	}
	return true
}
