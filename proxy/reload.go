package proxy

import (
	"time"

	"github.com/fsm-proxy/fsm-proxy/internal/lock"
	"github.com/fsm-proxy/fsm-proxy/internal/wire"
	"github.com/fsm-proxy/fsm-proxy/policy"
	"github.com/fsm-proxy/fsm-proxy/proxy/catalogue"
	"github.com/fsm-proxy/fsm-proxy/proxy/run"
)

// Reloaded says what a reload did to the runs there are.
type Reloaded struct {
	Runs      int // that there are
	Moved     int // to the new policy, in the state of the same or the new name
	Pinned    int // that stay on the policy they began with, as the new one wants
	Waiting   int // that move when the call that holds their turn has ended
	Stranded  int // whose state is gone: kept
	Restarted int // whose state is gone: begun anew
	Refused   int // whose state is gone: refused from now on
}

// Reload puts a policy in force in place of the last one, whole, for every run.
// A call in flight is stepped by the policy that decided it; every call decided
// from now on is decided by the new one, or, where its run is left behind, by
// both. Clients are told of the lists whose shown bytes changed.
func (p *Proxy) Reload(next *policy.Policy) Reloaded {
	p.reloading.Lock()
	defer p.reloading.Unlock()
	p.mu.Lock()
	p.policy.Store(next) // which new runs begin with
	runs := p.runsLocked()
	p.mu.Unlock()
	var done Reloaded
	for _, r := range runs {
		var fate run.Fate
		moved := r.does(func(core *run.Run, now time.Time) (e run.Effects) { fate, e = core.Reload(next, now); return e })
		if !r.aside {
			done.add(fate)
		}
		r.tell(nil, moved)
	}
	p.lists.Forget()
	p.noticeAgain(p.open())
	return done
}

func (d *Reloaded) add(f run.Fate) {
	d.Runs++
	switch f {
	case run.WasMoved:
		d.Moved++
	case run.WasPinned:
		d.Pinned++
	case run.WaitsForTurn:
		d.Waiting++
	case run.WasStranded:
		d.Stranded++
	case run.WasRestarted:
		d.Restarted++
	case run.WasRefused:
		d.Refused++
	}
}

// Mode is the mode in force.
func (p *Proxy) Mode() Mode {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mode
}

// beginning is where new runs begin.
func (p *Proxy) beginning() run.Snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	return run.Snapshot{Policy: p.Policy(), At: p.Policy().Initial(), Shadow: p.mode == Shadow}
}

// SetMode puts a mode in force for every run, and reports whether it was another
// one. A call under way ends by the mode in which it was decided; one that waits
// for its run's turn is decided anew, and in shadow waits no longer. Clients are
// told of the lists whose shown bytes changed. It is safe to call at any time.
func (p *Proxy) SetMode(m Mode) bool {
	p.reloading.Lock()
	defer p.reloading.Unlock()
	p.mu.Lock()
	runs, other := p.runsLocked(), p.mode != m
	p.mode = m // which new runs begin with
	p.mu.Unlock()
	if !other {
		return false
	}
	p.sayMode(m)
	for _, r := range runs {
		moved := r.does(func(core *run.Run, now time.Time) run.Effects {
			r.shadow.Store(m == Shadow)
			return core.SetShadow(m == Shadow, now)
		})
		r.tell(nil, moved)
	}
	p.lists.Forget()
	return true
}

func (p *Proxy) sayMode(m Mode) {
	if m == Shadow {
		p.cfg.Log.Warn("the policy is not enforced: in shadow nothing is refused, and what would have been is logged", "mode", m.String())
		return
	}
	p.cfg.Log.Info("the policy is enforced", "mode", m.String())
}

// SetLock puts a lock in force, and reports whether it holds tools to other
// definitions than the last one. It is compared with what the upstream lists
// already; clients are told of the lists whose shown bytes changed. Nil is no lock:
// then a policy with `pin: refuse` refuses every tool. It is safe to call at any
// time.
func (p *Proxy) SetLock(l *lock.Lock) bool {
	p.reloading.Lock()
	defer p.reloading.Unlock()
	was := p.pins.Load()
	if was.Same(l) {
		return false
	}
	p.pins.Store(catalogue.NewPins(l))
	for _, s := range p.open() {
		now := s.look(s.run.where(), s.static())
		before := now
		before.Pins = was
		s.changed.Mark(s.differ(before, now))
	}
	p.lists.Forget()
	p.noticeAgain(p.open())
	return true
}

// notice logs what is new in a list that has come from the upstream.
func (p *Proxy) notice(v catalogue.View) {
	var argument *catalogue.Argument
	if p.handles != nil {
		argument = p.handles.Argument
	}
	now := p.Policy()
	differences, findings := p.lists.Notice(v, now, p.pins.Load(), argument)
	for _, d := range differences {
		p.tellDrift(now, d)
	}
	for _, f := range findings {
		if f.Level == policy.LevelNote {
			p.cfg.Log.Info("policy: " + f.String())
		} else {
			p.cfg.Log.Warn("policy: " + f.String())
		}
	}
}

func (p *Proxy) tellDrift(now *policy.Policy, d catalogue.Difference) {
	p.cfg.Telemetry.DefinitionChanged(d.Change)
	if d.Change == lock.Unlisted { // of which the findings tell
		return
	}
	does := "nothing is done about it"
	if now.Pin() == policy.PinRefuse {
		does = "the tool is hidden and refused"
	}
	p.cfg.Log.Warn("a tool is not what was locked: "+lock.Changes{d.Change}.Sentence()+"; "+does+
		"; look at it, and then run 'fsm-proxy lock'", "tool", wire.Clip(d.Tool), "change", d.Change.String())
}

// noticeAgain looks at what is cached already, with a new policy or a new lock.
func (p *Proxy) noticeAgain(sessions []*session) {
	if p.Policy().Pin() == policy.PinOff {
		return
	}
	for _, s := range sessions {
		if conn := s.link.Live(); conn != nil {
			if l := conn.Cached(wire.Tools); l != nil {
				p.notice(catalogue.View{List: l})
			}
		}
	}
}
