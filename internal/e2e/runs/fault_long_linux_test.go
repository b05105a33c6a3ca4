//go:build long

package runs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// The disk is full: it is one of the proxy's own, as small as that.
func TestStoreOnAFullDisk(t *testing.T) {
	each(t, those(byHeader), func(t *testing.T, k key) {
		disk := t.TempDir()
		front := []string{"unshare", "--mount"}
		if os.Geteuid() != 0 {
			front = append(front, "--map-root-user")
		}
		front = append(front, "sh", "-c", `mount -t tmpfs -o size=512k none "$0" && exec "$@"`, disk)
		filler := func(h *house) string {
			return filepath.Join(fmt.Sprintf("/proc/%d/root", h.process.Process.Pid), disk, "filler")
		}
		unwritable(t, k, "sqlite:"+filepath.Join(disk, "runs.db"), front, func(h *house) {
			f, err := os.Create(filler(h))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			for size := 64 << 10; size > 0; {
				if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
					size /= 2
				} else if err != nil {
					t.Fatal(err)
				}
			}
		}, func(h *house) {
			if err := os.Remove(filler(h)); err != nil {
				t.Fatal(err)
			}
		})
	})
}
