package cli

import (
	"sync"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy"
)

// attempts is what has become of a file since the start.
type attempts struct {
	at                time.Time // of the last one; zero: there was none
	errors            []string  // of the last one; nil: what the file says is in force
	succeeded, failed uint64
}

func (a *attempts) note(errors []string) {
	a.at, a.errors = time.Now(), errors
	if errors == nil {
		a.succeeded++
	} else {
		a.failed++
	}
}

// reloads is what has become of the policy's file, and of the configuration's,
// since the start. What tells of reloads reads it here. It is safe for concurrent
// use.
type reloads struct {
	mu  sync.Mutex // guards what follows
	now reloadState
}

// reloadState is what reloads knows at a moment.
type reloadState struct {
	policy        *policy.Policy // in force
	since         time.Time      // when it was put in force
	attempts                     // to read the policy
	configuration attempts
}

// begin takes the policy to begin with.
func (r *reloads) begin(p *policy.Policy) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now.policy, r.now.since = p, time.Now()
}

// put takes a policy that was put in force.
func (r *reloads) put(p *policy.Policy) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now.note(nil)
	r.now.policy, r.now.since = p, r.now.at
}

// refuse takes the errors of a file that is no policy.
func (r *reloads) refuse(errors []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now.note(errors)
}

// configured takes what came of a changed configuration file: its errors, or nil.
func (r *reloads) configured(errors []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now.configuration.note(errors)
}

func (r *reloads) state() reloadState {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}
