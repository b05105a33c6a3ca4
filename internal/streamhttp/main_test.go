package streamhttp

import (
	"flag"
	"fmt"
	"net"
	"net/http"
	"testing"

	"go.uber.org/goleak"
)

// httpServer is what carries a Server: net/http's server, or a LeanServer.
type httpServer interface {
	Serve(net.Listener) error
	Close() error
}

// newHTTP makes the one that is tested now.
var newHTTP func(http.Handler) httpServer

var carriers = []struct {
	name string
	make func(http.Handler) httpServer
}{
	{"LeanServer", func(h http.Handler) httpServer { return &LeanServer{Handler: h} }},
	{"net/http", func(h http.Handler) httpServer { return (&LeanServer{Handler: h}).Standard() }},
}

// twice runs all tests on both carriers. Benchmarks and fuzzing take the first.
type twice struct{ *testing.M }

func (m twice) Run() int {
	flag.Parse()
	newHTTP = carriers[0].make
	code := m.M.Run()
	if code != 0 || isSet("test.bench") || isSet("test.fuzz") || isSet("test.list") {
		return code
	}
	newHTTP = carriers[1].make
	if code = m.M.Run(); code != 0 {
		fmt.Println("that was on " + carriers[1].name)
	}
	return code
}

func isSet(name string) bool {
	f := flag.Lookup(name)
	return f != nil && f.Value.String() != f.DefValue
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(twice{m}) }
