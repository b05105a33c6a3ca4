//go:build !windows

package postgres

import (
	"errors"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// own has the folder belong to who the server runs as: it refuses to run as root.
func (s *Server) own() error {
	if os.Getuid() != 0 {
		return nil
	}
	uid, gid, err := somebody()
	if err != nil {
		return err
	}
	return os.Chown(s.folder, uid, gid)
}

// as has a command run as whom the folder belongs to.
func (s *Server) as(c *exec.Cmd) {
	if os.Getuid() != 0 {
		return
	}
	if uid, gid, err := somebody(); err == nil {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	}
}

// somebody is a user who is not root.
func somebody() (uid, gid int, err error) {
	var u *user.User
	for _, name := range []string{"postgres", "nobody"} {
		if u, err = user.Lookup(name); err == nil {
			uid, uidErr := strconv.Atoi(u.Uid)
			gid, gidErr := strconv.Atoi(u.Gid)
			return uid, gid, errors.Join(uidErr, gidErr)
		}
	}
	return 0, 0, errors.New("PostgreSQL does not run as root, and there is neither a user postgres nor nobody")
}
