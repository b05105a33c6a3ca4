// Package lookalike tells which member names some JSON readers take for another.
package lookalike

import (
	"strings"
	"unicode"
)

// Is reports whether some JSON readers take name for key though it is
// another: equal under Unicode case folding (encoding/json's way) or by upper
// case (Java's way, to which an i without or with a dot is an i), or up to a
// NUL (C strings).
func Is(name, key string) bool {
	if before, _, cut := strings.Cut(name, "\x00"); cut {
		return sameFolded(before, key)
	}
	return name != key && len(name) >= len(key) && sameFolded(name, key)
}

// otherDots are the letters that are an i in upper or lower case alone.
var otherDots = strings.NewReplacer("\u0130", "i", "\u0131", "i")

func sameFolded(name, key string) bool {
	if strings.IndexByte(name, 0xc4) >= 0 { // both begin with it
		name = otherDots.Replace(name)
	}
	return strings.EqualFold(name, key)
}

// Fold returns a text that is the same for all names of which one may be taken for another: if Is(a, b), then
// Fold(a) == Fold(b).
func Fold(name string) string {
	name, _, _ = strings.Cut(name, "\x00")
	return strings.Map(func(r rune) rune {
		if r == '\u0130' || r == '\u0131' {
			return 'I'
		}
		least := r
		for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
			least = min(least, other)
		}
		return least
	}, name)
}
