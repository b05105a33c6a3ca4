package observe

import (
	"slices"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
)

// book is a Journal that keeps what it was told.
type book struct {
	begun []Decision
	ended []uint64
	last  Operation
}

func (b *book) Begin(d Decision) uint64 {
	b.begun = append(b.begun, d)
	return uint64(len(b.begun))
}

func (b *book) End(number uint64, _ Peer, op *Operation) {
	b.ended, b.last = append(b.ended, number), *op
}

func TestNobodyIsToldOfACall(t *testing.T) {
	m := &wire.Message{Method: "tools/call"}
	c := new(Telemetry).Begin(nil, m, "", nil)
	if c != nil {
		t.Fatal("a call that nobody is told of is noted")
	}
	allocs := testing.AllocsPerRun(100, func() {
		c.Waiting()()
		c.Failed(Fault{Tool: true})
		c.ShadowRefused(policy.NotAvailable)
		c.Answered(m, nil)
		c.Settled(policy.Success.String())
		c.Stepped("a", "b")
		if c.Audited() || c.Remains() != nil || c.Traced(m) != m {
			t.Error("something is noted of no call")
		}
	})
	if allocs != 0 {
		t.Errorf("it costs %v allocations", allocs)
	}
}

func TestCallIsRecordedOnce(t *testing.T) {
	b := new(book)
	c := new(Telemetry).Begin(b, &wire.Message{Method: "tools/call"}, "", nil)
	c.Failed(Fault{Tool: true})
	c.Failed(Fault{Cancelled: true})
	c.Record(Peer{}) // it was not sent
	c.Sent(b, Decision{Name: "deploy"})
	c.Measure(time.Now())
	c.Record(Peer{})
	c.Record(Peer{})
	if !c.Decided() || !c.Recorded() || !slices.Equal(b.ended, []uint64{1}) {
		t.Errorf("recorded: %v", b.ended)
	}
	if want := (Fault{Tool: true}); b.begun[0].Fault != want || b.last.Fault != want || !b.last.Sent {
		t.Errorf("the first reason does not hold: %+v, %+v", b.begun[0], b.last)
	}
	c.End(nil)
}

func TestCallIsRecordedAfterItsAnswer(t *testing.T) {
	b := new(book)
	c := new(Telemetry).Begin(b, &wire.Message{Method: "tools/call"}, "", nil)
	if c.Remains() != nil {
		t.Error("something is left of a call that was not sent")
	}
	c.Sent(b, Decision{})
	left := c.Remains()
	c.Record(Peer{})
	c.End(nil)
	left.Settled(policy.Success.String())
	left.Ended(Peer{})
	left.Ended(Peer{})
	if !slices.Equal(b.ended, []uint64{1, 1}) || b.last.Outcome != policy.Success.String() || !b.last.Sent {
		t.Errorf("recorded: %v, %+v", b.ended, b.last)
	}
}
