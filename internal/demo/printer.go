package demo

import (
	"fmt"
	"io"
	"strings"
	"sync"
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
	p.line("A server with seven tools that knows nothing of states, and fsm-proxy in front of it at")
	p.line("%s, with a policy that says which of them exist when.\n", p.paint(cyan, url))
	p.line("    state entry, %s", p.now(tools))
}

func (p *printer) call(number int, tool, arguments string) {
	if arguments == "{}" {
		arguments = ""
	}
	p.line("\n%3d %s %s", number, p.paint(bold, tool), arguments)
}

func (p *printer) notification(method string) {
	p.line("    %s %s", p.paint(yellow, "notified"), method)
}

func (p *printer) verdict(r reply) {
	colours := map[verdict]style{refused: red, failed: yellow, succeeded: green}
	p.line("    %s %s", p.paint(colours[r.verdict], fmt.Sprintf("%-8s", r.verdict)), r.text)
}

// moved shows where a call led.
func (p *printer) moved(from string, r reply, tools []string) {
	switch {
	case r.restarted:
		p.line("    %s %s, and the run is complete. The next one begins at %s,", p.paint(cyan, "state   "), from, p.paint(bold, r.state))
		p.line("             %s", p.now(tools))
	case from != r.state:
		p.line("    %s %s → %s, %s", p.paint(cyan, "state   "), from, p.paint(bold, r.state), p.now(tools))
	default:
		p.line("    %s", p.paint(dim, "state    "+r.state))
	}
}

func (p *printer) now(tools []string) string {
	return p.paint(dim, "tools now: ") + strings.Join(tools, ", ")
}

func (p *printer) end(steps int) {
	p.line("\n%s\n", p.paint(green, fmt.Sprintf("All %d calls went as the policy says.", steps)))
}
