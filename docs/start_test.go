//go:build unix

package docs_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

const (
	startPage     = "start.md"
	pythonHeading = "## 8. Over HTTP, for an agent in Python"
)

// What stands on the page up to Python is done, in an empty folder.
func TestStart(t *testing.T) {
	text, _, found := strings.Cut(read(t, startPage), pythonHeading)
	if !found {
		t.Fatalf("%s has no heading %q", startPage, pythonHeading)
	}
	newReader(t).do(text)
}

// A reader is who does what a page says, in an empty folder. What the page takes from the network is there already: the
// programs that would fetch it are replaced by scripts, in a folder that comes first in PATH.
type reader struct {
	t      *testing.T
	folder string
	path   string
	bin    string
	said   string // by the last commands or calls
	entry  string // for a client's configuration, as init has printed it
	client *mcptest.Session
	proxy  *mcptest.Process // the one with the client, then the one that listens
	listen string           // the address that stands for the page's
}

const listenedAt = "127.0.0.1:8080"

func newReader(t *testing.T) *reader {
	t.Helper()
	r := &reader{t: t, folder: t.TempDir(), bin: t.TempDir(), listen: mcptest.FreeAddress(t)}
	r.path = r.bin + string(os.PathListSeparator) + os.Getenv("PATH")
	server := mcptest.NodePackage(t, "@modelcontextprotocol/server-filesystem")
	r.script("npx", `[ "$1 $2" = "-y @modelcontextprotocol/server-filesystem" ] && shift 2 && exec '`+mcptest.Node(t)+`' '`+server+`' "$@"`)
	r.script("go", `[ "$1 $2" = "install github.com/fsm-proxy/fsm-proxy/cmd/fsm-proxy@latest" ] && ln -s '`+mcptest.Proxy(t)+`' '`+filepath.Join(r.bin, "fsm-proxy")+`'`)
	return r
}

// script writes a program.
func (r *reader) script(name, command string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.bin, name), []byte("#!/bin/sh\n"+command+"\n"), 0o755); err != nil {
		r.t.Fatal(err)
	}
}

// do does all blocks of a text.
func (r *reader) do(text string) {
	for _, b := range fences(text) {
		r.t.Logf("%s:%d: %s", startPage, b.line, b.info)
		b.text = strings.ReplaceAll(b.text, listenedAt, r.listen)
		language, what, _ := strings.Cut(b.info, " ")
		switch {
		case b.info == "sh":
			r.run(b.text)
		case b.info == "sh server":
			r.serve(b.text)
		case b.info == "text":
			r.compare(b, r.said)
		case b.info == "text log":
			r.awaitLog(b)
		case b.info == "json of the entry":
			r.compare(b, r.entry)
		case b.info == "json calls":
			r.call(b.text)
		case language == "yaml" && strings.HasPrefix(what, "of "):
			r.contains(b, strings.TrimPrefix(what, "of "))
		case language == "yaml" && strings.HasPrefix(what, "into "):
			r.edit(b, strings.TrimPrefix(what, "into "))
		case language == "python":
			r.write(what, b.text)
		default:
			r.t.Fatalf("%s:%d: nobody knows what to do with %q", startPage, b.line, b.info)
		}
	}
}

func (r *reader) prepare(c *exec.Cmd) {
	c.Dir, c.Env = r.folder, append(os.Environ(), "PATH="+r.path)
}

// run runs commands in a shell, and keeps what they say.
func (r *reader) run(commands string) {
	r.t.Helper()
	c := exec.CommandContext(r.t.Context(), "sh", "-e")
	r.prepare(c)
	c.Stdin = strings.NewReader(commands)
	out, err := c.CombinedOutput()
	if err != nil {
		r.t.Fatalf("%s: %v\n%s", commands, err, out)
	}
	r.said = string(out)
	if begin := strings.Index(r.said, "  {\n    \"mcpServers\""); begin >= 0 {
		r.entry, _, _ = strings.Cut(r.said[begin:], "\n  }\n")
		r.entry = regexp.MustCompile(`(?m)^  `).ReplaceAllString(r.entry+"\n  }\n", "")
	}
}

// serve starts a command that goes on, in a terminal of its own.
func (r *reader) serve(command string) {
	r.t.Helper()
	if r.client != nil {
		r.client.Close()
	}
	r.proxy = mcptest.StartAs(r.t, r.prepare, "sh", "-c", "exec "+command)
	r.proxy.AwaitListening(r.listen)
}

