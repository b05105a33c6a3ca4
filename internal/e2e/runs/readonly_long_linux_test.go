//go:build long

package runs

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest/postgres"
)

// The ways in which a database can be read and not written: what is executed for that, and for the end of it, as its owner.
var readOnly = map[string]struct {
	begin, end []string
	advice     string // what is said of it at the start
}{
	"read only": {
		// Connections that are open stay as they are, of either kind: for the proxy those are as after a failover.
		begin: []string{"ALTER DATABASE runs SET default_transaction_read_only = on", "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity WHERE usename = 'app'"},
		end:   []string{"BEGIN READ WRITE; ALTER DATABASE runs RESET default_transaction_read_only; COMMIT"},

		advice: "name the primary",
	},
	"without rights": {
		begin: []string{"REVOKE INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA fsm_proxy FROM app"},
		end:   []string{"GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA fsm_proxy TO app"},

		advice: "let it own the schema fsm_proxy",
	},
}

// ofApp starts a database for a role that has what a proxy needs, and returns the URLs of that and of the owner.
func ofApp(t *testing.T) (app, owner string) {
	t.Helper()
	owner = postgres.Start(t).URL("runs")
	execute(t, owner, "CREATE ROLE app LOGIN; GRANT CREATE ON DATABASE runs TO app")
	u, err := url.Parse(owner)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User("app")
	return u.String(), owner
}

// A database that cannot be written any more, though it can be read, is one that cannot be written, and goes on by itself.
func TestDatabaseThatIsReadOnly(t *testing.T) {
	t.Parallel()
	for name, x := range readOnly {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app, owner := ofApp(t)
			unwritable(t, key{"modern", byHeader}, app, nil, func(*house) { execute(t, owner, x.begin...) }, func(*house) { execute(t, owner, x.end...) })
		})
	}
}

// A proxy does not start over a store that it cannot write, and says what to do; what was kept there is as it was.
func TestStartOverAReadOnlyStore(t *testing.T) {
	t.Parallel()
	for name, x := range readOnly {
		t.Run("PostgreSQL "+name, func(t *testing.T) {
			t.Parallel()
			app, owner := ofApp(t)
			startsNot(t, app, nil, x.advice, func() { execute(t, owner, x.begin...) }, func() { execute(t, owner, x.end...) })
		})
	}
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		file := store(t)
		front := []string{"unshare", "--mount"}
		if os.Geteuid() != 0 {
			front = append(front, "--map-root-user")
		}
		front = append(front, "sh", "-c", `mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"`, filepath.Dir(strings.TrimPrefix(file, "sqlite:")))
		startsNot(t, file, front, "choose a folder that this process can write", func() {}, func() {})
	})
}

// startsNot plays a run, and starts the proxy again once its store can only be read, which it refuses with an advice. front is a command that becomes the proxy.
func startsNot(t *testing.T, url string, front []string, advice string, fail, mend func()) {
	t.Helper()
	k := key{"modern", byHeader}
	h := counted(t, k, steps, "--annotate", "meta", "--store", url)
	if r := h.enter(k, "").call("once", ""); r.verdict != "success" {
		t.Fatal(r.raw)
	}
	h.ends(os.Interrupt)
	fail()
	args := slices.Concat(front, []string{mcptest.Proxy(t), "run", "--listen", mcptest.FreeAddress(t)}, h.args)
	out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
	if code, _ := err.(*exec.ExitError); code == nil || code.ExitCode() != 1 || !strings.Contains(string(out), advice) {
		t.Errorf("%v: %s", err, out)
	}
	if n := verified(t, url); n != 1 {
		t.Errorf("%d calls are kept", n)
	}
	mend()
	h.anew()
	if r := h.enter(k, "").call("once", ""); r.verdict != "invalid_transition" || r.state != "after" {
		t.Error(r.raw)
	}
}
