package tasks

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// ended is a call that counts what it is told of its task's end.
type ended []policy.Outcome

func (e *ended) Ended(_ *Task, end run.End, _ func(run.Shifts)) { *e = append(*e, end.Outcome) }

// begun is a task of a call, by an id.
func begun(id string, by Call) *Task {
	t := New([]byte(`{"taskId":"`+id+`"}`), &bridge.Upstream{}, wire.Principal{}, bridge.Introduction{}, time.Second)
	t.Call = by
	return t
}

func TestPollInterval(t *testing.T) {
	for state, want := range map[string]time.Duration{
		`{}`:                                    defaultPoll,
		`{"pollInterval":2000}`:                 2 * time.Second,
		`{"pollIntervalMs":2000}`:               2 * time.Second,
		`{"pollInterval":-1}`:                   minPoll,
		`{"pollInterval":1e300}`:                maxPoll,
		`{"pollInterval":"2000"}`:               defaultPoll,
		`{"ttl":null,"pollInterval":2000}`:      2 * time.Second,
		`{"pollIntervalMs":30000,"ttlMs":6000}`: 3 * time.Second,
		`{"ttl":0}`:                             minPoll,
	} {
		if got := pollInterval([]byte(state)); got != want {
			t.Errorf("%s: every %v, not %v", state, got, want)
		}
	}
}

// Who comes second finds the end taken, and learns of nothing that changed.
func TestATaskEndsOnce(t *testing.T) {
	var by ended
	task, told := begun("1", &by), run.Shifts{{To: run.Snapshot{Runless: true}}}
	tell := func(moved run.Shifts) { told = moved }
	task.End(run.End{Outcome: policy.Error}, nil)
	task.End(run.End{Outcome: policy.Success}, tell)
	if len(by) != 1 || by[0] != policy.Error || told != (run.Shifts{}) {
		t.Errorf("ended %v, told %v", by, told)
	}
}

func TestTable(t *testing.T) {
	var by ended
	var table Table
	holds := func() bool { return true }
	first, second := begun("1", &by), begun("1", &by)
	_ = table.Enter(first, nil, holds)
	find := func(conn *bridge.Upstream) *Task {
		return table.Of("1", wire.Principal{}, bridge.Client{}, conn)
	}
	if find(nil) != first {
		t.Error("the only one of an id is not found")
	}
	_ = table.Enter(second, first, func() bool { return false })
	if find(nil) != nil || find(first.Conn) != first || find(second.Conn) != second {
		t.Error("two of an id are told apart by their connections alone")
	}
	hides := begun("1", &by)
	hides.Conn = first.Conn
	if err := table.Enter(hides, first, holds); err != ErrTwice || table.On(first.Conn, "1") != first {
		t.Error("the task that has the turn is hidden")
	}
	for range maxTasks {
		_ = table.Enter(begun("2", &by), first, func() bool { return false })
	}
	if table.On(first.Conn, "1") != first || table.On(second.Conn, "1") != nil {
		t.Error("of too many the one that has the turn is kept, and no other")
	}
	table.End(false)
	if len(by) != 1 || table.On(first.Conn, "1") != nil {
		t.Errorf("ended %v: what has no turn is waived", by)
	}
}

func TestIndex(t *testing.T) {
	var index Index[*int]
	one, two, mine := new(int), new(int), wire.Principal{Subject: "ann"}
	task := begun("1", nil)
	task.Owner = mine
	index.Enter(task, one)
	index.Enter(task, one)
	if index.Find("1", mine) != one || index.Find("1", wire.Principal{}) != nil {
		t.Error("it is found by its owner alone")
	}
	index.Enter(task, two)
	if index.Find("1", mine) != nil {
		t.Error("of two runs with a task of an id one is found")
	}
	index.Enter(begun("2", nil), two)
	index.Forget(two)
	if index.Find("2", wire.Principal{}) != nil {
		t.Error("the run's tasks are not forgotten")
	}
}

// A table whose run goes on keeps the tasks that go on, and the one that is awaited; one whose run is over ends all.
func TestTableGoesOn(t *testing.T) {
	var by ended
	var table Table
	kept, other, awaited := begun("1", &by), begun("2", &by), begun("3", &by)
	kept.kept.Store(true)
	for _, task := range []*Task{kept, other} {
		_ = table.Enter(task, nil, func() bool { return true })
	}
	table.Await(awaited)
	table.End(true)
	if len(by) != 1 || !other.isOver() || table.On(kept.Conn, "1") != kept || table.Coming("3", awaited.Owner) != awaited || !table.Running() {
		t.Errorf("%d have ended, %v", len(by), table.all)
	}
	table.End(false)
	if len(by) != 3 || !kept.isOver() || !awaited.isOver() {
		t.Errorf("%d have ended", len(by))
	}
	if table.Came(false); table.Running() {
		t.Error("one runs on")
	}
}

// A server that is not there is waited for as long as its task may take; one that cannot be asked is not.
func TestServerThatIsAway(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		after time.Duration // the task is given up
	}{
		"not there":          {&wire.CallError{RetryAfter: time.Second, Err: errors.New("connection refused")}, time.Hour},
		"no server of tasks": {errors.New("it does not speak the protocol"), maxMissed * minPoll},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithTimeout(t.Context(), time.Hour)
				defer stop()
				var by ended
				since := time.Now()
				task := (&Kept{ID: "1", Began: since}).Task(&by, "apply", time.Second)
				task.GoOn(ctx, bridge.Client{}, func() (*bridge.Upstream, error) { return nil, c.err }, func() { t.Error("it is known") })
				if took := time.Since(since); took != c.after || len(by) != 1 || by[0] != policy.Unknown {
					t.Errorf("after %v: %v", took, by)
				}
			})
		})
	}
}

// Where the run goes on elsewhere, nobody here says what became of a task that is kept, also once its connection has ended with that.
func TestTasksThatGoOnElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kept, coming, other ended
		var table Table
		here, back, lost := begun("1", &kept), (&Kept{ID: "2"}).Task(&coming, "slow", time.Second), begun("3", &other)
		here.kept.Store(true)
		for _, task := range []*Task{here, lost} {
			if err := table.Enter(task, nil, func() bool { return true }); err != nil {
				t.Fatal(err)
			}
		}
		table.Await(back)
		watched := make(chan bool)
		go func() { watched <- here.pause(t.Context(), nil) }()
		synctest.Wait()
		table.Leave()
		table.Leave() // as where its lease is lost while it is given away
		if <-watched {
			t.Error("it is asked about on")
		}
		closed := make(chan struct{})
		close(closed)
		for _, task := range []*Task{here, back, lost} {
			if task.Lost(t.Context()); task.pause(t.Context(), closed) {
				t.Error("it is asked about though its connection has ended")
			}
		}
		if len(kept)+len(coming) != 0 || len(other) != 1 || other[0] != policy.Unknown {
			t.Errorf("ended %v, %v, %v", kept, coming, other)
		}
	})
}
