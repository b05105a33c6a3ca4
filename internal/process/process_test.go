//go:build unix

package process

import (
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// deaf is a handler that does nothing.
type deaf struct{}

func (deaf) Line([]byte)   {}
func (deaf) TooLong(error) {}
func (deaf) OutputClosed() {}
func (deaf) Exited(error)  {}

// Close does not wait for ever for a child that the kernel does not let go of.
// Here nobody reaps it, and its pipes stay open.
func TestCloseOfAnUnkillableChild(t *testing.T) {
	t.Parallel() // it takes reapTime
	path, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	p := New(Config{Command: []string{path, "1000"}, MaxLine: 100, Log: hclog.NewNullLogger(), Unlogged: new(atomic.Uint64), Running: new(Set)}, deaf{})
	theirs, err := p.makePipes()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(theirs[:]) })
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Wait() })
	p.attach()
	p.Input.Write(make([]byte, 1<<20)) // more than the pipe holds
	if p.Close(time.Millisecond, time.Millisecond) {
		t.Error("it counts as ended, and was not reaped")
	}
}
