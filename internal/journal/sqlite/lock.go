package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/gofrs/flock"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
)

// maxLinks bounds how many links are followed to a file that is not there.
const maxLinks = 40

// resolve returns the path of a file without links, also where it is not there yet: as SQLite puts its other files
// beside that one, its lock is there, whichever links lead to it.
func resolve(path string) (string, error) {
	for range maxLinks {
		file, err := filepath.EvalSymlinks(path)
		if !errors.Is(err, fs.ErrNotExist) {
			return file, err
		}
		folder, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			return "", err
		}
		path = filepath.Join(folder, filepath.Base(path))
		to, err := os.Readlink(path)
		if err != nil { // there is no link either
			return path, nil
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(folder, to)
		}
		path = to
	}
	return "", fmt.Errorf("%s: too many symbolic links, one behind the other", path)
}

// take takes the lock beside a file, and writes into it who has it. Who reads the file needs no lock.
func take(path, holder string) (*flock.Flock, error) {
	lock := flock.New(path, flock.SetPermissions(0o600))
	ok, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	if !ok {
		by, _ := os.ReadFile(holderPath(path)) // who has it may be writing it
		if len(by) == 0 {
			by = []byte("another process")
		}
		return nil, &journal.Held{By: strings.TrimSpace(string(by))}
	}
	if err := os.WriteFile(holderPath(path), []byte(holder+"\n"), 0o600); err != nil {
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return lock, nil
}
