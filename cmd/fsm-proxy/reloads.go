package main

import (
	"sync"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy"
)

// reloads is what has become of the policy's file since the start. It is safe
// for concurrent use.
type reloads struct {
	mu                sync.Mutex // guards what follows
	inForce           *policy.Policy
	since             time.Time
	at                time.Time // of the last attempt; zero: there was none
	errors            []string  // of the last attempt
	succeeded, failed uint64
}

// begin takes the policy to begin with.
func (r *reloads) begin(p *policy.Policy) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inForce, r.since = p, time.Now()
}

// put takes a policy that was put in force.
func (r *reloads) put(p *policy.Policy) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.inForce, r.since, r.at, r.errors = p, now, now, nil
	r.succeeded++
}

// refuse takes the errors of a file that is no policy.
func (r *reloads) refuse(errors []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at, r.errors = time.Now(), errors
	r.failed++
}

// reloadState is what reloads knows at a moment.
type reloadState struct {
	policy            *policy.Policy
	since             time.Time // when it was put in force
	at                time.Time // of the last attempt; zero: there was none
	errors            []string  // of the last attempt; nil: it succeeded
	succeeded, failed uint64
}

func (r *reloads) state() reloadState {
	r.mu.Lock()
	defer r.mu.Unlock()
	return reloadState{r.inForce, r.since, r.at, r.errors, r.succeeded, r.failed}
}
