package run

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fsm-proxy/fsm-proxy/policy"
)

// Origin is the entry of a run that another one was forked at.
type Origin struct {
	Run string
	Seq uint64
}

// Sent is a call of which a fork does not know, or not how it ended: it has happened all the same.
type Sent struct {
	Seq     uint64 // of the entry that tells of its end, or where it has none of its beginning
	Begun   uint64 // of the entry by which it began; 0: it has none
	Symbol  policy.Symbol
	Outcome string // "": it is under way

	Irreversible bool
}

// Past is what a run was after one of its entries, and what it has sent that was not over by then. It is made of the run's
// entries: see [Past.Add].
type Past struct {
	of     Origin
	shared *Shared
	fold   *fold     // of the entries up to that one; nil: they are not all there
	time   time.Time // of that one
	ended  []Sent    // after it, the first maxSent of them
	more   int       // how many there are beside
	final  *Sent     // the first that is irreversible; nil: none is
	open   map[uint64]Sent
}

// maxSent is how many calls are told of one by one.
const maxSent = 1000

// NewPast returns a past without entries, of a run at one of its entries.
func NewPast(of Origin, s *Shared) *Past {
	return &Past{of: of, shared: s.withDefaults(), open: map[uint64]Sent{}}
}

// Add takes the next entry of the run, which has its number. The first is the run's first, or a [Checkpoint] before the
// one that is forked at; what comes before such a checkpoint is passed over.
func (p *Past) Add(e *Entry) {
	switch {
	case e.Seq > p.of.Seq:
		p.follow(e)
		return
	case e.remembers() && e.told != nil:
		p.fold = e.told.clone(p.shared)
		p.fold.seq = e.Seq - 1
	case e.Seq == 1:
		p.fold = foldFrom(&Config{Policy: e.To.Policy, Shared: p.shared}, e.Time)
	case p.fold == nil:
		return
	}
	p.fold.add(e, p.shared)
	if p.time = e.Time; e.Seq == p.of.Seq {
		for seq, b := range p.fold.open {
			p.open[seq] = sentBy(&b.Entry)
		}
	}
}

// sentBy is a call by the entry that tells that it was sent, or is about to be.
func sentBy(e *Entry) Sent {
	s := Sent{Seq: e.Seq, Irreversible: e.Irreversible}
	if e.Call != nil {
		s.Symbol = e.Call.Verdict.Symbol
	}
	if e.Type == Begun {
		s.Begun = e.Seq
	}
	return s
}

// follow notes what an entry behind the one that is forked at tells of calls.
func (p *Past) follow(e *Entry) {
	s, begun := p.open[e.Begun]
	switch {
	case e.Call == nil || e.Call.Kind == policy.Signal: // which is sent nowhere
		return
	case e.Type == Begun:
		p.open[e.Seq] = sentBy(e)
		return
	case e.Type == Unsent:
		delete(p.open, e.Begun)
		return
	case e.Type != Ended && e.Type != Stayed:
		return
	case !begun:
		s = sentBy(e)
	}
	delete(p.open, e.Begun)
	if s.Seq = e.Seq; e.Said != nil {
		s.Outcome = e.Said.named
	}
	if s.Irreversible && p.final == nil {
		p.final = &s
	}
	if len(p.ended) == maxSent {
		p.more++
		return
	}
	p.ended = append(p.ended, s)
}

// Since are the calls that were sent and were not over after the entry, in the order of their entries, as many as are told
// one by one, and how many more there are.
func (p *Past) Since() (sent []Sent, more int) {
	sent = append(slices.Clone(p.ended), slices.Collect(maps.Values(p.open))...)
	slices.SortFunc(sent, func(a, b Sent) int { return cmp.Compare(a.Seq, b.Seq) })
	if over := len(sent) - maxSent; over > 0 {
		return sent[:maxSent], p.more + over
	}
	return sent, p.more
}

// ErrCut is for an entry of which it cannot be told what the run was after it.
var ErrCut = errors.New("what the run was after this entry is kept no more")

// Irreversible is the error of a fork that would go back behind a call that cannot be undone.
type Irreversible struct{ Sent }

func (e *Irreversible) Error() string {
	outcome := e.Outcome
	if outcome == "" {
		outcome = "under way"
	}
	return fmt.Sprintf("entry %d tells of the call of %s %q, which is irreversible (%s)", e.Seq, e.Symbol.Kind, e.Symbol.Name, outcome)
}

// Check says why there can be no fork, once all entries are added: an [ErrCut], or an [Irreversible].
func (p *Past) Check() error {
	if p.fold == nil || p.fold.seq != p.of.Seq {
		return ErrCut
	}
	if p.final != nil {
		return &Irreversible{*p.final}
	}
	for _, seq := range slices.Sorted(maps.Keys(p.open)) {
		if s := p.open[seq]; s.Irreversible {
			return &Irreversible{s}
		}
	}
	return nil
}

// Policy is the run's own after the entry. It may be called where [Past.Check] has nothing to say.
func (p *Past) Policy() *policy.Policy { return p.fold.stands.Policy }

// Fork returns a run that lasts, and that is now what the other one was after the entry: in its state, with its registers
// and counts, and with clocks that have run as long as they had then. Calls that were under way are none of its, and no
// answer to an approval holds in it. The policy in force takes it as it takes a run that was read. It may be called where
// [Past.Check] has nothing to say, and once.
func (p *Past) Fork(c Config, now time.Time) Run {
	c.Shared, c.Lasts = c.Shared.withDefaults(), true
	f := p.fold
	f.seq, f.moved, f.since, f.finished, f.open = 0, 0, 0, false, nil
	f.later(max(now.Sub(p.time), 0))
	f.answers = answers{visit: visit{policy: f.stands.Policy, next: f.stands.Policy, at: f.stands.At}}
	r := Run{Config: c, stands: f.stands, memory: f.clone(c.Shared).memory, life: 1, ahead: &ahead{}}
	if c.Checkpoint > 0 {
		r.ahead.fold = f
	}
	r.record(Entry{Type: Forked, Time: now, told: f.clone(c.Shared), Details: Details{Remark: c.By, Origin: &p.of}})
	r.notBefore(now)
	r.catchUp(now)
	return r
}

// later has the clocks of the fold go on from where they are after a time.
func (f *fold) later(by time.Duration) {
	if !f.stands.Stranded.IsZero() {
		f.stands.Stranded = f.stands.Stranded.Add(by)
	}
	if f.memory != nil {
		f.memory.began, f.memory.entered = f.memory.began.Add(by), f.memory.entered.Add(by)
	}
}
