package cli

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// echo answers what it was asked, and refuses what is not beneath /v1.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if !strings.HasPrefix(r.URL.Path, "/v1/") {
		http.Error(w, "there is no such page", http.StatusNotFound)
		return
	}
	fmt.Fprintf(w, "%s %s %s %q %s%s\n", r.Method, r.URL, r.Host, body, r.Header.Get("Authorization"), r.Header.Get("Content-Type"))
})

// askAdmin runs the command with some of its environment.
func askAdmin(t *testing.T, env []string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(mcptest.Proxy(t), append([]string{"admin"}, args...)...)
	cmd.Env = append(cmd.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestAdminCommand(t *testing.T) {
	over := httptest.NewUnstartedServer(echo)
	socket := filepath.Join(t.TempDir(), "a.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	over.Listener = l
	over.Start()
	defer over.Close()
	tcp := httptest.NewServer(echo)
	defer tcp.Close()
	address := strings.TrimPrefix(tcp.URL, "http://")
	token := write(t, "token", "secret\n")
	for _, c := range []struct {
		env, args []string
		says      string
	}{
		{nil, []string{"--admin", "unix:" + socket, "/v1/policy"}, `GET /v1/policy localhost ""`},
		{[]string{"FSM_PROXY_ADMIN=unix:" + socket}, []string{"put", "/v1/log-level", `{"level":"debug"}`}, `PUT /v1/log-level localhost "{\"level\":\"debug\"}" application/json`},
		{nil, []string{"--admin", address, "POST", "/v1/runs/migrate"}, "POST /v1/runs/migrate " + address + ` "" application/json`},
		{nil, []string{"--admin", address, "--admin-bearer-file", token, "GET", "/v1/runs?state=a"}, `GET /v1/runs?state=a ` + address + ` "" Bearer secret`},
	} {
		out, err := askAdmin(t, c.env, c.args...)
		if err != nil || !strings.Contains(out, c.says) {
			t.Errorf("%v: %v, %s", c.args, err, out)
		}
	}
}

func TestAdminCommandSaysWhatIsWrong(t *testing.T) {
	server := httptest.NewServer(echo)
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"/v1/policy"}, "give --admin ADDR"},
		{[]string{"--admin", address}, "give one path"},
		{[]string{"--admin", address, "v1/policy"}, "begins with /"},
		{[]string{"--admin", address, "DELETE", "/v1/policy"}, "neither GET, PUT nor POST"},
		{[]string{"--admin", address, "state"}, `"state" is neither`},
		{[]string{"--admin", address, "/v2"}, "404 Not Found: there is no such page"},
		{[]string{"--admin", "unix:" + filepath.Join(t.TempDir(), "none.sock"), "/v1/policy"}, "is it running with --admin"},
	} {
		if out, err := askAdmin(t, nil, c.args...); err == nil || !strings.Contains(out, c.says) {
			t.Errorf("%v: %v, %s", c.args, err, out)
		}
	}
}
