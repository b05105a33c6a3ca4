package reload

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"syscall"
	"testing"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// load is a number of sessions that call without a pause while policies come and go.
type load struct {
	t       *testing.T
	history *history
	server  *server
	process *mcptest.Process
	clients []*client
	url     string
	web     *http.Client
	version int // the last good one that was written

	stop    chan struct{}
	workers sync.WaitGroup
}

// begin starts the proxy over a policy that holds version 0, and the load.
func begin(t *testing.T, sessions int, path string, flags ...string) *load {
	t.Helper()
	h := newHistory()
	l := &load{t: t, history: h, server: newServer(t, h), stop: make(chan struct{})}
	h.about(0, version(0))
	l.url, l.process = mcptest.Listen(t, append([]string{"--policy", path, "--upstream", l.server.url, "--share-upstream",
		"--reload-debounce", "5ms", "--log-format", "json"}, flags...)...)
	h.begin(0)
	go h.follow(l.process.Log()) // ends with the process
	l.web = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: max(4*sessions, 16)}}
	t.Cleanup(l.web.CloseIdleConnections)
	for range sessions {
		c := join(t, l.web, l.url, h)
		l.clients = append(l.clients, c)
		l.workers.Go(func() { l.walk(c) })
		l.workers.Go(func() { l.probe(c) })
	}
	return l
}

// one opens a session that calls nothing by itself.
func (l *load) one() *client { return join(l.t, l.web, l.url, l.history) }

func (l *load) stopped() bool {
	select {
	case <-l.stop:
		return true
	default:
		return false
	}
}

// walk goes to and fro between the states, and asks each time where it has come to.
func (l *load) walk(c *client) {
	for !l.stopped() {
		for _, tool := range []string{"go", "nowhere", "go", "back", "nowhere", "always", "back"} {
			if _, ok := c.call(tool); !ok {
				return
			}
		}
	}
}

// probe calls what only some versions bind.
func (l *load) probe(c *client) {
	for !l.stopped() {
		n := rand.IntN(marks)
		if rand.IntN(2) == 0 {
			n = l.history.latest()
		}
		if _, ok := c.call(mark(n)); !ok {
			return
		}
	}
}

// good puts the next version in force, by put, without waiting for it.
func (l *load) good(put func(content string)) {
	l.version++
	l.history.about(l.version, version(l.version))
	put(version(l.version))
}

// arrived waits until the last version written is in force.
func (l *load) arrived() { l.t.Helper(); l.history.awaitVersion(l.t, l.version) }

// bad puts something in the policy's place that is none, and waits until it was refused.
func (l *load) bad(why string, put func()) {
	l.t.Helper()
	before := l.history.refused()
	put()
	l.history.awaitRefusal(l.t, before, why)
}

func (l *load) hangUp() { must(l.t, l.process.Process.Signal(syscall.SIGHUP)) }

// settle ends the load and checks all that is promised.
func (l *load) settle() {
	l.t.Helper()
	l.arrived()
	close(l.stop)
	l.server.release()
	l.workers.Wait()
	for _, c := range l.clients {
		d, _ := c.call("nowhere")
		c.awaitTools(shown(l.version, d.state))
	}
	l.check()
}
