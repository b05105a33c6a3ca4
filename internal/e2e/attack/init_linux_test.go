package attack

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// asInit has a command be process 1 of a process namespace of its own, as in a container.
func asInit(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if os.Geteuid() != 0 {
		c.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
	}
}

// orphans is how many processes each start of the server leaves behind, and orphan the script that does so: half of
// them in sessions of their own. Each writes a line as it ends.
const (
	orphans = 40
	orphan  = `i=0; while [ $i -lt 20 ]; do i=$((i+1)); (sh -c 'echo >>"$0"' "$0" &); (setsid sh -c 'echo >>"$0"' "$0" &); done; exec "$@"`
)

// initRig is a proxy that is process 1, before a server that leaves orphans behind.
func initRig(t *testing.T, server string) (r *rig, left func() int) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "left")
	r = &rig{t: t, upstream: mcptest.Stdio(t, server)}
	command := append([]string{"sh", "-c", orphan, file}, r.upstream.Command()...)
	policy := strings.ReplaceAll(plan, "die: {on_unknown: after}", "die:")
	r.Session, r.process = mcptest.DialAs(t, asInit, mcptest.RunStdio(t, mcptest.WritePolicy(t, policy), command...)...)
	r.Initialize()
	return r, func() int {
		text, _ := os.ReadFile(file)
		return bytes.Count(text, []byte("\n"))
	}
}

// What a server leaves behind is reaped by process 1, and nothing is taken from what that is to learn of its own
// children.
func TestProcessOneReaps(t *testing.T) {
	t.Parallel()
	r, left := initRig(t, "world")
	const deaths = 8
	for range deaths {
		if answer := r.Tool("die", ""); !strings.Contains(answer.String(), "ended with exit status 3") {
			t.Errorf("answered %s", answer)
		}
		r.lives()
	}
	mcptest.Await(t, "the last orphans end", func() bool { return left() >= orphans }) // of those before, some died with their group
	mcptest.Await(t, "nobody but the server is left", func() bool {
		return len(mcptest.Processes(t, func(s mcptest.Stat) bool { return s.Parent == r.process.Process.Pid })) == 1
	})
	r.Close()
	r.ended()
}

// Process 1 is sent no signal that it does not ask for: these it does.
func TestSignalsOfProcessOne(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*rig) int{
		"drained": func(r *rig) int { return 0 },
		"at once": func(r *rig) int { r.insist(syscall.SIGTERM); return 143 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := initRig(t, "stubborn")
			r.Tool("children", "")
			held := r.hold()
			r.end()
			code := end(r)
			if code == 0 {
				r.upstream.Open("hold_open")
				r.Answer(held)
			}
			if got := r.process.ExitCode(); got != code {
				t.Errorf("exit code %d", got)
			}
			r.upstream.AwaitLive(t, 0)
		})
	}
}
