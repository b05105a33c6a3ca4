//go:build long

package pod

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// container is one of a pod's, whichever process runs in it now.
type container struct {
	pod  *pod
	name string
	spec spec
	stop []string // the preStop hook; nil: the manifest's sleep

	// The back-off before the second start lasts until it is closed; nil: there is none, as with the kubelet.
	backOff chan struct{}

	mu      sync.Mutex // guards what follows
	process *mcptest.Process
	over    bool // what ends is not started again
}

// start starts the container's process, unless the pod is ending: nil then.
func (c *container) start() *mcptest.Process {
	c.pod.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return nil
	}
	c.spec.Root, c.spec.Network = c.pod.t.TempDir(), c.pod.sandbox.Process.Pid
	c.process = c.pod.start(unix.CLONE_NEWPID|unix.CLONE_NEWNS, containerWord, c.spec)
	c.pod.t.Cleanup(c.pod.halt) // before the process is told to end by itself
	c.pod.journal.note("%s starts", c.name)
	return c.process
}

// last has the process that runs now be the container's last one.
func (c *container) last() *mcptest.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	return c.process
}

// running is the process that runs now, or ran last.
func (c *container) running() *mcptest.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.process
}

// exec runs a command in the container and returns what it says.
func (c *container) exec(command ...string) (said string, code int) {
	c.pod.t.Helper()
	p := c.pod.start(0, hookWord, hook{c.running().Process.Pid, c.spec.User, c.spec.Env, command})
	code = p.ExitCode()
	return p.Log().String(), code
}

// kubelet runs a pod.
type kubelet struct {
	*pod
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	web    *http.Client
	probes context.CancelFunc // ends those that end when the pod is told to
}

func run(p *pod) *kubelet {
	ctx, cancel := context.WithCancel(context.Background())
	k := &kubelet{pod: p, ctx: ctx, cancel: cancel, web: &http.Client{
		Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true},
	}}
	p.halt = k.halt
	return k
}

// halt ends all that runs, and the kubelet, at once.
func (k *kubelet) halt() {
	k.cancel()
	for _, c := range []*container{k.sidecar, k.server} {
		if process := c.last(); process != nil {
			_ = process.Process.Kill()
		}
	}
	k.work.Wait()
}

// startSidecar starts the native sidecar, and returns when its startup probe has passed: no other container is started
// before that.
func (k *kubelet) startSidecar() {
	k.t.Helper()
	k.watch(k.sidecar, k.sidecar.start())
	startup := k.manifest.Init[0].Startup
	for range startup.Threshold {
		if why := k.probe(k.ctx, startup); why == "" {
			k.journal.note("startup passed")
			k.probeOn()
			return
		}
		if !k.pause(k.period(startup)) {
			return
		}
	}
	k.t.Fatalf("the startup probe has never passed; the sidecar said:\n%s", k.sidecar.running().Log())
}

// startServer starts the pod's own container.
func (k *kubelet) startServer() {
	k.t.Helper()
	k.watch(k.server, k.server.start())
}

// startAll runs the whole pod, and returns the journal's place at which it is ready.
func (k *kubelet) startAll() (place int) {
	k.t.Helper()
	k.startSidecar()
	k.startServer()
	return k.journal.await(k.t, 0, "ready")
}

// watch waits for the end of a container's process, and starts it again, at once for the first time and then with the
// kubelet's back-off, unless the pod is ending.
func (k *kubelet) watch(c *container, process *mcptest.Process) {
	k.work.Go(func() {
		backOff := time.Duration(0)
		for {
			<-process.Ended()
			k.journal.note("%s has ended with %d", c.name, process.ProcessState.ExitCode())
			if !k.pause(backOff) || !k.wait(c.backOff) {
				return
			}
			if process = c.start(); process == nil {
				return
			}
			backOff = 10 * time.Second / k.times.faster
		}
	})
}

// pause waits, and reports whether the pod is still there.
func (k *kubelet) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-k.ctx.Done():
		return false
	}
}

// wait waits for a channel, if it is one, like pause.
func (k *kubelet) wait(closed <-chan struct{}) bool {
	if closed == nil {
		return true
	}
	select {
	case <-closed:
		return true
	case <-k.ctx.Done():
		return false
	}
}

func (k *kubelet) period(p probe) time.Duration {
	return time.Duration(p.Period) * time.Second / k.times.faster
}

