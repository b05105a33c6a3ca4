package durable

import (
	"context"
	"errors"
	"fmt"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// errLapsed is why nothing is written by a process that could not renew its lease in time.
var errLapsed = errors.New("the lease of the database is not certain: it could not be renewed in time")

// Shared reports whether other processes may write the journal as well.
func (s *Store) Shared() bool { return s.shared != nil && !s.shared.Alone() }

// Acts reports whether this process may act for the run now, and so list, decide and send: by the lease under which it
// has the run, and no other. It is safe for concurrent use.
func (r *Run) Acts() bool {
	return r.s.shared == nil || !r.doubted.Load() && r.s.shared.Trusts(r.under.Lease)
}

// Doubt has this process not act for the run until [Run.Left] has found out that it has it still: something of it was refused by
// the store. It is safe for concurrent use.
func (r *Run) Doubt() { r.doubted.Store(true) }

// Under is the lease by which this process has the run. It is safe for concurrent use.
func (r *Run) Under() int64 { return r.under.Lease }

// Left reports whether this process has the run no more, by what the store says.
func (r *Run) Left(ctx context.Context) (bool, error) {
	if r.s.shared == nil {
		return false, nil
	}
	row, err := r.s.cfg.Journal.Row(ctx, r.id)
	left := row.Tenure != r.under
	if errors.Is(err, journal.ErrNone) {
		left, err = r.fresh, nil
	}
	if err == nil && !left {
		r.doubted.Store(false)
	}
	return left, err
}

// Release gives runs away, of which nothing more is written.
func (s *Store) Release(ctx context.Context, all ...*Run) error {
	if s.shared == nil {
		return nil
	}
	runs := make(map[string]journal.Tenure, len(all))
	for _, r := range all {
		runs[r.id] = r.under
	}
	return s.shared.Release(ctx, runs)
}

// enforce notes where a policy that is about to come into force here stands in the order of those of all processes.
func (s *Store) enforce(p *policy.Policy) error {
	if s.shared == nil {
		return nil
	}
	ctx, stop := context.WithTimeout(context.Background(), s.cfg.Timeout)
	defer stop()
	s.mu.Lock()
	before := s.enforced
	s.mu.Unlock()
	if err := s.shared.Enforced(ctx, p.Digest(), before); err != nil {
		return fmt.Errorf("noting in the store that the policy comes into force: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enforced = p.Digest()
	return nil
}

// Succeeds reports whether runs of a policy move to another one: it came into force later, in whichever process, or is the
// same, or this process has the journal alone.
func (s *Store) Succeeds(ctx context.Context, next, p *policy.Policy) (bool, error) {
	if s.shared == nil || next.Digest() == p.Digest() {
		return true, nil
	}
	return s.shared.Succeeds(ctx, next.Digest(), p.Digest())
}

// End has no run be taken any more by this process.
func (s *Store) End() {
	if s.shared != nil {
		s.shared.End()
	}
}

// others are the holders of the leases of other processes that write the journal.
func (s *Store) others(ctx context.Context) (map[int64]string, error) {
	if !s.Shared() {
		return nil, nil
	}
	peers, err := s.shared.Peers(ctx)
	by := journal.Holders(peers)
	delete(by, s.shared.Lease())
	return by, err
}

// Takeovers is how many runs were taken over from processes that had not given them away.
func (s *Store) Takeovers() uint64 { return s.takeovers.Load() }

// LeaseLost notes that a lease of this process was lost.
func (s *Store) LeaseLost(lease int64) { s.lost.Store(lease) }

// LeaseLost reports whether the lease was lost by which this process has the run. Leases are numbered in their order.
func (r *Run) LeaseLost() bool { return r.under.Lease != 0 && r.under.Lease <= r.s.lost.Load() }
