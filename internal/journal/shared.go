package journal

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// Tenure is how a process has a run: by which of its leases, and the how manyth it is to have the run. Nothing is written of a
// run but under the tenure that its row has. The zero Tenure is that of stores which one process has.
type Tenure struct {
	Lease int64 // 0: nobody has the run
	Fence int64 // raised by one whenever somebody takes the run
}

// Beginning is the tenure by which a run begins in a store, the zero one where one process has it.
func Beginning(s Store) Tenure {
	if shared, ok := s.(Shared); ok {
		return Tenure{Lease: shared.Lease(), Fence: 1}
	}
	return Tenure{}
}

// DefaultLease is for how long a process has a [Shared] store, or its runs, without another word, where nothing else is said.
const DefaultLease = 5 * time.Second

// Peer is a process that writes a [Shared] store, as its lease tells.
type Peer struct {
	Lease   int64    // its number, which is never used again
	Holder  string   // for people, such as "process 7 on gateway-0"
	Address string   // where it takes requests that others pass on, "host:port"; "": it takes none
	Key     [32]byte // SHA-256 of its TLS certificate there
}

// Holders are the holders of leases of processes that share a store; nil: none does.
func Holders(all []Peer) map[int64]string {
	var by map[int64]string
	for _, p := range all {
		if p.Address == "" {
			continue
		}
		if by == nil {
			by = make(map[int64]string)
		}
		by[p.Lease] = p.Holder
	}
	return by
}

// Elsewhere is the error of what this process does not serve, and says who does:
//
//	Run, By   that process has the run, by a lease that goes on
//	Run       nobody has the run: any other process takes it
//	Free      nothing that somebody has is needed: any other process serves it
//	Anywhere  nobody knows which run it is about, nor who has it: each other process is asked, once
//	nothing   who has it cannot be told now: that is to be looked at again
type Elsewhere struct {
	Run      string // its id
	By       Peer
	Anywhere bool
	Free     bool

	outdated atomic.Bool
}

// Outdate says that the run is not there any more, or cannot be reached there.
func (e *Elsewhere) Outdate() { e.outdated.Store(true) }

// Outdated reports whether somebody has said so.
func (e *Elsewhere) Outdated() bool { return e.outdated.Load() }

func (e *Elsewhere) Error() string {
	switch {
	case e.Anywhere, e.By == (Peer{}) && e.Run == "":
		return "this process does not know whose it is"
	case e.By == (Peer{}):
		return fmt.Sprintf("run %s is for another process to take", e.Run)
	}
	return fmt.Sprintf("%s has run %s", e.By.Holder, e.Run)
}

// AskAll implements wire.ElsewhereError.
func (e *Elsewhere) AskAll() bool { return e.Anywhere }

// Gone implements wire.ElsewhereError.
func (e *Elsewhere) Gone() bool { return !e.Anywhere && !e.Free }

// Shared is a store that several processes write, each run by one of them at a time: who has taken it, as long as their
// lease goes on. [Store.Take] of a run that another process has, whose lease goes on and which has not ended, is an [*Elsewhere];
// it ends a lease that is past its end, so that its process never writes by it again.
//
// A process may act by its lease, and so list, decide and send, only as long as [Shared.Trusts] says so: for less time
// than the database keeps the lease, as of before it asked for that. No lease can exclude that a process is paused between
// its last look and what it sends.
type Shared interface {
	Store
	// Alone reports whether this process has the store alone: no other one writes it.
	Alone() bool
	// Lease is the number of this process's lease; another one, once that was lost and another one was taken. It does
	// not block.
	Lease() int64
	// Trusts reports whether this process may act by a lease now. It does not block, and is cheap. A process that has the
	// store alone may until it has lost the lease.
	Trusts(lease int64) bool
	// Release gives runs away, by their ids, that this process has under these tenures, once all is written that it is to write
	// of them: any process may take them. A run whose tenure is over already stays as it is.
	Release(ctx context.Context, runs map[string]Tenure) error
	// Peers are the processes whose leases go on, this one among them.
	Peers(ctx context.Context) ([]Peer, error)
	// End has this process take no run any more: [Store.Take] of one that nobody has, or that this process has, is an [*Elsewhere]
	// without a Peer. What it has it may write until it is released, and Take releases it.
	End()
	// Enforced notes that this process enforces a policy from now on, in place of another one; "": it starts with it. The
	// policies of the store stand in the order in which they came into force. One that stands before what it replaces comes
	// last again, as does one that a process starts with while there is no other process. Else a policy that has been in
	// force stays where it is: other processes come to enforce it, too, or have gone on to a later one already.
	Enforced(ctx context.Context, policy, before string) error
	// Succeeds reports whether a policy came into force later than another one, which may never have been.
	Succeeds(ctx context.Context, policy, other string) (bool, error)
}
