//go:build unix

package upstream

import (
	"net"
	neturl "net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func address(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func TestReachableURL(t *testing.T) {
	l := address(t)
	s := newServer(t, Config{URL: "http://" + l.Addr().String() + "/mcp"})
	if err := s.Reachable(); err != nil {
		t.Error(err)
	}
	l.Close()
	s.reach.at = time.Time{}
	err := s.Reachable()
	if err == nil {
		t.Fatal("nobody listens there")
	}
	contains(t, err.Error(), "connecting to "+l.Addr().String(), "is the server up?")
}

// The host that is knocked at is the one that connections are made to.
func TestReachAddress(t *testing.T) {
	for url, want := range map[string]string{
		"http://mcp.example/mcp":              "mcp.example:80",
		"https://mcp.example/mcp":             "mcp.example:443",
		"http://[::1]:3000/":                  "[::1]:3000",
		"https://[fd00::1]/":                  "[fd00::1]:443",
		"socks5://gateway":                    "gateway:1080",
		"http://user:secret@gateway.lan:3128": "gateway.lan:3128",
	} {
		u, err := neturl.Parse(url)
		if err != nil {
			t.Fatal(err)
		}
		if got := hostPort(u); got != want {
			t.Errorf("%s: %s", url, got)
		}
	}
}

// A command that could not be started is unready for the pause, and what it said
// last is for no prober: those are strangers.
func TestReachableCommand(t *testing.T) {
	cfg := child("die")
	cfg.MinBackoff, cfg.MaxBackoff = time.Hour, time.Hour
	s := newServer(t, cfg)
	if err := s.Reachable(); err != nil {
		t.Errorf("before the first start: %v", err)
	}
	if _, err := s.Dial(t.Context(), opening(t), newRecorder()); err == nil || !strings.Contains(err.Error(), "database") {
		t.Fatal(err)
	}
	err := s.Reachable()
	if err == nil || strings.Contains(err.Error(), "database") {
		t.Fatalf("after a start that failed: %v", err)
	}
	contains(t, err.Error(), "tried again in", "the log")
	s.mu.Lock()
	s.blocked = time.Now()
	s.mu.Unlock()
	if err := s.Reachable(); err != nil {
		t.Errorf("after the pause: %v", err)
	}
}

// A program that has gone since the start is missed before the first call is.
func TestReachableCommandThatHasGone(t *testing.T) {
	program := filepath.Join(t.TempDir(), "server")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := newServer(t, Config{Command: []string{program}})
	if err := s.Reachable(); err != nil {
		t.Error(err)
	}
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	if err := s.Reachable(); err == nil || !strings.Contains(err.Error(), program) {
		t.Error(err)
	}
}
