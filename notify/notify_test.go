package notify_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/fsm-proxy/fsm-proxy/notify"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestMarksAreCoalesced: what is marked while a send is under way goes out once.
func TestMarksAreCoalesced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		var sent []uint8
		n := notify.New(func(bits uint8) bool { sent = append(sent, bits); <-gate; return true })
		n.Mark(0)
		n.Flush()
		synctest.Wait()
		n.Mark(1)
		synctest.Wait()
		for range 100 {
			n.Mark(2)
			n.Mark(4)
		}
		close(gate)
		synctest.Wait()
		if len(sent) != 2 || sent[0] != 1 || sent[1] != 6 {
			t.Errorf("sent %v, want [1 6]", sent)
		}
	})
}

// TestTakenIsNotSent: a caller that sends the bits itself has them alone.
func TestTakenIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listening := false
		var sent uint8
		n := notify.New(func(bits uint8) bool {
			if listening {
				sent |= bits
			}
			return listening
		})
		n.Mark(1)
		n.Mark(2)
		synctest.Wait()
		if got := n.Take(); got != 3 {
			t.Errorf("took %d, want 3", got)
		}
		if got := n.Take(); got != 0 {
			t.Errorf("took %d again", got)
		}
		listening = true
		n.Flush()
		synctest.Wait()
		if sent != 0 {
			t.Errorf("sent %d all the same", sent)
		}
	})
}

// TestUnsentStaysUntilFlush.
func TestUnsentStaysUntilFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var listening atomic.Bool
		var sent []uint8
		n := notify.New(func(bits uint8) bool {
			if listening.Load() {
				sent = append(sent, bits)
			}
			return listening.Load()
		})
		n.Mark(4)
		synctest.Wait()
		listening.Store(true)
		synctest.Wait()
		if len(sent) != 0 {
			t.Fatal("sent without being asked")
		}
		n.Flush()
		synctest.Wait()
		if len(sent) != 1 || sent[0] != 4 {
			t.Errorf("sent %v, want [4]", sent)
		}
	})
}

// TestListenerThatComesWhileASendFails is not forgotten: its Flush comes while
// the flush before has the bits in its hands.
func TestListenerThatComesWhileASendFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failing, looked := make(chan struct{}), make(chan struct{})
		var sent []uint8
		first := true
		n := notify.New(func(bits uint8) bool {
			if first {
				first = false
				close(looked) // nobody listens
				<-failing
				return false
			}
			sent = append(sent, bits)
			return true
		})
		n.Mark(1)
		<-looked
		n.Flush() // now somebody does
		close(failing)
		synctest.Wait()
		if len(sent) != 1 || sent[0] != 1 {
			t.Errorf("sent %v, want [1]", sent)
		}
	})
}

// TestNothingIsLost among many that mark, take and flush.
func TestNothingIsLost(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			var listening atomic.Bool
			var got atomic.Uint32
			n := notify.New(func(bits uint8) bool {
				if !listening.Load() {
					return false
				}
				got.Or(uint32(bits))
				return true
			})
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() { n.Mark(1 << i) })
			}
			all.Go(func() { got.Or(uint32(n.Take())) })
			all.Go(func() { listening.Store(true); n.Flush() })
			all.Wait()
			synctest.Wait()
			if got.Load() != 255 {
				t.Errorf("got %08b", got.Load())
			}
		})
	}
}
