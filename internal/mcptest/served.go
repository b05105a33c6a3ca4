package mcptest

import (
	"errors"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"testing"
)

// Served returns a raw upstream that runs as a process which serves Streamable HTTP; ServedCommand is what starts one. Such
// a process reports to the test at the control address, where its test listens: port 0 takes a free one. The server
// must have been given to Main under the name.
func Served(t testing.TB, name, control string) *Upstream {
	t.Helper()
	server, ok := registered[name]
	if !ok {
		t.Fatalf("raw upstream %q was not given to mcptest.Main", name)
	}
	u := newUpstream(name, server)
	u.control = listenControl(t, u, control)
	return u
}

// ServedCommand is the argument list that serves the upstream at an address, until SIGTERM, on which it ends at once.
func (u *Upstream) ServedCommand(address string) []string {
	return []string{self(), webWord, u.name, u.control.address(), address}
}

// serveWeb serves until SIGTERM.
func serveWeb(name, control, address string) int {
	remote, err := dialControl(control)
	server, ok := registered[name]
	if err != nil || !ok {
		return 1
	}
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM)
	front := &http.Server{Addr: address, Handler: newWeb(server, remote)}
	go func() {
		<-told
		front.Close()
	}()
	if err := front.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return 1
	}
	return 0
}
