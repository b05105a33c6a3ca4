//go:build long

package postgres_test

import (
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/journal"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest/network"
	server "github.com/fsm-proxy/fsm-proxy/internal/mcptest/postgres"
)

// The machine of a database is gone without a word, in the middle of a commit, and comes back: the commit is not waited for as
// long as the system would, and what it was to write is written. It is the loopback of a network of the test's own that is gone.
func TestDatabaseWhoseMachineIsGone(t *testing.T) {
	loopback, ok := network.Own(t)
	if !ok {
		return
	}
	s := open(t, server.Start(t).URL("runs"), "first", time.Hour)
	health := make(chan error, 100)
	w := journal.NewCommitter(journal.CommitterConfig{Store: s, Health: func(err error) { health <- err }})
	r := &run{id: "r"}
	write := func(c journal.Change) *journal.Ticket {
		t.Helper()
		ticket, err := w.Submit(c, journal.Must)
		if err != nil {
			t.Fatal(err)
		}
		return ticket
	}
	write(r.begin(s))
	<-write(r.next("before")).Done()
	loopback(false)
	ticket := write(r.next("meanwhile"))
	select {
	case err := <-health:
		t.Logf("it is known after a while: %v", err)
	case <-time.After(time.Minute):
		t.Fatal("a commit still waits for a machine that answers nothing")
	}
	loopback(true)
	if <-ticket.Done(); ticket.Err() != nil {
		t.Fatal(ticket.Err())
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	row, err := s.Row(t.Context(), "r")
	if fault, bad := journal.NewChain(nil).Verify(&row, journal.All(t.Context(), s, "r")); err != nil || bad != nil || fault != nil || row.Last != r.last {
		t.Errorf("%+v %v %v %v", row, err, bad, fault)
	}
}
