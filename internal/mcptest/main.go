package mcptest

import (
	"os"
	"os/signal"
	"syscall"
)

// The words that turn a test binary into a raw upstream, or into such an upstream's child.
const (
	serveWord = "mcptest-serve"
	idleWord  = "mcptest-idle"
	webWord   = "mcptest-web"
)

// registered are the package's raw upstreams; set once by Main, before anything runs.
var registered Servers

// Tests are a *testing.M, or something around it.
type Tests interface{ Run() int }

// Main is the TestMain of a package that uses mcptest. In a re-executed test binary it is the raw upstream of
// the given name instead.
func Main(m Tests, servers Servers) {
	registered = servers
	if len(os.Args) == 5 && os.Args[1] == webWord {
		os.Exit(serveWeb(os.Args[2], os.Args[3], os.Args[4]))
	}
	if len(os.Args) >= 4 && os.Args[1] == serveWord {
		os.Exit(serveProcess(os.Args[2], os.Args[3]))
	}
	if len(os.Args) == 3 && os.Args[1] == idleWord {
		os.Exit(serveIdle(os.Args[2]))
	}
	// A program with the race detector pauses for a second before it ends, for reports still on their way.
	// Hundreds of short processes are started here, and none has that much to say.
	if os.Getenv("GORACE") == "" {
		os.Setenv("GORACE", "atexit_sleep_ms=50")
	}
	takeSignals()
	code := m.Run()
	removeBinaries()
	os.Exit(code)
}

// takeSignals has the processes that tests start be reached by the signals that end a program by default, although
// nohup, or a shell's "&", has started the tests with some of them ignored: a child inherits what is ignored, but not
// what is caught.
func takeSignals() {
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s) // read by nobody: to the tests it stays without effect
		}
	}
}
