// Package settings is what a proxy works with.
package settings

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/fsm-proxy/fsm-proxy/internal/bridge"
	"github.com/fsm-proxy/fsm-proxy/internal/handle"
	"github.com/fsm-proxy/fsm-proxy/internal/lock"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/policy/guard"
	"github.com/fsm-proxy/fsm-proxy/proxy/durable"
	"github.com/fsm-proxy/fsm-proxy/proxy/observe"
	"github.com/fsm-proxy/fsm-proxy/proxy/refusal"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
	"github.com/fsm-proxy/fsm-proxy/proxy/surface"
	"github.com/fsm-proxy/fsm-proxy/proxy/tasks"
)

// Config is what a Proxy works with. Policy, Dial and Notifier are required.
type Config struct {
	// Policy is the automaton in force, until a a reload.
	Policy *policy.Policy
	// Lock holds tools to their definitions where the policy's pin says so, until a
	// another is put in force. Nil: no tool is what was locked.
	Lock *lock.Lock
	// Dial opens a connection.
	Dial func(ctx context.Context, with bridge.Opening, r wire.Receiver) (bridge.Conn, error)
	// Notifier makes a session's Notifier; send is as for notify.New.
	Notifier func(send func(bits uint8) bool) surface.Notifier
	// Version is the proxy's own, for a shared upstream to know.
	Version string
	// Share makes all sessions use one upstream connection.
	Share bool
	// Streams tells that an upstream's requests arrive on the stream of the
	// call they belong to (HTTP). Without it a shared upstream may ask nothing.
	Streams bool

	Protocol bridge.Protocol  // how clients can speak
	Mode     runs.Mode        // whether the policy is enforced, until a another is put in force
	Surface  surface.Surface  // what clients are shown
	Annotate surface.Annotate // what is added to results
	Refusals refusal.Form     // the form of refusals
	NoHint   bool             // no sentence on changing tools in the instructions

	ApprovalHold   time.Duration // waiting for an approval; 0: 45s
	TurnTimeout    time.Duration // waiting for the run's turn; 0: 1m
	CallTimeout    time.Duration // from sending to the answer; 0: 5m
	AskTimeout     time.Duration // for a client to answer what the upstream asks; 0: 10m
	TaskTimeout    time.Duration // from a task's beginning to giving it up; 0: 1h
	CancelGrace    time.Duration // from a cancel to giving the call up; 0: 5s
	EndGrace       time.Duration // the same for calls that a session leaves behind; 0: CancelGrace
	ConnectTimeout time.Duration // for a connection to come up; 0: 30s
	MaxStranded    time.Duration // for a run whose state a reload took; 0: 24h
	RestartRun     bool          // a lost upstream begins the run anew

	// Keys are how requests find their run, by [bridge.Client.Index].
	Keys                [2]runs.Key
	HandleArgument      string        // of the key handle: what the argument is called; "": fsm_run
	PathCreate          bool          // an unknown id in the path begins a run, if nobody can guess it
	RunIdle             time.Duration // until a run that nobody uses expires; 0: 24h
	RunAge              time.Duration // until a run expires; 0: 720h
	MaxRuns             int           // that are found by a key; 0: 10,000
	MaxRunsPerPrincipal int           // of those; 0: 1,000

	// Store is where runs are kept; nil: nowhere. They are read by [runs.Registry.Resume], and as they are asked for.
	Store    *durable.Store
	Process  string // what the run of the process is called there
	Forgets  bool   // what is wrapped has forgotten a run that is read from there: it begins anew
	Outlives bool   // what is wrapped goes on when the proxy ends, and with it its tasks
	IdleEnds bool   // there too a run expires that nobody uses

	KeepEnded time.Duration // how long a run is kept there that has ended; 0: for ever
	KeepIdle  time.Duration // how long one is kept there that nobody uses; 0: for ever

	SessionIdle time.Duration // how long a session that is kept there waits for its client to come back; 0: for ever

	MaxInFlight      int // requests of a session at once; 0: 256
	MaxQueue         int // calls waiting for a run's turn; 0: 64
	MaxRegisters     int // bytes that the registers of a run may hold; 0: 256 KiB
	MaxSubscriptions int // of a session; 0: 1000

	Log   hclog.Logger    // nil: none
	Terse bool            // the log tells of faults of guards their reasons alone: see [Config.Fault]
	Asked func(id string) // is told of each approval that is wanted, and does not block; nil: nobody is
	// Telemetry is who is told what happens; zero: nobody.
	Telemetry observe.Telemetry
	// Journal is where what calls make of their runs is recorded; nil: in the audit.
	Journal observe.Journal
}

