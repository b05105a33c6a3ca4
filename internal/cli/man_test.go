package cli

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/fsm-proxy/fsm-proxy/internal/exit"
)

// There is a page for every command, with each of its flags, and it is the same
// whenever and wherever it is made.
func TestManualPages(t *testing.T) {
	first, again := t.TempDir(), t.TempDir()
	for _, folder := range []string{first, again} {
		if r := command(t, []string{"SOURCE_DATE_EPOCH=1700000000"}, "man", folder); r.code != 0 || r.stdout+r.stderr != "" {
			t.Fatalf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
		}
	}
	for _, page := range manual(newRoot(&console{out: io.Discard, err: io.Discard})) {
		text, err := os.ReadFile(filepath.Join(first, page.name()+".1"))
		if err != nil {
			t.Error(err)
			continue
		}
		if other, _ := os.ReadFile(filepath.Join(again, page.name()+".1")); string(other) != string(text) {
			t.Errorf("%s: made again it is another", page.name())
		}
		roff := string(text)
		contains(t, roff, ".TH \""+strings.ToUpper(page.name())+"\" \"1\" \"2023-11-14\"")
		contains(t, roff, ".SH SYNOPSIS")
		page.Flags().VisitAll(func(f *pflag.Flag) {
			contains(t, strings.ReplaceAll(roff, `\-`, "-"), `\fB--`+f.Name+`\fP`)
		})
	}
	if pages, _ := os.ReadDir(first); len(pages) < 10 {
		t.Errorf("only %d pages", len(pages))
	}
	if _, err := os.Stat(filepath.Join(first, "fsm-proxy-crossroads.1")); err == nil {
		t.Error("a hidden command has a page")
	}
}

// Without SOURCE_DATE_EPOCH the pages have no date; one that is no number is an error.
func TestManualDate(t *testing.T) {
	folder := t.TempDir()
	if r := command(t, []string{"SOURCE_DATE_EPOCH="}, "man", folder); r.code != 0 {
		t.Fatalf("exit code %d\n%s", r.code, r.stderr)
	}
	text, err := os.ReadFile(filepath.Join(folder, "fsm-proxy.1"))
	if err != nil {
		t.Fatal(err)
	}
	contains(t, string(text), `.TH "FSM-PROXY" "1" "" `)
	if r := command(t, []string{"SOURCE_DATE_EPOCH=now"}, "man", folder); r.code != exit.Usage {
		t.Errorf("exit code %d\n%s", r.code, r.stderr)
	}
	if r := command(t, nil, "man", filepath.Join(folder, "none")); r.code != exit.Failed || !strings.Contains(r.stderr, "make the folder") {
		t.Errorf("a folder that is not there: exit code %d\n%s", r.code, r.stderr)
	}
}

// What roff would take for more than text, or print as another character, is escaped.
func TestManualTextIsPlain(t *testing.T) {
	folder := t.TempDir()
	if r := command(t, nil, "man", folder); r.code != 0 {
		t.Fatal(r.stderr)
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(string(text), `\-`, "-")
	}
	contains(t, read("fsm-proxy.1"), "FSM_PROXY_CALL_TIMEOUT")
	contains(t, read("fsm-proxy-completion.1"), `"${fpath[1]}/_fsm-proxy"`)
	contains(t, read("fsm-proxy-run.1"), "(--policy FILE | --config FILE) [flags] [--upstream URL | -- COMMAND ARG...]")
	if got, want := paragraphs(".so x\n\n  a\\b ~ '-c'\n.x"), "\\&.so x\n.PP\n.EX\n  a\\eb \\(ti \\(aq\\-c\\(aq\n\\&.x\n.EE\n"; got != want {
		t.Errorf("%q, not %q", got, want)
	}
}
