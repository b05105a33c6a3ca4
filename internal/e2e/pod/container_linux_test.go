//go:build long

package pod

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// spec is all that a container is made of.
type spec struct {
	Network  int // the process whose network it shares
	Root     string
	ReadOnly bool
	User     int
	Mounts   []mount
	Env      []string
	Command  []string
}

// mount shows a file or a folder of the node in a container.
type mount struct {
	From, To string
	ReadOnly bool
}

// beContainer makes this process, which is process 1 already, into the container's own.
func beContainer(text string) error {
	runtime.LockOSThread() // who execs is this thread, with the privileges that it has
	var s spec
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return fmt.Errorf("reading the container's specification: %w", err)
	}
	user := orRoot(s.User)
	for _, step := range []func() error{
		func() error { return join(s.Network, "net", unix.CLONE_NEWNET) },
		s.fill, s.enter, func() error { return confine(user) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return fmt.Errorf("executing %v: %w", s.Command, syscall.Exec(s.Command[0], s.Command, s.Env))
}

// join enters a namespace of a process.
func join(pid int, name string, kind int) error {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/ns/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		defer unix.Close(fd)
		err = unix.Setns(fd, kind)
	}
	if err != nil {
		return fmt.Errorf("entering the %s namespace of process %d: %w", name, pid, err)
	}
	return nil
}

// fill makes the root: the libraries that the programs need, which were built here and not for an image, a few
// devices, /proc, and what is mounted.
func (s *spec) fill() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keeping mounts to itself: %w", err)
	}
	if err := unix.Mount("tmpfs", s.Root, "tmpfs", 0, "mode=755,size=4m"); err != nil {
		return fmt.Errorf("mounting the root: %w", err)
	}
	all := s.Mounts
	for _, from := range []string{"/usr", "/lib", "/lib64", "/bin"} {
		if target, err := os.Readlink(from); err == nil {
			_ = os.Symlink(target, filepath.Join(s.Root, from))
		} else if _, err := os.Stat(from); err == nil {
			all = append(all, mount{from, from, true})
		}
	}
	for _, device := range []string{"/dev/null", "/dev/zero", "/dev/urandom"} {
		all = append(all, mount{device, device, false})
	}
	for _, m := range all {
		if err := m.bind(s.Root); err != nil {
			return fmt.Errorf("mounting %s at %s: %w", m.From, m.To, err)
		}
	}
	proc := filepath.Join(s.Root, "proc")
	if err := os.Mkdir(proc, 0o755); err != nil {
		return err
	}
	return unix.Mount("proc", proc, "proc", 0, "")
}

func (m mount) bind(root string) error {
	to := filepath.Join(root, m.To)
	info, err := os.Stat(m.From)
	if err != nil {
		return err
	}
	if info.IsDir() {
		err = os.MkdirAll(to, 0o755)
	} else if err = os.MkdirAll(filepath.Dir(to), 0o755); err == nil {
		err = os.WriteFile(to, nil, 0o644)
	}
	if err == nil {
		err = unix.Mount(m.From, to, "", unix.MS_BIND|unix.MS_REC, "")
	}
	if err == nil && m.ReadOnly {
		err = readOnly(to)
	}
	return err
}

// readOnly mounts once more what is mounted. The other properties have to be kept, or a user namespace is denied it.
func readOnly(path string) error {
	var now unix.Statfs_t
	if err := unix.Statfs(path, &now); err != nil {
		return err
	}
	keep := uintptr(now.Flags) & (unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME | unix.MS_NODIRATIME)
	return unix.Mount("", path, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|keep, "")
}

// enter makes the root the only one there is.
func (s *spec) enter() error {
	err := unix.Chdir(s.Root)
	if err == nil {
		err = unix.PivotRoot(".", ".")
	}
	if err == nil {
		err = unix.Unmount(".", unix.MNT_DETACH)
	}
	if err == nil {
		err = unix.Chdir("/")
	}
	if err == nil && s.ReadOnly {
		err = readOnly("/")
	}
	if err != nil {
		return fmt.Errorf("entering the container's root: %w", err)
	}
	return nil
}

// confine gives up all capabilities, the way to gain any, and being root.
func confine(user int) error {
	for capability := uintptr(0); capability <= unix.CAP_LAST_CAP; capability++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0); err != nil {
			return fmt.Errorf("dropping capability %d: %w", capability, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("giving up new privileges: %w", err)
	}
	if user == 0 {
		return nil
	}
	if err := syscall.Setgroups(nil); err != nil {
		return fmt.Errorf("leaving groups: %w", err)
	}
	if err := syscall.Setresgid(user, user, user); err != nil {
		return fmt.Errorf("becoming group %d: %w", user, err)
	}
	if err := syscall.Setresuid(user, user, user); err != nil {
		return fmt.Errorf("becoming user %d: %w", user, err)
	}
	return nil
}

// orRoot returns a user, or root where there is no other one: in a user namespace that nobody with privileges has made.
func orRoot(user int) int {
	text, err := os.ReadFile("/proc/self/uid_map")
	var first, outside, size int
	if _, scan := fmt.Sscan(string(text), &first, &outside, &size); err == nil && scan == nil && size <= user {
		return 0
	}
	return user
}

// hook is a command that is run in a container that runs.
type hook struct {
	Process int // the container's process 1, as the node numbers it
	User    int
	Env     []string
	Command []string
}

// beHook runs a command in a container, and ends as it does.
func beHook(text string) error {
	runtime.LockOSThread() // namespaces are a thread's, and are given to what it starts
	var h hook
	if err := json.Unmarshal([]byte(text), &h); err != nil {
		return fmt.Errorf("reading the hook: %w", err)
	}
	user := orRoot(h.User)
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("leaving the threads' common root: %w", err)
	}
	for name, kind := range map[string]int{"net": unix.CLONE_NEWNET, "pid": unix.CLONE_NEWPID} {
		if err := join(h.Process, name, kind); err != nil {
			return err
		}
	}
	if err := join(h.Process, "mnt", unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := confine(user); err != nil {
		return err
	}
	command := exec.Command(h.Command[0], h.Command[1:]...)
	command.Env, command.Dir, command.Stdout, command.Stderr = h.Env, "/", os.Stdout, os.Stderr
	err := command.Run()
	if command.ProcessState != nil {
		os.Exit(command.ProcessState.ExitCode())
	}
	return err
}
