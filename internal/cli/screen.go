package cli

import (
	"io"
	"os"

	"github.com/mattn/go-colorable"
	"github.com/spf13/pflag"
	"golang.org/x/term"
)

// colorFlag says when output has colours.
type colorFlag struct{ when string }

func (f *colorFlag) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.when, "color", "auto", "`WHEN` to print colours: auto (on a terminal, unless NO_COLOR is set or TERM is dumb), always (and source excerpts, as on a terminal) or never")
}

// screen is where people read findings.
type screen struct {
	out      io.Writer
	excerpts bool // the source is shown below each finding
	colors   bool
	width    int // in columns
}

// usualWidth is the width of what is no terminal.
const usualWidth = 100

// screen is what out is by the flag.
func (f colorFlag) screen(out io.Writer) (screen, error) {
	terminal := isTerminal(out)
	s := screen{out: out, excerpts: terminal, width: usualWidth}
	switch f.when {
	case "auto":
		s.colors = terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	case "always":
		s.colors, s.excerpts = true, true
	case "never":
	default:
		return s, usagef("--color %q is none of auto, always, never", f.when)
	}
	if terminal {
		file := out.(*os.File)
		s.width = columns(file)
		if s.colors {
			s.out = colorable.NewColorable(file) // consoles of Windows that know no escape sequences
		}
	}
	return s, nil
}

// columns is how wide a terminal is, usualWidth where it does not say.
func columns(terminal *os.File) int {
	if width, _, err := term.GetSize(int(terminal.Fd())); err == nil && width > 0 {
		return width
	}
	return usualWidth
}

// style is how a piece of text looks, as the parameters of an SGR sequence.
type style string

// The styles of findings.
const (
	bold   style = "1"
	faint  style = "2"
	red    style = "1;31"
	yellow style = "1;33"
	cyan   style = "1;36"
)

// paint is a text in a style, where there are colours.
func (s screen) paint(look style, text string) string {
	if !s.colors || text == "" {
		return text
	}
	return "\x1b[" + string(look) + "m" + text + "\x1b[0m"
}
