package stores

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/journal/sqlite"
)

// No two runs have one file of a folder, and a plain name is the file's.
func TestFileNames(t *testing.T) {
	for _, plain := range []string{"run", "a_b", "a-b.c"} {
		if name := fileName(plain); name != plain {
			t.Errorf("%q has the file %q", plain, name)
		}
	}
	of := map[string]string{}
	for _, run := range []string{"a/b", "a_b", "a%2Fb", "a%252Fb", ".a", "a", "..a", "%2Ea", "_", "/", ".", "..", "A 1", "A%201", `a\b`} {
		name := fileName(run)
		if other, there := of[name]; there {
			t.Errorf("%q and %q have one file, %q", run, other, name)
		}
		if of[name] = run; filepath.Base(name) != name || name[0] == '.' {
			t.Errorf("%q has the file %q, which is hidden or elsewhere", run, name)
		}
	}
}

// What else is in a folder is no store, nor is a file in which nothing stands.
func TestFiles(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{"b.db", "a%2Fb.db"} {
		s, err := sqlite.Open(sqlite.Config{Path: filepath.Join(folder, name)})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close() // the other files of SQLite are there as long as it is open
	}
	if err := os.WriteFile(filepath.Join(folder, "empty.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(folder, "folder.db"), 0o700); err != nil {
		t.Fatal(err)
	}
	want := []string{"sqlite:" + filepath.Join(folder, "a%2Fb.db"), "sqlite:" + filepath.Join(folder, "b.db")}
	if urls, err := Files("sqlite:" + folder + "/?sync=normal"); !slices.Equal(urls, want) || err != nil {
		t.Errorf("%v, %v", urls, err)
	}
	for _, one := range []string{"sqlite:" + folder, "postgres://db/runs", "memory"} {
		if urls, err := Files(one); !slices.Equal(urls, []string{one}) || err != nil {
			t.Errorf("%v, %v", urls, err)
		}
	}
}
