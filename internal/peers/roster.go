package peers

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
)

// Lookups of the database.
const (
	lookEach = 250 * time.Millisecond // from the begin of one to that of the next, whoever wants to know
	lookTime = 2 * time.Second        // how long one may take
)

var errClosed = errors.New("looking up the processes that share the store: this one has ended")

// roster is the processes whose leases go on, as the database has told last. However many ask, it is looked up by one
// query at a time, and at most four a second. It is safe for concurrent use.
type roster struct {
	ask     func(context.Context) ([]journal.Peer, error)
	lasts   time.Duration   // how long what was told holds
	ctx     context.Context // of all lookups
	cancel  context.CancelFunc
	running sync.WaitGroup // lookups; Add is called under mu, and not once ctx has ended

	mu    sync.Mutex // guards what follows
	told  *census    // nil: nothing was told yet
	next  *lookup    // that has not begun; nil: there is none
	began time.Time  // when the last one did

	turn sync.Mutex // is held by the lookup that goes on
}

// census is what one lookup has told. It is immutable.
type census struct {
	at     time.Time // when it was asked for
	keys   map[[32]byte]bool
	leases map[int64]bool
}

// lookup is one that somebody waits for.
type lookup struct {
	done chan struct{} // is closed once the rest is set
	told *census
	err  error
}

func newRoster(ask func(context.Context) ([]journal.Peer, error), lasts time.Duration) *roster {
	r := &roster{ask: ask, lasts: lasts}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// knows reports whether a process has a certificate's hash, by what was told not too long ago. Who is not known by that
// is looked up.
func (r *roster) knows(ctx context.Context, hash [32]byte) bool {
	if told := r.recent(); told != nil && told.keys[hash] {
		return true
	}
	told, err := r.look(ctx)
	return err == nil && told.keys[hash]
}

// recent is what was told last, if that still holds. Where it soon won't it is looked up meanwhile.
func (r *roster) recent() *census {
	r.mu.Lock()
	told := r.told
	r.mu.Unlock()
	if told == nil || time.Since(told.at) > r.lasts {
		return nil
	}
	if time.Since(told.at) > r.lasts/2 {
		_, _ = r.begin()
	}
	return told
}

// look returns what a lookup tells that begins after the call.
func (r *roster) look(ctx context.Context) (*census, error) {
	l, err := r.begin()
	if err != nil {
		return nil, err
	}
	select {
	case <-l.done:
		return l.told, l.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// begin returns the lookup that is to begin next.
func (r *roster) begin() (*lookup, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		return nil, errClosed
	}
	if r.next == nil {
		l := &lookup{done: make(chan struct{})}
		r.next = l
		r.running.Go(func() { r.run(l) })
	}
	return r.next, nil
}

// run looks up, once the last lookup has ended and it is time for another one.
func (r *roster) run(l *lookup) {
	defer close(l.done)
	r.turn.Lock()
	defer r.turn.Unlock()
	r.pause()
	at := r.taken()
	ctx, stop := context.WithTimeout(r.ctx, lookTime)
	defer stop()
	all, err := r.ask(ctx)
	if err != nil {
		l.err = err
		return
	}
	l.told = &census{at: at, keys: make(map[[32]byte]bool, len(all)), leases: make(map[int64]bool, len(all))}
	for _, peer := range all {
		l.told.keys[peer.Key] = true
		l.told.leases[peer.Lease] = true
	}
	delete(l.told.keys, [32]byte{}) // of a process that takes nothing that is passed on
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = l.told
}

// pause waits until it is time for another lookup, or for the end.
func (r *roster) pause() {
	r.mu.Lock()
	wait := lookEach - time.Since(r.began)
	r.mu.Unlock()
	if wait > 0 {
		pause(r.ctx, wait)
	}
}

// pause waits for a while, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// taken has who asks from now on wait for another lookup.
func (r *roster) taken() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next, r.began = nil, time.Now()
	return r.began
}

// close ends lookups, and waits for them.
func (r *roster) close() {
	r.mu.Lock()
	r.cancel()
	r.mu.Unlock()
	r.running.Wait()
}
