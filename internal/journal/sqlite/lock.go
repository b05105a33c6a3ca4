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

// oneName refuses a file with hard links: SQLite would keep another WAL beside each of its names, and there would be
// another lock.
func oneName(path string) error {
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && hasLinks(info) {
		return fmt.Errorf("%s has another name, by a hard link: what is written by the one would not be read by the other: copy the file (cp, while nothing uses it), and remove that name", path)
	}
	return nil
}

// file is a file that is open, and the path by which it was opened.
type file struct {
	path string
	is   fs.FileInfo
}

// opened are the files of a store, which have just been opened.
func opened(path string) (all []file, err error) {
	for _, suffix := range []string{"", "-wal", ".lock"} {
		is, err := os.Stat(path + suffix)
		if err != nil {
			return nil, err
		}
		all = append(all, file{path + suffix, is})
	}
	return all, nil
}

// there tells whether files are where they were opened. Who opens the store next finds nothing of what is written to one that is not.
func there(all []file) error {
	for _, f := range all {
		if is, err := os.Stat(f.path); err != nil || !os.SameFile(is, f.is) {
			return fmt.Errorf("%s is not the file any more that was opened: it was removed, moved, or another one put in its place: put it back, or start fsm-proxy anew, with a backup restored if it is lost", f.path)
		}
	}
	return nil
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
		return nil, &journal.Held{By: strings.TrimSpace(string(by)), Do: "stop that, or name another file by --store; a folder (sqlite:FOLDER/) has one for each --run"}
	}
	if err := os.WriteFile(holderPath(path), []byte(holder+"\n"), 0o600); err != nil {
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return lock, nil
}
