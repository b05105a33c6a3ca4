package strictyaml

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Level is how grave a finding is. The zero value is LevelError.
type Level uint8

// The levels of findings, gravest first.
const (
	LevelError Level = iota
	LevelWarning
	LevelNote
)

// String returns "error", "warning" or "note".
func (l Level) String() string {
	switch l {
	case LevelError:
		return "error"
	case LevelWarning:
		return "warning"
	case LevelNote:
		return "note"
	}
	return fmt.Sprintf("Level(%d)", uint8(l))
}

// MarshalText returns the level's word, for JSON.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// Finding is one thing to say about a file. Line and Column count from
// 1, columns in characters; both are 0 where the finding has no place in the
// file. Code is a short stable word for machines, Message a sentence for people
// that holds the offending text, on one line that cannot disturb a terminal.
type Finding struct {
	Level   Level
	File    string
	Line    int
	Column  int
	Code    string
	Message string
	// Subject is the name that it is about, where findings that differ in nothing
	// else may be printed as one.
	Subject string
}

// String returns "file:line:column: level: message (code)".
func (f Finding) String() string {
	return f.Place() + ": " + f.Level.String() + ": " + f.Message + " (" + f.Code + ")"
}

// Place returns "file:line:column", or the file alone.
func (f Finding) Place() string {
	if f.Line == 0 {
		return Printable(f.File)
	}
	return fmt.Sprintf("%s:%d:%d", Printable(f.File), f.Line, f.Column)
}

// Findings are everything found about a file, in the file's order.
type Findings []Finding

// Errors returns the findings of level error.
func (f Findings) Errors() Findings { return f.at(LevelError) }

// Warnings returns the findings of level warning.
func (f Findings) Warnings() Findings { return f.at(LevelWarning) }

// Notes returns the findings of level note.
func (f Findings) Notes() Findings { return f.at(LevelNote) }

func (f Findings) at(l Level) Findings {
	var out Findings
	for _, x := range f {
		if x.Level == l {
			out = append(out, x)
		}
	}
	return out
}

// Strict returns a copy in which every warning is an error.
func (f Findings) Strict() Findings {
	out := slices.Clone(f)
	for i := range out {
		if out[i].Level == LevelWarning {
			out[i].Level = LevelError
		}
	}
	return out
}

// Merge returns f and more together, in the file's order. What more says at a
// place, under a code, takes the place of what f says there under it: a live
// upstream makes a finding about a policy graver or lighter.
func (f Findings) Merge(more Findings) Findings {
	type key struct {
		file, code   string
		line, column int
	}
	said := map[key]bool{}
	for _, x := range more {
		said[key{x.File, x.Code, x.Line, x.Column}] = x.Line != 0
	}
	out := slices.Clone(more)
	for _, x := range f {
		if !said[key{x.File, x.Code, x.Line, x.Column}] {
			out = append(out, x)
		}
	}
	out.sort()
	return out
}

// Err returns nil if there is no finding of level error, else one error whose
// text has a line for each.
func (f Findings) Err() error {
	errs := f.Errors()
	if len(errs) == 0 {
		return nil
	}
	return errors.New(errs.String())
}

// String returns a line for each finding.
func (f Findings) String() string {
	lines := make([]string, len(f))
	for i, x := range f {
		lines[i] = x.String()
	}
	return strings.Join(lines, "\n")
}

// sort orders by place; findings without a place come last.
func (f Findings) sort() {
	slices.SortStableFunc(f, func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(a.File, b.File),
			cmp.Compare(placeless(a), placeless(b)),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Level, b.Level),
		)
	})
}

func placeless(f Finding) int {
	if f.Line == 0 {
		return 1
	}
	return 0
}
