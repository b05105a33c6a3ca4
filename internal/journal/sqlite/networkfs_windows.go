package sqlite

import (
	"path/filepath"

	"golang.org/x/sys/windows"
)

// networkFS returns what a folder is on if that is a network file system, "" if it is none: there locks, and memory
// that processes share, are not what SQLite needs (https://sqlite.org/wal.html).
func networkFS(folder string) (string, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return "", err
	}
	root, err := windows.UTF16PtrFromString(filepath.VolumeName(folder) + `\`)
	if err != nil {
		return "", err
	}
	if windows.GetDriveType(root) == windows.DRIVE_REMOTE {
		return filepath.VolumeName(folder), nil
	}
	return "", nil
}
