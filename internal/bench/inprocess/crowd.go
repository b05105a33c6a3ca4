// Package inprocess is a proxy in this process, over an upstream that answers at once: what is measured is the proxy
// alone, without a wire.
package inprocess

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/handle"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/notify"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy"
	"github.com/fsm-proxy/fsm-proxy/proxy/durable"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
	"github.com/fsm-proxy/fsm-proxy/proxy/surface"
)

// Config is what a Crowd is made of.
type Config struct {
	Policy  *policy.Policy
	Runs    int                         // that there may be
	RunIdle time.Duration               // of which each sixteenth all are looked through
	Dial    func() (bridge.Conn, error) // such as [NewUpstream]
	Store   *durable.Store              // nil: runs are in memory
}

// Crowd is a proxy with many runs in the modern era, each found by its handle. It is safe for concurrent use.
type Crowd struct{ proxy *proxy.Proxy }

// NewCrowd returns a Crowd without any runs.
func NewCrowd(c Config) (*Crowd, error) {
	p, err := proxy.New(proxy.Config{
		Policy: c.Policy, Share: true, Annotate: surface.AnnotateOff, MaxRuns: c.Runs + 1, RunIdle: c.RunIdle, Store: c.Store,
		Keys:     [2]runs.Key{wire.Modern: {Kind: runs.Handle}},
		Dial:     func(context.Context, bridge.Opening, wire.Receiver) (bridge.Conn, error) { return c.Dial() },
		Notifier: func(send func(uint8) bool) surface.Notifier { return notify.New(send) },
	})
	return &Crowd{p}, err
}

// Close ends the proxy.
func (c *Crowd) Close() { c.proxy.Close() }

// Begin begins a run, and returns its handle.
func (c *Crowd) Begin() (id string, err error) {
	return c.proxy.Runs.Start(bridge.Stateless, wire.Principal{})
}

// Call calls a tool in a run, and waits for the answer.
func (c *Crowd) Call(id, tool string) error {
	raw := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `","arguments":{"` + handle.DefaultArgument + `":"` + id + `"},` +
		`"_meta":{"` + wire.MetaVersion + `":"` + wire.ModernRevision + `","` + wire.MetaCapabilities + `":{}}}}`
	m, err := wire.Read([]byte(raw), wire.FromClient)
	if err != nil {
		return err
	}
	var s stream
	if rest := c.proxy.Serve(m, &s, observe.Peer{}); rest != nil {
		rest.Wait()
	}
	if !strings.Contains(string(s.answer), `"result":`) || strings.Contains(string(s.answer), `"isError":true`) {
		return fmt.Errorf("calling %s in a run: answered %s", tool, s.answer)
	}
	return nil
}

// stream is that of a call.
type stream struct{ answer []byte }

func (s *stream) Send([]byte) bool  { return true }
func (s *stream) Answer(raw []byte) { s.answer = raw }
func (s *stream) Listening() bool   { return true }
