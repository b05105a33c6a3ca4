package durable_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/memory"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/durable"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// broken is a journal that cannot be written for a time.
type broken struct {
	journal.Store
	is atomic.Bool
}

func (b *broken) Commit(ctx context.Context, changes []journal.Change) ([]error, error) {
	if b.is.Load() {
		return nil, errors.New("no route to the database")
	}
	return b.Store.Commit(ctx, changes)
}

// What a run has numbered is taken though the store cannot be written, and is written when it can; there is no room for
// what is left out.
func TestNumberedIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, findings := policy.Parse("p.yaml", []byte("version: 1\ninitial: a\nstates: {a: {tools: [look]}}\n"))
		if p == nil {
			t.Fatal(findings)
		}
		b := &broken{Store: memory.New(0)}
		s := durable.Open(durable.Config{Journal: b, Log: hclog.NewNullLogger()})
		now := time.Now()
		r, place := run.New(run.Config{Policy: p, Lasts: true}, now), s.Begin("R", durable.KeyOf("process", "r"), wire.Principal{}, now)
		if _, err := place.Write(r.Made(), time.Time{}, now, nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if !s.Room() || s.LeftOut() != 0 || !place.Written() {
			t.Error("there is no room")
		}
		b.is.Store(true)
		r.Stay(&run.Call{}, run.End{Outcome: policy.Success}, now)
		if _, err := place.Write(r.Made(), time.Time{}, now, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if s.Down() == nil || s.Room() || s.LeftOut() != 1 || place.Written() {
			t.Error("nobody knows that it cannot be written")
		}
		r.Stay(&run.Call{}, run.End{Outcome: policy.Error}, now)
		ticket, err := place.Write(r.Made(), time.Time{}, now, nil)
		if err != nil {
			t.Fatal(err)
		}
		b.is.Store(false)
		<-ticket.Done()
		if records, err := b.Records(t.Context(), "R", 0, 10); ticket.Err() != nil || err != nil || len(records) != 3 || !place.Written() {
			t.Error(records, ticket.Err(), err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
