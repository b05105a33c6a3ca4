package runs

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	mcpserver "github.com/mark3labs/mcp-go/server"

	world "github.com/fsm-proxy/fsm-proxy/internal/crossroads"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// crossroadsServer is the URL of a world that outlives the proxies in front of it.
func crossroadsServer(t *testing.T) string {
	t.Helper()
	web := httptest.NewServer(mcpserver.NewStreamableHTTPServer(world.New(world.Config{KeyID: "brass"})))
	t.Cleanup(web.Close)
	return web.URL
}

// store is a file for runs.
func store(t *testing.T) string {
	t.Helper()
	return "sqlite:" + filepath.Join(t.TempDir(), "runs.db")
}

// kept are the keys by which a client finds its run again without a session.
var kept = those("process", "principal", byHeader, "path", "handle")

// Crossroads is played with the proxy stopped, or killed, between any two calls, and goes as it does without.
func TestCrossroadsAcrossRestarts(t *testing.T) {
	each(t, kept, func(t *testing.T, k key) {
		h := open(t, k, crossroads(t, restarts), "--annotate", "meta", "--store", store(t), "--upstream", crossroadsServer(t))
		c := h.enter(k, "")
		for i, s := range append(append([]step{}, walk...), lastDoor...) {
			c.play(t, []step{s})
			by := os.Signal(syscall.SIGTERM)
			if i%2 == 0 {
				by = os.Kill
			}
			h.again(by)
			c = h.enter(k, c.run())
		}
	})
}

// Over stdio the run is the process's, and goes by its name.
func TestCrossroadsOverStdioAcrossRestarts(t *testing.T) {
	each(t, []key{{"legacy", ""}, {"modern", ""}}, func(t *testing.T, k key) {
		policy, file, url := mcptest.WritePolicy(t, crossroads(t, restarts)), store(t), crossroadsServer(t)
		for _, s := range append(append([]step{}, walk...), lastDoor...) {
			c := &client{key: k}
			var p *mcptest.Process
			c.Session, p = mcptest.Dial(t, mcptest.Proxy(t), "run", "--policy", policy, "--annotate", "meta", "--store", file, "--run", "mine", "--upstream", url)
			if k.modern() {
				c.Modern(mcptest.Modern{})
			} else {
				c.Initialize()
			}
			c.play(t, []step{s})
			if err := p.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			p.ExitCode()
		}
	})
}
