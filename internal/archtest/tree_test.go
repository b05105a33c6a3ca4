package archtest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The rules of the tree hold for what is tracked, and for what is about to be.
func tracked(t *testing.T) []string {
	t.Helper()
	command := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	command.Dir = root(t)
	out, err := command.Output()
	if err != nil {
		t.Fatalf("listing tracked files: %v", err)
	}
	return strings.Split(strings.Trim(string(out), "\x00"), "\x00")
}

// content returns a file's bytes; a file that is tracked and has been removed is empty.
func content(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), file))
	if err != nil && !os.IsNotExist(err) {
		t.Fatalf("reading %s: %v", file, err)
	}
	return text
}

// A path of one machine in a tracked file works nowhere else. The needles are put together here, so that this
// file does not contain them.
func TestNoPathOfOneMachine(t *testing.T) {
	needles := []string{"/" + "root/", "/" + "work/main", "/" + "work/shared", "/" + "work/notes", "C:" + `\Users\`}
	for _, file := range tracked(t) {
		text := content(t, file)
		for _, needle := range needles {
			if bytes.Contains(text, []byte(needle)) {
				t.Errorf("%s contains %s", file, needle)
			}
		}
	}
}

// The lock file pins by integrity and leaves the choice of registry to whoever installs.
func TestLockFileNamesNoRegistry(t *testing.T) {
	lock := content(t, "internal/mcptest/node/package-lock.json")
	if len(lock) == 0 {
		t.Fatal("the lock file is missing")
	}
	if bytes.Contains(lock, []byte(`"resolved"`)) {
		t.Error(`package-lock.json has "resolved" entries: run npm install with omit-lockfile-registry-resolved=true`)
	}
	if !bytes.Contains(lock, []byte(`"integrity"`)) {
		t.Error("package-lock.json pins nothing")
	}
}

// Tests wait for conditions; a pause hides a race or wastes time, and usually both. Where synctest makes the
// time, a sleep is how it passes.
func TestNoTestSleeps(t *testing.T) {
	needle, bubble := []byte("time."+"Sleep("), []byte(`"testing/`+`synctest"`)
	for _, file := range tracked(t) {
		text := content(t, file)
		if strings.HasSuffix(file, "_test.go") && bytes.Contains(text, needle) && !bytes.Contains(text, bubble) {
			t.Errorf("%s sleeps: wait for the condition instead", file)
		}
	}
}

// A skipped test reads green and tests nothing. What needs long stands behind a build tag. In a file of rapid's
// a skip throws away one draw, and is its idiom.
func TestNoTestSkips(t *testing.T) {
	needles := [][]byte{[]byte("t." + "Skip("), []byte("t." + "Skipf("), []byte("t." + "SkipNow("), []byte("testing." + "Short(")}
	rapid := []byte(`"pgregory.net/` + `rapid"`)
	for _, file := range tracked(t) {
		text := content(t, file)
		if !strings.HasSuffix(file, "_test.go") || bytes.Contains(text, rapid) {
			continue
		}
		for _, needle := range needles {
			if bytes.Contains(text, needle) {
				t.Errorf("%s contains %s", file, needle)
			}
		}
	}
}
