package auth

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
)

// source is where an issuer's keys come from.
type source interface {
	// current are the keys that are known; nil: none are yet.
	current() *keySet
	// find is current, having looked for a key of this id if there is none; it may
	// wait for that.
	find(ctx context.Context, id string) *keySet
}

// held are keys that somebody else keeps what they should be.
type held struct{ set atomic.Pointer[keySet] }

func (h *held) current() *keySet                         { return h.set.Load() }
func (h *held) find(_ context.Context, _ string) *keySet { return h.set.Load() }

// How keys are kept up to date.
const (
	refreshEvery = 10 * time.Minute // so that a key which the issuer has withdrawn is trusted no longer than that
	askedAtMost  = 10 * time.Second // between two fetches that tokens with unknown keys ask for
	retryFirst   = time.Second      // while there are no keys, doubled each time
	retryMost    = 30 * time.Second // and for keys that could not be refreshed
	waitForKeys  = 5 * time.Second  // of a request, for a fetch under way
)

// fetched are keys that are fetched, again now and then, and for tokens of a key
// that is not known. One goroutine does that, in run.
type fetched struct {
	held
	fetch func(ctx context.Context) (*keySet, error)
	log   hclog.Logger
	asked chan struct{}

	mu    sync.Mutex    // guards what follows
	begun time.Time     // when the last fetch began
	over  chan struct{} // closed when the fetch under way is over; nil: none is
}

func newFetched(fetch func(ctx context.Context) (*keySet, error), log hclog.Logger) *fetched {
	return &fetched{fetch: fetch, log: log, asked: make(chan struct{}, 1), begun: time.Now(), over: make(chan struct{})}
}

func (f *fetched) find(ctx context.Context, id string) *keySet {
	set := f.current()
	if set != nil && set.has(id) {
		return set
	}
	over := f.ask()
	if over == nil {
		return set
	}
	timer := time.NewTimer(waitForKeys)
	defer timer.Stop()
	select {
	case <-over:
	case <-timer.C:
	case <-ctx.Done():
	}
	return f.current()
}

// ask returns what is closed when the next fetch is over; nil: it is too early for
// one.
func (f *fetched) ask() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over == nil {
		if time.Since(f.begun) < askedAtMost {
			return nil
		}
		f.beginLocked()
		f.asked <- struct{}{} // there is room: it is received before the fetch is over
	}
	return f.over
}

func (f *fetched) beginLocked() {
	f.begun, f.over = time.Now(), make(chan struct{})
}

// run keeps the keys up to date until ctx ends.
func (f *fetched) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	retry := retryFirst
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.asked:
		case <-timer.C:
			f.begin()
		}
		err := f.refresh(ctx)
		wait := refreshEvery
		if err != nil {
			wait, retry = retry, min(2*retry, retryMost)
		} else {
			retry = retryFirst
		}
		timer.Reset(wait)
	}
}

// begin says that a fetch is under way, unless one was asked for already: that is
// this one then.
func (f *fetched) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over == nil {
		f.beginLocked()
		return
	}
	select {
	case <-f.asked:
	default:
	}
}

// refresh fetches the keys. Those there are stay where that fails, or where they
// are the same.
func (f *fetched) refresh(ctx context.Context) error {
	set, err := f.fetch(ctx)
	old := f.current()
	switch {
	case ctx.Err() != nil:
	case err != nil && old == nil:
		f.log.Error("the issuer's keys are not known yet, its tokens are answered 503 until they are", "error", err)
	case err != nil:
		f.log.Warn("the issuer's keys were not refreshed, those known stay", "error", err)
	case old == nil || !bytes.Equal(old.source, set.source):
		f.set.Store(set)
		f.log.Info("the issuer's keys are known", "keys", len(set.keys))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.over)
	f.over = nil
	return err
}
