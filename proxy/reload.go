package proxy

import (
	"github.com/fsm-proxy/fsm-proxy/internal/lock"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/catalogue"
	"github.com/fsm-proxy/fsm-proxy/proxy/runs"
)

// Reload puts a policy in force in place of the last one, as [runs.Registry.Reload] does.
func (p *Proxy) Reload(next *policy.Policy) runs.Reloaded {
	p.changing.Lock()
	defer p.changing.Unlock()
	done := p.Runs.Reload(next)
	p.lookAgain()
	return done
}

// Migrate has runs that a reload has stranded begin anew, as [runs.Registry.Migrate] does.
func (p *Proxy) Migrate() runs.Migrated {
	p.changing.Lock()
	defer p.changing.Unlock()
	return p.Runs.Migrate()
}

// SetMode puts a mode in force for every run, and reports whether it was another
// one, as [runs.Registry.SetMode] does. Clients are told of the lists whose shown bytes
// changed. It is safe to call at any time.
func (p *Proxy) SetMode(m runs.Mode) bool {
	p.changing.Lock()
	defer p.changing.Unlock()
	other := p.Runs.SetMode(m)
	if other {
		p.lists.Forget()
	}
	return other
}

// SetLock puts a lock in force, and reports whether it holds tools to other
// definitions than the last one. It is compared with what the upstream lists
// already; clients are told of the lists whose shown bytes changed. Nil is no lock:
// then a policy with `pin: refuse` refuses every tool. It is safe to call at any
// time.
func (p *Proxy) SetLock(l *lock.Lock) bool {
	p.changing.Lock()
	defer p.changing.Unlock()
	was := p.lists.Pins.Load()
	if was.Same(l) {
		return false
	}
	p.lists.Pins.Store(catalogue.NewPins(l))
	for _, s := range p.open() {
		s.shown.Repinned(was)
	}
	p.lookAgain()
	return true
}

// lookAgain has what was made of lists forgotten, and looks at those at hand anew.
func (p *Proxy) lookAgain() {
	p.lists.Forget()
	for _, s := range p.open() {
		s.shown.FoundAgain()
	}
}
