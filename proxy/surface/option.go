package surface

import "github.com/fsm-proxy/fsm-proxy/internal/words"

// Surface is what clients are shown. The zero value chooses by client.
type Surface uint8

// The surfaces.
const (
	Auto    Surface = iota // dynamic, but static for clients known never to list again
	Dynamic                // lists change with the state
	Static                 // one list; what is not allowed is refused
)

// Annotate is what is added to results. The zero value is AnnotateOff on the
// dynamic surface and AnnotateText on the static one.
type Annotate uint8

// What can be added.
const (
	AnnotateAuto Annotate = iota
	AnnotateOff           // nothing
	AnnotateMeta          // _meta["fsm-proxy/state"]
	AnnotateText          // that, and a text item at the end of a tool's content
)

var (
	surfaces  = []string{"auto", "dynamic", "static"}
	annotates = []string{"auto", "off", "meta", "text"}
)

// String is the word of the command line.
func (s Surface) String() string { return surfaces[s] }

// String is the word of the command line.
func (a Annotate) String() string { return annotates[a] }

// UnmarshalText reads the word of the command line.
func (s *Surface) UnmarshalText(text []byte) error { return words.Read(s, text, surfaces) }

// UnmarshalText reads the word of the command line.
func (a *Annotate) UnmarshalText(text []byte) error { return words.Read(a, text, annotates) }

// MarshalText returns the word of the command line.
func (s Surface) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalText returns the word of the command line.
func (a Annotate) MarshalText() ([]byte, error) { return []byte(a.String()), nil }
