package attack

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// group is the process group of the proxy's only child.
func (r *rig) group() int {
	r.t.Helper()
	children := mcptest.Processes(r.t, func(s mcptest.Stat) bool { return s.Parent == r.process.Process.Pid })
	if len(children) != 1 {
		r.t.Fatalf("the proxy has the children %v", children)
	}
	if own := children[0]; own.Group != own.PID {
		r.t.Errorf("the child is in a group that is not its own: %v", own)
	}
	return children[0].Group
}

// awaitEmpty waits until a process group has no member left, zombies included.
func awaitEmpty(t *testing.T, group int) {
	t.Helper()
	timeout := time.NewTimer(mcptest.Patience)
	defer timeout.Stop()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		left := mcptest.Processes(t, func(s mcptest.Stat) bool { return s.Group == group })
		if len(left) == 0 {
			return
		}
		select {
		case <-again.C:
		case <-timeout.C:
			t.Errorf("still there: %v", left)
			return
		}
	}
}

// However the proxy ends, nothing of the upstream's group is left: not what ignores every polite request, not
// what it has started, no zombie.
func TestZombiesAfterExit(t *testing.T) {
	ends := map[string]func(*rig){
		"SIGTERM":      func(r *rig) { r.signal(syscall.SIGTERM) },
		"SIGINT":       func(r *rig) { r.signal(syscall.SIGINT) },
		"end of input": func(r *rig) { r.Close() },
	}
	t.Parallel()
	for name, end := range ends {
		for _, server := range []string{"world", "stubborn"} {
			for _, w := range []way{pipes, webPipe} {
				if w.client == "http" && name == "end of input" {
					continue // it reads none
				}
				w := w.with("--cancel-grace", "100ms", "--drain", "5s")
				w.server = server
				t.Run(name+" "+server+" "+w.client, func(t *testing.T) { t.Parallel(); zombies(t, w, end) })
			}
		}
	}
}

func zombies(t *testing.T, w way, end func(*rig)) {
	r := w.open(t)
	r.Tool("children", "")
	r.upstream.AwaitLive(t, 2)
	group := r.group()
	r.Request("tools/call", mcptest.ToolParams("hold", "")) // ends in mid-call
	r.upstream.Await(t, 1, "tools/call", "hold")
	end(r)
	if code := r.process.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	r.upstream.AwaitLive(t, 0)
	awaitEmpty(t, group)
}

func (r *rig) signal(s syscall.Signal) {
	r.t.Helper()
	if err := r.process.Process.Signal(s); err != nil {
		r.t.Errorf("signalling the proxy: %v", err)
	}
}

// A proxy that is killed can do nothing any more; the kernel ends its child. What that child has started sees
// its end of the pipes close, and is the child's own to end.
func TestSIGKILLOfTheProxy(t *testing.T) {
	t.Parallel()
	for _, server := range []string{"world", "stubborn"} {
		for _, w := range []way{pipes, webPipe} {
			w.server = server
			t.Run(server+" "+w.client, func(t *testing.T) {
				t.Parallel()
				r := w.open(t)
				r.lives()
				r.upstream.AwaitLive(t, 1)
				r.signal(syscall.SIGKILL)
				r.upstream.AwaitLive(t, 0)
			})
		}
	}
}

// A session that ends takes its process along, with all that it has started, while the proxy lives.
func TestZombiesAfterDelete(t *testing.T) {
	t.Parallel()
	for _, server := range []string{"world", "stubborn"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			w := webPipe
			w.server = server
			r := w.open(t)
			r.Tool("children", "")
			r.upstream.AwaitLive(t, 2)
			group := r.group()
			r.web.Delete()
			r.upstream.AwaitLive(t, 0)
			awaitEmpty(t, group)
		})
	}
}

// A process that dies again and again leaves no zombie, and is not started without end.
func TestZombiesOfACrashingUpstream(t *testing.T) {
	t.Parallel()
	policy := strings.ReplaceAll(plan, "die: {on_unknown: after}", "die:")
	r := pipes.under(policy).open(t)
	groups := map[int]bool{}
	for range 4 {
		groups[r.group()] = true
		if answer := r.Tool("die", ""); !strings.Contains(answer.String(), `"outcome_unknown"`) {
			t.Errorf("answered %s", answer)
		}
		r.lives()
	}
	for group := range groups {
		if group != r.group() {
			awaitEmpty(t, group)
		}
	}
	r.reached("tools/call die", "tools/call die", "tools/call die", "tools/call die")
}
