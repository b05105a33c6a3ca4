package postgres

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// carries is the first version of PgBouncer that can carry prepared statements in transaction mode.
const carries = 21 // of 1.x

// PgBouncer starts a PgBouncer in transaction mode in front of the server, with few connections to it, and returns what makes
// a URL through it of one to the server: as docs/replicas.md has it for its version, or, where it is not prepared for that, as
// if nobody had read that. Where there is none on the machine the test fails, and says what is missing. It ends with the test.
func (s *Server) PgBouncer(prepared bool) (pooled func(url string) string) {
	s.t.Helper()
	program, minor := s.pgBouncer()
	address := mcptest.FreeAddress(s.t)
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		s.t.Fatal(err)
	}
	settings, further := "[databases]\n* = host=127.0.0.1 port="+s.port+"\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = "+port+`
unix_socket_dir =
auth_type = trust
auth_file = users
pool_mode = transaction
default_pool_size = 4
max_client_conn = 500
`, ""
	switch {
	case minor >= carries && prepared:
		settings += "max_prepared_statements = 200\n"
	case minor >= carries:
		settings += "max_prepared_statements = 0\n"
	case prepared:
		further = "&default_query_exec_mode=exec"
	}
	for name, text := range map[string]string{"pgbouncer.ini": settings, "users": "\"fsm\" \"\"\n"} {
		if err := os.WriteFile(filepath.Join(s.folder, name), []byte(text), 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
	c := exec.Command(program, "pgbouncer.ini")
	c.Dir = s.folder
	s.as(c)
	s.listens(c, address)
	return func(url string) string {
		return strings.Replace(url, "127.0.0.1:"+s.port+"/", address+"/", 1) + further
	}
}

// pgBouncer is where PgBouncer's program is, and the second number of its version.
func (s *Server) pgBouncer() (program string, minor int) {
	s.t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program, err = exec.LookPath("/usr/sbin/pgbouncer") // Debian's, which is not on everybody's path
	}
	if err != nil {
		s.t.Fatal("PgBouncer is not installed, and this test starts one of its own: install it (Debian: apt-get install pgbouncer), or put its program on the path")
	}
	said, err := exec.Command(program, "--version").Output()
	if err == nil {
		_, err = fmt.Sscanf(string(said), "PgBouncer 1.%d", &minor)
	}
	if err != nil {
		s.t.Fatalf("%v: %s", err, said)
	}
	return program, minor
}

// listens starts a program, and waits until it listens at an address. It ends with the test.
func (s *Server) listens(c *exec.Cmd, address string) {
	s.t.Helper()
	var said strings.Builder
	c.Stdout, c.Stderr = &said, &said
	if err := c.Start(); err != nil {
		s.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = c.Wait() }() // it is killed
	s.t.Cleanup(func() { _ = c.Process.Kill(); <-ended })
	mcptest.Await(s.t, "a program listens", func() bool {
		select {
		case <-ended:
			s.t.Fatalf("%s has ended: %s", c.Path, &said)
		default:
		}
		connection, err := net.Dial("tcp", address)
		if err != nil {
			return false
		}
		return connection.Close() == nil
	})
}
