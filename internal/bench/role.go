package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"time"
)

// roleWord as the first argument makes this command play one of its own
// subjects instead of measuring.
const roleWord = "role"

// roles are what the command can be re-executed as, by name.
var roles = map[string]func(roleArgs) error{
	"upstream-stdio": func(a roleArgs) error { return playUpstreamStdio(a) },
	"upstream-http":  func(a roleArgs) error { return playUpstreamHTTP(a) },
	"pipe":           func(a roleArgs) error { return playPipe(a) },
	"reverse-proxy":  func(a roleArgs) error { return playReverseProxy(a) },
	"mcp-go":         func(a roleArgs) error { return playTyped(a) },
	"streamhttp":     func(a roleArgs) error { return playStreamHTTP(a) },
}

// roleArgs are the flags that the roles share.
type roleArgs struct {
	payload  int      // bytes of text in an upstream's answer
	procs    int      // processors that an upstream uses
	modern   bool     // the modern era of the protocol
	sse      bool     // an HTTP upstream answers as a stream
	bare     bool     // and is made of bare connections
	listen   bool     // HTTP downstream instead of stdio
	upstream string   // URL of the wrapped server, or
	command  []string // its command line
}

// playRole runs the role that args name, until its standard input ends.
func playRole(args []string) error {
	if len(args) == 0 || roles[args[0]] == nil {
		return fmt.Errorf("no such role: %q", args)
	}
	var a roleArgs
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.IntVar(&a.payload, "payload", 32, "bytes of text in an answer")
	flags.IntVar(&a.procs, "procs", 1, "processors of an upstream")
	flags.BoolVar(&a.modern, "modern", false, "speak the modern era")
	flags.BoolVar(&a.sse, "sse", false, "answer as a stream")
	flags.BoolVar(&a.bare, "bare", false, "serve on bare connections")
	flags.BoolVar(&a.listen, "listen", false, "serve HTTP instead of stdio")
	flags.StringVar(&a.upstream, "upstream", "", "URL of the wrapped server")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	a.command = flags.Args()
	return roles[args[0]](a)
}

func playUpstreamStdio(a roleArgs) error {
	runtime.GOMAXPROCS(a.procs)
	return serveStdio(newCanned(cannedText(a.payload), a.modern), os.Stdin, os.Stdout)
}

func playUpstreamHTTP(a roleArgs) error {
	runtime.GOMAXPROCS(a.procs)
	upstream := &httpUpstream{canned: newCanned(cannedText(a.payload), a.modern), sse: a.sse}
	if a.bare {
		return listenUntilStdinEnds(upstream.serve)
	}
	return serveHTTP(upstream)
}

// listenUntilStdinEnds gives serve a loopback listener, tells its address, and
// closes it at the end of standard input.
func listenUntilStdinEnds(serve func(net.Listener) error) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	fmt.Printf("%s%s\n", addressLine, l.Addr())
	go func() {
		io.Copy(io.Discard, os.Stdin) // however it ends, it has ended
		l.Close()
	}()
	return serve(l)
}

// serveHTTP serves h until standard input ends.
func serveHTTP(h http.Handler) error {
	return listenUntilStdinEnds(func(l net.Listener) error {
		server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
		if err := server.Serve(l); !errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("serving: %w", err)
		}
		return nil
	})
}

// playPipe is the limit of every stdio proxy: a child between two copies.
func playPipe(a roleArgs) error {
	cmd := exec.CommandContext(context.Background(), a.command[0], a.command[1:]...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("making a pipe: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("making a pipe: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", a.command[0], err)
	}
	go func() {
		io.Copy(in, os.Stdin) // an end of either side ends the child
		in.Close()
	}()
	_, err = io.Copy(os.Stdout, out)
	return errors.Join(err, cmd.Wait())
}
