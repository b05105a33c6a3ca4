package kept

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/journal/sqlite"
)

// inFolder has a folder of two stores, with the runs AAA1 and AAB2, and CCC3.
func inFolder(t *testing.T) (url, folder string) {
	t.Helper()
	from, _ := filled(t, nil)
	text, err := do(t, "", "export", "--store", from)
	if err != nil {
		t.Fatal(err)
	}
	folder = t.TempDir()
	for name, runs := range map[string]string{"a%2Fb.db": text, "c.db": otherRun(t)} {
		if _, err := do(t, runs, "import", "--store", "sqlite:"+filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	return "sqlite:" + folder + "/", folder
}

// otherRun is an export of the run CCC3.
func otherRun(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "other.db")
	fill(t, path, nil, "CCC3")
	text, err := do(t, "", "export", "--store", "sqlite:"+path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func names(t *testing.T, folder string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(folder, "*.db"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range found {
		found[i] = filepath.Base(found[i])
	}
	return strings.Join(found, " ")
}

// A folder is read as one store, and no file is made in it.
func TestFolderIsRead(t *testing.T) {
	url, folder := inFolder(t)
	for args, says := range map[string]string{
		"ls":                           "CCC3",
		"show ccc":                     "run        CCC3",
		"tail aab":                     "tool t5",
		"tail CCC3":                    "tool t5",
		"diff AAA1 CCC3":               "",
		"verify":                       "3 runs: what the store keeps is what was written.\n",
		"verify ccc":                   "1 run: what the store keeps is what was written.\n",
		"anchor":                       `{"run":"CCC3","seq":5,`,
		"export aaa ccc":               `{"end":"CCC3"}`,
		"export":                       `{"end":"CCC3"}`,
		"report ccc":                   "CCC3",
		"gc --dry-run --keep-idle 1ns": "It would remove 3 runs and 2 policies.\n",
	} {
		if out, err := do(t, "", append(strings.Fields(args), "--store", url)...); err != nil || !strings.Contains(out, says) {
			t.Errorf("%s: %q, %v", args, out, err)
		}
	}
	if out, err := do(t, "", "tail", "zz", "--store", url); err == nil || !strings.Contains(err.Error(), "no run whose id begins with") {
		t.Errorf("%q, %v", out, err)
	}
	if is := names(t, folder); is != "a%2Fb.db c.db" {
		t.Errorf("the folder has %s", is)
	}
}

// Runs of a folder are removed from each of its files that no proxy has.
func TestFolderIsCollected(t *testing.T) {
	url, folder := inFolder(t)
	held, err := sqlite.Open(sqlite.Config{Path: filepath.Join(folder, "a%2Fb.db"), Holder: "process 7 on h"})
	if err != nil {
		t.Fatal(err)
	}
	out, err := do(t, "", "gc", "--keep-idle", "1ns", "--store", url)
	const said = "a%2Fb.db: the store is in use by process 7 on h: this command needs the store for itself: stop each process that has it, and start them again afterwards; or have them remove runs"
	if err == nil || !strings.Contains(err.Error(), said) || strings.Contains(err.Error(), "sqlite:FOLDER/") || !strings.HasSuffix(out, "Removed: 1 run and 1 policy.\n") {
		t.Errorf("%q, %v", out, err)
	}
	held.Close()
	if out, err := do(t, "", "gc", "--keep-idle", "1ns", "--store", url); err != nil || !strings.HasSuffix(out, "Removed: 2 runs and 1 policy.\n") {
		t.Errorf("%q, %v", out, err)
	}
	if out, err := do(t, "", "ls", "--store", url); err != nil || out != "The store has no runs.\n" {
		t.Errorf("%q, %v", out, err)
	}
}

// A copy in the folder is told, whichever of the two is meant.
func TestFolderWithACopy(t *testing.T) {
	url, folder := inFolder(t)
	text, err := os.ReadFile(filepath.Join(folder, "c.db"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "backup.db"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"ls", "show CCC3", "verify", "tail ccc"} {
		if out, err := do(t, "", append(strings.Fields(args), "--store", url)...); err == nil || !strings.Contains(err.Error(), "run CCC3 is in sqlite:") {
			t.Errorf("%s: %q, %v", args, out, err)
		}
	}
}

// Where there is no store none is made but by import, which names a file.
func TestNothingIsMade(t *testing.T) {
	folder := t.TempDir()
	for _, store := range []string{"sqlite:" + folder + "/", "sqlite:" + filepath.Join(folder, "none.db"), "sqlite:" + filepath.Join(folder, "none") + "/"} {
		for _, args := range []string{"ls", "verify", "anchor", "gc --keep-idle 1h", "gc --dry-run --keep-idle 1h"} {
			if out, err := do(t, "", append(strings.Fields(args), "--store", store)...); err == nil {
				t.Errorf("%s of %s: %q", args, store, out)
			}
		}
	}
	if out, err := do(t, otherRun(t), "import", "--store", "sqlite:"+folder+"/"); err == nil || !strings.Contains(err.Error(), "name a file, like sqlite:FOLDER/NAME.db") {
		t.Errorf("%q, %v", out, err)
	}
	if files, err := os.ReadDir(folder); err != nil || len(files) != 0 {
		t.Errorf("%v, %v", files, err)
	}
}
