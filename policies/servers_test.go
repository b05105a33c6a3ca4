package policies_test

import (
	"cmp"
	"os"
	"path/filepath"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// servers are what the policies are played against, as the last arguments of
// run. dir is a folder of the test's own.
var servers = map[string]func(t *testing.T, dir string) []string{
	"crossroads": func(t *testing.T, _ string) []string {
		return []string{"--", mcptest.Proxy(t), "crossroads", "--key", "key-7"}
	},
	"filesystem": func(t *testing.T, dir string) []string {
		if err := os.WriteFile(filepath.Join(dir, "old.txt"), []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
		return append([]string{"--"}, mcptest.Filesystem(t, dir)...)
	},
	"memory": func(t *testing.T, dir string) []string {
		return append([]string{"--env", "MEMORY_FILE_PATH=" + filepath.Join(dir, "graph.json"), "--"}, mcptest.Memory(t)...)
	},
	"everything": func(t *testing.T, _ string) []string {
		return append([]string{"--"}, mcptest.Everything(t)...)
	},
	// Without a browser only what is refused, and what is listed, can be played.
	"playwright": func(t *testing.T, _ string) []string {
		return append([]string{"--"}, mcptest.Playwright(t)...)
	},
	"github":         standIn("github"),
	"terraform":      standIn("terraform"),
	"database":       standIn("database"),
	"kubernetes":     standIn("kubernetes"),
	"support-refund": standIn("support-refund"),
}

// chatty are the servers that send list_changed of their own.
var chatty = map[string]bool{"everything": true}

// standIn is a server with the published tools of one that needs an account: a
// call fails if its arguments have "fail": "yes", its answer is lost with "fail":
// "lost", and else it succeeds, with the text that they have as "answer".
func standIn(name string) func(t *testing.T, dir string) []string {
	return func(t *testing.T, _ string) []string {
		tools := make(map[string]func(*mcptest.Exchange))
		for _, o := range published(t, name) {
			tools[o.Name] = answer
		}
		_, url := mcptest.HTTP(t, mcptest.Script{Tools: tools}.Server())
		return []string{"--upstream", url}
	}
}

func answer(e *mcptest.Exchange) {
	switch e.Argument("fail") {
	case "yes":
		e.Result(mcptest.ErrorText("it did not work"))
	case "lost":
		e.Status(502, "")
	default:
		e.Result(mcptest.Text(cmp.Or(e.Argument("answer"), "done")))
	}
}