// call makes calls as the client would that has the entry in its configuration.
func (r *reader) call(lines string) {
	r.t.Helper()
	if r.client == nil {
		var config struct {
			Servers map[string]struct {
				Command string
				Args    []string
			} `json:"mcpServers"`
		}
		if err := json.Unmarshal([]byte(r.entry), &config); err != nil || len(config.Servers) != 1 {
			r.t.Fatalf("init has printed no entry: %v\n%s", err, r.said)
		}
		for _, server := range config.Servers {
			elsewhere := func(c *exec.Cmd) { r.prepare(c); c.Dir = os.TempDir() } // as clients start servers
			r.client, r.proxy = mcptest.DialAs(r.t, elsewhere, append([]string{server.Command}, server.Args...)...)
		}
		r.client.Initialize()
	}
	r.said = ""
	for line := range strings.Lines(lines) {
		var result struct {
			Result struct {
				Content []struct{ Text string }
			}
		}
		answer := r.client.Call("tools/call", strings.TrimSpace(line))
		if err := json.Unmarshal(answer.Raw, &result); err != nil || len(result.Result.Content) == 0 {
			r.t.Fatalf("%s: %v: %s", line, err, answer)
		}
		r.said += strings.TrimSpace(result.Result.Content[0].Text) + "\n"
	}
}

const dots = "…" // on the page: whatever stands there; as a line, any number of lines

// pattern matches what a block shows.
func pattern(shown string) string {
	var p strings.Builder
	for line := range strings.Lines(shown) {
		if line = strings.TrimSuffix(line, "\n"); line == dots {
			p.WriteString(`(?:.*\n)*?`)
			continue
		}
		p.WriteString(strings.ReplaceAll(regexp.QuoteMeta(line), dots, ".*") + `\n`)
	}
	return p.String()
}

// waits are the lines by which a command says that a server takes long to start: on a slow
// machine, and not on the page.
var waits = regexp.MustCompile(`(?m)^waiting for .*\n`)

func (r *reader) compare(b block, said string) {
	r.t.Helper()
	said = waits.ReplaceAllString(said, "")
	if !regexp.MustCompile(`\A` + pattern(b.text) + `\z`).MatchString(said) {
		r.t.Fatalf("%s:%d: the page shows\n%s\nand this is seen:\n%s", startPage, b.line, b.text, said)
	}
}

// awaitLog waits for lines in the proxy's log, in their order; others may stand between them.
func (r *reader) awaitLog(b block) {
	r.t.Helper()
	lines := regexp.MustCompile(pattern(strings.ReplaceAll(b.text, "\n", "\n"+dots+"\n")))
	mcptest.Await(r.t, "the lines of the log:\n"+b.text, func() bool { return lines.MatchString(r.proxy.Log().String()) })
}

func (r *reader) write(name, text string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.folder, name), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// contains fails the test unless a file has all lines of a block, in their order.
func (r *reader) contains(b block, name string) {
	r.t.Helper()
	shown := pattern(dots + "\n" + strings.ReplaceAll(b.text, "\n", "\n"+dots+"\n"))
	if text := read(r.t, filepath.Join(r.folder, name)); !regexp.MustCompile(shown).MatchString(text) {
		r.t.Fatalf("%s:%d: %s does not have these lines:\n%s", startPage, b.line, name, text)
	}
}

var commentedOut = regexp.MustCompile(`^  # (.*)$`)

// edit changes a file so that it has the lines of a block: each takes the place of the next line with its key, which may
// be commented out.
func (r *reader) edit(b block, name string) {
	r.t.Helper()
	lines := strings.Split(read(r.t, filepath.Join(r.folder, name)), "\n")
	at := 0
	for wanted := range strings.Lines(b.text) {
		wanted = strings.TrimRight(wanted, "\n")
		key, _, _ := strings.Cut(wanted, ":")
		i := slices.IndexFunc(lines[at:], func(line string) bool {
			line = commentedOut.ReplaceAllString(line, "  $1")
			return strings.HasPrefix(line, key+":")
		})
		if i < 0 {
			r.t.Fatalf("%s:%d: %s has no line to replace by %q:\n%s", startPage, b.line, name, wanted, strings.Join(lines, "\n"))
		}
		at += i + 1
		lines[at-1] = wanted
	}
	r.write(name, strings.Join(lines, "\n"))
	if r.client != nil {
		r.proxy.Log().Await(r.t, "the policy was reloaded")
	}
}
