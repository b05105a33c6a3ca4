// Package postgres starts a PostgreSQL of a test's own.
package postgres

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// Server is a PostgreSQL in a folder of its own, which listens on a loopback port. It ends with the test.
type Server struct {
	t      testing.TB
	bin    string // the folder of its programs
	folder string
	port   string
}

// Start starts a server. Where there is none on the machine the test fails, and says what is missing.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{t: t, bin: programs(t)}
	s.begin()
	s.must("initdb", "--pgdata", s.data(), "--username", "fsm", "--auth", "trust", "--encoding", "UTF8", "--no-sync")
	s.Up()
	return s
}

// begin makes the server's folder, and finds a port. It has the server end with the test.
func (s *Server) begin() {
	s.t.Helper()
	var err error
	if s.folder, err = os.MkdirTemp("", "fsm-proxy-pg-"); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = os.RemoveAll(s.folder) }) // what is left of a temporary folder
	if err := s.own(); err != nil {
		s.t.Fatal(err)
	}
	if _, s.port, err = net.SplitHostPort(mcptest.FreeAddress(s.t)); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = s.run("pg_ctl", "--pgdata", s.data(), "--mode", "immediate", "--wait", "stop") }) // it may be down
}

// Programs is the folder of its programs, of the same version.
func (s *Server) Programs() string { return s.bin }

func (s *Server) data() string { return filepath.Join(s.folder, "data") }

// URL is where a new database of the server is.
func (s *Server) URL(database string) string {
	s.t.Helper()
	s.executes("CREATE DATABASE " + pgx.Identifier{database}.Sanitize())
	return s.url(database)
}

func (s *Server) url(database string) string {
	return fmt.Sprintf("postgres://fsm@127.0.0.1:%s/%s?sslmode=disable", s.port, database)
}

// Up starts the server, with further settings, such as "synchronous_commit=off".
func (s *Server) Up(settings ...string) {
	s.t.Helper()
	options := "-c listen_addresses=127.0.0.1 -c port=" + s.port + " -c unix_socket_directories='' -c fsync=off -c max_connections=200"
	for _, x := range settings {
		options += " -c " + x
	}
	s.must("pg_ctl", "--pgdata", s.data(), "--log", filepath.Join(s.folder, "log"), "--options", options, "--wait", "start")
}

// Down ends the server, at once and without a word where it is to crash.
func (s *Server) Down(crash bool) {
	s.t.Helper()
	mode := "fast"
	if crash {
		mode = "immediate"
	}
	s.must("pg_ctl", "--pgdata", s.data(), "--mode", mode, "--wait", "stop")
}

func (s *Server) must(name string, args ...string) {
	s.t.Helper()
	if err := s.run(name, args...); err != nil {
		log, _ := os.ReadFile(filepath.Join(s.folder, "log")) // there is none before the first start
		s.t.Fatalf("%v\n%s", err, log)
	}
}

func (s *Server) run(name string, args ...string) error {
	c := s.command(name, args...)
	out, err := os.CreateTemp(s.folder, "out") // a pipe would stay open for as long as the server runs
	if err != nil {
		return err
	}
	defer out.Close()
	c.Stdout, c.Stderr = out, out
	if err := c.Run(); err != nil {
		said, _ := os.ReadFile(out.Name())
		return fmt.Errorf("%s: %w\n%s", name, err, said)
	}
	return nil
}

func (s *Server) command(name string, args ...string) *exec.Cmd {
	c := exec.Command(filepath.Join(s.bin, name), args...)
	c.Dir = s.folder
	s.as(c)
	return c
}

// programs is the folder of PostgreSQL's programs: those on the path, or the newest that Debian or Homebrew has put elsewhere.
func programs(t testing.TB) string {
	t.Helper()
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err != nil {
			t.Fatal(err)
		}
		return filepath.Dir(path)
	}
	var found []string
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin/initdb", "/opt/homebrew/opt/postgresql@*/bin/initdb", "/usr/local/opt/postgresql@*/bin/initdb", "/usr/pgsql-*/bin/initdb"} {
		some, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, some...)
	}
	if found == nil {
		t.Fatal("PostgreSQL is not installed, and this test starts one of its own: install its server (Debian: apt-get install postgresql), or put its programs (initdb, pg_ctl) on the path")
	}
	slices.SortFunc(found, func(a, b string) int { return len(a) - len(b) + strings.Compare(a, b) })
	return filepath.Dir(found[len(found)-1])
}
