// Package screen is where people read what commands print: a terminal, with colours, or what is none.
package screen

import (
	"io"
	"os"

	"github.com/mattn/go-colorable"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/fsm-proxy/fsm-proxy/internal/exit"
	"github.com/fsm-proxy/fsm-proxy/internal/host"
	"github.com/fsm-proxy/fsm-proxy/internal/visible"
)

// Flag says when output has colours.
type Flag struct{ when string }

// Register adds the flag; more is what it does beside.
func (f *Flag) Register(flags *pflag.FlagSet, more string) {
	flags.StringVar(&f.when, "color", "auto", "`WHEN` to print colours: auto (on a terminal, unless NO_COLOR is set or TERM is dumb), always"+more+" or never")
}

// Screen is where people read.
type Screen struct {
	Out      io.Writer
	Terminal bool
	Always   bool // it is to look like a terminal, whatever it is
	Colors   bool
	Width    int // in columns
}

// usualWidth is the width of what is no terminal.
const usualWidth = 100

// Screen is what out is by the flag.
func (f Flag) Screen(out io.Writer) (Screen, error) {
	s := Screen{Out: out, Terminal: host.IsTerminal(out), Width: usualWidth}
	switch f.when {
	case "auto":
		s.Colors = s.Terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	case "always":
		s.Colors, s.Always = true, true
	case "never":
	default:
		return s, exit.Usagef("--color %q is none of auto, always, never", f.when)
	}
	if s.Terminal {
		file := out.(*os.File)
		s.Width = Columns(file)
		if s.Colors {
			s.Out = colorable.NewColorable(file) // consoles of Windows that know no escape sequences
		}
	}
	return s, nil
}

// Columns is how wide a terminal is, usualWidth where it does not say.
func Columns(terminal *os.File) int {
	if width, _, err := term.GetSize(int(terminal.Fd())); err == nil && width > 0 {
		return width
	}
	return usualWidth
}

// Style is how a piece of text looks, as the parameters of an SGR sequence.
type Style string

// The styles. The zero Style is that of plain text.
const (
	Bold   Style = "1"
	Faint  Style = "2"
	Red    Style = "1;31"
	Green  Style = "1;32"
	Yellow Style = "1;33"
	Cyan   Style = "1;36"
)

// Paint is a text in a style, where there are colours.
func (s Screen) Paint(look Style, text string) string {
	if !s.Colors || text == "" || look == "" {
		return text
	}
	return "\x1b[" + string(look) + "m" + text + "\x1b[0m"
}

// JSON is a JSON text as it is printed: with what people do not see, and terminals may act on, escaped where it is a
// terminal, else as it is.
func (s Screen) JSON(text []byte) []byte {
	if s.Terminal {
		return visible.JSON(text)
	}
	return text
}
