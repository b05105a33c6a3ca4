package sqlite

import "golang.org/x/sys/unix"

// networkFS returns what a folder is on if that is a network file system, "" if it is none: there locks, and memory
// that processes share, are not what SQLite needs (https://sqlite.org/wal.html).
func networkFS(folder string) (string, error) {
	var at unix.Statfs_t
	if err := unix.Statfs(folder, &at); err != nil {
		return "", err
	}
	switch uint32(at.Type) {
	case unix.NFS_SUPER_MAGIC:
		return "NFS", nil
	case unix.CIFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC:
		return "CIFS", nil
	case unix.AFS_SUPER_MAGIC, unix.AFS_FS_MAGIC:
		return "AFS", nil
	case unix.CODA_SUPER_MAGIC:
		return "Coda", nil
	case unix.CEPH_SUPER_MAGIC:
		return "Ceph", nil
	}
	return "", nil
}
