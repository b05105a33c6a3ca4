package postgres

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// prepares is the first version of PgBouncer that carries prepared statements in transaction mode.
const prepares = 21 // of 1.x

// PgBouncer starts a PgBouncer in transaction mode in front of the server, with few connections to it, and returns what makes
// a URL through it of one to the server, as docs/replicas.md has it for its version. Where there is none on the machine the
// test fails, and says what is missing. It ends with the test.
func (s *Server) PgBouncer() (pooled func(url string) string) {
	s.t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		if program, err = exec.LookPath("/usr/sbin/pgbouncer"); err != nil {
			s.t.Fatal("PgBouncer is not installed, and this test starts one of its own: install it (Debian: apt-get install pgbouncer), or put its program on the path")
		}
	}
	address := mcptest.FreeAddress(s.t)
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		s.t.Fatal(err)
	}
	settings := "[databases]\n* = host=127.0.0.1 port=" + s.port + "\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = " + port + `
unix_socket_dir =
auth_type = trust
auth_file = users
pool_mode = transaction
default_pool_size = 4
max_client_conn = 500
`
	further := "&default_query_exec_mode=exec"
	if said, err := exec.Command(program, "--version").Output(); err != nil {
		s.t.Fatal(err)
	} else if minor := regexp.MustCompile(`1\.(\d+)`).FindSubmatch(said); minor != nil {
		if n, _ := strconv.Atoi(string(minor[1])); n >= prepares { // the expression has digits alone
			settings, further = settings+"max_prepared_statements = 200\n", ""
		}
	}
	for name, text := range map[string]string{"pgbouncer.ini": settings, "users": "\"fsm\" \"\"\n"} {
		if err := os.WriteFile(filepath.Join(s.folder, name), []byte(text), 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
	c := exec.Command(program, "pgbouncer.ini")
	c.Dir = s.folder
	s.as(c)
	var said strings.Builder
	c.Stdout, c.Stderr = &said, &said
	if err := c.Start(); err != nil {
		s.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	s.t.Cleanup(func() { _ = c.Process.Kill(); <-ended })
	mcptest.Await(s.t, "PgBouncer listens", func() bool {
		select {
		case err := <-ended:
			ended <- err
			s.t.Fatalf("PgBouncer has ended: %v\n%s", err, &said)
		default:
		}
		connection, err := net.Dial("tcp", address)
		if err != nil {
			return false
		}
		return connection.Close() == nil
	})
	return func(url string) string {
		return strings.Replace(url, fmt.Sprintf("127.0.0.1:%s/", s.port), address+"/", 1) + further
	}
}
