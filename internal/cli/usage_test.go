package cli

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The flags of a long help stand in groups, each flag in one, with what its
// value is.
func TestHelpGroupsFlags(t *testing.T) {
	r := command(t, nil, "run", "--help")
	if r.code != 0 {
		t.Fatalf("exit code %d\n%s", r.code, r.stderr)
	}
	at := 0
	for _, part := range []string{"Usage:", "Examples:", "\nFlags:", "--policy FILE", "\nThe wrapped server:", "--upstream URL",
		"\nHTTP, with --listen:", "--bearer-file FILE", "\nLimits:", "--max-message size", "FSM_PROXY_LOG_LEVEL"} {
		i := strings.Index(r.stdout[at:], part)
		if i < 0 {
			t.Fatalf("no %q behind the parts before it in:\n%s", part, r.stdout)
		}
		at += i
	}
	if n := strings.Count(r.stdout, "--max-message "); n != 1 {
		t.Errorf("--max-message stands there %d times", n)
	}
}

// --version and version say the same.
func TestVersionFlag(t *testing.T) {
	long, short := command(t, nil, "version"), command(t, nil, "--version")
	oneLine(t, long.stdout, "fsm-proxy ", "go1.")
	if long.stdout != short.stdout {
		t.Errorf("version says %q, --version %q", long.stdout, short.stdout)
	}
}

// initialized are our packages, and how many bytes each makes before main.
var initialized = regexp.MustCompile(`(?m)^init github\.com/fsm-proxy/fsm-proxy/(\S+) @.* clock, (\d+) bytes`)

// Nothing is collected while the program is loaded: what libraries make then stays, and a start would wait for it.
func TestNoCollectionBeforeMain(t *testing.T) {
	command := exec.Command(os.Args[0], "-test.run=^$")
	command.Env = append(os.Environ(), "GODEBUG=gctrace=1,inittrace=1", "GOGC=", "GOMEMLIMIT=")
	var out strings.Builder
	command.Stdout, command.Stderr = &out, &out
	if err := command.Run(); err != nil {
		t.Fatal(err, out.String())
	}
	if strings.Contains(out.String(), "gc 1 @") {
		t.Errorf("garbage was collected: %s", out.String())
	}
	ours := 0
	for _, m := range initialized.FindAllStringSubmatch(out.String(), -1) {
		ours++
		if bytes, err := strconv.Atoi(m[2]); err != nil || bytes > 100_000 {
			t.Errorf("package %s takes %s bytes before main: each start pays for what a few need; make it when it is needed", m[1], m[2])
		}
	}
	if ours == 0 {
		t.Errorf("no package of ours is initialized: %s", out.String())
	}
}
