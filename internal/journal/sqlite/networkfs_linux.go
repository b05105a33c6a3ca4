package sqlite

import "golang.org/x/sys/unix"

// networkFS returns what a folder is on if that is a network file system, "" if it is none: there locks, and memory
// that processes share, are not what SQLite needs (https://sqlite.org/wal.html).
func networkFS(folder string) (string, error) {
	var at unix.Statfs_t
	if err := unix.Statfs(folder, &at); err != nil {
		return "", err
	}
	return networkKinds[uint32(at.Type)], nil
}

// What statfs(2) says of network file systems. One in FUSE, such as sshfs or GlusterFS, cannot be told from a disk in
// FUSE, which has the same number.
var networkKinds = map[uint32]string{
	unix.NFS_SUPER_MAGIC:  "NFS",
	unix.CIFS_SUPER_MAGIC: "CIFS",
	unix.SMB_SUPER_MAGIC:  "CIFS",
	unix.SMB2_SUPER_MAGIC: "CIFS",
	unix.AFS_SUPER_MAGIC:  "AFS",
	unix.AFS_FS_MAGIC:     "AFS",
	unix.CODA_SUPER_MAGIC: "Coda",
	unix.CEPH_SUPER_MAGIC: "Ceph",
	unix.V9FS_MAGIC:       "9p",
	lustreMagic:           "Lustre",
	gpfsMagic:             "GPFS",
}

// Of file systems that Linux itself does not have.
const (
	lustreMagic = 0x0bd00bd0
	gpfsMagic   = 0x47504653
)
