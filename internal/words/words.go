// Package words reads settings that are one of a few words.
package words

import (
	"fmt"
	"strings"
)

// Read sets a value to the index of the word that a text is. The error names the words that there are.
func Read[T ~uint8](v *T, text []byte, words []string) error {
	for i, w := range words {
		if w == string(text) {
			*v = T(i)
			return nil
		}
	}
	return fmt.Errorf("%q is none of %s", text, strings.Join(words, ", "))
}
