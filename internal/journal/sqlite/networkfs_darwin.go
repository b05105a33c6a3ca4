package sqlite

import "golang.org/x/sys/unix"

// networkFS returns what a folder is on if that is a network file system, "" if it is none: there locks, and memory
// that processes share, are not what SQLite needs (https://sqlite.org/wal.html).
func networkFS(folder string) (string, error) {
	var at unix.Statfs_t
	if err := unix.Statfs(folder, &at); err != nil {
		return "", err
	}
	switch name := unix.ByteSliceToString(at.Fstypename[:]); name {
	case "nfs", "smbfs", "afpfs", "webdav":
		return name, nil
	}
	return "", nil
}
