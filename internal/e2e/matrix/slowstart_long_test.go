//go:build long

package matrix

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// A server that takes 90 s to start: init ends well, says soon what it waits for, and
// then on.
func TestInitOfAServerThatTakes90Seconds(t *testing.T) {
	u := mcptest.Stdio(t, "slow")
	binary := mcptest.Proxy(t) // to build it takes its time
	began := time.Now()
	p := mcptest.Start(t, nil, append([]string{binary, "init", "--"}, u.Command()...)...)
	p.Log().Await(t, `to start: 2 s (of 2m); it said: "npm warn fetching"`)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("nothing was said for %v", took)
	}
	time.AfterFunc(90*time.Second-time.Since(began), func() { u.Open("started") })
	ended := make(chan time.Duration, 1)
	go func() {
		<-p.Ended()
		ended <- time.Since(began)
	}()
	t.Parallel() // others run while it waits
	if took := <-ended; took < 90*time.Second {
		t.Errorf("it ended after %v", took)
	}
	if code := p.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for _, at := range []int{4, 8, 16, 32, 64} {
		if want := fmt.Sprintf("to start: %d s (of 2m)", at); !strings.Contains(p.Log().String(), want) {
			t.Errorf("nothing of %q:\n%s", want, p.Log())
		}
	}
	if strings.Count(p.Log().String(), "waiting for") > 8 {
		t.Errorf("too much is said:\n%s", p.Log())
	}
}
