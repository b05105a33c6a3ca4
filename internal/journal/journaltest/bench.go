package journaltest

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
)

// Bench measures steps of runs at a store: a step is two commits of 400 bytes each, of a call that begins and of its end,
// which waits for the first. One run has its steps one after the other.
func Bench(b *testing.B, s journal.Store) {
	s = own(s)
	text := []byte(`{"type":"ended","text":"` + strings.Repeat("x", 374) + `"}`)
	for _, runs := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("runs=%d", runs), func(b *testing.B) {
			w := journal.NewCommitter(journal.CommitterConfig{Store: s})
			var wait sync.WaitGroup
			steps := make(chan struct{})
			for range runs {
				id := fmt.Sprint("run", time.Now().UnixNano())
				last := journal.Point{}
				write := func(c journal.Change) {
					ticket, err := w.Submit(c, journal.Must)
					if err != nil {
						b.Error(err)
						return
					}
					if <-ticket.Done(); ticket.Err() != nil {
						b.Error(ticket.Err())
					}
				}
				write(began(id, journal.Key{}))
				next := func() []journal.Record {
					last = chain.Next(id, last, text)
					return []journal.Record{{Seq: last.Seq, Hash: last.Hash, Bytes: text}}
				}
				wait.Go(func() {
					for range steps {
						write(journal.Change{Run: id, Records: next()})
						ended := next()
						write(journal.Change{Run: id, Records: ended, Head: &journal.Head{At: last, State: "second", Used: time.Now()}})
					}
				})
			}
			for b.Loop() {
				steps <- struct{}{}
			}
			close(steps)
			wait.Wait()
			if err := w.Close(b.Context()); err != nil {
				b.Fatal(err)
			}
		})
	}
}
