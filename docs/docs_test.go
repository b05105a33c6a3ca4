// Package docs_test keeps the pages true: their examples are run, their links lead somewhere, and the flags that
// they name exist.
package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
	"github.com/fsm-proxy/fsm-proxy/policy/report"
)

func TestMain(m *testing.M) { mcptest.Main(m, nil) }

// readme is the path of the README.
var readme = filepath.Join("..", "README.md")

// pages are the README, SECURITY.md and all of docs.
func pages(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	return append(found, readme, filepath.Join("..", "SECURITY.md"))
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestReadmeIsShort(t *testing.T) {
	if lines := strings.Count(read(t, readme), "\n"); lines >= 200 {
		t.Errorf("the README has %d lines; it stays under 200", lines)
	}
}

// The picture in the README is what render prints of the policy above it.
func TestReadmePicture(t *testing.T) {
	var source string
	for _, b := range fences(read(t, readme)) {
		switch {
		case b.info == "yaml":
			source = b.text
		case b.info == "text" && source != "":
			p, findings := report.Parse("ship.yaml", []byte(source))
			if len(findings.Errors())+len(findings.Warnings()) > 0 {
				t.Fatal(findings)
			}
			if got := strings.TrimRight(report.Text(p), "\n") + "\n"; got != b.text {
				t.Errorf("README.md:%d: render prints:\n%s", b.line, got)
			}
			return
		}
	}
	t.Error("the README has no policy with its picture")
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// Every link within the repository leads to a file, and to a heading where it names one.
func TestLinks(t *testing.T) {
	for _, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(read(t, page), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			target, heading, _ := strings.Cut(m[1], "#")
			path := filepath.Join(filepath.Dir(page), target)
			if target == "" {
				path = page
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
				continue
			}
			if heading != "" && !headings(read(t, path))[heading] {
				t.Errorf("%s links to %s: %s has no such heading", page, m[1], path)
			}
		}
	}
}

var (
	headingLine = regexp.MustCompile(`(?m)^#+ (.+)$`)
	notInAnchor = regexp.MustCompile("[^a-z0-9 _-]")
)

// headings are the anchors of a page, as GitHub makes them.
func headings(text string) map[string]bool {
	out := map[string]bool{}
	for _, m := range headingLine.FindAllStringSubmatch(text, -1) {
		anchor := notInAnchor.ReplaceAllString(strings.ToLower(m[1]), "")
		out[strings.ReplaceAll(anchor, " ", "-")] = true
	}
	return out
}

var (
	flagWord = regexp.MustCompile("`[^`\n]*`")
	flagName = regexp.MustCompile(`(?:^|[\s(\[])--([a-z][a-z-]*[a-z])`)
)

// Every flag that the pages name is one of fsm-proxy's, and every flag of run is named somewhere. Flags of other
// programs stand in fenced blocks.
func TestFlags(t *testing.T) {
	known := map[string]bool{"help": true}
	for _, command := range []string{"run", "check", "render", "test", "explain", "init", "lock", "demo", "drain", "admin", "runs signal", "runs tail", "runs gc", "verify"} {
		for _, name := range flagsOf(t, command) {
			known[name] = true
		}
	}
	named := map[string]bool{}
	for _, page := range pages(t) {
		for _, code := range flagWord.FindAllString(read(t, page), -1) {
			for _, m := range flagName.FindAllStringSubmatch(strings.Trim(code, "`"), -1) {
				named[m[1]] = true
				if !known[m[1]] {
					t.Errorf("%s names --%s, which no command has", page, m[1])
				}
			}
		}
	}
	for _, name := range flagsOf(t, "run") {
		if !named[name] {
			t.Errorf("no page names --%s of run", name)
		}
	}
}

var helpCommand = regexp.MustCompile(`(?m)^  ([a-z]+) `)

// Every command stands in the README's table, and what stands there is one.
func TestCommands(t *testing.T) {
	help, err := exec.Command(mcptest.Proxy(t), "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, help)
	}
	_, list, _ := strings.Cut(string(help), "Available Commands:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	commands := map[string]bool{}
	for _, m := range helpCommand.FindAllStringSubmatch(list, -1) {
		commands[m[1]] = m[1] != "help"
	}
	table := strings.Join(regexp.MustCompile("(?m)^\\| `fsm-proxy .*$").FindAllString(read(t, readme), -1), "\n")
	for name, wanted := range commands {
		if wanted && !strings.Contains(table, "`fsm-proxy "+name+" ") && !strings.Contains(table, "`fsm-proxy "+name+"`") {
			t.Errorf("%s has no row in the README's table", name)
		}
	}
	for _, m := range regexp.MustCompile("`fsm-proxy ([a-z]+)").FindAllStringSubmatch(table, -1) {
		if !commands[m[1]] {
			t.Errorf("the README has %s, which is no command", m[1])
		}
	}
	if len(commands) < 10 {
		t.Errorf("%v are the commands of %s", commands, help)
	}
}

var helpFlag = regexp.MustCompile(`(?m)^\s+(?:-\w, )?--([a-z-]+)`)

// flagsOf are the flags in a command's --help.
func flagsOf(t *testing.T, command string) []string {
	t.Helper()
	out, err := exec.Command(mcptest.Proxy(t), append(strings.Fields(command), "--help")...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s --help: %v\n%s", command, err, out)
	}
	var names []string
	for _, m := range helpFlag.FindAllStringSubmatch(string(out), -1) {
		if m[1] != "help" {
			names = append(names, m[1])
		}
	}
	return names
}
