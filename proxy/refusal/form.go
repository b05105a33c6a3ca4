package refusal

import "github.com/fsm-proxy/fsm-proxy/internal/words"

// Form is how a call is refused. The zero value is an error result with all that
// helps to go on.
type Form uint8

// The forms of refusals.
const (
	Error  Form = iota
	Plain       // without isError, for frameworks that abort on it
	Opaque      // says only that it is not available
)

var forms = []string{"error", "plain", "opaque"}

// String is the word of the command line.
func (f Form) String() string { return forms[f] }

// UnmarshalText reads the word of the command line.
func (f *Form) UnmarshalText(text []byte) error { return words.Read(f, text, forms) }

// MarshalText returns the word of the command line.
func (f Form) MarshalText() ([]byte, error) { return []byte(f.String()), nil }