// Fault is what the log tells of why a condition could not be evaluated. More than the reason may quote arguments.
func (c *Config) Fault(why error) string {
	if fault, _ := errors.AsType[*guard.Error](why); fault != nil && c.Terse {
		return fault.Reason.String()
	}
	return why.Error()
}

// Complete says what is missing, and fills in what is not given.
func (c *Config) Complete() error {
	if c.Policy == nil || c.Dial == nil || c.Notifier == nil {
		return errors.New("a proxy needs a policy, a way to dial and a notifier")
	}
	orDefault(&c.ApprovalHold, 45*time.Second)
	orDefault(&c.TurnTimeout, time.Minute)
	orDefault(&c.CallTimeout, 5*time.Minute)
	orDefault(&c.AskTimeout, 10*time.Minute)
	orDefault(&c.TaskTimeout, time.Hour)
	orDefault(&c.CancelGrace, 5*time.Second)
	orDefault(&c.EndGrace, c.CancelGrace)
	orDefault(&c.ConnectTimeout, 30*time.Second)
	orDefault(&c.MaxStranded, 24*time.Hour)
	if c.HandleArgument == "" {
		c.HandleArgument = handle.DefaultArgument
	}
	if err := handle.ValidArgument(c.HandleArgument); err != nil {
		return fmt.Errorf("naming the argument for handles: %w", err)
	}
	orDefault(&c.RunIdle, 24*time.Hour)
	if c.Store == nil {
		orDefault(&c.RunAge, 30*24*time.Hour)
	}
	orDefault(&c.MaxRuns, 10_000)
	orDefault(&c.MaxRunsPerPrincipal, 1000)
	orDefault(&c.MaxInFlight, 256)
	orDefault(&c.MaxQueue, 64)
	orDefault(&c.MaxSubscriptions, 1000)
	if c.Log == nil {
		c.Log = hclog.NewNullLogger()
	}
	if c.Journal == nil && c.Telemetry.Auditor != nil {
		c.Journal = c.Telemetry.Auditor
	}
	return nil
}

func orDefault[T int | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}

// HelloError is an upstream's refusal of initialize, as [Config.Dial] tells it.
type HelloError struct {
	// Answer is what the upstream said: a Failure.
	Answer *wire.Message
}

// Error has the upstream's own error object.
func (e *HelloError) Error() string {
	return "the upstream refused initialize: " + string(e.Answer.Bytes(e.Answer.Error))
}

// Runs is what of it the runs work with. goOn asks about a task that outlives the proxy: see [runs.Tasks].
func (c *Config) Runs(goOn func(t *tasks.Task, k *tasks.Kept, until time.Time, known func())) runs.Config {
	var lasting *runs.Tasks
	if c.Outlives {
		lasting = &runs.Tasks{Timeout: c.TaskTimeout, Patience: c.CallTimeout, GoOn: goOn}
	}
	return runs.Config{
		Policy: c.Policy, Mode: c.Mode, MaxStranded: c.MaxStranded, MaxRegisters: c.MaxRegisters, Keys: c.Keys, PathCreate: c.PathCreate,
		Idle: c.RunIdle, Age: c.RunAge, Max: c.MaxRuns, MaxPerPrincipal: c.MaxRunsPerPrincipal,
		Store: c.Store, Process: c.Process, IdleEnds: c.IdleEnds, KeepEnded: c.KeepEnded, KeepIdle: c.KeepIdle, SessionIdle: c.SessionIdle,
		Forgets: c.Forgets, Tasks: lasting, Log: c.Log, Telemetry: &c.Telemetry,
	}
}
