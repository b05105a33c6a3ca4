package runs

import (
	"context"
	"errors"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/durable"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// Forking says which run somebody has forked, and where.
type Forking struct {
	Run string // its name, or how that begins
	At  uint64 // the number of the entry; 0: the last one
	By  run.Remark
}

// Fork is a run that was forked of another.
type Fork struct {
	*Run
	Secret string // that finds it: a handle, or the end of its URL
	Of     run.Origin
	Sent   []run.Sent // calls of the other one that were not over after the entry: it does not know of them
	More   int        // how many there are beside those
}

// Why there is no fork of a run.
var (
	errNoJournal = &Missing{Code: policy.NotAvailable, Text: "What has become of runs is not kept, so none can be forked: start fsm-proxy with --store."}
	errNoSecret  = &Missing{Code: policy.NotAvailable, Text: "A fork is found by a handle or a URL of its own, and here no run is: start fsm-proxy with --listen, and with handle or path among its --run-key."}
	errForgets   = &Missing{Code: policy.NotAvailable, Text: "The server of each run is a process of its own, and a fork would begin anew with its own (--on-upstream-restart restart): start fsm-proxy without that where the server forgets nothing."}

	// ErrAhead and ErrCut are for entries that a run cannot be forked at.
	ErrAhead = &Missing{Code: policy.NotAvailable, Text: "The run has no such entry yet: 'fsm-proxy runs tail' shows those that there are."}
	ErrCut   = &Missing{Code: policy.NotAvailable, Text: "What the run was after this entry is kept no more (--keep-entries): fork it at a later one, from a checkpoint on that 'fsm-proxy runs tail' still shows."}
)

// ErrShut is for a run that is shut, until it is accepted.
var ErrShut = errors.New("the run is shut: the store has something else of it than it has confirmed")

// Fork begins a run that is what another one was after one of its entries, and that is found by a handle or URL of its own,
// by the same principal. The other one goes on, unchanged; one that has ended can be forked, too. The error is a [*Missing],
// a [*run.Irreversible], an [ErrDamaged], a [ErrShut], or nil with no run: there is none of the name.
func (g *Registry) Fork(f Forking) (*Fork, error) {
	id, err := g.forked(f.Run)
	if id == "" {
		return nil, err
	}
	now := time.Now() // what is sent from now on comes after the fork
	ctx, stop := context.WithTimeout(context.Background(), g.cfg.Store.Timeout())
	defer stop()
	past, err := g.cfg.Store.Past(ctx, id, f.At, &g.shared)
	if err == nil {
		err = past.Check()
	}
	if err != nil {
		return nil, g.unforked(err)
	}
	inForce := g.Policy()
	rules, err := g.rules(inForce, past.Policy())
	if err != nil {
		return nil, g.unforked(err)
	}
	key, ok := g.secretKey(kindOf(past.Key))
	if !ok {
		return nil, errNoSecret
	}
	out := &Fork{Secret: NewID(), Of: past.Of}
	out.Sent, out.More = past.Since()
	g.mu.Lock()
	if why := g.roomLocked(past.Owner); why != nil {
		g.mu.Unlock()
		return nil, why
	}
	c := g.configLocked(f.By)
	if c.Policy == inForce {
		c.Policy = rules
	}
	r := g.newOfLocked(past.Fork(c, now))
	g.foundLocked(r, key, out.Secret, past.Owner, past.Free || past.Key == Process.String()) // which is everybody's
	r.mu.Lock()
	w := r.keepAtLocked(g.cfg.Store.BeginFork(NewID(), keyOf(key.Kind, out.Secret), past.Owner, past.Of, now))
	r.windLocked()
	r.mu.Unlock()
	g.mu.Unlock()
	if why := g.begun(r, w); why != nil {
		return nil, why
	}
	out.Run = r
	return out, nil
}

// forked is what the store calls the run that is to be forked; "": there is none, or the error says why it cannot be.
func (g *Registry) forked(name string) (id string, err error) {
	switch {
	case g.cfg.Store == nil:
		return "", errNoJournal
	case g.cfg.Store.Down() != nil:
		return "", errStore
	case g.cfg.Forgets:
		return "", errForgets
	}
	r, row, err := g.find(name)
	if err != nil || r == nil {
		return row.ID, err
	}
	return r.forkable()
}

// forkable is what the store calls a run of which it has all that was done. Of one that is shut it may lack something.
func (r *Run) forkable() (id string, err error) {
	switch {
	case r.kept == nil:
		return "", errNoJournal
	case r.isShut():
		return "", ErrShut
	}
	return r.kept.ID(), nil
}

// unforked is what somebody is told whose run cannot be forked.
func (g *Registry) unforked(err error) error {
	_, final := errors.AsType[*run.Irreversible](err)
	switch {
	case final:
		return err
	case errors.Is(err, durable.ErrAhead):
		return ErrAhead
	case errors.Is(err, run.ErrCut):
		return ErrCut
	case durable.IsDamaged(err):
		return errors.Join(ErrDamaged, err)
	case errors.Is(err, journal.ErrNone): // it was removed meanwhile
		return nil
	}
	g.cfg.Log.Error("a run cannot be read from the store to be forked", "error", err)
	return errStore
}

// secretKey is the key that a fork is found by: that of the other run, or one that this proxy has; ok is false where none of
// its runs is found by a secret.
func (g *Registry) secretKey(of Kind) (key Key, ok bool) {
	for _, kind := range []Kind{of, Handle, Path} {
		if kind != Handle && kind != Path {
			continue
		}
		for _, key := range g.cfg.Keys {
			if key.Kind == kind {
				return key, true
			}
		}
	}
	return key, false
}
