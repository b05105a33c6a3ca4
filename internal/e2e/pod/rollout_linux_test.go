//go:build long

package pod

import (
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
)

// service is the endpoints of a Service with affinity: a client stays with its pod for as long as that is one of them.
type service struct {
	mu   sync.Mutex // guards pods
	pods []*kubelet
}

func (s *service) change(in, out *kubelet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if in != nil {
		s.pods = append(s.pods, in)
	}
	s.pods = slices.DeleteFunc(s.pods, func(k *kubelet) bool { return k == out })
}

func (s *service) pick(client int, last *kubelet) *kubelet {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.pods, last) {
		return last
	}
	return s.pods[client%len(s.pods)]
}

// agent is a client that calls at a steady pace, in a new session whenever it is told that its own is over.
type agent struct {
	t        *testing.T
	number   int
	pace     *time.Ticker
	quit     <-chan struct{}
	answered *atomic.Int64
	sessions int
}

func (a *agent) run(s *service) {
	for pod := s.pick(a.number, nil); a.next(); pod = s.pick(a.number, pod) {
		_, web := pod.dial()
		if r := web.Post(a.t.Context(), mcptest.Request(0, "initialize", hello)); !a.refused("initialize", r) {
			a.sessions++
			for a.next() && a.call(web) {
			}
		}
	}
}

// next waits for the next beat, and reports whether there is one.
func (a *agent) next() bool {
	select {
	case <-a.pace.C:
		return true
	case <-a.quit:
		return false
	case <-a.t.Context().Done():
		return false
	}
}

// call reports whether the session goes on.
func (a *agent) call(web *mcptest.Web) bool {
	r := web.Post(a.t.Context(), mcptest.Request(1, "tools/call", mcptest.ToolParams("look", "")))
	if a.refused("a call", r) {
		return false
	}
	if !strings.Contains(string(r.Body), "done") {
		a.t.Errorf("a call is answered %s", r.Body)
	}
	a.answered.Add(1)
	return true
}

// refused reports whether a request was not taken, which the client can tell from its having been lost: by the status,
// or in a session by what it is told.
func (a *agent) refused(what string, r mcptest.Response) bool {
	dial, ok := errors.AsType[*net.OpError](r.Err)
	switch {
	case ok && dial.Op == "dial", r.Status == http.StatusServiceUnavailable && r.Header.Get("Retry-After") != "", r.Status == http.StatusNotFound,
		strings.Contains(string(r.Body), "fsm-proxy is ending"):
		return true
	case r.Err != nil || r.Status != http.StatusOK:
		a.t.Errorf("%s: HTTP %d %s, %v", what, r.Status, r.Body, r.Err)
		return true
	}
	return false
}

// A rollout: for each pod another one gets ready, and then the old one ends, while clients call. The Service hears late
// of the end. Each call that was sent is answered.
func TestRollout(t *testing.T) {
	t.Parallel()
	begin := func() *kubelet {
		k := run(newPod(t, walk, inAHurry))
		k.startAll()
		return k
	}
	old := []*kubelet{begin(), begin()}
	s := &service{pods: slices.Clone(old)}
	quit := make(chan struct{})
	var answered atomic.Int64
	var calling sync.WaitGroup
	agents := make([]*agent, 16)
	for i := range agents {
		agents[i] = &agent{t: t, number: i, pace: time.NewTicker(10 * time.Millisecond), quit: quit, answered: &answered}
		calling.Go(func() { agents[i].run(s) })
	}
	all := slices.Clone(old)
	for _, k := range old {
		next := begin()
		all = append(all, next)
		s.change(next, nil)
		over := k.ending()
		k.journal.await(t, k.journal.await(t, 0, "the pod is told to end"), "unready")
		s.change(nil, k)
		over()
		k.ended()
	}
	close(quit)
	calling.Wait()
	sent := 0
	for _, k := range all {
		sent += k.upstream.Count("tools/call")
	}
	if int64(sent) != answered.Load() {
		t.Errorf("%d calls were sent, %d answered", sent, answered.Load())
	}
	for _, a := range agents {
		if a.sessions < 2 {
			t.Errorf("client %d has had %d sessions", a.number, a.sessions)
		}
	}
	t.Logf("%d calls", sent)
}
