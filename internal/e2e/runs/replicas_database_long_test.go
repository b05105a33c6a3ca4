//go:build long && unix

package runs

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/mcptest"
	"github.com/fsm-proxy/fsm-proxy/internal/mcptest/postgres"
)

// An owner that is cut off from the database while it lives, or hears too late what that has done, lists and decides nothing once
// its lease is out, and others go on with its run. What it has written meanwhile comes late, where it comes at all, and changes
// nothing.
func TestReplicaThatIsCutFromTheDatabase(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		breaks    func(l *line)
		parameter string // of the store's URL
	}{
		"reset":      {(*line).cut, ""},
		"black hole": {(*line).hold, ""},
		"slow":       {func(l *line) { l.slow(3 * lease / 8) }, "&default_query_exec_mode=exec"}, // without that a statement waits until it is prepared
	} {
		t.Run(name, func(t *testing.T) {
			start := func(t *testing.T, k key, policy, store string, flags ...string) *replicas {
				return lined(t, k, policy, store+x.parameter, flags...)
			}
			twoOwners(t, start, func(r *replicas, was *house) func() {
				x.breaks(r.data[was])
				return r.data[was].mend
			})
		})
	}
}

// The database ends and crashes now and then under replicas, for a moment and for longer than their leases.
func TestDatabaseRestartedUnderReplicas(t *testing.T) {
	t.Parallel()
	server := postgres.Start(t)
	l := loaded(t, replicate, handleAndSession, 12, server.URL("runs"))
	l.befall(4, func(i int) {
		server.Down(i%2 == 0)
		if i >= 2 {
			<-time.After(3 * lease / 2) // which is the fault
		}
		server.Up()
	})
	l.settles()
}

// A replica for which the database is somewhat slow keeps its lease. One for which it is slower than a lease can be renewed is
// as one that is cut off.
func TestReplicaWhoseDatabaseIsSlow(t *testing.T) {
	database := databases(t)
	t.Parallel()
	l := loaded(t, lined, principals, 12, database(t))
	slow := l.all[0]
	number := func() int64 {
		return one[int64](t, l.store, fmt.Sprintf("SELECT no FROM fsm_proxy.leases WHERE holder LIKE 'process %d %%'", slow.process.Process.Pid))
	}
	was := number()
	l.data[slow].slow(30 * time.Millisecond)
	l.goesOn(10 * len(l.walkers))
	mcptest.Await(t, "the replica acts by its lease", func() bool {
		return strings.Contains(metrics(t, slow.flag("--health")), "\nfsm_proxy_lease_trusted 1\n")
	})
	if is := number(); is != was {
		t.Errorf("it had lease %d, and has %d", was, is)
	}
	l.befall(2, func(int) {
		l.data[slow].slow(300 * time.Millisecond)
		<-time.After(2 * lease) // which is the fault
		l.data[slow].slow(30 * time.Millisecond)
	})
	l.settles()
}

// The primary is gone under replicas, and its synchronous standby takes its place: nothing is lost that was told.
func TestDatabaseFailsOverUnderReplicas(t *testing.T) {
	t.Parallel()
	primary := postgres.Start(t)
	url := primary.URL("runs")
	standby := primary.Standby()
	l := loaded(t, replicate, handleAndSession, 12, primary.Or(standby, url))
	l.befall(1, func(int) {
		primary.Kill()
		<-time.After(lease / 2) // which is the fault
		standby.Promote()
	})
	l.settles()
}

// Replicas work behind a PgBouncer that lends its few connections out for a transaction each.
func TestReplicasBehindPgBouncer(t *testing.T) {
	t.Parallel()
	server := postgres.Start(t)
	pooled := server.PgBouncer(true)
	policy, whole := crossroads(t, restarts), slices.Concat(walk, lastDoor)
	for i, k := range []key{{"modern", "handle"}, {"legacy", "session"}} {
		t.Run(k.String(), func(t *testing.T) {
			t.Parallel()
			r := replicate(t, k, policy, pooled(server.URL(fmt.Sprint("runs", i))), "--upstream", crossroadsServer(t))
			r.enter(k, "").play(t, whole)
			r.end()
			asOfOne(t, k, policy, r.store)
		})
	}
	t.Run("kills", func(t *testing.T) {
		t.Parallel()
		l := loaded(t, replicate, principals, 12, pooled(server.URL("load")))
		l.befall(len(faults), func(i int) { faults[i](l.any()) })
		l.settles()
	})
}
