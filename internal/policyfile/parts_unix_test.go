//go:build unix

package policyfile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const policyWithPart = `version: 1
initial: idle
on_complete: stop
use: {work: %s}
states:
  idle: {tools: {start: {on_any: working}}}
  working: {part: work, exits: idle}
`

const partOfIt = `version: 1
initial: w
states:
  w: {tools: {finish: {on_any: done}}}
  done: {terminal: true}
`

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// lay writes files into a new folder "etc", which has one beside it, "outside", with a part.
func lay(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "etc")
	must(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o755))
	must(t, os.Mkdir(filepath.Join(root, "outside"), 0o755))
	must(t, os.WriteFile(filepath.Join(root, "outside", "part.yaml"), []byte(partOfIt), 0o644))
	for name, text := range files {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	return dir
}

// TestPartsStayInTheFolder tries to have a part read that lies outside the policy's folder, and what is no file. Each is
// an error at its place in the policy, by every way that policies are read, and nothing is waited for.
func TestPartsStayInTheFolder(t *testing.T) {
	for _, c := range []struct {
		name, use string
		prepare   func(dir string) error
		says      string // "": it is read
	}{
		{"within", "part.yaml", nil, ""},
		{"a dot", "./part.yaml", nil, ""},
		{"down and up", "sub/../part.yaml", nil, ""},
		{"link within", "link.yaml", func(dir string) error { return os.Symlink("part.yaml", dir+"/link.yaml") }, ""},
		{"link up within", "sub/link.yaml", func(dir string) error { return os.Symlink("../part.yaml", dir+"/sub/link.yaml") }, ""},
		{"linked folder within", "l/part.yaml", func(dir string) error { return os.Symlink(".", dir+"/l") }, ""},
		{"up", "../outside/part.yaml", nil, "no file within the policy's folder"},
		{"up behind a folder", "sub/../../outside/part.yaml", nil, "no file within the policy's folder"},
		{"absolute", "/etc/hostname", nil, "an absolute path"},
		{"link out", "link.yaml", func(dir string) error { return os.Symlink("../outside/part.yaml", dir+"/link.yaml") }, "path escapes"},
		{"absolute link out", "link.yaml", func(dir string) error {
			return os.Symlink(filepath.Dir(dir)+"/outside/part.yaml", dir+"/link.yaml")
		}, "path escapes"},
		{"link to a link out", "link.yaml", func(dir string) error {
			return errorsOf(os.Symlink("two.yaml", dir+"/link.yaml"), os.Symlink("../outside/part.yaml", dir+"/two.yaml"))
		}, "path escapes"},
		{"linked folder out", "l/part.yaml", func(dir string) error { return os.Symlink("../outside", dir+"/l") }, "path escapes"},
		{"link up behind a linked folder", "l/../part.yaml", func(dir string) error { return os.Symlink("../outside", dir+"/l") }, ""}, // by its path alone: nothing is followed
		{"a link to itself", "link.yaml", func(dir string) error { return os.Symlink("link.yaml", dir+"/link.yaml") }, "too many"},
		{"a folder", "sub", nil, "this is a folder"},
		{"a pipe", "pipe.yaml", func(dir string) error { return syscall.Mkfifo(dir+"/pipe.yaml", 0o600) }, "this is a pipe"},
		{"a device", "zero.yaml", func(dir string) error { return os.Symlink("/dev/zero", dir+"/zero.yaml") }, "path escapes"},
		{"missing", "gone.yaml", nil, "no such file"},
		{"too large", "large.yaml", func(dir string) error {
			return os.WriteFile(dir+"/large.yaml", make([]byte, MaxSize+2), 0o644)
		}, "larger than"},
		{"the policy", "policy.yaml", nil, "uses itself"},
		{"the policy by a link", "link.yaml", func(dir string) error { return os.Symlink("policy.yaml", dir+"/link.yaml") }, "uses itself"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := lay(t, map[string]string{"policy.yaml": fmt.Sprintf(policyWithPart, c.use), "part.yaml": partOfIt})
			if c.prepare != nil {
				must(t, c.prepare(dir))
			}
			path := filepath.Join(dir, "policy.yaml")
			_, _, loaded := Load(path)
			_, _, source, opened := Open(path)
			for _, err := range []error{loaded, opened} {
				switch {
				case c.says == "" && err != nil:
					t.Error(err)
				case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "yaml:4:")):
					t.Errorf("%v, want %q", err, c.says)
				}
			}
			if c.says == "" && !source.Watched {
				t.Error("it is not watched")
			}
		})
	}
}

func errorsOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// A policy from a pipe has no folder, and says so; one without parts is read.
func TestPipeHasNoParts(t *testing.T) {
	for source, says := range map[string]string{fmt.Sprintf(policyWithPart, "part.yaml"): "the policy has no folder", partOfIt: ""} {
		path := filepath.Join(lay(t, map[string]string{"part.yaml": partOfIt}), "pipe")
		must(t, syscall.Mkfifo(path, 0o600))
		written := make(chan error, 1)
		go func() { written <- os.WriteFile(path, []byte(source), 0) }()
		_, _, _, err := Open(path)
		must(t, <-written)
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

// A folder stands for the policies in it that are no parts of others, and a policy that is run for one of them.
func TestFolderOfParts(t *testing.T) {
	dir := lay(t, map[string]string{"main.yaml": fmt.Sprintf(policyWithPart, "part.yaml"), "part.yaml": partOfIt, "main.test.yaml": "version: 1\n"})
	p, _, source, err := Open(dir)
	if err != nil || !source.Watched || p.File() != filepath.Join(dir, "main.yaml") {
		t.Fatalf("%v, %v", p, err)
	}
	if files, err := Files(dir); err != nil || len(files) != 1 || files[0] != filepath.Join(dir, "main.yaml") {
		t.Errorf("%v, %v", files, err)
	}
	if files := p.Files(); len(files) != 2 || files[1] != filepath.Join(dir, "part.yaml") {
		t.Errorf("%v", files)
	}
	must(t, os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte(partOfIt), 0o644))
	if p, _, _, err := Open(dir); err != nil || p.File() != filepath.Join(dir, "policy.yaml") {
		t.Errorf("%v, %v", p, err)
	}
}

// What a key is written as in YAML does not hide a part from who reads the files.
func TestUseInOtherWords(t *testing.T) {
	for _, key := range []string{`use`, `"use"`, `"\x75se"`, `"\u0075\u0073e"`, "? |-\n  use\n"} {
		source := strings.Replace(fmt.Sprintf(policyWithPart, "part.yaml"), "use:", key+":", 1)
		dir := lay(t, map[string]string{"policy.yaml": source, "part.yaml": partOfIt})
		if p, _, _, err := Open(filepath.Join(dir, "policy.yaml")); err != nil || len(p.Parts()) != 1 {
			t.Errorf("%s: %v", key, err)
		}
	}
}
