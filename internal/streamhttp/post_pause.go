package streamhttp

import (
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
)

// canPause reports whether the response may have to end before the answer, for the
// client to come back for that (2025-11-25, SEP-1699).
func (p *post) canPause() bool {
	polls := p.s.srv.cfg.Polls
	return polls != nil && polls() && p.s.primes() && p.takes.sse
}

// prefersEvents reports whether even an answer that nothing goes before is to be an
// event: clients of 2025-11-25 that name event streams first get one, so that they can
// resume it.
func (p *post) prefersEvents() bool { return p.takes.sseFirst && p.s.primes() && !p.whole }

// waitApart is wait for a response that may have to end before that. left says that it
// has: what is left to wait for goes on by itself, and closes the POST as a stream.
func (p *post) waitApart(pending wire.Pending) (left bool) {
	s := p.s
	if pending == nil || !s.srv.requests.enter() { // at the server's end nobody can come back
		p.wait(pending)
		return false
	}
	over, paused := make(chan struct{}), make(chan struct{})
	s.mu.Lock()
	p.paused = paused
	s.mu.Unlock()
	p.list()
	go func() {
		defer s.srv.requests.leave()
		pending.Wait()
		p.settle()
		p.overApart()
		close(over)
	}()
	select {
	case <-over:
		return false
	case <-paused:
	}
	<-p.out.done
	s.mu.Lock()
	defer s.mu.Unlock()
	p.left = !p.over
	return p.left
}

// overApart marks the end of what was left to wait for, and ends the request, if its
// response has ended before.
func (p *post) overApart() {
	p.s.mu.Lock()
	p.over = true
	left := p.left
	p.s.mu.Unlock()
	if left {
		p.release()
	}
}

// Pause implements wire.Pauser. The client is told to come back no later than what it
// comes for is kept.
func (p *post) Pause(retry time.Duration) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.paused == nil || p.answered {
		return
	}
	if p.box == nil {
		p.openLocked()
	}
	p.box.pause(min(retry, p.s.srv.cfg.StoreTime))
	select {
	case <-p.paused: // before
	default:
		close(p.paused)
	}
}
