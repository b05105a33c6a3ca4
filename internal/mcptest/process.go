package mcptest

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
)

// process is a raw upstream as a stdio server: what the test binary becomes when it is executed again.
type process struct {
	server Server
	remote *remote
	world  *world
	listen listings
	work   sync.WaitGroup

	mu  sync.Mutex // guards out
	out io.Writer
}

// serveProcess runs until standard input ends, or for good when the server is stubborn.
func serveProcess(name, address string) int {
	remote, err := dialControl(address)
	if err != nil {
		return 1
	}
	server, ok := registered[name]
	if !ok {
		return 1
	}
	if server.Stubborn {
		signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	}
	p := &process{server: server, remote: remote, world: newWorld(remote.gate), out: os.Stdout}
	eachLine(os.Stdin, p.handle)
	if server.Stubborn {
		remote.gate(endGate)
	}
	return 0
}

func (p *process) handle(line []byte) {
	p.remote.report(line)
	m := ParseMessage(line)
	if m.IsResponse() && p.world.answered(m) {
		return
	}
	if !p.server.Modern || p.modern(m) {
		p.server.Handle(&Exchange{Message: m, Modern: p.server.Modern, carrier: p, world: p.world})
	}
}

// modern does what all servers of the modern era do, and reports whether there is more to do.
func (p *process) modern(m Message) (more bool) {
	code, text := modernFault(m, nil)
	switch {
	case code != 0:
		p.send(Failure(m.ID, code, text))
	case m.Method == "subscriptions/listen":
		p.listen.begin(m, p.send)
	case m.Method == "notifications/cancelled":
		return !p.listen.endID(cancelled(m))
	default:
		return true
	}
	return false
}

// cancelled is the id of the request that a notification takes back.
func cancelled(m Message) json.RawMessage {
	var read struct {
		RequestID json.RawMessage `json:"requestId"`
	}
	_ = json.Unmarshal(m.Params, &read) // what cannot be read takes nothing back
	return read.RequestID
}

func (p *process) raw(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = io.WriteString(p.out, text) // a reader that is gone ends the process by SIGPIPE
}

func (p *process) send(line string)       { p.raw(line + "\n") }
func (p *process) answer(line string)     { p.raw(line + "\n") }
func (p *process) stderr(text string)     { _, _ = io.WriteString(os.Stderr, text) }
func (p *process) status(int, string)     {}
func (p *process) hang()                  {}
func (p *process) async(work func())      { p.work.Go(work) }
func (p *process) die()                   { os.Exit(3) }
func (p *process) truncate(answer string) { p.raw(answer[:len(answer)/2]); p.die() }

func (p *process) announce(line string) {
	if p.server.Modern {
		p.listen.announce(line)
		return
	}
	p.send(line)
}

func (p *process) spawn() {
	child := exec.Command(self(), idleWord, p.remote.line.RemoteAddr().String())
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	_ = child.Start() // the test sees by Upstream.Live whether it runs
}

// serveIdle is the child that Exchange.Spawn starts: it lives until it is killed or the test ends.
func serveIdle(address string) int {
	signal.Ignore(syscall.SIGINT, syscall.SIGHUP)
	remote, err := dialControl(address)
	if err != nil {
		return 1
	}
	remote.gate(endGate)
	return 0
}
