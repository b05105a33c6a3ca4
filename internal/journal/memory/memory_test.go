package memory_test

import (
	"context"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/journaltest"
	"github.com/fsm-proxy/fsm-proxy/internal/journal/memory"
)

type home struct{}

func (home) Open(rapid.TB) journal.Store { return memory.New(0) }
func (home) Empty(rapid.TB)              {}

func TestStore(t *testing.T) { journaltest.Test(t, home{}, false) }

func TestRoom(t *testing.T) { journaltest.TestRoom(t, home{}) }

// Of all runs together the last records are kept, and what is left of a run still holds together.
func TestOnlyTheLastAreKept(t *testing.T) {
	const most = 100
	s, chain := memory.New(most), journal.NewChain(nil)
	last := map[string]journal.Point{}
	for i := range 20 * most {
		id := fmt.Sprint("r", i*i%7)
		c := journal.Change{Run: id}
		if _, there := last[id]; !there {
			c.Begin, c.Head = &journal.Row{ID: id}, &journal.Head{}
		}
		last[id] = chain.Next(id, last[id], []byte("x"))
		c.Records = []journal.Record{{Seq: last[id].Seq, Hash: last[id].Hash, Bytes: []byte("x")}}
		if each, err := s.Commit(context.Background(), []journal.Change{c}); err != nil || each[0] != nil {
			t.Fatal(each, err)
		}
		if i%50 == 49 {
			if each, err := s.Commit(context.Background(), []journal.Change{{Run: id, Remove: true}}); err != nil || each[0] != nil {
				t.Fatal(each, err)
			}
			delete(last, id)
		}
		kept := 0
		for id := range last {
			r, err := s.Row(context.Background(), id)
			if err != nil {
				t.Fatal(err)
			}
			if fault, err := chain.Verify(&r, journal.All(context.Background(), s, id)); fault != nil || err != nil {
				t.Fatal(fault, err)
			}
			kept += int(r.Last.Seq - r.Base.Seq)
		}
		if kept > most {
			t.Fatalf("%d are kept", kept)
		}
	}
}

func BenchmarkStep(b *testing.B) { journaltest.Bench(b, memory.New(10_000)) }