// probe asks as the kubelet does, by the pod's address, and returns why it failed, "" if it did not.
func (k *kubelet) probe(ctx context.Context, p probe) (why string) {
	at := net.JoinHostPort(k.ip, k.manifest.port(p.HTTP.Port))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+p.HTTP.Path, nil)
	if err != nil {
		return err.Error()
	}
	request.Header.Set("User-Agent", "kube-probe/1.37")
	request.Header.Set("Accept", "*/*")
	answer, err := k.web.Do(request)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	if answer.StatusCode < 200 || answer.StatusCode > 399 {
		return fmt.Sprintf("%d %s", answer.StatusCode, strings.ReplaceAll(string(body), "\n", " "))
	}
	return ""
}

// probeOn begins the probes of a container that has started. Readiness is asked for until the container is gone,
// liveness until the pod is told to end.
func (k *kubelet) probeOn() {
	m := k.manifest.Init[0]
	k.work.Go(func() { k.level(k.ctx, m.Readiness, "ready", "unready", func() {}) })
	alive, stop := context.WithCancel(k.ctx)
	k.probes = stop
	k.work.Go(func() {
		k.level(alive, m.Liveness, "alive", "not alive", func() { _ = k.sidecar.running().Process.Kill() })
	})
}

// level follows a probe, and writes changes into the journal: up on the first success, down on as many failures in a
// row as the manifest says, on which failing is called.
func (k *kubelet) level(ctx context.Context, p probe, up, down string, failing func()) {
	tick := time.NewTicker(k.period(p))
	defer tick.Stop()
	last, failed := "", 0
	turn := func(now, why string) {
		if now != last {
			k.journal.note("%s%s", now, why)
		}
		last, failed = now, 0
	}
	for {
		why := k.probe(ctx, p)
		switch {
		case ctx.Err() != nil:
			return
		case why == "":
			turn(up, "")
		default:
			if failed++; failed >= p.Threshold {
				turn(down, ": "+why)
				failing()
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// end ends the pod as the kubelet does, and returns when that is over, how long it took. All preStop hooks begin at once;
// a container is told to end after its own; the native sidecar after all others have gone, too. What is left at the end
// of the grace is killed.
func (k *kubelet) end() time.Duration {
	k.t.Helper()
	begun := time.Now()
	k.sidecar.last()
	k.server.last()
	k.probes()
	told := len(k.journal.all())
	k.journal.note("the pod is told to end")
	grace, cancel := context.WithTimeout(k.ctx, k.times.grace)
	defer cancel()
	serverGone := make(chan struct{})
	var both sync.WaitGroup
	both.Go(func() {
		defer close(serverGone)
		k.hooked(grace, k.server)
		k.terminate(grace, k.server, told)
	})
	both.Go(func() {
		k.hooked(grace, k.sidecar)
		<-serverGone
		k.terminate(grace, k.sidecar, told)
	})
	both.Wait()
	return time.Since(begun)
}

// hooked runs a container's preStop hook: a command, or the sleep.
func (k *kubelet) hooked(grace context.Context, c *container) {
	k.journal.note("%s: preStop begins", c.name)
	if c.stop != nil {
		said, code := c.exec(c.stop...)
		k.journal.note("%s: preStop is over: %d %s", c.name, code, said)
		return
	}
	sleep := time.NewTimer(k.times.sleep)
	defer sleep.Stop()
	select {
	case <-sleep.C:
	case <-grace.Done():
	case <-c.running().Ended():
	}
	k.journal.note("%s: preStop is over", c.name)
}

// terminate sends SIGTERM, if the container is still there, and SIGKILL when the grace is over, at least 2 s later. It
// returns when the end of a container that was there at a place of the journal stands behind it.
func (k *kubelet) terminate(grace context.Context, c *container, told int) {
	process := c.running()
	select {
	case <-process.Ended():
		return
	default:
	}
	defer func() { k.journal.await(k.t, told, c.name+" has ended") }()
	k.journal.note("%s: SIGTERM", c.name)
	_ = process.Process.Signal(syscall.SIGTERM)
	least := time.NewTimer(2 * time.Second)
	defer least.Stop()
	select {
	case <-process.Ended():
		return
	case <-grace.Done():
	}
	select {
	case <-process.Ended():
	case <-least.C:
		k.journal.note("%s: SIGKILL", c.name)
		_ = process.Process.Kill()
		<-process.Ended()
	}
}
