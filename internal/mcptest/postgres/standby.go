package postgres

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// Standby starts a standby of the server, which waits for it with each commit from then on: what is confirmed is there, too.
func (s *Server) Standby() *Server {
	s.t.Helper()
	b := &Server{t: s.t, bin: s.bin}
	b.begin()
	from := fmt.Sprintf("host=127.0.0.1 port=%s user=fsm", s.port)
	b.must("pg_basebackup", "--pgdata", b.data(), "--dbname", from, "--write-recovery-conf", "--checkpoint", "fast", "--no-sync")
	b.Up()
	s.executes("ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
	mcptest.Await(s.t, "the standby is waited for", func() bool {
		return s.finds("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync' AND state = 'streaming'")
	})
	return b
}

// Or is the URL of a database at whichever of two servers can be written.
func (s *Server) Or(other *Server, url string) string {
	here := "127.0.0.1:" + s.port
	return strings.Replace(url, here, here+",127.0.0.1:"+other.port, 1) + "&target_session_attrs=read-write"
}

// Promote has a standby take the place of its primary.
func (s *Server) Promote() {
	s.t.Helper()
	s.must("pg_ctl", "--pgdata", s.data(), "--wait", "promote")
}

// Kill ends the server as when its machine is gone.
func (s *Server) Kill() {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	if err != nil {
		s.t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	others, err := exec.CommandContext(context.Background(), "ps", "-o", "pid=", "--ppid", first).Output()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, text := range append([]string{first}, strings.Fields(string(others))...) {
		pid, err := strconv.Atoi(text)
		if err != nil {
			s.t.Fatal(err)
		}
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill() // it may have ended with the first
		}
	}
}

// executes executes texts one after the other.
func (s *Server) executes(texts ...string) {
	s.t.Helper()
	c, err := pgx.Connect(context.Background(), s.url("postgres"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close(context.Background())
	for _, text := range texts {
		if _, err := c.Exec(context.Background(), text); err != nil {
			s.t.Fatal(err)
		}
	}
}

// finds reports whether a query returns anything.
func (s *Server) finds(query string) bool {
	s.t.Helper()
	c, err := pgx.Connect(context.Background(), s.url("postgres"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close(context.Background())
	done, err := c.Exec(context.Background(), query)
	if err != nil {
		s.t.Fatal(err)
	}
	return done.RowsAffected() > 0
}
