package policy

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/looplab/fsm"
)

// machine takes steps along the edge table on a looplab/fsm state machine. The
// table decides; the machine is the second opinion, and a disagreement between
// the two is an error.
//
// A machine of 20 states and 12 edges each costs 27 kB and 50 µs to build, so a
// policy keeps a pool of them, filled as they are needed, instead of one per run:
// the state is set before each use. It holds only edges that change the
// configuration. A terminal edge leads to a state of its own beside its target's,
// so that a state's terminal edge to itself is a transition like any other.
type machine struct{ fsm *fsm.FSM }

// machineParts is what every machine of a policy is built from.
type machineParts struct {
	initial string
	events  fsm.Events
}

// machineState is the machine's name for a state. The index makes it unique
// whatever the states are called.
func (p *Policy) machineState(s State, complete bool) string {
	st := &p.states[s]
	if complete {
		return st.machineDone
	}
	return st.machineName
}

func machineNames(s State, name string) (running, done string) {
	running = strconv.Itoa(int(s)) + ":" + name
	return running, running + "/complete"
}

// buildMachineParts lists the events of every edge that changes the
// configuration. Events are unique for each pattern, case and outcome; a pair of
// event and source is, since a state's own binding replaces everywhere's of the
// same pattern.
func (p *Policy) buildMachineParts() machineParts {
	parts := machineParts{initial: p.machineState(p.initial, false)}
	for s := range p.states {
		p.effective(State(s), func(b *binding) {
			b.each(func(_ string, e *edges) {
				parts.events = append(parts.events, p.machineEvents(State(s), e)...)
			})
		})
	}
	return parts
}

func (p *Policy) machineEvents(s State, e *edges) fsm.Events {
	var out fsm.Events
	for i, t := range e.to {
		if t.changes(s) {
			out = append(out, fsm.EventDesc{
				Name: e.event[i],
				Src:  []string{p.machineState(s, false)},
				Dst:  p.machineState(t.in(s), t.terminal),
			})
		}
	}
	return out
}

// take gets a machine from the pool, or builds one.
func (p *Policy) take() *machine {
	if m, ok := p.machines.Get().(*machine); ok {
		return m
	}
	return newMachine(p.machineParts())
}

func newMachine(parts machineParts) *machine {
	return &machine{fsm.NewFSM(parts.initial, parts.events, nil)}
}

// confirm takes the step on a machine and reports whether it arrives where the
// table says.
func (p *Policy) confirm(from State, event string, t target) error {
	m := p.take()
	defer p.machines.Put(m)
	return m.step(p.machineState(from, false), event, p.machineState(t.in(from), t.terminal))
}

// step fires event in the state from and demands that it leads to want. The
// context is never one that can be cancelled: that wedges a machine for good.
func (m *machine) step(from, event, want string) error {
	m.fsm.SetState(from)
	err := m.fsm.Event(context.Background(), event)
	var still fsm.NoTransitionError
	if err != nil && !(errors.As(err, &still) && still.Err == nil) {
		return fmt.Errorf("stepping the machine from %q: %w", from, err)
	}
	if got := m.fsm.Current(); got != want {
		return fmt.Errorf("stepping the machine from %q: it went to %q, the table says %q", from, got, want)
	}
	return nil
}
