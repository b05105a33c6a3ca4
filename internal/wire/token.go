package wire

import "strings"

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
