//go:build unix

package upstream

import (
	"context"
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

// The host that Reachable connects to is the one that connections are made to.
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

// A command whose last starts have all failed is unready, with the reason, but for
// what it said last: probers are strangers. Probes have it tried again, and one start
// that succeeds makes it ready.
func TestReachableCommand(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := child("fragile")
	cfg.Env = append(cfg.Env, brokenVar+"="+broken)
	cfg.Trial = opening(t)
	s := newServer(t, cfg)
	if err := s.Reachable(); err != nil {
		t.Errorf("before the first start: %v", err)
	}
	later := func() { // the pause has passed
		s.mu.Lock()
		defer s.mu.Unlock()
		s.failed, s.blocked = time.Time{}, time.Time{}
	}
	if _, err := s.Dial(t.Context(), opening(t), newRecorder()); err == nil || !strings.Contains(err.Error(), "database") {
		t.Fatal(err)
	}
	if err := s.Reachable(); err != nil {
		t.Errorf("after one start that failed: %v", err)
	}
	var unready error
	eventually(t, func() bool {
		later()
		unready = s.Reachable()
		return unready != nil
	})
	contains(t, unready.Error(), "starts have failed", "exit status 3", "tried again", "the log")
	if strings.Contains(unready.Error(), "database") {
		t.Errorf("a prober is told what the child said: %v", unready)
	}
	if err := os.Remove(broken); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool {
		later()
		return s.Reachable() == nil
	})
	eventually(t, func() bool { return s.Children() == 0 }) // nobody has called
}

// Probes start nothing beside a client's own start: some commands can run once only.
func TestReachableBesideAStart(t *testing.T) {
	slow := filepath.Join(t.TempDir(), "slow")
	s := newServer(t, Config{Command: []string{"/bin/sh", "-c", "test -e " + slow + " && exec sleep 60; exit 3"}, Trial: opening(t)})
	if _, err := s.Dial(t.Context(), opening(t), newRecorder()); err == nil {
		t.Fatal("a broken command started")
	}
	if err := os.WriteFile(slow, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.failed, s.blocked = time.Time{}, time.Time{}
	s.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = s.Dial(ctx, opening(t), newRecorder())
	}()
	eventually(t, func() bool { return s.Children() == 1 })
	_ = s.Reachable()
	s.mu.Lock()
	if s.trying {
		t.Error("a second process is started")
	}
	s.mu.Unlock()
	cancel()
	<-ended
}

// While a connection is open the proxy stays ready: its client would be cut off.
func TestReachableWhileOneLives(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken")
	cfg := child("fragile")
	cfg.Env = append(cfg.Env, brokenVar+"="+broken)
	s := newServer(t, cfg)
	c := dial(t, s, newRecorder())
	if err := os.WriteFile(broken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range fewStarts {
		s.mu.Lock()
		s.blocked = time.Time{}
		s.mu.Unlock()
		if _, err := s.Dial(t.Context(), opening(t), newRecorder()); err == nil {
			t.Fatal("a broken command started")
		}
	}
	if err := s.Reachable(); err != nil {
		t.Error(err)
	}
	c.Close()
	<-c.gone
	if err := s.Reachable(); err == nil {
		t.Error("the last connection has gone, and no other can be made")
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
