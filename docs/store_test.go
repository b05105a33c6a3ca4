//go:build unix

package docs_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	_ "github.com/fsm-proxy/fsm-proxy/internal/journal/sqlite" // the driver
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

const storePage = "store.md"

// sqliteWord has the test's binary be sqlite3, where that is not installed.
const sqliteWord = "as-sqlite3"

func init() {
	if len(os.Args) == 4 && os.Args[1] == sqliteWord {
		if err := sqlite3(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// sqlite3 does what the program of this name does with a file and statements.
func sqlite3(path, statements string) error {
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return err
	}
	defer db.Close()
	rows, err := db.QueryContext(context.Background(), statements)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		columns, err := rows.Columns()
		if err != nil {
			return err
		}
		text := make([]string, len(columns))
		to := make([]any, len(columns))
		for i := range text {
			to[i] = &text[i]
		}
		if err := rows.Scan(to...); err != nil {
			return err
		}
		fmt.Println(strings.Join(text, "|"))
	}
	return rows.Err()
}

// section is what stands on a page below a heading, up to the next one of its level.
func section(t *testing.T, page, heading string) string {
	t.Helper()
	_, text, found := strings.Cut(read(t, page), "\n"+heading+"\n")
	if !found {
		t.Fatalf("%s has no heading %q", page, heading)
	}
	level, _, _ := strings.Cut(heading, " ")
	if end := regexp.MustCompile(`(?m)^#{2,` + string(rune('0'+len(level))) + `} `).FindStringIndex(text); end != nil {
		text = text[:end[0]]
	}
	return text
}

// operator is who keeps a store, as store.md says.
type operator struct {
	t        *testing.T
	folder   string
	path     string // of programs
	names    *strings.Replacer
	upstream string
	said     string // by the last commands
}

const lasting = `version: 1
name: lasting
initial: a
states:
  a: {tools: {to_b: {on_success: b, on_unknown: a}}}
  b: {tools: {to_c: {on_success: c, on_unknown: b}}}
  c: {tools: {to_a: {on_success: a, on_unknown: c}}}
`

func newOperator(t *testing.T, names ...string) *operator {
	t.Helper()
	o := &operator{t: t, folder: t.TempDir(), names: strings.NewReplacer(names...)}
	bin := t.TempDir()
	if _, err := exec.LookPath("sqlite3"); err != nil {
		if err := os.WriteFile(filepath.Join(bin, "sqlite3"), []byte("#!/bin/sh\nexec '"+os.Args[0]+"' "+sqliteWord+" \"$@\"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(mcptest.Proxy(t), filepath.Join(bin, "fsm-proxy")); err != nil {
		t.Fatal(err)
	}
	o.path = bin + string(os.PathListSeparator) + os.Getenv("PATH")
	if err := os.WriteFile(filepath.Join(o.folder, "policy.yaml"), []byte(lasting), 0o600); err != nil {
		t.Fatal(err)
	}
	_, o.upstream = mcptest.HTTP(t, mcptest.Script{Tools: map[string]func(*mcptest.Exchange){"to_a": nil, "to_b": nil, "to_c": nil}}.Server())
	return o
}

func (o *operator) prepare(c *exec.Cmd) {
	c.Dir, c.Env = o.folder, append(os.Environ(), "PATH="+o.path)
}

// shell runs commands, and fails the test unless they end with a status.
func (o *operator) shell(commands string, status int) {
	o.t.Helper()
	c := exec.CommandContext(o.t.Context(), "sh", "-e", "-c", o.names.Replace(commands))
	o.prepare(c)
	out, err := c.CombinedOutput()
	is := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		is = exit.ExitCode()
	} else if err != nil {
		o.t.Fatal(err)
	}
	if o.said = string(out); is != status {
		o.t.Fatalf("%s: status %d, not %d\n%s", commands, is, status, o.said)
	}
}

// do does what a block of the page says, and checks what it shows.
func (o *operator) do(blocks ...block) {
	o.t.Helper()
	for _, b := range blocks {
		switch b.info {
		case "sh":
			o.shell(b.text, 0)
		case "sh status 1":
			o.shell(b.text, 1)
		case "text":
			if !regexp.MustCompile(`\A` + pattern(b.text) + `\z`).MatchString(o.said) {
				o.t.Fatalf("%s: the page shows\n%s\nand this is seen:\n%s", storePage, b.text, o.said)
			}
		default:
			o.t.Fatalf("%s: nobody knows what to do with %q", storePage, b.info)
		}
	}
}

// proxy starts one that has the store.
func (o *operator) proxy(store string) (*mcptest.Session, *mcptest.Process) {
	o.t.Helper()
	s, p := mcptest.DialAs(o.t, o.prepare, mcptest.Proxy(o.t), "run", "--policy", "policy.yaml", "--store", o.names.Replace(store), "--upstream", o.upstream)
	s.Initialize()
	return s, p
}

// call makes a call, and fails the test unless it is let through, or refused.
func (o *operator) call(s *mcptest.Session, tool string, refused bool) {
	o.t.Helper()
	if answer := s.Tool(tool, "{}").String(); strings.Contains(answer, "invalid_transition") != refused {
		o.t.Fatalf("%s: %s", tool, answer)
	}
}

func (o *operator) size(name string) int64 {
	info, err := os.Stat(filepath.Join(o.folder, name))
	if err != nil {
		return 0
	}
	return info.Size()
}

// kill ends a proxy as a crash does.
func (o *operator) kill(p *mcptest.Process) {
	o.t.Helper()
	if err := p.Process.Kill(); err != nil {
		o.t.Fatal(err)
	}
	p.ExitCode()
}

// onlyOurs fails the test if others may read a file.
func (o *operator) onlyOurs(names ...string) {
	o.t.Helper()
	for _, name := range names {
		if info, err := os.Stat(filepath.Join(o.folder, name)); err != nil || info.Mode().Perm() != 0o600 {
			o.t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}

// A backup that is made while a proxy has the store is restored after that has crashed, and the run goes on from it.
func TestStoreIsRestored(t *testing.T) {
	o, page := newOperator(t), fences(section(t, storePage, "### SQLite"))
	if len(page) != 5 {
		t.Fatalf("the page has %d steps, not 5: backup, anchors, restore, verify and what that says", len(page))
	}
	s, p := o.proxy("sqlite:runs.db")
	o.call(s, "to_b", false)
	o.do(page[0])
	for range 60 { // so much that what the crash leaves beside the file has what the backup has not
		o.call(s, "to_c", false)
		o.call(s, "to_a", false)
		o.call(s, "to_b", false)
	}
	o.call(s, "to_c", false)
	o.do(page[1])
	o.kill(p)
	if o.size("runs.db-wal") == 0 {
		t.Fatal("the crash has left nothing beside the file")
	}
	o.do(page[2:]...)
	o.onlyOurs("backup.db", "runs.db")
	o.shell(`sqlite3 runs.db "PRAGMA integrity_check"`, 0)
	if o.said != "ok\n" {
		t.Errorf("%s", o.said)
	}
	s, p = o.proxy("sqlite:runs.db")
	o.call(s, "to_a", true)
	o.call(s, "to_c", false)
	o.kill(p)
	o.shell("fsm-proxy verify --store sqlite:runs.db", 0)
}

// A version that cannot read the store says so and writes nothing; the backup from before is read.
func TestStoreOfANewerVersion(t *testing.T) {
	o, page := newOperator(t), fences(section(t, storePage, "### SQLite"))
	const says = "a newer version has written the store"
	if !strings.Contains(section(t, storePage, "## Downgrade"), "`"+says+"`") {
		t.Fatal("the page does not tell what an older version says")
	}
	s, p := o.proxy("sqlite:runs.db")
	o.call(s, "to_b", false)
	o.kill(p)
	o.do(page[0])
	o.shell(`sqlite3 runs.db "UPDATE meta SET value = '999' WHERE name = 'readable_by'; PRAGMA wal_checkpoint(TRUNCATE)"`, 0)
	before := read(t, filepath.Join(o.folder, "runs.db"))
	o.shell("fsm-proxy run --policy policy.yaml --store sqlite:runs.db --upstream "+o.upstream+" </dev/null", 1)
	if !strings.Contains(o.said, says) {
		t.Errorf("%s", o.said)
	}
	if read(t, filepath.Join(o.folder, "runs.db")) != before {
		t.Error("the older version has written the store")
	}
	o.do(page[2])
	s, _ = o.proxy("sqlite:runs.db")
	o.call(s, "to_c", false)
}
