package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"modernc.org/sqlite"
)

// The primary result codes of SQLite (https://sqlite.org/rescode.html) that are told of with what to do.
const (
	codeReadOnly = 8
	codeCorrupt  = 11
	codeNoFile   = 26 // of SQLite
	codeCannot   = 14 // open a file: of those beside the one that is named, too
)

// noFolder refuses the path of a folder, of which SQLite says that the disk has an error.
func noFolder(path string) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fmt.Errorf("it is a folder: write sqlite:%s/ for a file in it for each run name", path)
	}
	return nil
}

// advise adds to why a file cannot be opened what to do about it.
func advise(err error) error {
	code := 0
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		code = e.Code() & 0xff
	}
	switch {
	case code == codeCorrupt:
		return fmt.Errorf("%w: what stands in the file is damaged: stop what uses it, and restore a backup, without the -wal and -shm files of another one beside it", err)
	case code == codeNoFile:
		return fmt.Errorf("%w: something else is in it: name another file by --store", err)
	case code == codeCannot, code == codeReadOnly, errors.Is(err, syscall.EROFS), errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: SQLite keeps files beside this one, also while it is read only: choose a folder that this process can write, or copy the file there, with its -wal", err)
	}
	return err
}
