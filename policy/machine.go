package policy

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/looplab/fsm"
)

// enterMachines prepares the pool of looplab/fsm machines that take the steps which
// leave a configuration. The table lists and decides; where such a step arrives is the
// machine's answer.
//
// A machine of 20 states and 12 edges each costs 116 kB and 0.15 ms to build, so runs
// share the policy's, one for each step at the same time: the state is set before each
// use. A terminal edge leads to a state of its own beside its target's, so that a
// state's terminal edge to itself is a transition like any other.
func (p *Policy) enterMachines() {
	p.arrivals = make(map[string]Target, 2*len(p.states))
	for s := range p.states {
		st := &p.states[s]
		st.running = strconv.Itoa(s) + ":" + st.Name // unique, whatever the states are called
		st.completed = st.running + "/complete"
		p.arrivals[st.running] = Target{State: State(s)}
		p.arrivals[st.completed] = Target{State: State(s), Terminal: true}
	}
	events := sync.OnceValue(p.events)
	p.machines.New = func() any { return fsm.NewFSM(p.states[p.initial].running, events(), nil) }
}

// events lists a transition for every edge that changes the configuration. The name of
// an event is unique for each pattern, case and outcome; a pair of event and source is,
// since a state's own binding replaces everywhere's of the same pattern.
func (p *Policy) events() fsm.Events {
	var out fsm.Events
	for s := range p.states {
		for b := range p.Effective(State(s)) {
			for i := range b.Cases {
				for _, e := range b.Cases[i].edges {
					if e.Changes(State(s)) {
						out = append(out, fsm.EventDesc{Name: e.event, Src: []string{p.states[s].running}, Dst: p.machineState(e.Target, State(s))})
					}
				}
			}
		}
	}
	return out
}

// machineState returns the machine's name for where a target leads from s.
func (p *Policy) machineState(t Target, s State) string {
	st := &p.states[t.In(s)]
	if t.Terminal {
		return st.completed
	}
	return st.running
}

// fire fires an event on a machine that is in state s, and returns where it arrives.
// The context is never one that can be cancelled: that wedges a machine for good.
func (p *Policy) fire(s State, event string) (Target, error) {
	m := p.machines.Get().(*fsm.FSM)
	defer p.machines.Put(m)
	m.SetState(p.states[s].running)
	if err := m.Event(context.Background(), event); err != nil {
		return Target{}, fmt.Errorf("stepping the machine from state %q: %w", p.states[s].Name, err)
	}
	return p.arrivals[m.Current()], nil
}
