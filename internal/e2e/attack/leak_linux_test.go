package attack

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// A client that dies takes all its ends of the pipes along at once: the proxy's next line, to the client or to
// the log, must not be the end of it before it has ended what it started.
func TestClientDiesWithItsPipes(t *testing.T) {
	t.Parallel()
	for _, server := range []string{"world", "stubborn"} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			u := mcptest.Stdio(t, server)
			cmd := exec.Command(mcptest.Proxy(t), append([]string{"run", "--policy", mcptest.WritePolicy(t, plan), "--"}, u.Command()...)...)
			stdin, stdout, stderr := pipesOf(t, cmd)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			r := &rig{t: t, upstream: u, process: &mcptest.Process{Cmd: cmd}}
			send(t, stdin, mcptest.Request(1, "initialize", oldHello), call("2", `{"name":"children"}`))
			u.AwaitLive(t, 2)
			group := r.group()
			stdout.Close()
			stderr.Close()
			send(t, stdin, call("3", `{"name":"hidden"}`), call("4", `{"name":"once"}`))
			u.Await(t, 1, "tools/call", "once")
			stdin.Close()
			_ = cmd.Wait() // its exit code is nobody's any more
			u.AwaitLive(t, 0)
			awaitEmpty(t, group)
			r.called("children", "once") // and nothing else, "hidden" above all
		})
	}
}

func pipesOf(t *testing.T, cmd *exec.Cmd) (stdin io.WriteCloser, stdout, stderr io.ReadCloser) {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	if err == nil {
		stdout, err = cmd.StdoutPipe()
	}
	if err == nil {
		stderr, err = cmd.StderrPipe()
	}
	if err != nil {
		t.Fatal(err)
	}
	return stdin, stdout, stderr
}

func send(t *testing.T, stdin io.Writer, lines ...string) {
	t.Helper()
	if _, err := io.WriteString(stdin, strings.Join(lines, "\n")+"\n"); err != nil {
		t.Errorf("writing to the proxy: %v", err)
	}
}

// Ended while the server has not even greeted: what was started is ended all the same.
func TestSignalInMidHandshake(t *testing.T) {
	t.Parallel()
	for _, server := range [][]string{{"cat", "/dev/zero"}, {"sh", "-c", "trap '' TERM; sleep 60 & cat >/dev/null; sleep 60"}} {
		t.Run(server[0], func(t *testing.T) {
			t.Parallel()
			r := &rig{t: t}
			r.Session, r.process = mcptest.Dial(t, mcptest.RunStdio(t, mcptest.WritePolicy(t, plan), server...)...)
			r.Send(mcptest.Request(1, "initialize", oldHello))
			r.awaitChild()
			group := r.group()
			r.signal(syscall.SIGTERM)
			if code := r.process.ExitCode(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			awaitEmpty(t, group)
		})
	}
}

// awaitChild waits until the proxy has a child.
func (r *rig) awaitChild() {
	r.t.Helper()
	mcptest.Await(r.t, "the proxy starts a child", func() bool {
		return len(mcptest.Processes(r.t, func(s mcptest.Stat) bool { return s.Parent == r.process.Process.Pid && s.Group == s.PID })) > 0
	})
}

// A server that was stopped answers nothing and hears no polite signal: its calls are unknown, and it is ended.
func TestStoppedUpstream(t *testing.T) {
	t.Parallel()
	r := webPipe.with(impatient...).open(t)
	r.lives()
	group := r.group()
	if err := syscall.Kill(-group, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if answer := r.Tool("silent", ""); !strings.Contains(answer.String(), `"outcome_unknown"`) {
		t.Errorf("answered %s", answer)
	}
	r.web.Delete()
	awaitEmpty(t, group)
}

// What leaves the group and keeps the pipes open is beyond reach; the proxy ends all the same.
func TestEscapedChildHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	u := mcptest.Stdio(t, "world")
	script := `setsid sh -c 'echo $$ >"$0"; exec sleep 20' "$0" & exec "$@"`
	file := t.TempDir() + "/pid"
	argv := append([]string{"sh", "-c", script, file}, u.Command()...)
	r := &rig{t: t, upstream: u}
	r.Session, r.process = mcptest.Dial(t, mcptest.RunStdio(t, mcptest.WritePolicy(t, plan), argv...)...)
	t.Cleanup(func() { endEscaped(file) })
	r.Initialize()
	r.lives()
	r.Close()
	if code := r.process.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	u.AwaitLive(t, 0)
}

// endEscaped ends the process whose number is in the file.
func endEscaped(file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		return
	}
	kill := exec.Command("kill", strings.TrimSpace(string(text)))
	_ = kill.Run() // it may have ended by itself
}

// A server that is too busy to read keeps its call, however much is thrown at it meanwhile: what finds no room is
// not sent, and is told so.
func TestBusyUpstreamKeepsItsCall(t *testing.T) {
	t.Parallel()
	r := pipes.open(t)
	held := r.Request("tools/call", mcptest.ToolParams("hold_open", ""))
	r.upstream.Await(t, 1, "tools/call", "hold_open")
	group := r.group()
	if err := syscall.Kill(-group, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for range 6 {
		r.Request("tools/call", mcptest.ToolParams("ok", `{"a":"`+strings.Repeat("x", 3900000)+`"}`))
	}
	answer := r.nextAnswer() // while the server reads nothing
	if !strings.Contains(answer.String(), `"upstream_unavailable"`) {
		t.Errorf("answered %.300s", answer)
	}
	r.upstream.Open("hold_open")
	if err := syscall.Kill(-group, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for string(answer.ID) != string(mcptest.ID(held)) {
		answer = r.nextAnswer()
	}
	if string(answer.Result) != mcptest.Text("the true answer") {
		t.Errorf("the held call is answered %.300s", answer)
	}
	r.upstream.Await(t, 1, "tools/call", "ok")
	if n := r.upstream.Started(); n != 1 {
		t.Errorf("%d processes were started", n)
	}
}
