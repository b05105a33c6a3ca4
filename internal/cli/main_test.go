package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// quiet is an upstream with one tool; stubborn is one that has a child of its
// own and outlives polite signals.
func TestMain(m *testing.M) {
	mcptest.Main(m, mcptest.Servers{
		"quiet":    quiet,
		"drifting": {Handle: drifting},
		"slow":     {Handle: slow},
		"hanging":  hanging, "hanging modern": {Handle: hanging.Handle, Modern: true},
		"slower": {Handle: slow, Stubborn: true},
		"stubborn": {
			Handle:   mcptest.Script{Tools: map[string]func(*mcptest.Exchange){"spawn": spawn}}.Server().Handle,
			Stubborn: true,
		},
	})
}

// drifting is an upstream that lists the tools in the file of its last argument,
// and says that they have changed when its tool touch is called.
func drifting(e *mcptest.Exchange) {
	list := func(e *mcptest.Exchange) {
		text, err := os.ReadFile(os.Args[len(os.Args)-1])
		if err != nil {
			e.Fail(-32603, err.Error())
			return
		}
		e.Result(`{"tools":[` + strings.TrimSpace(string(text)) + `]}`)
	}
	touch := func(e *mcptest.Exchange) {
		e.Announce(mcptest.Notification("notifications/tools/list_changed", ""))
		e.Result(mcptest.Text("touched"))
	}
	mcptest.Script{
		Tools:   map[string]func(*mcptest.Exchange){"apply": nil, "touch": touch, "read_a": nil, "read_b": nil},
		Methods: map[string]func(*mcptest.Exchange){"tools/list": list},
	}.Server().Handle(e)
}

// slow is an upstream that starts when the gate "started" is open.
func slow(e *mcptest.Exchange) {
	if e.Method == "initialize" {
		e.Stderr("\x1b[33mnpm warn\x1b[0m fetching \"a\" \x07package\n")
		e.Gate("started")
	}
	quiet.Handle(e)
}

func spawn(e *mcptest.Exchange) {
	e.Spawn()
	e.Result(mcptest.Text("spawned"))
}

// result is what a command line came to.
type result struct {
	code           int
	stdout, stderr string
}

// command runs the real binary to its end, in a folder of its own, with nothing
// on standard input.
func command(t *testing.T, env []string, args ...string) result {
	t.Helper()
	return commandIn(t, t.TempDir(), env, args...)
}

// commandIn is command, in this folder.
func commandIn(t *testing.T, folder string, env []string, args ...string) result {
	t.Helper()
	binary := mcptest.Proxy(t) // to build it takes its time
	ctx, cancel := context.WithTimeout(t.Context(), mcptest.Patience)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = folder, &stdout, &stderr
	cmd.Env = append(os.Environ(), env...)
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const plainPolicy = "version: 1\nname: plain\ninitial: open\nstates:\n  open:\n    tools:\n      work:\n"

// oneLine fails unless the text is one line that ends and contains the words.
func oneLine(t *testing.T, text string, words ...string) {
	t.Helper()
	if strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") {
		t.Errorf("not one line:\n%s", text)
	}
	for _, word := range words {
		contains(t, text, word)
	}
}

// contains fails the test for a word that is not in a text. Of metrics it shows those of the same name.
func contains(t *testing.T, text, word string) {
	t.Helper()
	if strings.Contains(text, word) {
		return
	}
	if strings.HasPrefix(text, "# HELP ") {
		name, _, _ := strings.Cut(strings.TrimSpace(word), " ")
		text = strings.Join(slices.DeleteFunc(strings.SplitAfter(text, "\n"), func(l string) bool { return !strings.Contains(l, name) }), "")
	}
	t.Errorf("nothing is said of %q in:\n%s", word, text)
}

// quiet is a server with one tool.
var quiet = mcptest.Script{Tools: map[string]func(*mcptest.Exchange){"work": nil}}.Server()

// hanging is an upstream of which one tool has nothing more read, another is never
// answered, and a third answers, but only when the gate "later" is open.
var hanging = mcptest.Script{Tools: map[string]func(*mcptest.Exchange){
	"hang":  func(e *mcptest.Exchange) { e.Gate("never") },
	"leave": func(*mcptest.Exchange) {},
	"later": func(e *mcptest.Exchange) {
		e.Async(func() {
			e.Gate("later")
			e.Result(mcptest.Text("later"))
		})
	},
	"work": nil,
}}.Server()
