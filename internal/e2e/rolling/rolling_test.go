//go:build unix

package rolling

import (
	"context"
	"fmt"
	"net/http/httptest"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

const terminate = syscall.SIGTERM

func TestMain(m *testing.M) { mcptest.Main(m, mcptest.Servers{"walk": server()}) }

const hello = `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"rolling","version":"1"}}`

// walk has calls that stay, and one that takes the turn.
const walk = `version: 1
name: rolling
initial: here
states:
  here:
    tools: {quick: , brief: , held: , step: there}
  there:
    tools: {quick: , brief: , held: , step: here}
`

// server answers quick and step at once, brief after a little, held when the test opens the gate that its call names.
func server() mcptest.Server {
	done := func(e *mcptest.Exchange) { e.Result(mcptest.Text("done")) }
	return mcptest.Script{Tools: map[string]func(*mcptest.Exchange){
		"quick": done,
		"step":  done,
		"brief": func(e *mcptest.Exchange) { e.Async(func() { <-time.After(30 * time.Millisecond); done(e) }) },
		"held":  func(e *mcptest.Exchange) { e.Async(func() { e.Gate("held " + e.Argument("call")); done(e) }) },
	}}.Server()
}

// load is clients that call without pause.
type load struct {
	clients []*client
	stop    context.CancelFunc
	calling sync.WaitGroup
	quit    chan struct{}
}

func begin(t *testing.T, url string, clients int, l *ledger) *load {
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	all := &load{stop: stop, quit: make(chan struct{})}
	for i := range clients {
		c := newClient(t, ctx, url, fmt.Sprintf("client%d", i), l)
		all.clients = append(all.clients, c)
		all.calling.Go(func() {
			c.begin()
			for n := 0; ; n++ {
				select {
				case <-all.quit:
					return
				default:
					c.call([]string{"quick", "step", "brief"}[(i+n)%3])
				}
			}
		})
	}
	return all
}

// end lets every client finish its call, and ends the GET streams.
func (l *load) end() {
	close(l.quit)
	l.calling.Wait()
	l.stop()
	for _, c := range l.clients {
		c.streams.Wait()
	}
}

// roll restarts every place of a fleet under load, so many times, with calls in flight at each SIGTERM.
func roll(t *testing.T, u *mcptest.Upstream, clients, holders, rounds int, upstream ...string) {
	f := newFleet(t, 2, upstream...)
	web := httptest.NewServer(f.balancer.proxy)
	t.Cleanup(web.Close)
	books := newLedger()
	all := begin(t, web.URL+"/mcp", clients, books)
	for round := range rounds {
		for place := range f.processes {
			more(t, books, clients)
			release, wait := hold(t, u, web.URL+"/mcp", holders, fmt.Sprintf("holder%d.%d", round, place), books)
			f.restart(place, release)
			wait()
		}
	}
	more(t, books, clients)
	all.end()
	for _, err := range f.balancer.lost {
		t.Errorf("lost: %v", err)
	}
	books.balanced(t, u)
	t.Logf("%d requests found nobody", f.balancer.away)
}

// more waits until so many more calls were answered: all is well again.
func more(t *testing.T, l *ledger, calls int) {
	t.Helper()
	until := l.count() + 5*calls
	mcptest.Await(t, "the load has not come to rest", func() bool { return l.count() >= until })
}

// hold has calls in flight, half of which are in the way of either process. release lets the upstream answer them, wait
// waits for their answers.
func hold(t *testing.T, u *mcptest.Upstream, url string, calls int, name string, l *ledger) (release, wait func()) {
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	var holding sync.WaitGroup
	before := u.Count("tools/call", "held")
	holders := make([]*client, calls)
	for i := range holders {
		c := newClient(t, ctx, url, fmt.Sprintf("%s.%d", name, i), l)
		holders[i] = c
		holding.Go(func() { c.begin(); c.call("held") })
	}
	u.Await(t, before+calls, "tools/call", "held")
	release = func() {
		for _, c := range holders {
			u.Open("held " + c.name + "/1")
		}
	}
	return release, func() {
		holding.Wait()
		stop()
		for _, c := range holders {
			if c.calls != 1 {
				t.Errorf("%s has called %d times", c.name, c.calls)
			}
			c.streams.Wait()
		}
	}
}

// Two proxies are restarted, one after the other, under load: every call in flight at SIGTERM is answered, what is
// refused was not sent, and nothing is lost.
func TestRollingRestart(t *testing.T) {
	u, url := mcptest.HTTP(t, server())
	roll(t, u, 24, 8, 1, "--upstream", url)
}
