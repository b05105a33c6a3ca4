package sqlite

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The numbers are those that stat(1) of GNU knows the file systems by.
func TestNetworkFileSystemsAreKnown(t *testing.T) {
	want := map[uint32]string{
		0x6969: "NFS", 0xff534d42: "CIFS", 0x517b: "CIFS", 0xfe534d42: "CIFS", 0x5346414f: "AFS", 0x6b414653: "AFS", 0x73757245: "Coda",
		0x00c36400: "Ceph", 0x01021997: "9p", 0x0bd00bd0: "Lustre", 0x47504653: "GPFS",
	}
	if !maps.Equal(networkKinds, want) {
		t.Errorf("%v\nwant\n%v", networkKinds, want)
	}
	for name, disk := range map[string]uint32{"ext4": 0xef53, "XFS": 0x58465342, "Btrfs": 0x9123683e, "ZFS": 0x2fc12fc1, "tmpfs": 0x01021994, "overlayfs": 0x794c7630, "FUSE": 0x65735546} {
		if kind := networkKinds[disk]; kind != "" {
			t.Errorf("%s is taken for %s", name, kind)
		}
	}
	if kind, err := networkFS(t.TempDir()); kind != "" || err != nil {
		t.Errorf("a local folder: %q, %v", kind, err)
	}
	if kind, err := networkFS("/nowhere/at/all"); err == nil {
		t.Errorf("no folder: %q", kind)
	}
}

// It is the file's own folder that is looked at, and not that of a link to it. /proc stands for a network file system.
func TestNetworkFileSystemBehindALink(t *testing.T) {
	networkKinds[unix.PROC_SUPER_MAGIC] = "a test"
	defer delete(networkKinds, unix.PROC_SUPER_MAGIC)
	link := filepath.Join(t.TempDir(), "runs.db")
	if err := os.Symlink("/proc/self/runs.db", link); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Path: link}); err == nil || !strings.Contains(err.Error(), "network file system (a test)") {
		t.Errorf("%v", err)
	}
}
