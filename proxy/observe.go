package proxy

import "github.com/fsm-proxy/fsm-proxy/policy"

// Observer is told what happens, to count it. It is called on the way of a
// message: it must not block, and is called by many goroutines at once.
type Observer interface {
	// ShadowRefused tells of what the policy would have refused, but for the shadow.
	ShadowRefused(why policy.Code)
}

// nobody observes nothing.
type nobody struct{}

func (nobody) ShadowRefused(policy.Code) {}
