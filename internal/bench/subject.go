package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"
)

// path is a pairing of transports, client to proxy to upstream.
type path int

const (
	stdioToStdio path = iota
	httpToStdio
	httpToJSON // HTTP on both sides, the upstream answers with JSON
	httpToSSE  // the same, the upstream answers with a stream of one event
)

var allPaths = []path{stdioToStdio, httpToStdio, httpToJSON, httpToSSE}

func (p path) String() string {
	return [...]string{"stdio-stdio", "http-stdio", "http-http-json", "http-http-sse"}[p]
}

// overStdio reports whether the client speaks stdio, stdioUpstream whether the
// upstream does.
func (p path) overStdio() bool     { return p == stdioToStdio }
func (p path) stdioUpstream() bool { return p == stdioToStdio || p == httpToStdio }

// subject is something that calls are measured through.
type subject struct {
	name  string
	start func(context.Context, site) (*running, error)
}

// site is where a subject is started: on a path, in front of an upstream.
type site struct {
	path     path
	self     string // this command's executable
	dir      string // for a subject's files
	payload  int    // bytes of text in a call's answer
	modern   bool   // the era of the protocol, of load and upstream
	procs    int    // processors that the upstream uses
	bare     bool   // the HTTP upstream is
	upstream *running
}

// running is a subject that answers.
type running struct {
	process *process // nil for the direct HTTP connection
	addr    string   // of an HTTP subject
	opener  string   // where sessions are opened instead; "": nowhere else
	cpu     meter
}

// stop ends the subject's process. A nil subject needs no stopping.
func (r *running) stop() {
	if r != nil && r.process != nil {
		r.process.stop()
	}
}

// explain adds to err what the subject's process last said.
func (r *running) explain(err error) error {
	if r.process == nil || r.process.stderr.String() == "" {
		return err
	}
	return fmt.Errorf("%w; it said:\n%s", err, r.process.stderr)
}

// load opens callers' connections to the subject. Over HTTP towards a stdio
// upstream they share one session, as each would cost a process; else each
// has its own.
func (r *running) load(s site, callers int) (load, error) {
	if s.path.overStdio() {
		return newStdioLoad(r.process.stdin, r.process.stdout, callers, s.modern)
	}
	l, err := newHTTPLoad(cmp.Or(r.opener, r.addr), callers, s.path.stdioUpstream(), s.modern)
	if err != nil {
		return nil, err
	}
	return l, l.move(r.addr)
}

// The subjects' names.
const (
	direct       = "direct"
	nginx        = "nginx"
	reverseProxy = "ReverseProxy"
	copyingPipe  = "pipe"
	typedProxy   = "mcp-go"
	cannedServer = "streamhttp"
	fsmProxy     = "fsm-proxy"
)

// subjectsOf are what a path is measured through, fsm-proxy's builds last.
func subjectsOf(p path, builds []subject) []subject {
	var own []subject
	switch p {
	case stdioToStdio:
		own = []subject{{direct, startDirect}, {copyingPipe, startRole("pipe")}, {typedProxy, startRole("mcp-go")}}
	case httpToStdio:
		own = []subject{{cannedServer, startRole("streamhttp")}, {typedProxy, startRole("mcp-go", "-listen")}}
	case httpToJSON, httpToSSE:
		own = []subject{
			{direct, startDirect}, {nginx, startNginxAt},
			{reverseProxy, startRole("reverse-proxy")}, {typedProxy, startRole("mcp-go", "-listen")},
		}
	}
	return append(own, builds...)
}

// startUpstream starts the HTTP upstream of a path, or nothing where each
// subject starts its own over stdio.
func startUpstream(s site) (*running, error) {
	if s.path.stdioUpstream() {
		return nil, nil
	}
	argv := s.upstreamCommand("upstream-http")
	if s.path == httpToSSE {
		argv = append(argv, "-sse")
	}
	if s.bare {
		argv = append(argv, "-bare")
	}
	return startListening(argv)
}

// startListening starts a role that tells its address.
func startListening(argv []string) (*running, error) {
	p, err := startProcess(argv)
	if err != nil {
		return nil, err
	}
	addr, err := p.address()
	if err != nil {
		p.stop()
		return nil, err
	}
	return &running{process: p, addr: addr, cpu: p.cpu}, nil
}

// awaitRunning waits for a server that was told its address.
func awaitRunning(ctx context.Context, p *process, addr string) (*running, error) {
	if err := awaitListener(ctx, p, addr); err != nil {
		p.stop()
		return nil, err
	}
	return &running{process: p, addr: addr, cpu: p.cpu}, nil
}

// wrapped are the arguments that say what to wrap: a URL behind urlFlag, or a
// command after "--".
func (s site) wrapped(urlFlag string) []string {
	if s.upstream != nil {
		return []string{urlFlag, "http://" + s.upstream.addr + mcpPath}
	}
	return append([]string{"--"}, s.upstreamCommand("upstream-stdio")...)
}

func (s site) upstreamCommand(role string) []string {
	return []string{s.self, roleWord, role, "-payload", strconv.Itoa(s.payload), "-procs", strconv.Itoa(s.procs), "-modern=" + strconv.FormatBool(s.modern)}
}

// startDirect measures the upstream itself; its CPU time stands in the
// proxy's place.
func startDirect(_ context.Context, s site) (*running, error) {
	if s.upstream == nil {
		return startPiped(s.upstreamCommand("upstream-stdio"))
	}
	return &running{addr: s.upstream.addr, cpu: s.upstream.cpu}, nil
}

func startPiped(argv []string) (*running, error) {
	p, err := startProcess(argv)
	if err != nil {
		return nil, err
	}
	return &running{process: p, cpu: p.cpu}, nil
}

func startNginxAt(ctx context.Context, s site) (*running, error) {
	dir, err := os.MkdirTemp(s.dir, "nginx")
	if err != nil {
		return nil, fmt.Errorf("making a folder for nginx: %w", err)
	}
	return startNginx(ctx, dir, s.upstream.addr, s.path == httpToSSE)
}

// startRole starts a proxy that this command contains.
func startRole(role string, flags ...string) func(context.Context, site) (*running, error) {
	return func(_ context.Context, s site) (*running, error) {
		argv := append([]string{s.self, roleWord, role}, flags...)
		argv = append(argv, s.wrapped("-upstream")...)
		if s.path.overStdio() {
			return startPiped(argv)
		}
		return startListening(argv)
	}
}
