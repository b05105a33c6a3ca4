package demo

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode/utf8"
)

// printer shows the walk. It is safe for concurrent use: notifications arrive on
// a goroutine of their own.
type printer struct {
	out    io.Writer
	colour bool

	mu sync.Mutex // guards the output's order
}

// style is how a piece of text looks on a terminal.
type style string

const (
	bold   style = "1"
	dim    style = "2"
	red    style = "31"
	green  style = "32"
	yellow style = "33"
	cyan   style = "36"
)

func (p *printer) paint(s style, text string) string {
	if !p.colour {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

func (p *printer) line(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, format+"\n", args...)
}

func (p *printer) begin(url string, tools []string) {
	p.line("%s", p.paint(bold, "The Crossroads"))
	p.line("A server with seven tools that knows nothing of states. In front of it, at")
	p.line("%s, fsm-proxy with a policy that says which exist when.\n", p.paint(cyan, url))
	p.line("    %s entry", p.paint(cyan, "state   "))
	p.tools(tools)
}

func (p *printer) call(number int, tool, arguments string) {
	if arguments = " " + arguments; arguments == " {}" {
		arguments = ""
	}
	p.line("\n%3d %s%s", number, p.paint(bold, tool), arguments)
}

func (p *printer) notification(method string) {
	p.line("    %s %s", p.paint(yellow, "notified"), method)
}

func (p *printer) verdict(r reply) {
	colours := map[verdict]style{refused: red, failed: yellow, succeeded: green}
	p.line("    %s %s", p.paint(colours[r.verdict], fmt.Sprintf("%-8s", r.verdict)), wrapped(r.text))
}

// Texts are wrapped so that a terminal of 80 columns does not have to.
const (
	textWidth  = 66
	textIndent = "             " // as wide as a verdict
)

// wrapped breaks a text into lines that stand below each other behind a verdict.
func wrapped(text string) string {
	var b strings.Builder
	column := 0
	for _, word := range strings.Fields(text) {
		width := utf8.RuneCountInString(word)
		switch {
		case column == 0:
		case column+1+width > textWidth:
			b.WriteString("\n" + textIndent)
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += width
	}
	return b.String()
}

// moved shows where a call led.
func (p *printer) moved(from string, r reply, tools []string) {
	switch {
	case r.restarted:
		p.line("    %s %s, and the run is complete. The next one begins at %s", p.paint(cyan, "state   "), from, p.paint(bold, r.state))
		p.tools(tools)
	case from != r.state:
		p.line("    %s %s → %s", p.paint(cyan, "state   "), from, p.paint(bold, r.state))
		p.tools(tools)
	default:
		p.line("    %s", p.paint(dim, "state    "+r.state))
	}
}

// tools shows what exists now.
func (p *printer) tools(now []string) {
	p.line("    %s %s", p.paint(cyan, "tools   "), wrapped(strings.Join(now, ", ")))
}

func (p *printer) end(steps int) {
	p.line("\n%s\n", p.paint(green, fmt.Sprintf("All %d calls went as the policy says.", steps)))
}
