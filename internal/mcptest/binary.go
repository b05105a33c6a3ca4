package mcptest

import (
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// binary is fsm-proxy as this test process has built it, in a folder that Main removes.
type binary struct {
	once   sync.Once
	folder string
	path   string
	failed string
}

var tested, plain binary

// givenProxy names the environment variable with the path of a binary to test instead of the tree's own: a
// released one, say.
const givenProxy = "MCPTEST_PROXY"

// Proxy returns the path of the fsm-proxy binary, built once for this test process, and with the race
// detector when the tests have it. What it reports fails the test that ran the process.
func Proxy(t testing.TB) string {
	t.Helper()
	return tested.build(t, raceEnabled)
}

// PlainProxy is Proxy without the race detector, whose memory is no measure of the binary's own.
func PlainProxy(t testing.TB) string {
	t.Helper()
	if !raceEnabled {
		return Proxy(t)
	}
	return plain.build(t, false)
}

func (b *binary) build(t testing.TB, race bool) string {
	t.Helper()
	if given := os.Getenv(givenProxy); given != "" {
		return given
	}
	b.once.Do(func() { b.make(race) })
	if b.failed != "" {
		t.Fatalf("building fsm-proxy: %s", b.failed)
	}
	return b.path
}

func (b *binary) make(race bool) {
	folder, err := os.MkdirTemp("", "fsm-proxy-test-")
	if err != nil {
		b.failed = err.Error()
		return
	}
	b.folder = folder
	b.path = filepath.Join(folder, "fsm-proxy"+executableSuffix())
	args := []string{"build", "-ldflags", "-s -w", "-o", b.path} // as it is released, and linked sooner
	if race {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, "./cmd/fsm-proxy")...)
	build.Dir = Root()
	if out, err := build.CombinedOutput(); err != nil {
		b.failed = err.Error() + "\n" + string(out)
	}
	touchSources()
}

// touchSources looks at every source file of the binary. The go command remembers which files a test looked
// at, and runs it again when one changes; what a build in a child process read, it does not see.
func touchSources() {
	_ = filepath.WalkDir(Root(), func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil
		case entry.IsDir() && (entry.Name() == "node_modules" || entry.Name() == ".git" || entry.Name() == ".deps"):
			return filepath.SkipDir
		case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
			_, _ = os.Stat(path)
		}
		return nil
	})
}

func removeBinaries() {
	for _, b := range []*binary{&tested, &plain} {
		if b.folder != "" {
			os.RemoveAll(b.folder)
		}
	}
}

func executableSuffix() string {
	if runtime.GOOS == "windows" {
		return ".exe"
	}
	return ""
}

// Root returns the repository's root folder.
func Root() string {
	_, file, _, ok := runtime.Caller(0)
	if ok && filepath.IsAbs(file) {
		return filepath.Dir(filepath.Dir(filepath.Dir(file)))
	}
	return rootFromWorkingFolder()
}

// rootFromWorkingFolder serves builds with -trimpath: tests run in their package's folder.
func rootFromWorkingFolder() string {
	folder, err := os.Getwd()
	if err != nil {
		return "."
	}
	for {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return folder
		}
		parent := filepath.Dir(folder)
		if parent == folder {
			return "."
		}
		folder = parent
	}
}

// AwaitListening waits until the process accepts connections at the address, and fails the test when the
// process ends before that.
func (p *Process) AwaitListening(address string) {
	p.t.Helper()
	timeout := time.After(Patience)
	for {
		if connection, err := net.DialTimeout("tcp", address, time.Second); err == nil {
			connection.Close()
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-p.ended:
			p.t.Fatalf("%s ended before it listened at %s; it said:\n%s", p.Path, address, p.stderr)
		case <-timeout:
			p.t.Fatalf("%s did not listen at %s within %v; it said:\n%s", p.Path, address, Patience, p.stderr)
		}
	}
}

// RunStdio returns the arguments that put the proxy before a stdio command, speaking stdio itself.
func RunStdio(t testing.TB, policy string, upstream ...string) []string {
	t.Helper()
	return append([]string{Proxy(t), "run", "--policy", policy, "--"}, upstream...)
}

// Listen starts the proxy at a free loopback port and returns its endpoint. The arguments are those of
// `fsm-proxy run` beyond --listen.
func Listen(t testing.TB, args ...string) (url string, p *Process) {
	t.Helper()
	return listen(t, Proxy(t), args)
}

// ListenBehind is Listen with the binary of PlainProxy, and a command in front of it that becomes it.
func ListenBehind(t testing.TB, front []string, args ...string) (url string, p *Process) {
	t.Helper()
	return listen(t, PlainProxy(t), args, front...)
}

func listen(t testing.TB, binary string, args []string, front ...string) (url string, p *Process) {
	t.Helper()
	address := FreeAddress(t)
	return "http://" + address + "/mcp", listenAt(t, binary, address, args, front...)
}

// ListenAt is Listen at an address, where a proxy has listened before, say.
func ListenAt(t testing.TB, address string, args ...string) *Process {
	t.Helper()
	return listenAt(t, Proxy(t), address, args)
}

func listenAt(t testing.TB, binary, address string, args []string, front ...string) *Process {
	t.Helper()
	p := Start(t, nil, slices.Concat(front, []string{binary, "run", "--listen", address}, args)...)
	p.AwaitListening(address)
	return p
}

// WritePolicy writes a policy to a file of the test's own and returns its path.
func WritePolicy(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatalf("writing the policy: %v", err)
	}
	return path
}
